#include "gateway_rig.h"

#include <stdlib.h>

#define MESSAGES_MAX 512

bool rig_is_gone_at_once;

static struct {
    struct fl_rpc_call *calls[RIG_MAX];
    size_t n_calls;
    ProtobufCMessage *messages[MESSAGES_MAX]; /* what call_read() gave */
    size_t n_messages;
} kept;

/* --- The stand-in for the server --- */

struct fl_rpc_server {
    const struct fl_rpc_method *methods;
    size_t n_methods;
};

uint8_t *fl_rpc_message_new(size_t size)
{
    return malloc(size + 1);
}

int fl_rpc_server_new(struct fl_loop *loop, const struct fl_rpc_server_config *config,
                      const struct fl_rpc_method *methods, size_t n_methods,
                      struct fl_rpc_server **ret_server, char *why)
{
    struct fl_rpc_server *server = fl_xcalloc(1, sizeof *server);

    (void)loop;
    (void)config;
    (void)why;
    server->methods = methods;
    server->n_methods = n_methods;
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
    for (size_t i = 0; i < kept.n_calls; i++)
        call_gone(kept.calls[i], FL_RPC_GONE_LOST);
    free(server);
}

void fl_rpc_server_stats(const struct fl_rpc_server *server, struct fl_rpc_server_stats *ret_stats)
{
    (void)server;
    *ret_stats = (struct fl_rpc_server_stats){0};
}

static struct fl_rpc_call *lived(const struct fl_rpc_call *call)
{
    assert_false(call->is_gone); /* the gateway used a call after its on_gone */
    return (struct fl_rpc_call *)call;
}

void *fl_rpc_call_method_ctx(const struct fl_rpc_call *call)
{
    return lived(call)->method->ctx;
}

void fl_rpc_call_set_data(struct fl_rpc_call *call, void *data)
{
    lived(call)->data = data;
}

void *fl_rpc_call_data(const struct fl_rpc_call *call)
{
    return lived(call)->data;
}

const char *fl_rpc_call_peer(const struct fl_rpc_call *call)
{
    (void)lived(call);
    return "192.0.2.1:5000";
}

bool fl_rpc_call_send(struct fl_rpc_call *call, uint8_t *message, size_t len)
{
    assert_true(lived(call)->n_sent < RIG_MAX);
    call->sent[call->n_sent] = message;
    call->sent_len[call->n_sent++] = len;
    return true;
}

size_t fl_rpc_call_queued(const struct fl_rpc_call *call)
{
    return lived(call)->queued;
}

void fl_rpc_call_finish(struct fl_rpc_call *call, const struct fl_rpc_status *status)
{
    assert_false(lived(call)->is_finished);
    call->is_finished = true;
    call->code = status->code;
    snprintf(call->reason, sizeof call->reason, "%s", status->reason ? status->reason : "");
    snprintf(call->message, sizeof call->message, "%s", status->message ? status->message : "");
    snprintf(call->field, sizeof call->field, "%s", status->field ? status->field : "");
    call->retry_after_ms = status->retry_after_ms;
    if (rig_is_gone_at_once)
        call_gone(call, FL_RPC_GONE_DONE);
}

void fl_rpc_call_pause(struct fl_rpc_call *call)
{
    lived(call)->is_paused = true;
}

void fl_rpc_call_resume(struct fl_rpc_call *call)
{
    lived(call)->is_paused = false;
}

/* --- The client's side of a call --- */

static const struct fl_rpc_server *server_of(const struct rig *rig);

struct fl_rpc_call *call_open(struct rig *rig, const char *path)
{
    const struct fl_rpc_server *server = server_of(rig);
    struct fl_rpc_call *call = fl_xcalloc(1, sizeof *call);

    for (size_t i = 0; i < server->n_methods; i++)
        if (strcmp(server->methods[i].path, path) == 0)
            call->method = &server->methods[i];
    assert_non_null(call->method);
    assert_true(kept.n_calls < RIG_MAX);
    kept.calls[kept.n_calls++] = call;
    if (call->method->handler->on_open != NULL)
        call->method->handler->on_open(call);
    return call;
}

void call_send_bytes(struct fl_rpc_call *call, const void *data, size_t len)
{
    if (!call->is_gone && !call->is_finished)
        call->method->handler->on_message(call, data, len);
}

void call_send(struct fl_rpc_call *call, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *data = fl_xalloc(len);

    protobuf_c_message_pack(message, data);
    call_send_bytes(call, data, len);
    free(data);
}

void call_half_close(struct fl_rpc_call *call)
{
    if (!call->is_gone && call->method->handler->on_half_close != NULL)
        call->method->handler->on_half_close(call);
}

void call_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    if (call->is_gone)
        return;
    call->method->handler->on_gone(call, call->is_finished ? FL_RPC_GONE_DONE : why);
    call->is_gone = true;
}

bool call_has_message(const struct fl_rpc_call *call)
{
    return call->n_read < call->n_sent;
}

const void *call_read(struct fl_rpc_call *call, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message;

    assert_true(call_has_message(call));
    message = protobuf_c_message_unpack(type, NULL, call->sent_len[call->n_read],
                                        call->sent[call->n_read]);
    call->n_read++;
    assert_non_null(message);
    assert_true(kept.n_messages < MESSAGES_MAX);
    kept.messages[kept.n_messages++] = message;
    return message;
}

void assert_ended(const struct fl_rpc_call *call, enum fl_rpc_code code, const char *reason)
{
    assert_true(call->is_finished);
    assert_string_equal(call->reason, reason);
    assert_int_equal(call->code, code);
}

static void forget_calls(void)
{
    for (size_t i = 0; i < kept.n_calls; i++) {
        for (size_t j = 0; j < kept.calls[i]->n_sent; j++)
            free(kept.calls[i]->sent[j]);
        free(kept.calls[i]);
    }
    for (size_t i = 0; i < kept.n_messages; i++)
        protobuf_c_message_free_unpacked(kept.messages[i], NULL);
    kept.n_calls = kept.n_messages = 0;
}

/* --- The nodes --- */

static struct rig *the_rig; /* links know their number only */

static void on_send(void *ctx, const void *data, size_t len)
{
    struct rig *rig = the_rig;
    struct rig_request *kept_request = &rig->requests[rig->n_requests];

    assert_true(rig->n_requests < RIG_MAX);
    kept_request->link = (unsigned)(uintptr_t)ctx;
    kept_request->bytes = fl_xmemdup(data, len);
    assert_int_equal(kept_request->bytes[0], FL_LINK_REQUEST);
    assert_int_equal(fl_request_decode(kept_request->bytes + 1, len - 1, &kept_request->request),
                     FL_OK);
    rig->n_requests++;
}

static void on_reset(void *ctx, const char *why)
{
    (void)ctx;
    (void)why;
}

static void frame(struct rig *rig, unsigned link, struct fl_buf *buf)
{
    assert_int_equal(fl_gateway_link_frame(rig->gateway, link, buf->data, buf->len), FL_OK);
    fl_buf_deinit(buf);
}

void rig_push(struct rig *rig, unsigned link, const struct fl_push *push)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_buf_put_u8(&buf, FL_LINK_PUSH);
    fl_push_encode(&buf, push);
    frame(rig, link, &buf);
}

void rig_push_leader(struct rig *rig, unsigned link, uint64_t leader_id, uint64_t term)
{
    struct fl_push push = {.type = FL_PUSH_LEADER, .leader_id = leader_id, .term = term};

    rig_push(rig, link, &push);
}

void rig_reply(struct rig *rig, const struct rig_request *to, struct fl_reply reply)
{
    struct fl_buf buf = FL_BUF_INIT;

    reply.tag = to->request.tag;
    reply.request_type = to->request.type;
    fl_buf_put_u8(&buf, FL_LINK_REPLY);
    fl_reply_encode(&buf, &reply);
    frame(rig, to->link, &buf);
}

const struct rig_request *rig_last(const struct rig *rig, enum fl_request_type type)
{
    assert_true(rig->n_requests > 0);
    assert_int_equal(rig->requests[rig->n_requests - 1].request.type, type);
    return &rig->requests[rig->n_requests - 1];
}

size_t rig_count(const struct rig *rig, enum fl_request_type type)
{
    size_t n = 0;

    for (size_t i = 0; i < rig->n_requests; i++)
        n += rig->requests[i].request.type == type;
    return n;
}

/* --- Life --- */

#include "gateway/internal.h"

static const struct fl_rpc_server *server_of(const struct rig *rig)
{
    return rig->gateway->server;
}

void rig_init_bare(struct rig *rig, const struct fl_gateway_config *config)
{
    struct fl_gateway_config with_slow_pings = *config;
    char why[256];

    /* Pings are the router's own tests' business. */
    with_slow_pings.router.ping_ms = 3600000;
    *rig = (struct rig){.loop = fl_loop_new()};
    the_rig = rig;
    assert_non_null(rig->loop);
    assert_int_equal(fl_gateway_new(rig->loop, &with_slow_pings, &rig->gateway, why), FL_OK);
}

void rig_init(struct rig *rig, const struct fl_gateway_config *config)
{
    rig_init_bare(rig, config);
    for (unsigned i = 0; i < 3; i++) {
        struct fl_gateway_link link = {.node_id = i + 1,
                                       .is_local = i == 0,
                                       .send = on_send,
                                       .reset = on_reset,
                                       .ctx = (void *)(uintptr_t)i};

        assert_int_equal(fl_gateway_add_link(rig->gateway, &link), i);
        fl_gateway_link_up(rig->gateway, i);
    }
    rig_push_leader(rig, 0, 2, 5);
}

void rig_forget_requests(struct rig *rig)
{
    for (size_t i = 0; i < rig->n_requests; i++)
        free(rig->requests[i].bytes);
    rig->n_requests = 0;
}

void rig_deinit(struct rig *rig)
{
    fl_gateway_free(rig->gateway);
    forget_calls();
    rig_forget_requests(rig);
    fl_loop_free(rig->loop);
}

struct waiting {
    struct fl_timer timer;
    struct rig *rig;
    bool (*is_true)(void *ctx);
    void *ctx;
    uint64_t until_ms;
};

static void look(struct fl_timer *timer, uint64_t now_ms)
{
    struct waiting *waiting = FL_CONTAINER_OF(timer, struct waiting, timer);

    if (waiting->is_true(waiting->ctx) || now_ms > waiting->until_ms)
        fl_loop_stop(waiting->rig->loop);
    else
        fl_timer_set(waiting->rig->loop, timer, now_ms + 5);
}

void rig_wait(struct rig *rig, bool (*is_true)(void *ctx), void *ctx)
{
    struct waiting waiting = {FL_TIMER_INIT(look), rig, is_true, ctx,
                              fl_loop_update_now_ms(rig->loop) + 10000};

    fl_timer_set(rig->loop, &waiting.timer, 0);
    fl_loop_run(rig->loop);
    fl_timer_clear(rig->loop, &waiting.timer);
    assert_true(is_true(ctx));
}
