/* A server's connection: HTTP/2 frames to and from its calls, and what keeps it alive or ends it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/server_parts.h"

static const struct fl_h2_limits limits = {
    .streams_max = FL_RPC_STREAMS_MAX,
    .stream_window = FL_RPC_STREAM_WINDOW,
    .conn_window = FL_RPC_CONN_WINDOW,
    .header_bytes_max = FL_RPC_HEADER_BYTES_MAX,
    .reset_burst = FL_RPC_RESET_BURST,
    .reset_rate = FL_RPC_RESET_RATE,
    .continuations_max = FL_RPC_CONTINUATIONS_MAX,
    .outbound_ack_max = FL_RPC_OUTBOUND_ACK_MAX,
    .settings_max = FL_RPC_SETTINGS_MAX,
};

static const uint8_t drain_ping[8] = {'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'};

static void finish_drain_notice(struct fl_rpc_connection *c);

void fl_rpc__connection_wake(struct fl_rpc_connection *c)
{
    fl_conn_mark(c->conn);
}

/* --- Frames in --- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct fl_rpc_connection *c = user_data;
    struct fl_rpc_call *call;

    if (c->server->is_freed) /* by a handler, in this very read */
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    call = fl_rpc__call_new(c, frame->hd.stream_id);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data)
{
    struct fl_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    int r;

    (void)flags;
    (void)user_data;
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    r = frame->headers.cat == NGHTTP2_HCAT_REQUEST
            ? fl_rpc__call_header(call, name, name_len, value, value_len)
            : fl_rpc__call_trailer(call, name_len, value_len);
    return r < 0 ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

static void note_ping(struct fl_rpc_connection *c)
{
    uint64_t now_ms = fl_loop_now_ms(c->server->loop);
    static const char why[] = "too_many_pings"; /* C-core looks for just these words */

    if (c->last_ping_ms != 0 && now_ms - c->last_ping_ms < FL_RPC_PING_MIN_MS)
        c->ping_strikes++;
    c->last_ping_ms = now_ms;
    if (c->ping_strikes <= FL_RPC_PING_STRIKES_MAX || c->is_doomed)
        return;
    (void)nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(c->session),
                                NGHTTP2_ENHANCE_YOUR_CALM, (const uint8_t *)why, sizeof why - 1);
    c->is_doomed = true;
    fl_rpc__connection_wake(c);
}

/* Counted here, as frames for streams that are closed are not reported as received. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user_data)
{
    struct fl_rpc_connection *c = user_data;

    (void)session;
    (void)hd;
    return ++c->idle_frames > FL_RPC_IDLE_FRAMES_MAX ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct fl_rpc_connection *c = user_data;
    struct fl_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    c->has_preface = true;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        c->idle_frames = 0;
        if (call != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            fl_rpc__call_headers_end(call);
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length != 0)
            c->idle_frames = 0;
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0)
            note_ping(c);
        else if (memcmp(frame->ping.opaque_data, drain_ping, sizeof drain_ping) == 0)
            finish_drain_notice(c);
        else
            c->is_ping_open = false;
        break;
    default:
        break;
    }
    if (call != NULL && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
        fl_rpc__call_input_end(call);
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct fl_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

    (void)flags;
    (void)user_data;
    (void)nghttp2_session_consume_connection(session, len);
    if (call == NULL)
        return 0;
    if (call->is_gone)
        (void)nghttp2_session_consume_stream(session, stream_id, len);
    else
        fl_rpc__call_input(call, data, len);
    return 0;
}

/* --- Frames out --- */

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct fl_rpc_connection *c = user_data;
    struct fl_rpc_call *call;

    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    /* Clients ping to measure what we send, and give windows back for it: that is no abuse. */
    c->ping_strikes = 0;
    c->idle_frames = 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    /* We are done and the client may not be: without a reset the stream would stay open and count.
     */
    call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call != NULL && !call->is_half_closed)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

/* A header block that cannot be sent would leave the call hanging. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error,
                             void *user_data)
{
    (void)error;
    (void)user_data;
    if (frame->hd.type == NGHTTP2_HEADERS)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_INTERNAL_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct fl_rpc_connection *c = user_data;
    struct fl_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

    if (call == NULL)
        return 0;
    if (call->is_trailer_sent && error_code == NGHTTP2_NO_ERROR)
        fl_rpc__call_gone(call, FL_RPC_GONE_DONE);
    else if (error_code == NGHTTP2_ENHANCE_YOUR_CALM || error_code == NGHTTP2_INTERNAL_ERROR)
        fl_rpc__call_gone(call, FL_RPC_GONE_REFUSED);
    else
        fl_rpc__call_gone(call, FL_RPC_GONE_CANCELLED);
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    fl_rpc__call_free(call);
    fl_rpc__connection_wake(c);
    return 0;
}

nghttp2_session_callbacks *fl_rpc__server_callbacks(void)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}

/* --- The connection --- */

static void watch_alive(struct fl_rpc_connection *c, uint64_t at_ms)
{
    if (fl_timer_set(c->server->loop, &c->alive, at_ms) < 0)
        fl_rpc__connection_close(c, fl_error_text(FL_E_NOMEM));
}

static void on_alive_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_rpc_connection *c = FL_CONTAINER_OF(timer, struct fl_rpc_connection, alive);
    uint64_t silent_ms = now_ms - c->last_read_ms;

    fl_rpc__reset_stalled(c, now_ms);
    if (!c->has_preface) {
        fl_rpc__connection_close(c, "no HTTP/2 preface came");
    } else if (silent_ms < FL_RPC_PING_AFTER_MS) {
        c->is_ping_open = false;
        watch_alive(c, c->last_read_ms + FL_RPC_PING_AFTER_MS);
    } else if (!c->is_ping_open) {
        c->is_ping_open = true;
        (void)nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL);
        fl_rpc__connection_wake(c);
        watch_alive(c, now_ms + FL_RPC_PING_TIMEOUT_MS);
    } else {
        fl_rpc__connection_close(c, "a ping was not answered");
    }
}

static const struct fl_conn_handler connection_handler;

static void on_accept(struct fl_conn *conn, void *ctx)
{
    struct fl_rpc_server *s = ctx;
    struct fl_rpc_connection *c = calloc(1, sizeof *c);

    if (c == NULL || fl_h2_session_new(true, &limits, s->callbacks, c, &c->session) < 0) {
        free(c);
        fl_conn_close(conn, FL_E_NOMEM, fl_error_text(FL_E_NOMEM));
        return;
    }
    c->server = s;
    c->conn = conn;
    c->alive = FL_TIMER_INIT(on_alive_timer);
    c->last_read_ms = fl_loop_now_ms(s->loop);
    fl_list_init(&c->calls);
    fl_list_init(&c->sending);
    fl_list_init(&c->stopped);
    fl_list_init(&c->writable);
    fl_list_append(&s->connections, &c->link);
    s->stats.connections++;
    s->stats.connections_ever++;
    fl_conn_set_handler(conn, &connection_handler, c);
    watch_alive(c, c->last_read_ms + FL_RPC_PREFACE_MS);
    fl_rpc__connection_wake(c); /* our SETTINGS: some clients wait for them */
}

static int on_read(struct fl_conn *conn, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_rpc_connection *c = ctx;
    ssize_t n;

    if (c->is_doomed)
        return FL_OK;
    c->last_read_ms = fl_loop_now_ms(c->server->loop);
    c->server->stats.bytes_in += len;
    n = nghttp2_session_mem_recv(c->session, data, len);
    fl_conn_mark(conn);
    if (n < 0 && n != NGHTTP2_ERR_NOMEM)
        c->is_doomed = true; /* a GOAWAY that says why goes out first */
    return n == NGHTTP2_ERR_NOMEM ? FL_E_NOMEM : FL_OK;
}

static void tell_writable(struct fl_rpc_connection *c)
{
    struct fl_list *link;

    while ((link = fl_list_first(&c->writable)) != NULL) {
        struct fl_rpc_call *call = FL_CONTAINER_OF(link, struct fl_rpc_call, writable_link);

        fl_list_remove(link);
        if (!call->is_gone && call->method->handler->on_writable != NULL)
            call->method->handler->on_writable(call);
    }
}

static void on_turn_end(struct fl_conn *conn, void *ctx)
{
    struct fl_rpc_connection *c = ctx;
    size_t before = fl_conn_queued(conn);
    int r;

    tell_writable(c);
    r = fl_h2_pull(c->session, conn, FL_RPC_SOCKET_OUT_MAX);
    c->server->stats.bytes_out += fl_conn_queued(conn) - before;
    if (r < 0)
        fl_rpc__connection_close(c, fl_error_text(r));
    else if (c->is_doomed || (nghttp2_session_want_read(c->session) == 0 &&
                              nghttp2_session_want_write(c->session) == 0))
        fl_conn_close_gently(conn, "HTTP/2 ended");
    else
        fl_rpc__connection_check_drained(c);
}

/* The kernel took all: there may be frames that waited for it. */
static void on_drained(struct fl_conn *conn, void *ctx)
{
    const struct fl_rpc_connection *c = ctx;

    if (nghttp2_session_want_write(c->session) != 0)
        fl_conn_mark(conn);
}

static void on_close(struct fl_conn *conn, void *ctx, int error, const char *why)
{
    struct fl_rpc_connection *c = ctx;
    struct fl_rpc_server *s = c->server;
    struct fl_list *link;

    (void)conn;
    (void)error;
    (void)why;
    fl_timer_clear(s->loop, &c->alive);
    while ((link = fl_list_first(&c->calls)) != NULL) {
        struct fl_rpc_call *call = FL_CONTAINER_OF(link, struct fl_rpc_call, link);

        fl_rpc__call_gone(call, FL_RPC_GONE_LOST);
        fl_rpc__call_free(call);
    }
    fl_h2_session_free(c->session);
    fl_list_remove(&c->link);
    s->stats.connections--;
    free(c);
    fl_rpc__check_drained(s);
}

static const struct fl_conn_handler connection_handler = {
    .on_read = on_read,
    .on_turn_end = on_turn_end,
    .on_drained = on_drained,
    .on_close = on_close,
};

const struct fl_conn_handler fl_rpc__door = {
    .on_open = on_accept,
};

void fl_rpc__connection_close(struct fl_rpc_connection *c, const char *why)
{
    fl_conn_close(c->conn, FL_E_CLOSED, why);
}

/* --- Draining --- */

/* First a notice that closes nothing, so that calls on their way are still served; the last stream
 * is named once a ping has come back (RFC 9113 section 6.8). Clients dial elsewhere at the first.
 */
void fl_rpc__connection_drain(struct fl_rpc_connection *c)
{
    (void)nghttp2_submit_shutdown_notice(c->session);
    (void)nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, drain_ping);
    fl_rpc__connection_wake(c);
}

static void finish_drain_notice(struct fl_rpc_connection *c)
{
    (void)nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(c->session),
                                NGHTTP2_NO_ERROR, NULL, 0);
    c->is_drain_told = true;
    fl_rpc__connection_wake(c);
}

void fl_rpc__connection_check_drained(struct fl_rpc_connection *c)
{
    if (c->is_drain_told && fl_list_is_empty(&c->calls) &&
        nghttp2_session_want_write(c->session) == 0)
        fl_conn_close_gently(c->conn, "drained");
}
