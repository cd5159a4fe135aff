/* One call of a server: from its headers to its trailers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/server_parts.h"

#define HEADER_OVERHEAD 32
#define URGENCY_UNARY   2
#define URGENCY_STREAM  4

/* --- What is queued, and who waits for room --- */

static void move_to(struct fl_list *list, struct fl_list *link)
{
    fl_list_remove(link);
    fl_list_append(list, link);
}

static bool is_roomy(const struct fl_rpc_connection *c)
{
    return c->queued_bytes < FL_RPC_CONN_OUT_PAUSE;
}

/* Whoever stopped because the connection was full may have nothing queued of its own. */
static void release_stopped(struct fl_rpc_connection *c)
{
    FL_LIST_EACH(link, &c->stopped)
    {
        const struct fl_rpc_call *call = FL_CONTAINER_OF(link, struct fl_rpc_call, writable_link);

        if (call->out.bytes < FL_RPC_STREAM_OUT_GO_ON)
            move_to(&c->writable, link);
    }
}

static void give_back(struct fl_rpc_connection *c, size_t n)
{
    bool was_roomy = is_roomy(c);

    c->queued_bytes -= n;
    if (!was_roomy && is_roomy(c))
        release_stopped(c);
    if (!fl_list_is_empty(&c->writable))
        fl_rpc__connection_wake(c);
}

static void note_taken(struct fl_rpc_call *call, size_t n)
{
    struct fl_rpc_connection *c = call->connection;

    call->moved_ms = fl_loop_now_ms(c->server->loop);
    if (call->out.first == NULL)
        fl_list_remove(&call->sending_link);
    else if (n != 0)
        move_to(&c->sending, &call->sending_link);
    if (fl_list_is_linked(&call->writable_link) && call->out.bytes < FL_RPC_STREAM_OUT_GO_ON &&
        c->queued_bytes - n < FL_RPC_CONN_OUT_PAUSE)
        move_to(&c->writable, &call->writable_link);
    give_back(c, n);
}

static void drop_output(struct fl_rpc_call *call)
{
    size_t n = call->out.bytes;

    fl_rpc_queue_clear(&call->out);
    fl_list_remove(&call->sending_link);
    fl_list_remove(&call->writable_link);
    give_back(call->connection, n);
}

/* --- Headers --- */

static void on_deadline(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_rpc_call *call = FL_CONTAINER_OF(timer, struct fl_rpc_call, timer);

    (void)now_ms;
    drop_output(call);
    fl_rpc__call_gone(call, FL_RPC_GONE_DEADLINE);
    fl_rpc__call_finish_plain(call, FL_RPC_DEADLINE_EXCEEDED, "the call's deadline has come");
}

struct fl_rpc_call *fl_rpc__call_new(struct fl_rpc_connection *c, int32_t stream_id)
{
    struct fl_rpc_call *call = calloc(1, sizeof *call);

    if (call == NULL)
        return NULL;
    call->connection = c;
    call->stream_id = stream_id;
    call->timer = FL_TIMER_INIT(on_deadline);
    fl_list_init(&call->sending_link);
    fl_list_init(&call->writable_link);
    fl_deframer_init(&call->deframer, c->server->config.message_bytes_max);
    fl_list_append(&c->calls, &call->link);
    c->server->stats.calls++;
    c->server->stats.calls_ever++;
    return call;
}

static bool is_name(const uint8_t *name, size_t len, const char *expected)
{
    return len == strlen(expected) && memcmp(name, expected, len) == 0;
}

static bool is_grpc_type(const uint8_t *value, size_t len)
{
    static const char type[] = "application/grpc";
    size_t n = sizeof type - 1;

    return len >= n && memcmp(value, type, n) == 0 &&
           (len == n || value[n] == '+' || value[n] == ';');
}

/* Name and value, both terminated, in one block. */
static char *join(const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len)
{
    char *text = malloc(name_len + value_len + 2);

    if (text == NULL)
        return NULL;
    memcpy(text, name, name_len);
    text[name_len] = '\0';
    if (value_len != 0)
        memcpy(text + name_len + 1, value, value_len);
    text[name_len + 1 + value_len] = '\0';
    return text;
}

static void keep_header(struct fl_rpc_call *call, const uint8_t *name, size_t name_len,
                        const uint8_t *value, size_t value_len)
{
    struct fl_rpc_header *headers =
        realloc(call->headers, (call->n_headers + 1) * sizeof *call->headers);
    char *text;

    if (headers == NULL)
        return;
    call->headers = headers;
    text = join(name, name_len, value, value_len);
    if (text == NULL)
        return;
    headers[call->n_headers++] = (struct fl_rpc_header){text, text + name_len + 1};
}

int fl_rpc__call_header(struct fl_rpc_call *call, const uint8_t *name, size_t name_len,
                        const uint8_t *value, size_t value_len)
{
    call->header_bytes += name_len + value_len + HEADER_OVERHEAD;
    if (call->header_bytes > 4 * FL_RPC_HEADER_BYTES_MAX)
        return FL_E_TOO_BIG;
    if (call->header_bytes > FL_RPC_HEADER_BYTES_MAX) {
        call->is_over_limit = true;
        return FL_OK;
    }
    if (is_name(name, name_len, ":path") && call->path == NULL) {
        call->path = join(value, value_len, NULL, 0);
    } else if (is_name(name, name_len, ":method")) {
        call->is_post = is_name(value, value_len, "POST");
    } else if (is_name(name, name_len, "content-type")) {
        call->is_content_type_ok = is_grpc_type(value, value_len);
    } else if (is_name(name, name_len, "grpc-encoding")) {
        call->is_encoding_bad = !is_name(value, value_len, "identity");
    } else if (is_name(name, name_len, "grpc-timeout")) {
        call->has_deadline = true;
        call->is_timeout_bad =
            fl_timeout_parse((const char *)value, value_len, &call->timeout_ms) < 0;
    } else if (name_len != 0 && name[0] != ':') {
        keep_header(call, name, name_len, value, value_len);
    }
    return FL_OK;
}

int fl_rpc__call_trailer(struct fl_rpc_call *call, size_t name_len, size_t value_len)
{
    call->header_bytes += name_len + value_len + HEADER_OVERHEAD;
    return call->header_bytes > 4 * FL_RPC_HEADER_BYTES_MAX ? FL_E_TOO_BIG : FL_OK;
}

/* What is no gRPC gets an HTTP answer. */
static void answer_http(struct fl_rpc_call *call, const char *status)
{
    nghttp2_nv header = fl_h2_header(":status", status, 3);

    call->is_finished = call->has_headers = call->is_trailer_sent = true;
    (void)nghttp2_submit_response(call->connection->session, call->stream_id, &header, 1, NULL);
    fl_rpc__connection_wake(call->connection);
}

static bool refuse_headers(struct fl_rpc_call *call)
{
    if (call->is_over_limit) { /* first: the others may have been what was not kept */
        fl_rpc__call_finish_plain(call, FL_RPC_RESOURCE_EXHAUSTED,
                                  "the request's metadata is larger than 16 KiB");
    } else if (!call->is_post) {
        answer_http(call, "405");
    } else if (!call->is_content_type_ok) {
        answer_http(call, "415");
    } else if (call->is_encoding_bad) {
        fl_rpc__call_finish_plain(call, FL_RPC_UNIMPLEMENTED,
                                  "compressed messages are not supported: send them as they are");
    } else if (call->is_timeout_bad) {
        fl_rpc__call_finish_plain(call, FL_RPC_INTERNAL, "grpc-timeout is malformed");
    } else {
        call->method =
            call->path != NULL ? fl_rpc__find_method(call->connection->server, call->path) : NULL;
        if (call->method == NULL)
            fl_rpc__call_finish_plain(call, FL_RPC_UNIMPLEMENTED,
                                      "this server has no such method (is the client newer?)");
    }
    return call->is_finished;
}

static void send_response_headers(struct fl_rpc_call *call);

void fl_rpc__call_headers_end(struct fl_rpc_call *call)
{
    struct fl_rpc_connection *c = call->connection;
    uint64_t now_ms = fl_loop_now_ms(c->server->loop);

    call->deadline_ms = UINT64_MAX;
    if (refuse_headers(call)) {
        call->is_gone = true; /* no handler has heard of it */
        return;
    }
    fl_h2_set_urgency(c->session, call->stream_id,
                      call->method->is_stream ? URGENCY_STREAM : URGENCY_UNARY);
    if (call->has_deadline) {
        call->deadline_ms = now_ms + call->timeout_ms;
        if (fl_timer_set(c->server->loop, &call->timer, call->deadline_ms) < 0)
            call->deadline_ms = UINT64_MAX; /* the client's own clock ends it */
    }
    /* Clients may wait for the first headers before they send anything. */
    if (call->method->is_stream)
        send_response_headers(call);
    if (call->method->handler->on_open != NULL)
        call->method->handler->on_open(call);
}

/* --- Input --- */

static void consume(struct fl_rpc_call *call, size_t len)
{
    struct fl_rpc_connection *c = call->connection;

    if (call->is_paused)
        call->unconsumed += len;
    else if (len != 0)
        (void)nghttp2_session_consume_stream(c->session, call->stream_id, len);
}

static void refuse_input(struct fl_rpc_call *call, int error)
{
    switch (error) {
    case FL_E_TOO_BIG:
        fl_rpc__call_finish_plain(call, FL_RPC_RESOURCE_EXHAUSTED,
                                  "the message is larger than this server takes");
        break;
    case FL_E_UNSUPPORTED:
        fl_rpc__call_finish_plain(call, FL_RPC_INTERNAL,
                                  "a message is compressed though no grpc-encoding was given");
        break;
    case FL_E_NOMEM:
        fl_rpc__call_finish_plain(call, FL_RPC_RESOURCE_EXHAUSTED, "the server is out of memory");
        break;
    default:
        fl_rpc__call_finish_plain(call, FL_RPC_INTERNAL, "a message's frame is malformed");
        break;
    }
    fl_rpc__call_gone(call, FL_RPC_GONE_REFUSED);
}

/* A unary message waits for the end of the input: only then it is known to be the only one. */
static void take_message(struct fl_rpc_call *call)
{
    call->n_messages++;
    if (call->method->is_stream) {
        call->method->handler->on_message(call, call->deframer.message, call->deframer.len);
    } else if (call->n_messages > 1) {
        fl_rpc__call_finish_plain(call, FL_RPC_UNIMPLEMENTED, "a unary call takes one message");
        fl_rpc__call_gone(call, FL_RPC_GONE_REFUSED);
    }
}

/* Its handler has nothing more to hear. */
static bool is_over(const struct fl_rpc_call *call)
{
    return call->is_finished || call->is_gone;
}

void fl_rpc__call_input(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    size_t at = 0, taken;
    int r;

    /* All of it is fed at once, so that a pause holds back the window and not the bytes. */
    while (at < len && !is_over(call)) {
        r = fl_deframer_feed(&call->deframer, data + at, len - at, &taken);
        if (r < 0) {
            refuse_input(call, r);
            break;
        }
        at += taken;
        if (r == 1)
            take_message(call);
    }
    consume(call, len);
}

void fl_rpc__call_input_end(struct fl_rpc_call *call)
{
    const struct fl_rpc_handler *handler;

    if (call->is_half_closed)
        return;
    call->is_half_closed = true;
    if (is_over(call))
        return;
    handler = call->method->handler;
    if (fl_deframer_is_inside(&call->deframer)) {
        refuse_input(call, FL_E_MALFORMED);
        return;
    }
    if (!call->method->is_stream) {
        if (call->n_messages != 1) {
            fl_rpc__call_finish_plain(call, FL_RPC_UNIMPLEMENTED, "a unary call takes one message");
            fl_rpc__call_gone(call, FL_RPC_GONE_REFUSED);
            return;
        }
        handler->on_message(call, call->deframer.message, call->deframer.len);
    }
    if (handler->on_half_close != NULL && !is_over(call))
        handler->on_half_close(call);
}

/* --- Output --- */

static ssize_t read_output(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *user_data);

static const nghttp2_data_provider provider = {.read_callback = read_output};

static void send_response_headers(struct fl_rpc_call *call)
{
    const nghttp2_nv headers[] = {
        fl_h2_header(":status", "200", 3),
        fl_h2_header("content-type", "application/grpc", 16),
    };

    call->has_headers = true;
    (void)nghttp2_submit_response(call->connection->session, call->stream_id, headers, 2,
                                  &provider);
    fl_rpc__connection_wake(call->connection);
}

struct trailers {
    nghttp2_nv headers[8];
    size_t n;
    char code[8], retry[16], message[4 * FL_MESSAGE_MAX];
};

static void add_text(struct trailers *t, const char *name, const char *value)
{
    if (value != NULL)
        t->headers[t->n++] = fl_h2_header(name, value, strlen(value));
}

static void make_trailers(const struct fl_rpc_call *call, struct trailers *t)
{
    snprintf(t->code, sizeof t->code, "%d", (int)call->end.code);
    add_text(t, "grpc-status", t->code);
    if (call->end.message != NULL) {
        fl_percent_encode(call->end.message, t->message, sizeof t->message);
        add_text(t, "grpc-message", t->message);
    }
    add_text(t, "fencelock-reason", call->end.reason);
    add_text(t, "fencelock-field", call->end.field);
    if (call->end.retry_after_ms != 0) {
        snprintf(t->retry, sizeof t->retry, "%u", call->end.retry_after_ms);
        add_text(t, "fencelock-retry-after-ms", t->retry);
    }
    if (call->is_encoding_bad)
        add_text(t, "grpc-accept-encoding", "identity");
}

/* nghttp2 copies what it is given. */
static void send_trailers(struct fl_rpc_call *call)
{
    struct trailers t = {.n = 0};

    make_trailers(call, &t);
    call->is_trailer_sent = true;
    (void)nghttp2_submit_trailer(call->connection->session, call->stream_id, t.headers, t.n);
}

/* An answer without a message: one HEADERS frame says all. */
static void send_trailers_only(struct fl_rpc_call *call)
{
    struct trailers t = {.n = 0};

    t.headers[t.n++] = fl_h2_header(":status", "200", 3);
    t.headers[t.n++] = fl_h2_header("content-type", "application/grpc", 16);
    make_trailers(call, &t);
    call->has_headers = call->is_trailer_sent = true;
    (void)nghttp2_submit_response(call->connection->session, call->stream_id, t.headers, t.n, NULL);
}

static ssize_t read_output(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    /* Found by the stream, never by the source: a cancelled call may be gone while its DATA is
     * queued. */
    struct fl_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    size_t n;

    (void)source;
    (void)user_data;
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    n = fl_rpc_queue_take(&call->out, buf, length);
    note_taken(call, n);
    if (call->out.first != NULL)
        return (ssize_t)n;
    if (call->is_finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        send_trailers(call);
        return (ssize_t)n;
    }
    return n != 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

static void kick_output(struct fl_rpc_call *call)
{
    if (!call->has_headers)
        send_response_headers(call);
    else
        (void)nghttp2_session_resume_data(call->connection->session, call->stream_id);
    fl_rpc__connection_wake(call->connection);
}

/* Its client does not read: what is queued for it goes, without a last word. */
static void reset_for_calm(struct fl_rpc_call *call)
{
    call->is_finished = true;
    call->end.code = FL_RPC_RESOURCE_EXHAUSTED;
    drop_output(call);
    (void)nghttp2_submit_rst_stream(call->connection->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                    NGHTTP2_ENHANCE_YOUR_CALM);
    fl_rpc__connection_wake(call->connection);
}

static void queue_message(struct fl_rpc_call *call, uint8_t *message, size_t len)
{
    struct fl_rpc_connection *c = call->connection;

    fl_rpc_queue_put(&call->out, message, len);
    c->queued_bytes += FL_RPC_PREFIX_BYTES + len;
    if (!fl_list_is_linked(&call->sending_link)) {
        call->moved_ms = fl_loop_now_ms(c->server->loop);
        fl_list_append(&c->sending, &call->sending_link);
    }
    kick_output(call);
}

bool fl_rpc_call_send(struct fl_rpc_call *call, uint8_t *message, size_t len)
{
    struct fl_rpc_connection *c = call->connection;

    if (is_over(call)) {
        fl_rpc_message_free(message);
        return false;
    }
    if (message == NULL) {
        fl_rpc__call_finish_plain(call, FL_RPC_RESOURCE_EXHAUSTED, "the server is out of memory");
        return false;
    }
    if (c->queued_bytes + len > FL_RPC_CONN_OUT_MAX) {
        fl_rpc_message_free(message);
        reset_for_calm(call);
        return false;
    }
    queue_message(call, message, len);
    if (call->out.bytes <= FL_RPC_STREAM_OUT_PAUSE && is_roomy(c))
        return true;
    move_to(&c->stopped, &call->writable_link);
    return false;
}

void fl_rpc__reset_stalled(struct fl_rpc_connection *c, uint64_t now_ms)
{
    struct fl_list *link;

    while ((link = fl_list_first(&c->sending)) != NULL) {
        struct fl_rpc_call *call = FL_CONTAINER_OF(link, struct fl_rpc_call, sending_link);

        if (call->moved_ms + c->server->config.stall_ms > now_ms)
            return;
        reset_for_calm(call);
    }
}

size_t fl_rpc_call_queued(const struct fl_rpc_call *call)
{
    return call->out.bytes;
}

static char *copy_text(const char *text)
{
    return text != NULL ? strdup(text) : NULL; /* without memory the code alone must do */
}

void fl_rpc_call_finish(struct fl_rpc_call *call, const struct fl_rpc_status *status)
{
    if (call->is_finished)
        return;
    call->is_finished = true;
    call->end.code = status->code;
    call->end.message = copy_text(status->message);
    call->end.reason = copy_text(status->reason);
    call->end.field = copy_text(status->field);
    call->end.retry_after_ms = status->retry_after_ms;
    fl_timer_clear(call->connection->server->loop, &call->timer);
    if (!call->has_headers && call->out.first == NULL)
        send_trailers_only(call);
    else
        kick_output(call);
    fl_rpc__connection_wake(call->connection);
}

void fl_rpc__call_finish_plain(struct fl_rpc_call *call, enum fl_rpc_code code, const char *message)
{
    const struct fl_rpc_status status = {.code = code, .message = message};

    fl_rpc_call_finish(call, &status);
}

void fl_rpc_call_pause(struct fl_rpc_call *call)
{
    call->is_paused = true;
}

void fl_rpc_call_resume(struct fl_rpc_call *call)
{
    size_t len = call->unconsumed;

    call->is_paused = false;
    call->unconsumed = 0;
    consume(call, len);
    fl_rpc__connection_wake(call->connection);
}

/* --- End --- */

void fl_rpc__call_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    if (call->is_gone)
        return;
    call->is_gone = true;
    if (call->method != NULL && call->method->handler->on_gone != NULL)
        call->method->handler->on_gone(call, why);
}

void fl_rpc__call_free(struct fl_rpc_call *call)
{
    struct fl_rpc_connection *c = call->connection;

    fl_timer_clear(c->server->loop, &call->timer);
    drop_output(call);
    fl_deframer_deinit(&call->deframer);
    for (size_t i = 0; i < call->n_headers; i++)
        free(call->headers[i].name);
    free(call->headers);
    free(call->path);
    free(call->end.message);
    free(call->end.reason);
    free(call->end.field);
    fl_list_remove(&call->link);
    c->server->stats.calls--;
    free(call);
}

/* --- Small things --- */

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

uint64_t fl_rpc_call_deadline_ms(const struct fl_rpc_call *call)
{
    return call->deadline_ms;
}

const char *fl_rpc_call_peer(const struct fl_rpc_call *call)
{
    return fl_conn_peer(call->connection->conn);
}

const char *fl_rpc_call_metadata(const struct fl_rpc_call *call, const char *key)
{
    for (size_t i = 0; i < call->n_headers; i++) {
        if (strcmp(call->headers[i].name, key) == 0)
            return call->headers[i].value;
    }
    return NULL;
}

struct fl_rpc_server *fl_rpc__call_server(struct fl_rpc_call *call)
{
    return call->connection->server;
}
