/* A channel's connection to one endpoint. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/channel_parts.h"

/* Nothing that a server sends may make the connection window a bottleneck between calls. */
#define CONN_WINDOW   (4 * 1024 * 1024)
#define STREAM_WINDOW (256 * 1024)

static const struct fl_h2_limits limits = {
    .stream_window = STREAM_WINDOW,
    .conn_window = CONN_WINDOW,
    .header_bytes_max = FL_RPC_HEADER_BYTES_MAX,
    .reset_burst = FL_RPC_RESET_BURST,
    .reset_rate = FL_RPC_RESET_RATE,
    .continuations_max = FL_RPC_CONTINUATIONS_MAX,
    .outbound_ack_max = FL_RPC_OUTBOUND_ACK_MAX,
    .settings_max = FL_RPC_SETTINGS_MAX,
};

/* --- Frames in --- */

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data)
{
    struct fl_rpc_client_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)flags;
    (void)user_data;
    if (call != NULL)
        fl_channel__call_header(call, (struct fl_str){(const char *)name, name_len},
                                (struct fl_str){(const char *)value, value_len});
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct fl_channel_link *link = user_data;

    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0 && !link->is_ready) {
            link->is_ready = true;
            fl_channel__link_ready(link);
        }
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
            link->is_ping_open = false;
        break;
    case NGHTTP2_GOAWAY:
        fl_channel__link_draining(link);
        break;
    default:
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data)
{
    struct fl_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

    (void)flags;
    (void)user_data;
    (void)nghttp2_session_consume(session, stream_id, len);
    if (call != NULL)
        fl_channel__call_input(call, data, len);
    return 0;
}

/* A request that was begun while the server's GOAWAY was on its way. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error,
                             void *user_data)
{
    struct fl_channel_link *link = user_data;
    struct fl_rpc_client_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    if (call == NULL || frame->hd.type != NGHTTP2_HEADERS ||
        error != NGHTTP2_ERR_START_STREAM_NOT_ALLOWED)
        return 0;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, NULL);
    fl_channel__link_draining(link);
    fl_channel__call_replay(call);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct fl_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

    (void)user_data;
    if (call == NULL)
        return 0;
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    fl_channel__call_closed(call, error_code);
    return 0;
}

nghttp2_session_callbacks *fl_channel__callbacks(void)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}

/* --- The connection --- */

static void watch_alive(struct fl_channel_link *link, uint64_t at_ms)
{
    if (fl_timer_set(link->channel->loop, &link->alive, at_ms) < 0)
        fl_channel__link_close(link, fl_error_text(FL_E_NOMEM));
}

static void on_alive_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_channel_link *link = FL_CONTAINER_OF(timer, struct fl_channel_link, alive);
    unsigned keepalive_ms = link->channel->config.keepalive_ms;

    if (!link->is_ready) {
        fl_channel__link_close(link, "it does not answer as an HTTP/2 server (is it a gRPC port?)");
    } else if (now_ms - link->last_read_ms < keepalive_ms) {
        link->is_ping_open = false;
        watch_alive(link, link->last_read_ms + keepalive_ms);
    } else if (fl_list_is_empty(&link->calls)) {
        watch_alive(link, now_ms + keepalive_ms); /* nobody waits for anything */
    } else if (!link->is_ping_open) {
        link->is_ping_open = true;
        (void)nghttp2_submit_ping(link->session, NGHTTP2_FLAG_NONE, NULL);
        fl_conn_mark(link->conn);
        watch_alive(link, now_ms + link->channel->config.keepalive_timeout_ms);
    } else {
        fl_channel__link_close(link, "a ping was not answered");
    }
}

static void on_open(struct fl_conn *conn, void *ctx)
{
    struct fl_channel_link *link = ctx;

    link->last_read_ms = fl_loop_now_ms(link->channel->loop);
    if (fl_h2_session_new(false, &limits, link->channel->callbacks, link, &link->session) < 0) {
        fl_channel__link_close(link, fl_error_text(FL_E_NOMEM));
        return;
    }
    watch_alive(link, link->last_read_ms + link->channel->config.connect_timeout_ms);
    fl_conn_mark(conn);
}

static int on_read(struct fl_conn *conn, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_channel_link *link = ctx;
    ssize_t n;

    link->last_read_ms = fl_loop_now_ms(link->channel->loop);
    n = nghttp2_session_mem_recv(link->session, data, len);
    fl_conn_mark(conn);
    if (n == NGHTTP2_ERR_NOMEM)
        return FL_E_NOMEM;
    return n < 0 ? FL_E_PROTOCOL : FL_OK;
}

static void on_turn_end(struct fl_conn *conn, void *ctx)
{
    struct fl_channel_link *link = ctx;
    int r;

    if (link->session == NULL)
        return;
    r = fl_h2_pull(link->session, conn, FL_RPC_SOCKET_OUT_MAX);
    if (r < 0)
        fl_channel__link_close(link, fl_error_text(r));
    else if (nghttp2_session_want_read(link->session) == 0 &&
             nghttp2_session_want_write(link->session) == 0)
        fl_channel__link_close(link, "the server ended the connection");
    else if (link->channel->is_freed)
        fl_conn_close_gently(conn, "the client is done");
    else if (link != link->channel->current && fl_list_is_empty(&link->calls))
        fl_conn_close_gently(conn, "drained");
}

static void on_drained(struct fl_conn *conn, void *ctx)
{
    const struct fl_channel_link *link = ctx;

    if (link->session != NULL && nghttp2_session_want_write(link->session) != 0)
        fl_conn_mark(conn);
}

static void on_close(struct fl_conn *conn, void *ctx, int error, const char *why)
{
    struct fl_channel_link *link = ctx;

    (void)conn;
    (void)error;
    fl_timer_clear(link->channel->loop, &link->alive);
    fl_list_remove(&link->link);
    fl_channel__link_gone(link, why);
    fl_h2_session_free(link->session);
    free(link);
}

static const struct fl_conn_handler handler = {
    .on_open = on_open,
    .on_read = on_read,
    .on_turn_end = on_turn_end,
    .on_drained = on_drained,
    .on_close = on_close,
};

struct fl_channel_link *fl_channel__link_new(struct fl_rpc_channel *ch, const char *endpoint)
{
    struct fl_channel_link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return NULL;
    link->channel = ch;
    link->endpoint = endpoint;
    link->alive = FL_TIMER_INIT(on_alive_timer);
    fl_list_init(&link->calls);
    fl_list_init(&link->link);
    link->conn = fl_conn_connect(ch->loop, endpoint, ch->config.connect_timeout_ms, &handler, link);
    if (link->conn == NULL) {
        free(link);
        return NULL;
    }
    fl_conn_begin_with(link->conn, ch->rounds);
    fl_list_append(&ch->links, &link->link);
    return link;
}

void fl_channel__link_close(struct fl_channel_link *link, const char *why)
{
    fl_conn_close(link->conn, FL_E_CLOSED, why);
}
