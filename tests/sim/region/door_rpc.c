/* What the gateway stands on: net/loop.h's clock and timers in virtual time, and rpc/server.h's
 * functions on connections of the simulated network. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/error.h"
#include "door.h"
#include "gateway/internal.h"

/* --- The loop --- */

static void fire_timers(void *ctx)
{
    struct fl_loop *loop = ctx;
    struct fl_heap_node *first;

    while ((first = fl_heap_first(&loop->timers)) != NULL &&
           first->key <= place_now_ms(loop->place)) {
        struct fl_timer *timer = FL_CONTAINER_OF(first, struct fl_timer, node);

        fl_heap_remove(&loop->timers, first);
        timer->fire(timer, place_now_ms(loop->place));
        if (!loop->place->is_up)
            return;
    }
    if (first != NULL)
        alarm_set(&loop->alarm, first->key);
}

void door__loop_init(struct fl_loop *loop, struct place *place)
{
    *loop = (struct fl_loop){.place = place, .timers = FL_HEAP_INIT};
    alarm_init(&loop->alarm, place, fire_timers, loop);
}

void door__loop_deinit(struct fl_loop *loop)
{
    alarm_set(&loop->alarm, UINT64_MAX);
    fl_heap_deinit(&loop->timers);
}

uint64_t fl_loop_now_ms(struct fl_loop *loop)
{
    return place_now_ms(loop->place);
}

uint64_t fl_loop_update_now_ms(struct fl_loop *loop)
{
    return place_now_ms(loop->place);
}

int fl_timer_set(struct fl_loop *loop, struct fl_timer *timer, uint64_t at_ms)
{
    fl_heap_set(&loop->timers, &timer->node, at_ms);
    alarm_set(&loop->alarm, fl_heap_first(&loop->timers)->key);
    return FL_OK;
}

void fl_timer_clear(struct fl_loop *loop, struct fl_timer *timer)
{
    fl_heap_remove(&loop->timers, &timer->node);
}

/* --- The server --- */

struct fl_rpc_server {
    struct fl_loop *loop;
    const struct fl_rpc_method *methods;
    size_t n_methods;
    struct fl_list calls;
    uint64_t last_id;
};

struct fl_rpc_call {
    struct fl_rpc_server *server;
    struct fl_list in_server;
    uint64_t id;
    const struct fl_rpc_method *method;
    void *data;
    struct conn *conn; /* NULL: broken */
    bool is_finished, is_paused;
    struct fl_buf held; /* what came while it was paused: a word, a length, the bytes */
};

uint8_t *fl_rpc_message_new(size_t size)
{
    return fl_xalloc(size + 1);
}

void fl_rpc_message_free(uint8_t *message)
{
    free(message);
}

static struct place *place_of(const struct fl_rpc_call *call)
{
    return call->server->loop->place;
}

static void call_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    if (call->conn != NULL)
        conn_close(call->conn, place_of(call));
    call->conn = NULL;
    call->method->handler->on_gone(call, why);
    fl_list_remove(&call->in_server);
    fl_buf_deinit(&call->held);
    free(call);
}

static void take_word(struct fl_rpc_call *call, uint8_t word, const uint8_t *data, size_t len)
{
    const struct fl_rpc_handler *handler = call->method->handler;

    if (call->is_finished)
        return;
    if (word == DOOR_MESSAGE)
        handler->on_message(call, data, len);
    else if (word == DOOR_HALF_CLOSE && handler->on_half_close != NULL)
        handler->on_half_close(call);
}

static void hear_caller(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct fl_rpc_call *call = ctx;
    const uint8_t *bytes = data;

    (void)conn;
    if (data == NULL) {
        call->conn = NULL;
        call_gone(call, call->is_finished ? FL_RPC_GONE_DONE : FL_RPC_GONE_CANCELLED);
    } else if (call->is_paused) {
        fl_buf_put_u8(&call->held, bytes[0]);
        fl_buf_put_u32(&call->held, (uint32_t)len - 1);
        fl_buf_put(&call->held, bytes + 1, len - 1);
    } else {
        take_word(call, bytes[0], bytes + 1, len - 1);
    }
}

/* The first word of a connection: which method. */
static void hear_newcomer(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct door *door = ctx;
    struct fl_rpc_server *server = door->gateway->server;
    const char *path = (const char *)data + 1;
    struct fl_rpc_call *call;

    (void)len;
    if (data == NULL)
        return;
    call = fl_xcalloc(1, sizeof *call);
    call->server = server;
    call->id = ++server->last_id;
    call->conn = conn;
    for (size_t i = 0; i < server->n_methods; i++)
        if (strcmp(server->methods[i].path, path) == 0)
            call->method = &server->methods[i];
    FL_REQUIRE(call->method != NULL);
    fl_list_append(&server->calls, &call->in_server);
    conn_set_hearer(conn, &door->place, hear_caller, call);
    if (call->method->handler->on_open != NULL)
        call->method->handler->on_open(call);
}

int fl_rpc_server_new(struct fl_loop *loop, const struct fl_rpc_server_config *config,
                      const struct fl_rpc_method *methods, size_t n_methods,
                      struct fl_rpc_server **ret_server, char *why)
{
    struct fl_rpc_server *server = fl_xcalloc(1, sizeof *server);

    (void)config;
    (void)why;
    server->loop = loop;
    server->methods = methods;
    server->n_methods = n_methods;
    fl_list_init(&server->calls);
    *ret_server = server;
    return FL_OK;
}

unsigned fl_rpc_server_port(const struct fl_rpc_server *server)
{
    (void)server;
    return 1;
}

void fl_rpc_server_set_serving(struct fl_rpc_server *server, const char *service, bool is_serving)
{
    (void)server;
    (void)service;
    (void)is_serving;
}

void fl_rpc_server_drain(struct fl_rpc_server *server, unsigned grace_ms, void (*done)(void *ctx),
                         void *ctx)
{
    (void)server;
    (void)grace_ms;
    done(ctx);
}

void fl_rpc_server_free(struct fl_rpc_server *server)
{
    for (struct fl_list *at; (at = fl_list_first(&server->calls)) != NULL;)
        call_gone(FL_CONTAINER_OF(at, struct fl_rpc_call, in_server), FL_RPC_GONE_LOST);
    free(server);
}

void fl_rpc_server_stats(const struct fl_rpc_server *server, struct fl_rpc_server_stats *ret_stats)
{
    (void)server;
    *ret_stats = (struct fl_rpc_server_stats){0};
}

void *fl_rpc_call_method_ctx(const struct fl_rpc_call *call)
{
    return call->method->ctx;
}

void fl_rpc_call_set_data(struct fl_rpc_call *call, void *data)
{
    call->data = data;
}

void *fl_rpc_call_data(const struct fl_rpc_call *call)
{
    return call->data;
}

const char *fl_rpc_call_peer(const struct fl_rpc_call *call)
{
    (void)call;
    return "192.0.2.1:5000";
}

bool fl_rpc_call_send(struct fl_rpc_call *call, uint8_t *message, size_t len)
{
    if (call->conn != NULL && !call->is_finished)
        door_say(call->conn, place_of(call), DOOR_MESSAGE, message, len);
    free(message);
    return true;
}

size_t fl_rpc_call_queued(const struct fl_rpc_call *call)
{
    (void)call;
    return 0;
}

/* --- After the turn: a call may have gone meanwhile, so it is known by its number --- */

static struct fl_rpc_call *find_call(struct door *door, uint64_t id)
{
    if (door->gateway == NULL)
        return NULL;
    FL_LIST_EACH(at, &door->gateway->server->calls)
    {
        struct fl_rpc_call *call = FL_CONTAINER_OF(at, struct fl_rpc_call, in_server);

        if (call->id == id)
            return call;
    }
    return NULL;
}

static void after_turn(struct fl_rpc_call *call, timeline_fn fn)
{
    struct door *door = FL_CONTAINER_OF(call->server->loop, struct door, loop);

    timeline_at(door->place.time, door->place.time->now_us, fn, door, call->id, &door->place.life,
                sizeof door->place.life);
}

static struct fl_rpc_call *call_of_turn(void *ctx, uint64_t id, const void *data)
{
    struct door *door = ctx;

    return *(const uint64_t *)data == door->place.life ? find_call(door, id) : NULL;
}

static void on_finished(void *ctx, uint64_t id, const void *data, size_t len)
{
    struct fl_rpc_call *call = call_of_turn(ctx, id, data);

    (void)len;
    if (call != NULL)
        call_gone(call, FL_RPC_GONE_DONE);
}

static void on_resumed(void *ctx, uint64_t id, const void *data, size_t len)
{
    struct fl_rpc_call *call = call_of_turn(ctx, id, data);
    struct fl_reader r;
    struct fl_buf held;

    (void)len;
    if (call == NULL || call->is_paused)
        return;
    held = call->held;
    call->held = FL_BUF_INIT;
    r = fl_reader_from(held.data, held.len);
    while (fl_reader_left(&r) > 0) {
        uint8_t word = fl_reader_u8(&r);
        size_t size = fl_reader_u32(&r);
        const uint8_t *bytes = fl_reader_bytes(&r, size);

        if (!call->is_paused) {
            take_word(call, word, bytes, size); /* may finish it, never free it */
            continue;
        }
        fl_buf_put_u8(&call->held, word);
        fl_buf_put_u32(&call->held, (uint32_t)size);
        fl_buf_put(&call->held, bytes, size);
    }
    fl_buf_deinit(&held);
}

void fl_rpc_call_pause(struct fl_rpc_call *call)
{
    call->is_paused = true;
}

void fl_rpc_call_resume(struct fl_rpc_call *call)
{
    call->is_paused = false;
    after_turn(call, on_resumed);
}

static void put_text(struct fl_buf *buf, const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;

    fl_buf_put_u16(buf, (uint16_t)len);
    fl_buf_put(buf, text != NULL ? text : "", len);
    fl_buf_put_u8(buf, 0);
}

void fl_rpc_call_finish(struct fl_rpc_call *call, const struct fl_rpc_status *status)
{
    struct fl_buf buf = FL_BUF_INIT;

    if (call->is_finished)
        return;
    call->is_finished = true;
    after_turn(call, on_finished);
    if (call->conn == NULL)
        return;
    fl_buf_put_u8(&buf, (uint8_t)status->code);
    fl_buf_put_u32(&buf, status->retry_after_ms);
    put_text(&buf, status->message);
    put_text(&buf, status->reason);
    put_text(&buf, status->field);
    door_say(call->conn, place_of(call), DOOR_STATUS, buf.data, buf.len);
    fl_buf_deinit(&buf);
}

/* --- The caller's side --- */

static const char *read_text(struct fl_reader *r)
{
    size_t len = fl_reader_u16(r);
    const uint8_t *text = fl_reader_bytes(r, len + 1);

    return text != NULL && len > 0 ? (const char *)text : NULL;
}

bool door_read_status(const void *data, size_t len, struct fl_rpc_status *ret_status)
{
    struct fl_reader r = fl_reader_from(data, len);

    ret_status->code = (enum fl_rpc_code)fl_reader_u8(&r);
    ret_status->retry_after_ms = fl_reader_u32(&r);
    ret_status->message = read_text(&r);
    ret_status->reason = read_text(&r);
    ret_status->field = read_text(&r);
    return fl_reader_end(&r) == FL_OK;
}

void door_say(struct conn *conn, const struct place *from, enum door_word word, const void *data,
              size_t len)
{
    uint8_t stack[1024], *bytes = len + 1 > sizeof stack ? fl_xalloc(len + 1) : stack;

    bytes[0] = (uint8_t)word;
    if (len > 0)
        memcpy(bytes + 1, data, len);
    conn_send(conn, from, bytes, len + 1);
    if (bytes != stack)
        free(bytes);
}

struct conn *door_call(struct door *door, struct place *from, conn_fn hear, void *ctx,
                       const char *path)
{
    struct conn *conn;

    if (!door->place.is_up)
        return NULL;
    conn = conn_new(door->net, from, hear, ctx, &door->place, hear_newcomer, door);
    door_say(conn, from, DOOR_OPEN, path, strlen(path) + 1);
    return conn;
}
