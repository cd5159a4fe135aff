/* What a client asks on its stream: heartbeats, acquires, releases, cancels. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "gateway/stream.h"

/* Requests of one stream that are not answered yet: an acquire beyond is refused; the stream is not
 * read while so many releases are out. */
#define STREAM_REQUESTS_MAX 16384u

static uint64_t now_ms(const struct stream *stream)
{
    return fl_loop_now_ms(stream->gateway->loop);
}

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

static bool send_error(struct stream *stream, uint64_t request_id,
                       const struct fl_rpc_status *status)
{
    Fencelock__V1__OpenSessionResponse__Error error =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__ERROR__INIT;
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;

    error.request_id = request_id;
    error.code = (uint32_t)status->code;
    if (status->reason != NULL)
        error.reason = (char *)status->reason;
    if (status->message != NULL)
        error.message = (char *)status->message;
    if (status->field != NULL)
        error.field = (char *)status->field;
    error.retry_after_ms = status->retry_after_ms;
    response.message_case = FL_STREAM_RESPONSE(ERROR);
    response.error = &error;
    return fl_stream__send(stream, &response);
}

/* What no node was asked. */
static bool refuse(struct stream *stream, enum fl_request_type type, uint64_t request_id,
                   const struct fl_outcome *outcome)
{
    fl_gateway_meter_refused(&stream->gateway->meter, type, outcome);
    return send_error(stream, request_id, &outcome->status);
}

/* --- Heartbeats --- */

static bool acknowledge(struct stream *stream, uint64_t seq, uint32_t ttl_ms)
{
    Fencelock__V1__OpenSessionResponse__KeepAliveAck ack =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__KEEP_ALIVE_ACK__INIT;
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;

    ack.seq = seq;
    ack.ttl_ms = ttl_ms;
    response.message_case = FL_STREAM_RESPONSE(KEEP_ALIVE_ACK);
    response.keep_alive_ack = &ack;
    return fl_stream__send(stream, &response);
}

static void on_heartbeat_done(struct fl_ask *ask, enum fl_ask_end how,
                              const struct fl_reply *reply);

static void send_heartbeat(struct stream *stream, uint64_t seq)
{
    struct fl_request request = {.type = FL_REQ_KEEP_ALIVE, .session = stream->session};

    stream->heartbeat_seq = seq;
    stream->heartbeat.done = on_heartbeat_done;
    (void)fl_router_ask(stream->gateway->router, now_ms(stream), &stream->heartbeat, &request,
                        FL_ROUTE_LEADER, 0); /* refused only when we stop */
}

static void on_heartbeat_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream *stream = FL_CONTAINER_OF(ask, struct stream, heartbeat);
    struct fl_outcome outcome;

    if (fl_stream__is_session_gone(how, reply)) {
        fl_stream__session_not_found(stream);
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
void fl_stream__heartbeat(struct stream *stream, uint64_t seq)
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
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;
    struct fl_arena arena;
    bool is_open;

    fl_arena_init(&arena);
    acquired.request_id = request_id;
    acquired.response =
        (Fencelock__V1__AcquireResponse *)fl_answer_acquire(&arena, reply, &context);
    response.message_case = FL_STREAM_RESPONSE(ACQUIRED);
    response.acquired = &acquired;
    is_open = fl_stream__send(stream, &response);
    fl_arena_deinit(&arena);
    return is_open;
}

static bool send_released(struct stream *stream, uint64_t request_id, const struct fl_reply *reply)
{
    Fencelock__V1__OpenSessionResponse__Released released =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__RELEASED__INIT;
    Fencelock__V1__ReleaseResponse body = FENCELOCK__V1__RELEASE_RESPONSE__INIT;
    Fencelock__V1__OpenSessionResponse response = FL_STREAM_RESPONSE_INIT;

    body.log_index = reply->index;
    released.request_id = request_id;
    released.response = &body;
    response.message_case = FL_STREAM_RESPONSE(RELEASED);
    response.released = &released;
    return fl_stream__send(stream, &response);
}

static void on_request_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct stream_request *request = FL_CONTAINER_OF(ask, struct stream_request, ask);
    struct stream *stream = request->stream;
    uint64_t request_id = request->request_id;
    bool is_acquire = request->is_acquire, is_open;
    struct fl_outcome outcome;

    request_free(request);
    if (fl_stream__is_session_gone(how, reply)) {
        fl_stream__session_not_found(stream);
        return;
    }
    if (!fl_outcome_of(&outcome, how, reply))
        is_open = send_error(stream, request_id, &outcome.status);
    else if (is_acquire)
        is_open = send_acquired(stream, request_id, reply);
    else
        is_open = send_released(stream, request_id, reply);
    if (!is_open || !stream->is_paused || stream->n_releases >= STREAM_REQUESTS_MAX)
        return;
    stream->is_paused = false;
    fl_rpc_call_resume(stream->call);
}

/* False: the stream has ended. */
static bool ask_request(struct stream *stream, uint64_t request_id,
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
        return true;
    request_free(asked);
    fl_outcome_of_error(&outcome, r);
    return refuse(stream, request->type, request_id, &outcome);
}

void fl_stream__acquire(struct stream *stream, const Fencelock__V1__AcquireRequest *message)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};

    if (!fl_arguments_stream_acquire(&args, stream->session, message)) {
        uint64_t id =
            message->has_request_id_case == FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID__NOT_SET
                ? 0
                : message->request_id;

        refuse(stream, FL_REQ_ACQUIRE, id, &outcome);
        return;
    }
    if (stream->n_acquires >= STREAM_REQUESTS_MAX)
        fl_outcome_set(&outcome, FL_REASON_BUSY);
    else if (!fl_gateway__is_limited(stream->gateway, &request, fl_rpc_call_peer(stream->call),
                                     &outcome)) {
        ask_request(stream, request.request_id, &request);
        return;
    }
    refuse(stream, FL_REQ_ACQUIRE, request.request_id, &outcome);
}

void fl_stream__release(struct stream *stream, const Fencelock__V1__ReleaseRequest *message)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};

    if (!fl_arguments_stream_release(&args, stream->session, message)) {
        refuse(stream, FL_REQ_RELEASE, message->request_id, &outcome);
        return;
    }
    if (!ask_request(stream, message->request_id, &request) ||
        stream->n_releases < STREAM_REQUESTS_MAX)
        return;
    stream->is_paused = true;
    fl_rpc_call_pause(stream->call);
}

/* The acquire's own answer tells how it ended, so this one has none. */
void fl_stream__cancel(struct stream *stream, const Fencelock__V1__CancelRequest *message)
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

/* --- Ending --- */

void fl_stream__forget(struct stream *stream)
{
    for (struct fl_list *at; (at = fl_list_first(&stream->requests)) != NULL;)
        request_free(FL_CONTAINER_OF(at, struct stream_request, in_stream));
    fl_router_forget(stream->gateway->router, &stream->heartbeat);
}
