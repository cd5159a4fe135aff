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
#include "gateway/stream.h"

/* A client that never reads its grants may not grow our memory past this. */
#define STREAM_BACKLOG_MAX ((size_t)256 * 1024)
/* A client that says nothing for its TTL and a little more has lost its session anyhow. */
#define SILENCE_EXTRA_MS 1000u
/* Kept while the session opens: as much as the server lets come in before it heeds our pause. */
#define STREAM_EARLY_MAX ((size_t)512 * 1024)

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

/* From here on the stream asks nothing and is told nothing. */
static void settle(struct stream *stream)
{
    struct fl_router *router = stream->gateway->router;

    fl_stream__forget(stream);
    fl_router_forget(router, &stream->opening);
    fl_timer_clear(stream->gateway->loop, &stream->silence);
    unlist(stream);
    stream->state = ENDED;
}

/* The session goes on without us. `is_client_gone`: it broke off, so release_on_disconnect counts.
 */
static void leave(struct stream *stream, bool is_client_gone)
{
    struct fl_request request = {.type = FL_REQ_DETACH,
                                 .session = stream->session,
                                 .release_on_disconnect =
                                     is_client_gone && stream->release_on_disconnect};

    if (stream->state != OPEN && stream->state != OPENING)
        return;
    if ((stream->state == OPENING && stream->is_new) || FL_BUG(GATEWAY_SESSION_ENDS_WITH_STREAM))
        request.type = FL_REQ_CLOSE_SESSION; /* nobody learned of it */
    fl_router_post(stream->gateway->router, now_ms(stream), &request);
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

    if (reason != FL_REASON_STREAM_REPLACED && reason != FL_REASON_SESSION_NOT_FOUND)
        leave(stream, false);
    fl_outcome_set(&outcome, reason);
    finish(stream, &outcome.status);
}

/* --- Sending --- */

/* False: the stream has ended. */
bool fl_stream__send(struct stream *stream, const Fencelock__V1__OpenSessionResponse *response)
{
    if (fl_rpc_call_queued(stream->call) > STREAM_BACKLOG_MAX) {
        finish_for(stream, FL_REASON_SLOW_READER);
        return false;
    }
    if (fl_gateway__send(stream->call, &response->base))
        return true;
    finish_for(stream, FL_REASON_OUT_OF_MEMORY);
    return false;
}

/* The session is gone: told apart from a stream that broke (C10). */
static void end_of_session(struct stream *stream, const struct fl_push *push)
{
    Fencelock__V1__OpenSessionResponse__Lost lost =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__LOST__INIT;
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    lost.cause = fl_answer_cause(push->cause);
    lost.by = fl_arena_text(&arena, push->actor);
    lost.reason = fl_arena_text(&arena, push->reason);
    response.message_case = FL_STREAM_RESPONSE(LOST);
    response.lost = &lost;
    is_open = fl_stream__send(stream, &response);
    fl_arena_deinit(&arena);
    if (is_open)
        finish_for(stream, FL_REASON_SESSION_NOT_FOUND);
}

/* The node says that there is no such session, and not why. */
void fl_stream__session_not_found(struct stream *stream)
{
    static const struct fl_push unknown = {.cause = FL_CAUSE_NONE};

    end_of_session(stream, &unknown);
}

bool fl_stream__is_session_gone(enum fl_ask_end how, const struct fl_reply *reply)
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
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    response.message_case = FL_STREAM_RESPONSE(OPENED);
    response.opened = fl_answer_opened(&arena, reply);
    is_open = fl_stream__send(stream, &response);
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

static bool take_early(struct stream *stream);

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
    if (send_opened(stream, reply) && take_early(stream))
        fl_rpc_call_resume(stream->call);
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
    stream->is_new = request->type == FL_REQ_OPEN_SESSION;
    stream->session = request->session;
    stream->release_on_disconnect = request->release_on_disconnect;
    /* What comes before the answer would find no session: some of it is on its way already. */
    fl_rpc_call_pause(stream->call);
}

static void begin(struct stream *stream, const Fencelock__V1__OpenSessionRequest *message)
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
    if (is_good && !fl_gateway__is_limited(stream->gateway, &request,
                                           fl_rpc_call_peer(stream->call), &outcome))
        ask_opening(stream, &request);
    else
        finish(stream, &outcome.status);
}

/* --- At a new leader --- */

static void on_resumed_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, opening);
    struct fl_outcome outcome;

    if (fl_stream__is_session_gone(how, reply))
        fl_stream__session_not_found(stream);
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

/* --- Closing --- */

static void on_close_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    static const struct fl_rpc_status ok = {.code = FL_RPC_OK};
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, opening);
    struct fl_outcome outcome;

    if (fl_stream__is_session_gone(how, reply) || fl_outcome_of(&outcome, how, reply))
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

static void take(struct stream *stream, const Fencelock__V1__OpenSessionRequest *message)
{
    switch (message->message_case) {
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE:
        fl_stream__heartbeat(stream, message->keep_alive->seq);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_ACQUIRE:
        fl_stream__acquire(stream, message->acquire);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RELEASE:
        fl_stream__release(stream, message->release);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CANCEL:
        fl_stream__cancel(stream, message->cancel);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CLOSE:
        take_close(stream);
        break;
    default:
        finish_for(stream, FL_REASON_BAD_SEQUENCE);
    }
}

static void take_bytes(struct stream *stream, const uint8_t *data, size_t len)
{
    struct fl_outcome outcome;
    ProtobufCMessage *message =
        fl_gateway__unpack(&fencelock__v1__open_session_request__descriptor, data, len, &outcome);

    if (message == NULL) {
        leave(stream, false);
        finish(stream, &outcome.status);
        return;
    }
    if (stream->state == FRESH)
        begin(stream, (const Fencelock__V1__OpenSessionRequest *)message);
    else
        take(stream, (const Fencelock__V1__OpenSessionRequest *)message);
    protobuf_c_message_free_unpacked(message, NULL);
}

/* What came while the session opened. False: the stream has ended, and may be gone. */
static bool take_early(struct stream *stream)
{
    struct fl_buf early = stream->early;
    struct fl_reader r = fl_reader_from(early.data, early.len);
    bool is_gone = false;

    stream->early = FL_BUF_INIT;
    stream->ret_gone = &is_gone;
    while (fl_reader_left(&r) > 0 && !is_gone && stream->state == OPEN) {
        size_t len = fl_reader_u32(&r);

        take_bytes(stream, fl_reader_bytes(&r, len), len);
    }
    fl_buf_deinit(&early);
    if (is_gone)
        return false;
    stream->ret_gone = NULL;
    return stream->state != ENDED;
}

static void on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    struct stream *stream = fl_rpc_call_data(call);

    if (stream->state == ENDED || stream->state == CLOSING)
        return;
    stream->heard_ms = now_ms(stream);
    if (stream->state != OPENING) {
        take_bytes(stream, data, len);
        return;
    }
    if (stream->early.len + len > STREAM_EARLY_MAX) {
        finish_for(stream, FL_REASON_BAD_SEQUENCE);
        return;
    }
    fl_buf_put_u32(&stream->early, (uint32_t)len);
    fl_buf_put(&stream->early, data, len);
}

static void on_open(struct fl_rpc_call *call)
{
    const struct fl_gateway_method *method = fl_rpc_call_method_ctx(call);
    struct stream *stream = fl_xcalloc(1, sizeof *stream);

    stream->gateway = method->gateway;
    stream->call = call;
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

    if (stream->state == ENDED || stream->state == CLOSING)
        return;
    leave(stream, true);
    finish(stream, &ok);
}

static void on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    struct stream *stream = fl_rpc_call_data(call);

    (void)why;
    leave(stream, true);
    settle(stream);
    fl_list_remove(&stream->in_gateway);
    stream->gateway->n_streams--;
    if (stream->ret_gone != NULL)
        *stream->ret_gone = true;
    fl_buf_deinit(&stream->early);
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
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;
    struct fl_arena arena;

    fl_arena_init(&arena);
    lost.name = fl_arena_text(&arena, push->name);
    lost.token = push->token;
    lost.request_id = push->request_id;
    lost.cause = fl_answer_cause(push->cause);
    lost.by = fl_arena_text(&arena, push->actor);
    lost.reason = fl_arena_text(&arena, push->reason);
    response.message_case = FL_STREAM_RESPONSE(LOST);
    response.lost = &lost;
    fl_stream__send(stream, &response);
    fl_arena_deinit(&arena);
}

static void push_contended(struct stream *stream, const struct fl_push *push)
{
    Fencelock__V1__OpenSessionResponse__Contended contended =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__CONTENDED__INIT;
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;
    struct fl_arena arena;

    fl_arena_init(&arena);
    contended.name = fl_arena_text(&arena, push->name);
    contended.token = push->token;
    contended.waiters = push->waiters;
    response.message_case = FL_STREAM_RESPONSE(CONTENDED);
    response.contended = &contended;
    fl_stream__send(stream, &response);
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
