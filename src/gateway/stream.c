/* OpenSession: a session with its heartbeats on one stream.
 *
 * A stream begins with `open` or `resume` and belongs to one session from the answer on. It adds
 * nothing of its own (T11): each message of the client becomes one request, each answer of a node
 * one message; heartbeats alone may be merged, the newest stands for those before it.
 *
 * When the leader changes, the stream stays: the router sends again what is unanswered, and the new
 * leader is told that the session is carried here. What it says the session holds and waits for is
 * passed on as another `opened`, since a loss that the old leader decided may never have been told.
 *
 * A stream that ends without `close` is detached: the session lives on until its TTL, unless it was
 * opened with release_on_disconnect and its client is the one who left. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/hash.h"
#include "gateway/internal.h"

/* A client that never reads its grants may not grow our memory past this. */
#define STREAM_BACKLOG_MAX ((size_t)256 * 1024)
/* Requests of one stream that are not answered yet: an acquire beyond is refused; the stream is not
 * read while so many releases are out. */
#define STREAM_REQUESTS_MAX 16384u
/* A client that says nothing for its TTL and a little more has lost its session anyhow. */
#define SILENCE_EXTRA_MS 1000u

enum stream_state { FRESH, OPENING, OPEN, CLOSING, ENDED };

struct stream {
    struct fl_list in_gateway;
    struct fl_gateway *gateway;
    struct fl_rpc_call *call;
    enum stream_state state;
    struct fl_session_id session;
    uint32_t ttl_ms;
    bool release_on_disconnect, is_listed, is_paused;

    struct fl_ask opening; /* open, resume; resume again at a new leader; close */
    struct fl_ask heartbeat;
    uint64_t heartbeat_seq, next_seq;
    bool has_next;

    struct fl_list requests; /* stream_request.in_stream */
    unsigned n_acquires, n_releases;

    struct fl_timer silence;
    uint64_t heard_ms;
};

struct stream_request {
    struct fl_ask ask;
    struct fl_list in_stream;
    struct stream *stream;
    uint64_t request_id;
    bool is_acquire;
};

typedef Fencelock__V1__OpenSessionRequest request_t;
typedef Fencelock__V1__OpenSessionResponse response_t;

#define RESPONSE_INIT FENCELOCK__V1__OPEN_SESSION_RESPONSE__INIT
#define CASE(name)    FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_##name

static uint64_t now_ms(const struct stream *stream)
{
    return fl_loop_now_ms(stream->gateway->loop);
}

/* --- The table of open streams, by session --- */

static uint64_t session_hash(struct fl_session_id id)
{
    return fl_hash_mix64(id.high ^ fl_hash_mix64(id.low));
}

static bool has_session(const void *value, const void *key)
{
    const struct stream *stream = value;
    const struct fl_session_id *id = key;

    return fl_session_id_equal(stream->session, *id);
}

static struct stream *find_stream(const struct fl_gateway *gateway, struct fl_session_id id)
{
    return fl_map_find(&gateway->sessions, session_hash(id), has_session, &id);
}

static void unlist(struct stream *stream)
{
    if (stream->is_listed)
        fl_map_remove(&stream->gateway->sessions, session_hash(stream->session), stream);
    stream->is_listed = false;
}

/* --- Ending --- */

static void request_free(struct stream_request *request)
{
    struct stream *stream = request->stream;

    fl_router_forget(stream->gateway->router, &request->ask);
    fl_list_remove(&request->in_stream);
    if (request->is_acquire)
        stream->n_acquires--;
    else
        stream->n_releases--;
    free(request);
}

/* From here on the stream asks nothing and is told nothing. */
static void settle(struct stream *stream)
{
    struct fl_router *router = stream->gateway->router;

    for (struct fl_list *at; (at = fl_list_first(&stream->requests)) != NULL;)
        request_free(FL_CONTAINER_OF(at, struct stream_request, in_stream));
    fl_router_forget(router, &stream->opening);
    fl_router_forget(router, &stream->heartbeat);
    fl_timer_clear(stream->gateway->loop, &stream->silence);
    unlist(stream);
    stream->state = ENDED;
}

/* `is_client_gone`: it broke off, so release_on_disconnect counts. */
static void detach(struct stream *stream, bool is_client_gone)
{
    struct fl_request detach = {.type = FL_REQ_DETACH,
                                .session = stream->session,
                                .release_on_disconnect =
                                    is_client_gone && stream->release_on_disconnect};

    fl_router_post(stream->gateway->router, now_ms(stream), &detach);
}

static void finish(struct stream *stream, const struct fl_rpc_status *status)
{
    struct fl_rpc_call *call = stream->call;

    settle(stream);
    fl_rpc_call_finish(call, status); /* on_gone may come within it */
}

static void finish_for(struct stream *stream, enum fl_reason reason)
{
    struct fl_outcome outcome;

    if (stream->state == OPEN && reason != FL_REASON_STREAM_REPLACED &&
        reason != FL_REASON_SESSION_NOT_FOUND)
        detach(stream, false);
    fl_outcome_set(&outcome, reason);
    finish(stream, &outcome.status);
}

/* --- Sending --- */

/* False: the stream has ended. */
static bool send_response(struct stream *stream, const response_t *response)
{
    if (fl_rpc_call_queued(stream->call) > STREAM_BACKLOG_MAX) {
        finish_for(stream, FL_REASON_SLOW_READER);
        return false;
    }
    if (fl_gateway__send(stream->call, &response->base))
        return true;
    settle(stream);
    return false;
}

static bool send_error(struct stream *stream, uint64_t request_id,
                       const struct fl_rpc_status *status)
{
    Fencelock__V1__OpenSessionResponse__Error error =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__ERROR__INIT;
    response_t response = RESPONSE_INIT;

    error.request_id = request_id;
    error.code = (uint32_t)status->code;
    if (status->reason != NULL)
        error.reason = (char *)status->reason;
    if (status->message != NULL)
        error.message = (char *)status->message;
    if (status->field != NULL)
        error.field = (char *)status->field;
    error.retry_after_ms = status->retry_after_ms;
    response.message_case = CASE(ERROR);
    response.error = &error;
    return send_response(stream, &response);
}

/* The session is gone: told apart from a stream that broke (C10). */
static void end_of_session(struct stream *stream, const struct fl_push *push)
{
    Fencelock__V1__OpenSessionResponse__Lost lost =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__LOST__INIT;
    response_t response = RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    lost.cause = fl_answer_cause(push->cause);
    lost.by = fl_arena_text(&arena, push->actor);
    lost.reason = fl_arena_text(&arena, push->reason);
    response.message_case = CASE(LOST);
    response.lost = &lost;
    is_open = send_response(stream, &response);
    fl_arena_deinit(&arena);
    if (is_open)
        finish_for(stream, FL_REASON_SESSION_NOT_FOUND);
}

/* The node says that there is no such session, and not why. */
static void session_not_found(struct stream *stream)
{
    static const struct fl_push unknown = {.cause = FL_CAUSE_NONE};

    end_of_session(stream, &unknown);
}

static bool is_session_gone(enum fl_ask_end how, const struct fl_reply *reply)
{
    return how == FL_ASK_REPLIED && reply->status == FL_REPLY_ANSWER &&
           reply->answer == FL_ANS_SESSION_NOT_FOUND;
}

/* --- Opening and resuming --- */

static void replace_older(struct stream *stream)
{
    struct stream *older = find_stream(stream->gateway, stream->session);

    if (older != NULL)
        finish_for(older, FL_REASON_STREAM_REPLACED);
}

static bool send_opened(struct stream *stream, const struct fl_reply *reply)
{
    response_t response = RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    response.message_case = CASE(OPENED);
    response.opened = fl_answer_opened(&arena, reply);
    is_open = send_response(stream, &response);
    fl_arena_deinit(&arena);
    return is_open;
}

static void set_silence_timer(struct stream *stream)
{
    uint64_t at_ms = stream->heard_ms + stream->ttl_ms + SILENCE_EXTRA_MS;

    FL_REQUIRE(fl_timer_set(stream->gateway->loop, &stream->silence, at_ms) == FL_OK);
}

static void on_silence(struct fl_timer *timer, uint64_t at_ms)
{
    struct stream *stream = FL_CONTAINER_OF(timer, struct stream, silence);

    if (at_ms < stream->heard_ms + stream->ttl_ms + SILENCE_EXTRA_MS)
        set_silence_timer(stream);
    else
        finish_for(stream, FL_REASON_STREAM_SILENT);
}

static void on_opening_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, opening);
    struct fl_outcome outcome;

    if (!fl_outcome_of(&outcome, how, reply)) {
        finish(stream, &outcome.status);
        return;
    }
    replace_older(stream);
    stream->state = OPEN;
    stream->ttl_ms = reply->ttl_ms;
    stream->is_listed = true;
    fl_map_insert(&stream->gateway->sessions, session_hash(stream->session), stream);
    stream->heard_ms = now_ms(stream);
    set_silence_timer(stream);
    fl_rpc_call_resume(stream->call);
    send_opened(stream, reply);
}

static void ask_opening(struct stream *stream, const struct fl_request *request)
{
    struct fl_outcome outcome;
    int r;

    stream->opening.done = on_opening_done;
    r = fl_router_ask(stream->gateway->router, now_ms(stream), &stream->opening, request,
                      FL_ROUTE_LEADER, 0);
    if (r < 0) {
        fl_outcome_of_error(&outcome, r);
        finish(stream, &outcome.status);
        return;
    }
    stream->state = OPENING;
    stream->session = request->session;
    stream->release_on_disconnect = request->release_on_disconnect;
    /* What comes before the answer would find no session. */
    fl_rpc_call_pause(stream->call);
}

static void begin(struct stream *stream, const request_t *message)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};
    bool is_good;

    if (message->message_case == FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_OPEN) {
        request.type = FL_REQ_OPEN_SESSION;
        request.session = fl_gateway__new_session_id();
        is_good = fl_arguments_options(&args, message->open->options);
    } else if (message->message_case == FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RESUME) {
        request.type = FL_REQ_RESUME_SESSION;
        request.release_on_disconnect = message->resume->release_on_disconnect;
        is_good = fl_arguments_session(&args, message->resume->session_id);
    } else {
        finish_for(stream, FL_REASON_BAD_SEQUENCE);
        return;
    }
    if (is_good)
        ask_opening(stream, &request);
    else
        finish(stream, &outcome.status);
}

/* --- At a new leader --- */

static void on_resumed_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, opening);
    struct fl_outcome outcome;

    if (is_session_gone(how, reply))
        session_not_found(stream);
    else if (fl_outcome_of(&outcome, how, reply))
        send_opened(stream, reply);
    /* Else no leader: the next one is told again, or the stream ends for want of one. */
}

void fl_gateway__streams_resume(struct fl_gateway *gateway)
{
    FL_LIST_EACH(at, &gateway->streams)
    {
        struct stream *stream = FL_CONTAINER_OF(at, struct stream, in_gateway);
        struct fl_request request = {.type = FL_REQ_RESUME_SESSION, .session = stream->session};

        if (stream->state != OPEN)
            continue;
        fl_router_forget(gateway->router, &stream->opening);
        stream->opening.done = on_resumed_done;
        (void)fl_router_ask(gateway->router, now_ms(stream), &stream->opening, &request,
                            FL_ROUTE_LEADER, 0); /* refused only when we stop */
    }
}

/* --- Heartbeats --- */

static bool acknowledge(struct stream *stream, uint64_t seq, uint32_t ttl_ms)
{
    Fencelock__V1__OpenSessionResponse__KeepAliveAck ack =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__KEEP_ALIVE_ACK__INIT;
    response_t response = RESPONSE_INIT;

    ack.seq = seq;
    ack.ttl_ms = ttl_ms;
    response.message_case = CASE(KEEP_ALIVE_ACK);
    response.keep_alive_ack = &ack;
    return send_response(stream, &response);
}

static void send_heartbeat(struct stream *stream, uint64_t seq)
{
    struct fl_request request = {.type = FL_REQ_KEEP_ALIVE, .session = stream->session};

    stream->heartbeat_seq = seq;
    (void)fl_router_ask(stream->gateway->router, now_ms(stream), &stream->heartbeat, &request,
                        FL_ROUTE_LEADER, 0); /* refused only when we stop */
}

static void on_heartbeat_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, heartbeat);
    struct fl_outcome outcome;

    if (is_session_gone(how, reply)) {
        session_not_found(stream);
        return;
    }
    if (fl_outcome_of(&outcome, how, reply) &&
        !acknowledge(stream, stream->heartbeat_seq, reply->ttl_ms))
        return;
    if (!stream->has_next)
        return;
    stream->has_next = false;
    send_heartbeat(stream, stream->next_seq);
}

/* One is out at a time; of those that come meanwhile only the newest goes on, since its
 * acknowledgement says all that theirs would. */
static void take_heartbeat(struct stream *stream, uint64_t seq)
{
    if (FL_BUG(GATEWAY_ACKS_BY_ITSELF)) {
        acknowledge(stream, seq, stream->ttl_ms);
        return;
    }
    if (!stream->heartbeat.is_asked) {
        send_heartbeat(stream, seq);
        return;
    }
    stream->has_next = true;
    stream->next_seq = seq;
}

/* --- Acquires, releases, cancels --- */

static bool send_acquired(struct stream *stream, uint64_t request_id, const struct fl_reply *reply)
{
    Fencelock__V1__OpenSessionResponse__Acquired acquired =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__ACQUIRED__INIT;
    struct fl_answer_context context = {.request_id = request_id, .wall_ms = fl_gateway__wall_ms()};
    response_t response = RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    acquired.request_id = request_id;
    acquired.response =
        (Fencelock__V1__AcquireResponse *)fl_answer_acquire(&arena, reply, &context);
    response.message_case = CASE(ACQUIRED);
    response.acquired = &acquired;
    is_open = send_response(stream, &response);
    fl_arena_deinit(&arena);
    return is_open;
}

static bool send_released(struct stream *stream, uint64_t request_id, const struct fl_reply *reply)
{
    Fencelock__V1__OpenSessionResponse__Released released =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__RELEASED__INIT;
    Fencelock__V1__ReleaseResponse body = FENCELOCK__V1__RELEASE_RESPONSE__INIT;
    response_t response = RESPONSE_INIT;

    body.log_index = reply->index;
    released.request_id = request_id;
    released.response = &body;
    response.message_case = CASE(RELEASED);
    response.released = &released;
    return send_response(stream, &response);
}

static void on_request_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream_request *request = FL_CONTAINER_OF(ask, struct stream_request, ask);
    struct stream *stream = request->stream;
    uint64_t request_id = request->request_id;
    bool is_acquire = request->is_acquire;
    struct fl_outcome outcome;

    request_free(request);
    if (stream->is_paused && stream->n_releases < STREAM_REQUESTS_MAX) {
        stream->is_paused = false;
        fl_rpc_call_resume(stream->call);
    }
    if (is_session_gone(how, reply))
        session_not_found(stream);
    else if (!fl_outcome_of(&outcome, how, reply))
        send_error(stream, request_id, &outcome.status);
    else if (is_acquire)
        send_acquired(stream, request_id, reply);
    else
        send_released(stream, request_id, reply);
}

static void ask_request(struct stream *stream, uint64_t request_id,
                        const struct fl_request *request)
{
    struct stream_request *asked = fl_xcalloc(1, sizeof *asked);
    struct fl_outcome outcome;
    int r;

    asked->ask.done = on_request_done;
    asked->stream = stream;
    asked->request_id = request_id;
    asked->is_acquire = request->type == FL_REQ_ACQUIRE;
    fl_list_append(&stream->requests, &asked->in_stream);
    if (asked->is_acquire)
        stream->n_acquires++;
    else
        stream->n_releases++;
    r = fl_router_ask(stream->gateway->router, now_ms(stream), &asked->ask, request,
                      FL_ROUTE_LEADER, 0);
    if (r == FL_OK)
        return;
    request_free(asked);
    fl_outcome_of_error(&outcome, r);
    send_error(stream, request_id, &outcome.status);
}

static void take_acquire(struct stream *stream, const Fencelock__V1__AcquireRequest *message)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};

    if (!fl_arguments_stream_acquire(&args, stream->session, message)) {
        uint64_t id =
            message->has_request_id_case == FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID__NOT_SET
                ? 0
                : message->request_id;

        send_error(stream, id, &outcome.status);
        return;
    }
    if (stream->n_acquires >= STREAM_REQUESTS_MAX) {
        fl_outcome_set(&outcome, FL_REASON_BUSY);
        send_error(stream, request.request_id, &outcome.status);
        return;
    }
    ask_request(stream, request.request_id, &request);
}

static void take_release(struct stream *stream, const Fencelock__V1__ReleaseRequest *message)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};

    if (!fl_arguments_stream_release(&args, stream->session, message)) {
        send_error(stream, message->request_id, &outcome.status);
        return;
    }
    ask_request(stream, message->request_id, &request);
    if (stream->state == ENDED || stream->n_releases < STREAM_REQUESTS_MAX)
        return;
    stream->is_paused = true;
    fl_rpc_call_pause(stream->call);
}

/* The acquire's own answer tells how it ended, so this one has none. */
static void take_cancel(struct stream *stream, const Fencelock__V1__CancelRequest *message)
{
    struct fl_request request = {
        .type = FL_REQ_CANCEL, .session = stream->session, .request_id = message->request_id};
    struct fl_outcome outcome;

    if (message->request_id == 0) {
        fl_outcome_set_fault(&outcome, "request_id", "is missing");
        send_error(stream, 0, &outcome.status);
        return;
    }
    fl_router_post(stream->gateway->router, now_ms(stream), &request);
}

/* --- Closing --- */

static void on_close_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    static const struct fl_rpc_status ok = {.code = FL_RPC_OK};
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, opening);
    struct fl_outcome outcome;

    if (is_session_gone(how, reply) || fl_outcome_of(&outcome, how, reply))
        finish(stream, &ok); /* it is closed, whoever closed it */
    else
        finish(stream, &outcome.status);
}

static void take_close(struct stream *stream)
{
    struct fl_request request = {.type = FL_REQ_CLOSE_SESSION, .session = stream->session};

    fl_router_forget(stream->gateway->router, &stream->opening);
    stream->opening.done = on_close_done;
    stream->state = CLOSING;
    if (fl_router_ask(stream->gateway->router, now_ms(stream), &stream->opening, &request,
                      FL_ROUTE_LEADER, 0) < 0)
        finish_for(stream, FL_REASON_SHUTTING_DOWN);
}

/* --- What comes from the server --- */

static void take(struct stream *stream, const request_t *message)
{
    switch (message->message_case) {
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE:
        take_heartbeat(stream, message->keep_alive->seq);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_ACQUIRE:
        take_acquire(stream, message->acquire);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RELEASE:
        take_release(stream, message->release);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CANCEL:
        take_cancel(stream, message->cancel);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CLOSE:
        take_close(stream);
        break;
    default:
        finish_for(stream, FL_REASON_BAD_SEQUENCE);
    }
}

static void on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    struct stream *stream = fl_rpc_call_data(call);
    ProtobufCMessage *message;

    if (stream == NULL || stream->state == ENDED || stream->state == CLOSING)
        return;
    message = fl_gateway__unpack(call, &fencelock__v1__open_session_request__descriptor, data, len);
    if (message == NULL) {
        if (fl_rpc_call_data(call) != NULL)
            settle(stream);
        return;
    }
    stream->heard_ms = now_ms(stream);
    if (stream->state == FRESH)
        begin(stream, (const request_t *)message);
    else
        take(stream, (const request_t *)message);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_open(struct fl_rpc_call *call)
{
    const struct fl_gateway_method *method = fl_rpc_call_method_ctx(call);
    struct stream *stream = fl_xcalloc(1, sizeof *stream);

    stream->gateway = method->gateway;
    stream->call = call;
    stream->heartbeat.done = on_heartbeat_done;
    stream->silence = FL_TIMER_INIT(on_silence);
    fl_list_init(&stream->requests);
    fl_list_append(&stream->gateway->streams, &stream->in_gateway);
    stream->gateway->n_streams++;
    fl_rpc_call_set_data(call, stream);
    if (stream->gateway->is_draining)
        finish_for(stream, FL_REASON_SHUTTING_DOWN);
}

/* It has said all and keeps nothing alive any more. */
static void on_half_close(struct fl_rpc_call *call)
{
    static const struct fl_rpc_status ok = {.code = FL_RPC_OK};
    struct stream *stream = fl_rpc_call_data(call);

    if (stream == NULL || stream->state == ENDED || stream->state == CLOSING)
        return;
    if (stream->state == OPEN || stream->state == OPENING)
        detach(stream, true);
    finish(stream, &ok);
}

static void on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    struct stream *stream = fl_rpc_call_data(call);

    (void)why;
    if (stream == NULL)
        return;
    fl_rpc_call_set_data(call, NULL);
    if (stream->state == OPEN || stream->state == OPENING)
        detach(stream, true);
    settle(stream);
    fl_list_remove(&stream->in_gateway);
    stream->gateway->n_streams--;
    free(stream);
}

const struct fl_rpc_handler fl_gateway__stream_handler = {
    .on_open = on_open,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_gone = on_gone,
};

/* --- What comes from the nodes --- */

static void push_lost(struct stream *stream, const struct fl_push *push)
{
    Fencelock__V1__OpenSessionResponse__Lost lost =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__LOST__INIT;
    response_t response = RESPONSE_INIT;
    struct fl_arena arena;

    fl_arena_init(&arena);
    lost.name = fl_arena_text(&arena, push->name);
    lost.token = push->token;
    lost.request_id = push->request_id;
    lost.cause = fl_answer_cause(push->cause);
    lost.by = fl_arena_text(&arena, push->actor);
    lost.reason = fl_arena_text(&arena, push->reason);
    response.message_case = CASE(LOST);
    response.lost = &lost;
    send_response(stream, &response);
    fl_arena_deinit(&arena);
}

static void push_contended(struct stream *stream, const struct fl_push *push)
{
    Fencelock__V1__OpenSessionResponse__Contended contended =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__CONTENDED__INIT;
    response_t response = RESPONSE_INIT;
    struct fl_arena arena;

    fl_arena_init(&arena);
    contended.name = fl_arena_text(&arena, push->name);
    contended.token = push->token;
    contended.waiters = push->waiters;
    response.message_case = CASE(CONTENDED);
    response.contended = &contended;
    send_response(stream, &response);
    fl_arena_deinit(&arena);
}

void fl_gateway__streams_push(struct fl_gateway *gateway, const struct fl_push *push)
{
    struct stream *stream = find_stream(gateway, push->session);

    if (stream == NULL || stream->state != OPEN)
        return; /* not carried here any more, or closing: its own answer tells */
    if (push->type == FL_PUSH_LOST)
        push_lost(stream, push);
    else if (push->type == FL_PUSH_CONTENDED)
        push_contended(stream, push);
    else
        end_of_session(stream, push);
}

/* Ending one may end others (an older stream of the same session), never add one. */
void fl_gateway__streams_end(struct fl_gateway *gateway, enum fl_reason reason)
{
    struct fl_list ending;

    fl_list_init(&ending);
    for (struct fl_list *at; (at = fl_list_first(&gateway->streams)) != NULL;) {
        struct stream *stream = FL_CONTAINER_OF(at, struct stream, in_gateway);

        fl_list_remove(at);
        fl_list_append(&ending, at);
        if (stream->state != ENDED)
            finish_for(stream, reason);
    }
    /* Those that are not gone yet. */
    for (struct fl_list *at; (at = fl_list_first(&ending)) != NULL;) {
        fl_list_remove(at);
        fl_list_append(&gateway->streams, at);
    }
}
