/* One call of a client: from its path to its status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/channel_parts.h"

/* A server that refuses everything must not keep its client busy. */
#define REPLAYS_MAX 8

/* --- The end --- */

static void free_blocks(struct fl_rpc_client_call *call)
{
    while (call->first != NULL) {
        struct fl_rpc_block *next = call->first->next;

        free(call->first);
        call->first = next;
    }
    call->last = call->cursor = NULL;
}

static void finish(struct fl_rpc_client_call *call, const struct fl_rpc_status *status)
{
    if (call->on != NULL && call->stream_id > 0)
        nghttp2_session_set_stream_user_data(call->on->session, call->stream_id, NULL);
    fl_list_remove(&call->link);
    fl_timer_clear(call->channel->loop, &call->timer);
    call->handler->on_done(call, call->ctx, status, call->was_sent);
    free_blocks(call);
    fl_deframer_deinit(&call->deframer);
    free(call->end.message);
    free(call->end.reason);
    free(call->end.field);
    free(call->path);
    free(call);
}

void fl_channel__call_done(struct fl_rpc_client_call *call, enum fl_rpc_code code,
                           const char *message)
{
    const struct fl_rpc_status status = {.code = code, .message = message};

    finish(call, &status);
}

static void reset_stream(struct fl_rpc_client_call *call)
{
    if (call->on == NULL || call->stream_id <= 0)
        return;
    (void)nghttp2_submit_rst_stream(call->on->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                    NGHTTP2_CANCEL);
    fl_conn_mark(call->on->conn);
}

static void on_deadline(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_rpc_client_call *call = FL_CONTAINER_OF(timer, struct fl_rpc_client_call, timer);
    char text[256];

    (void)now_ms;
    reset_stream(call);
    if (call->on != NULL)
        snprintf(text, sizeof text, "the deadline came before an answer from %s",
                 call->on->endpoint);
    else
        snprintf(text, sizeof text, "the deadline came while unconnected: %s", call->channel->why);
    fl_channel__call_done(call, FL_RPC_DEADLINE_EXCEEDED, text);
}

void fl_rpc_client_call_cancel(struct fl_rpc_client_call *call)
{
    reset_stream(call);
    fl_channel__call_done(call, FL_RPC_CANCELLED, "cancelled by the caller");
}

/* --- Beginning --- */

struct fl_rpc_client_call *fl_rpc_channel_call(struct fl_rpc_channel *ch, const char *path,
                                               unsigned deadline_ms, bool wait_for_ready,
                                               const struct fl_rpc_call_handler *handler, void *ctx)
{
    struct fl_rpc_client_call *call = ch->is_freed ? NULL : calloc(1, sizeof *call);

    if (call == NULL)
        return NULL;
    call->channel = ch;
    call->handler = handler;
    call->ctx = ctx;
    call->wait_for_ready = wait_for_ready;
    call->dials_left = ch->n_endpoints;
    call->replays_left = REPLAYS_MAX;
    call->path = strdup(path);
    call->timer = FL_TIMER_INIT(on_deadline);
    call->deadline_ms = UINT64_MAX;
    fl_deframer_init(&call->deframer, ch->config.message_bytes_max);
    if (deadline_ms != 0)
        call->deadline_ms = fl_loop_now_ms(ch->loop) + deadline_ms;
    if (call->path == NULL ||
        (deadline_ms != 0 && fl_timer_set(ch->loop, &call->timer, call->deadline_ms) < 0)) {
        free(call->path);
        free(call);
        return NULL;
    }
    fl_list_init(&call->link);
    fl_channel__place(call);
    return call;
}

/* --- Sending --- */

static size_t take_messages(struct fl_rpc_client_call *call, uint8_t *out, size_t size)
{
    size_t used = 0;

    while (used < size && call->cursor != NULL) {
        struct fl_rpc_block *block = call->cursor;
        size_t left = block->end - block->at;
        size_t n = left < size - used ? left : size - used;

        memcpy(out + used, (uint8_t *)block + block->at, n);
        used += n;
        block->at += (uint32_t)n;
        if (block->at < block->end)
            break;
        call->cursor = block->next;
        if (call->has_headers) { /* it will not be sent again */
            call->first = block->next;
            if (call->first == NULL)
                call->last = NULL;
            free(block);
        }
    }
    return used;
}

static ssize_t read_output(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct fl_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    size_t n;

    (void)source;
    (void)user_data;
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    n = take_messages(call, buf, length);
    if (n != 0)
        call->was_sent = true;
    if (call->cursor != NULL)
        return (ssize_t)n;
    if (call->is_half_closed) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return (ssize_t)n;
    }
    return n != 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

int fl_channel__call_start(struct fl_rpc_client_call *call, struct fl_channel_link *link)
{
    static const nghttp2_data_provider provider = {.read_callback = read_output};
    const char *agent = call->channel->config.user_agent;
    uint64_t now_ms = fl_loop_now_ms(call->channel->loop);
    char timeout[FL_TIMEOUT_TEXT_SIZE];
    nghttp2_nv headers[8] = {
        fl_h2_header(":method", "POST", 4),
        fl_h2_header(":scheme", "http", 4),
        fl_h2_header(":path", call->path, strlen(call->path)),
        fl_h2_header(":authority", link->endpoint, strlen(link->endpoint)),
        fl_h2_header("te", "trailers", 8),
        fl_h2_header("content-type", "application/grpc", 16),
        fl_h2_header("user-agent", agent, strlen(agent)),
    };
    size_t n = 7;

    if (call->deadline_ms != UINT64_MAX) {
        fl_timeout_format(call->deadline_ms > now_ms ? call->deadline_ms - now_ms : 1, timeout);
        headers[n++] = fl_h2_header("grpc-timeout", timeout, strlen(timeout));
    }
    for (struct fl_rpc_block *block = call->first; block != NULL; block = block->next)
        block->at = offsetof(struct fl_rpc_block, prefix);
    call->cursor = call->first;
    call->stream_id = nghttp2_submit_request(link->session, NULL, headers, n, &provider, call);
    if (call->stream_id < 0)
        return call->stream_id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE ? FL_E_CLOSED : FL_E_NOMEM;
    call->on = link;
    fl_list_remove(&call->link);
    fl_list_append(&link->calls, &call->link);
    fl_conn_mark(link->conn);
    return FL_OK;
}

static void kick_output(struct fl_rpc_client_call *call)
{
    if (call->on == NULL)
        return;
    (void)nghttp2_session_resume_data(call->on->session, call->stream_id);
    fl_conn_mark(call->on->conn);
}

int fl_rpc_client_call_send(struct fl_rpc_client_call *call, uint8_t *message, size_t len)
{
    struct fl_rpc_block *block;

    if (message == NULL)
        return FL_E_NOMEM;
    block = fl_rpc_block_of(message);
    if (call->is_half_closed) {
        free(block);
        return FL_E_CLOSED;
    }
    block->next = NULL;
    block->at = offsetof(struct fl_rpc_block, prefix);
    block->end = (uint32_t)(sizeof *block + len);
    fl_frame_prefix(block->prefix, len);
    if (call->last != NULL)
        call->last->next = block;
    else
        call->first = block;
    call->last = block;
    if (call->cursor == NULL)
        call->cursor = block;
    kick_output(call);
    return FL_OK;
}

void fl_rpc_client_call_half_close(struct fl_rpc_client_call *call)
{
    call->is_half_closed = true;
    kick_output(call);
}

/* --- Receiving --- */

/* The server looked at it: what was sent will not be sent again. */
static void drop_sent_messages(struct fl_rpc_client_call *call)
{
    call->has_headers = true;
    while (call->first != call->cursor) {
        struct fl_rpc_block *next = call->first->next;

        free(call->first);
        call->first = next;
    }
    if (call->first == NULL)
        call->last = NULL;
}

static char *copy(struct fl_str value)
{
    return strndup(value.data, value.len);
}

static long read_number(struct fl_str value)
{
    long number = 0;

    if (value.len == 0 || value.len > 9)
        return -1;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return -1;
        number = number * 10 + (value.data[i] - '0');
    }
    return number;
}

void fl_channel__call_header(struct fl_rpc_client_call *call, struct fl_str name,
                             struct fl_str value)
{
    if (!call->has_headers)
        drop_sent_messages(call);
    if (fl_str_equal(name, FL_STR(":status"))) {
        call->http_status = (int)read_number(value);
    } else if (fl_str_equal(name, FL_STR("grpc-status"))) {
        call->has_status = true;
        call->end.code = fl_rpc_code_from_number(read_number(value));
    } else if (fl_str_equal(name, FL_STR("grpc-message")) && call->end.message == NULL) {
        call->end.message = copy(value);
        if (call->end.message != NULL)
            fl_percent_decode(call->end.message);
    } else if (fl_str_equal(name, FL_STR("fencelock-reason")) && call->end.reason == NULL) {
        call->end.reason = copy(value);
    } else if (fl_str_equal(name, FL_STR("fencelock-field")) && call->end.field == NULL) {
        call->end.field = copy(value);
    } else if (fl_str_equal(name, FL_STR("fencelock-retry-after-ms"))) {
        long number = read_number(value);

        call->end.retry_after_ms = number > 0 ? (uint32_t)number : 0;
    }
}

static void refuse_input(struct fl_rpc_client_call *call, int error)
{
    if (error == FL_E_TOO_BIG)
        fl_channel__call_done(call, FL_RPC_RESOURCE_EXHAUSTED, "the answer is larger than allowed");
    else if (error == FL_E_NOMEM) /* ours: the server is well, and may be asked again */
        fl_channel__call_done(call, FL_RPC_UNAVAILABLE, "no memory for the answer");
    else
        fl_channel__call_done(call, FL_RPC_INTERNAL, "the answer's frame is malformed");
}

void fl_channel__call_input(struct fl_rpc_client_call *call, const uint8_t *data, size_t len)
{
    nghttp2_session *session = call->on->session;
    int32_t stream_id = call->stream_id;
    size_t at = 0, taken;
    int r;

    while (at < len) {
        r = fl_deframer_feed(&call->deframer, data + at, len - at, &taken);
        if (r < 0) {
            reset_stream(call);
            refuse_input(call, r);
            return;
        }
        at += taken;
        if (r == 1)
            call->handler->on_message(call, call->ctx, call->deframer.message, call->deframer.len);
        /* The handler may have cancelled it. */
        if (nghttp2_session_get_stream_user_data(session, stream_id) != call)
            return;
    }
}

/* https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md */
static enum fl_rpc_code code_of_http(int status)
{
    switch (status) {
    case 401:
        return FL_RPC_UNAUTHENTICATED;
    case 403:
        return FL_RPC_PERMISSION_DENIED;
    case 404:
        return FL_RPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return FL_RPC_UNAVAILABLE;
    default:
        return FL_RPC_UNKNOWN;
    }
}

static void finish_without_status(struct fl_rpc_client_call *call, uint32_t error_code)
{
    char text[128];

    if (call->http_status != 0 && call->http_status != 200) {
        snprintf(text, sizeof text, "the server answered HTTP %d: is this a gRPC port?",
                 call->http_status);
        fl_channel__call_done(call, code_of_http(call->http_status), text);
        return;
    }
    switch (error_code) {
    case NGHTTP2_ENHANCE_YOUR_CALM:
        fl_channel__call_done(call, FL_RPC_RESOURCE_EXHAUSTED, "the server asks to slow down");
        break;
    case NGHTTP2_CANCEL:
        fl_channel__call_done(call, FL_RPC_CANCELLED, "the server cancelled the call");
        break;
    case NGHTTP2_REFUSED_STREAM:
        fl_channel__call_done(call, FL_RPC_UNAVAILABLE, "the server refused the call");
        break;
    default:
        snprintf(text, sizeof text, "the stream ended without a status (%s)",
                 nghttp2_http2_strerror(error_code));
        fl_channel__call_done(call, FL_RPC_INTERNAL, text);
        break;
    }
}

void fl_channel__call_replay(struct fl_rpc_client_call *call)
{
    call->was_sent = false;
    call->on = NULL;
    call->stream_id = 0;
    if (call->replays_left == 0 || call->channel->is_freed) {
        fl_channel__call_done(call, FL_RPC_UNAVAILABLE, "the server refused the call");
        return;
    }
    call->replays_left--;
    fl_list_remove(&call->link);
    fl_channel__place(call);
}

void fl_channel__call_closed(struct fl_rpc_client_call *call, uint32_t error_code)
{
    const struct fl_rpc_status status = {
        .code = call->end.code,
        .message = call->end.message,
        .reason = call->end.reason,
        .field = call->end.field,
        .retry_after_ms = call->end.retry_after_ms,
    };

    if (call->has_status && status.code == FL_RPC_OK && fl_deframer_is_inside(&call->deframer))
        fl_channel__call_done(call, FL_RPC_INTERNAL, "the answer ends inside a message");
    else if (call->has_status)
        finish(call, &status);
    else if (error_code == NGHTTP2_REFUSED_STREAM && !call->has_headers)
        fl_channel__call_replay(call);
    else
        finish_without_status(call, error_code);
}
