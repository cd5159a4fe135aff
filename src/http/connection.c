#include "http/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "http/limits.h"
#include "http/request.h"

/* A peer that vanished without a word is noticed by then, also while its request waits for a day.
 */
#define KEEPALIVE_AFTER_S 15

/* --- Time --- */

static void set_deadline(struct fl_http_connection *c, uint64_t after_ms)
{
    struct fl_loop *loop = c->server->loop;

    FL_REQUIRE(fl_timer_set(loop, &c->deadline, fl_loop_now_ms(loop) + after_ms) == FL_OK);
}

/* --- Answers --- */

const char *fl_http_status_text(unsigned status)
{
    return http_status_str((enum http_status)status);
}

static void write_out(struct fl_http_connection *c, const void *data, size_t len)
{
    if (fl_conn_write(c->conn, data, len) == FL_E_NOMEM)
        fl_conn_close(c->conn, FL_E_NOMEM, fl_error_text(FL_E_NOMEM));
}

static void put_head(const struct fl_http_connection *c, struct fl_buf *head, unsigned status,
                     const char *type)
{
    char date[40];
    struct tm broken;
    time_t now = time(NULL);

    gmtime_r(&now, &broken);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &broken);
    fl_buf_printf(head, "HTTP/1.1 %u %s\r\nDate: %s\r\n", status, fl_http_status_text(status),
                  date);
    if (type != NULL)
        fl_buf_printf(head, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    if (!c->keeps_alive)
        fl_buf_printf(head, "Connection: close\r\n");
    else if (c->parser.http_minor == 0)
        fl_buf_printf(head, "Connection: keep-alive\r\n");
}

/* The answer is out: on to the next request, or to the end. */
static void finish(struct fl_http_connection *c)
{
    fl_list_remove(&c->link);
    fl_list_append(&c->server->connections, &c->link);
    c->has_answered = true;
    if (c->keeps_alive) {
        c->phase = FL_HTTP_READING;
        fl_http__request_reset(c);
        set_deadline(c, FL_HTTP_IDLE_MS);
        fl_conn_mark(c->conn); /* what waits behind it is read at the end of the turn */
    } else {
        c->phase = FL_HTTP_LINGERING;
        fl_buf_clear(&c->waiting);
        set_deadline(c, FL_HTTP_LINGER_MS);
    }
}

static struct fl_http_connection *connection_of(struct fl_http_exchange *x)
{
    return FL_CONTAINER_OF(x, struct fl_http_connection, exchange);
}

static void send_answer(struct fl_http_connection *c, const struct fl_http_answer *answer)
{
    struct fl_buf head = FL_BUF_INIT;

    if (c->server->is_draining)
        c->keeps_alive = false;
    put_head(c, &head, answer->status, answer->type);
    if (answer->headers != NULL)
        fl_buf_put(&head, answer->headers, strlen(answer->headers));
    if (answer->status != 304)
        fl_buf_printf(&head, "Content-Length: %zu\r\n", answer->body.len);
    fl_buf_put(&head, "\r\n", 2);
    write_out(c, head.data, head.len);
    fl_buf_deinit(&head);
    if (c->exchange.request.method != FL_HTTP_HEAD)
        write_out(c, answer->body.data, answer->body.len);
    finish(c);
}

void fl_http_reply(struct fl_http_exchange *x, const struct fl_http_answer *answer)
{
    struct fl_http_connection *c = connection_of(x);

    FL_REQUIRE(c->phase == FL_HTTP_ANSWERING && !x->is_streaming);
    send_answer(c, answer);
}

void fl_http_stream_begin(struct fl_http_exchange *x, const char *type)
{
    struct fl_http_connection *c = connection_of(x);
    struct fl_buf head = FL_BUF_INIT;

    FL_REQUIRE(c->phase == FL_HTTP_ANSWERING && !x->is_streaming);
    x->is_streaming = true;
    if (c->parser.http_minor == 0)
        c->keeps_alive = false; /* HTTP/1.0 knows no chunks: the end of the connection is the end */
    put_head(c, &head, 200, type);
    fl_buf_printf(&head, "Cache-Control: no-store\r\n%s\r\n",
                  c->parser.http_minor == 0 ? "" : "Transfer-Encoding: chunked\r\n");
    write_out(c, head.data, head.len);
    fl_buf_deinit(&head);
}

void fl_http_stream(struct fl_http_exchange *x, struct fl_str data)
{
    struct fl_http_connection *c = connection_of(x);
    char size[24];

    FL_REQUIRE(x->is_streaming);
    if (data.len == 0)
        return;
    if (c->parser.http_minor == 0) {
        write_out(c, data.data, data.len);
        return;
    }
    snprintf(size, sizeof size, "%zx\r\n", data.len);
    write_out(c, size, strlen(size));
    write_out(c, data.data, data.len);
    write_out(c, "\r\n", 2);
}

size_t fl_http_stream_queued(const struct fl_http_exchange *x)
{
    return fl_conn_queued(FL_CONTAINER_OF(x, const struct fl_http_connection, exchange)->conn);
}

void fl_http_stream_end(struct fl_http_exchange *x)
{
    struct fl_http_connection *c = connection_of(x);

    FL_REQUIRE(x->is_streaming);
    if (c->parser.http_minor != 0)
        write_out(c, "0\r\n\r\n", 5);
    if (c->parser.http_minor == 0)
        fl_conn_close_gently(c->conn, "the stream has ended");
    finish(c);
}

const struct fl_http_request *fl_http_request(const struct fl_http_exchange *x)
{
    return &x->request;
}

const char *fl_http_peer(const struct fl_http_exchange *x)
{
    return fl_conn_peer(FL_CONTAINER_OF(x, const struct fl_http_connection, exchange)->conn);
}

void fl_http_on_gone(struct fl_http_exchange *x, void (*gone)(void *data), void *data)
{
    x->gone = gone;
    x->data = data;
}

/* --- Refusals: what is no request ends the connection, since nobody knows where the next begins
 * --- */

static const char *sentence_of(unsigned status)
{
    switch (status) {
    case 408:
        return "the request did not come whole in time";
    case 413:
        return "the body is longer than 65536 bytes";
    case 414:
        return "the address is longer than 4096 bytes";
    case 417:
        return "the only expectation that is met is 100-continue";
    case 431:
        return "the headers are more than 100, or longer than 16384 bytes";
    case 501:
        return "the only transfer encoding that is read is chunked";
    case 503:
        return "too many connections: close those that are not needed, or try again later";
    case 505:
        return "this port speaks HTTP/1.1";
    default:
        return "this is no HTTP/1.1 request. This port serves people and scrapers; gRPC clients "
               "use the clients' port (3362 unless configured)";
    }
}

static void refuse(struct fl_http_connection *c, unsigned status)
{
    char body[512];
    struct fl_http_answer answer = {
        .status = status,
        .type = "application/json",
        .body = {body, 0},
    };
    const char *reason = status == 503 ? "BUSY" : status == 408 ? "REQUEST_TIMEOUT" : "BAD_REQUEST";

    answer.body.len =
        (size_t)snprintf(body, sizeof body,
                         "{\"error\": {\"code\": %u, \"status\": \"%s\", \"reason\": \"%s\", "
                         "\"message\": \"%s\"}}\n",
                         status, status == 503 ? "RESOURCE_EXHAUSTED" : "INVALID_ARGUMENT", reason,
                         sentence_of(status));
    c->server->stats.bad++;
    c->keeps_alive = false;
    c->exchange.request.method = FL_HTTP_OTHER; /* a HEAD that is refused half-read, too */
    send_answer(c, &answer);
}

/* --- Input --- */

static void hand_over(struct fl_http_connection *c)
{
    c->server->stats.requests++;
    c->phase = FL_HTTP_ANSWERING;
    fl_timer_clear(c->server->loop, &c->deadline);
    c->server->handle(c->server->ctx, &c->exchange);
}

/* Returns how much was taken: all, or up to the end of a request that is not answered yet. */
static size_t take(struct fl_http_connection *c, const uint8_t *data, size_t len)
{
    size_t at = 0;

    while (at < len && c->phase == FL_HTTP_READING && fl_conn_is_open(c->conn) &&
           fl_conn_queued(c->conn) <= FL_HTTP_OUT_BYTES_PAUSE) {
        bool had_begun = c->has_begun;

        at += fl_http__request_read(c, data + at, len - at);
        if (!had_begun && c->has_begun && c->has_answered)
            set_deadline(c, FL_HTTP_REQUEST_MS);
        if (c->refusal == 0 && c->is_whole && fl_http__request_tell(c))
            hand_over(c);
        if (c->refusal != 0)
            refuse(c, c->refusal);
    }
    return at;
}

/* What waits behind the request that was in hand. */
static void go_on(struct fl_http_connection *c)
{
    struct fl_buf *waiting = &c->waiting;

    c->waiting_at += take(c, waiting->data + c->waiting_at, waiting->len - c->waiting_at);
    if (c->waiting_at < waiting->len && c->phase != FL_HTTP_LINGERING)
        return;
    fl_buf_clear(waiting);
    c->waiting_at = 0;
}

static void on_turn_end(struct fl_conn *conn, void *ctx)
{
    (void)conn;
    go_on(ctx);
}

static int keep_waiting(struct fl_http_connection *c, const uint8_t *data, size_t len)
{
    struct fl_buf *waiting = &c->waiting;

    if (waiting->len - c->waiting_at + len > FL_HTTP_PIPELINE_BYTES_MAX)
        return FL_E_PROTOCOL;
    if (c->waiting_at > 0) {
        waiting->len -= c->waiting_at;
        memmove(waiting->data, waiting->data + c->waiting_at, waiting->len);
        c->waiting_at = 0;
    }
    fl_buf_put(waiting, data, len);
    return FL_OK;
}

static int on_read(struct fl_conn *conn, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_http_connection *c = ctx;
    size_t taken = 0;

    (void)conn;
    if (c->phase == FL_HTTP_LINGERING) {
        c->lingered += len;
        return c->lingered > FL_HTTP_LINGER_BYTES_MAX ? FL_E_PROTOCOL : FL_OK;
    }
    if (c->waiting.len == 0)
        taken = take(c, data, len);
    if (taken == len || c->phase == FL_HTTP_LINGERING)
        return FL_OK;
    return keep_waiting(c, data + taken, len - taken);
}

static void on_deadline(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_http_connection *c = FL_CONTAINER_OF(timer, struct fl_http_connection, deadline);

    (void)now_ms;
    if (c->phase == FL_HTTP_READING && c->has_begun)
        refuse(c, 408);
    else
        fl_conn_close(c->conn, FL_E_TIMEOUT, "nothing more was asked for");
}

/* --- Life --- */

void fl_http__connection_close(struct fl_http_connection *c, const char *why)
{
    fl_conn_close(c->conn, FL_E_CLOSED, why);
}

void fl_http__connection_drain(struct fl_http_connection *c)
{
    if (c->phase == FL_HTTP_READING)
        fl_http__connection_close(c, "the server stops");
}

void fl_http__connection_abandon(struct fl_http_connection *c)
{
    void (*gone)(void *data) = c->exchange.gone;

    c->exchange.gone = NULL;
    if (gone != NULL && c->phase == FL_HTTP_ANSWERING)
        gone(c->exchange.data);
}

static void on_close(struct fl_conn *conn, void *ctx, int error, const char *why)
{
    struct fl_http_connection *c = ctx;
    struct fl_http_server *server = c->server;

    (void)conn;
    (void)error;
    (void)why;
    fl_http__connection_abandon(c);
    fl_timer_clear(server->loop, &c->deadline);
    fl_list_remove(&c->link);
    server->stats.connections--;
    fl_http__request_deinit(c);
    fl_buf_deinit(&c->waiting);
    free(c);
    fl_http__check_drained(server);
}

static const struct fl_conn_handler handler = {
    .on_read = on_read,
    .on_turn_end = on_turn_end,
    .on_drained = on_turn_end,
    .on_close = on_close,
};

/* Makes room by closing one that idles. */
static bool make_room(struct fl_http_server *server)
{
    FL_LIST_EACH(link, &server->connections)
    {
        struct fl_http_connection *c = FL_CONTAINER_OF(link, struct fl_http_connection, link);

        if (c->phase == FL_HTTP_ANSWERING || c->has_begun || !fl_conn_is_open(c->conn))
            continue;
        fl_http__connection_close(c, "it idled, and another one needs the place");
        return true;
    }
    return false;
}

static void on_open(struct fl_conn *conn, void *ctx)
{
    struct fl_http_server *server = ctx;
    struct fl_http_connection *c;
    bool has_room = server->stats.connections < FL_HTTP_CONNECTIONS_MAX || make_room(server);

    if (server->is_draining) {
        fl_conn_close(conn, FL_E_CLOSED, "the server stops");
        return;
    }
    c = fl_xcalloc(1, sizeof *c);
    c->server = server;
    c->conn = conn;
    c->deadline = FL_TIMER_INIT(on_deadline);
    fl_list_append(&server->connections, &c->link);
    fl_conn_set_handler(conn, &handler, c);
    fl_conn_set_keepalive(conn, KEEPALIVE_AFTER_S);
    fl_http__request_reset(c);
    server->stats.connections++;
    server->stats.accepted++;
    if (has_room) {
        set_deadline(c, FL_HTTP_REQUEST_MS);
        return;
    }
    server->stats.refused++;
    refuse(c, 503);
    fl_conn_close_gently(conn, "too many connections");
}

const struct fl_conn_handler fl_http__door = {.on_open = on_open};
