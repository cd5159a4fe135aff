#include "client/wire.h"

#include <stdlib.h>
#include <string.h>

#include "client/unpack.h"
#include "client/why.h"
#include "lock.pb-c.h"
#include "rpc/server.h" /* message blocks */

typedef Fencelock__V1__OpenSessionRequest request_t;
typedef Fencelock__V1__OpenSessionResponse response_t;

static int pack(const request_t *request, uint8_t **ret_message, size_t *ret_len)
{
    size_t len = protobuf_c_message_get_packed_size(&request->base);
    uint8_t *message = fl_rpc_message_new(len);

    if (message == NULL)
        return FL_E_NOMEM;
    protobuf_c_message_pack(&request->base, message);
    *ret_message = message;
    *ret_len = len;
    return FL_OK;
}

static int pack_open(const struct fl_wire_options *options, uint8_t **ret_message, size_t *ret_len)
{
    Fencelock__V1__SessionOptions session = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__OpenSessionRequest__Open open = FENCELOCK__V1__OPEN_SESSION_REQUEST__OPEN__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    session.client = (char *)options->name;
    session.has_ttl_ms_case = FENCELOCK__V1__SESSION_OPTIONS__HAS_TTL_MS_TTL_MS;
    session.ttl_ms = options->ttl_ms;
    session.has_lock_delay_ms_case =
        FENCELOCK__V1__SESSION_OPTIONS__HAS_LOCK_DELAY_MS_LOCK_DELAY_MS;
    session.lock_delay_ms = options->lock_delay_ms;
    session.release_on_disconnect = options->release_on_disconnect;
    open.options = &session;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_OPEN;
    request.open = &open;
    return pack(&request, ret_message, ret_len);
}

static int pack_acquire(const struct fl_session_effect *effect, uint8_t **ret_message,
                        size_t *ret_len)
{
    Fencelock__V1__AcquireRequest acquire = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    acquire.name = (char *)effect->name;
    acquire.mode = (Fencelock__V1__Mode)effect->bid->mode;
    if (effect->bid->mode == FL_COUNTED) {
        acquire.has_limit_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_LIMIT_LIMIT;
        acquire.limit = effect->bid->limit;
    }
    acquire.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    acquire.wait_ms = effect->wait_ms;
    acquire.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    acquire.request_id = effect->request_id;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_ACQUIRE;
    request.acquire = &acquire;
    return pack(&request, ret_message, ret_len);
}

static int pack_release(const struct fl_session_effect *effect, uint8_t **ret_message,
                        size_t *ret_len)
{
    Fencelock__V1__ReleaseRequest release = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    release.name = (char *)effect->name;
    release.token = effect->token;
    release.request_id = effect->request_id;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RELEASE;
    request.release = &release;
    return pack(&request, ret_message, ret_len);
}

int fl_wire_pack(const struct fl_session_effect *effect, const struct fl_wire_options *options,
                 uint8_t **ret_message, size_t *ret_len)
{
    Fencelock__V1__OpenSessionRequest__Resume resume =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__RESUME__INIT;
    Fencelock__V1__OpenSessionRequest__Heartbeat heartbeat =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__HEARTBEAT__INIT;
    Fencelock__V1__OpenSessionRequest__Close close =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__CLOSE__INIT;
    Fencelock__V1__CancelRequest cancel = FENCELOCK__V1__CANCEL_REQUEST__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    switch (effect->type) {
    case FL_SESSION_FX_SEND_OPEN:
        return pack_open(options, ret_message, ret_len);
    case FL_SESSION_FX_SEND_ACQUIRE:
        return pack_acquire(effect, ret_message, ret_len);
    case FL_SESSION_FX_SEND_RELEASE:
        return pack_release(effect, ret_message, ret_len);
    case FL_SESSION_FX_SEND_RESUME:
        resume.session_id = (char *)effect->session_id;
        request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RESUME;
        request.resume = &resume;
        break;
    case FL_SESSION_FX_SEND_HEARTBEAT:
        heartbeat.seq = effect->seq;
        request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE;
        request.keep_alive = &heartbeat;
        break;
    case FL_SESSION_FX_SEND_CANCEL:
        cancel.request_id = effect->request_id;
        request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CANCEL;
        request.cancel = &cancel;
        break;
    default:
        request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CLOSE;
        request.close = &close;
    }
    return pack(&request, ret_message, ret_len);
}

static int deliver_opened(struct fl_session *session, uint64_t now_ms,
                          const Fencelock__V1__OpenSessionResponse__Opened *opened)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_OPENED,
                                     .now_ms = now_ms,
                                     .session_id = opened->session_id,
                                     .ttl_ms = opened->ttl_ms,
                                     .n_known = opened->n_holds + opened->n_waits};
    struct fl_session_known *known = calloc(event.n_known + 1, sizeof *known);

    if (known == NULL)
        return FL_E_NOMEM;
    for (size_t i = 0; i < opened->n_holds; i++)
        known[i] = (struct fl_session_known){.request_id = opened->holds[i]->request_id,
                                             .token = opened->holds[i]->token,
                                             .name = opened->holds[i]->name};
    for (size_t i = 0; i < opened->n_waits; i++)
        known[opened->n_holds + i] = (struct fl_session_known){
            .request_id = opened->waits[i]->request_id, .name = opened->waits[i]->name};
    event.known = known;
    fl_session_step(session, &event);
    free(known);
    return FL_OK;
}

static void deliver_acquired(struct fl_session *session, uint64_t now_ms,
                             const Fencelock__V1__OpenSessionResponse__Acquired *acquired)
{
    const Fencelock__V1__AcquireResponse *response = acquired->response;
    struct fl_session_event event = {
        .type = FL_SESSION_EV_ACQUIRED, .now_ms = now_ms, .request_id = acquired->request_id};
    struct fl_holder holder = {0};

    if (response != NULL) {
        event.is_granted = response->granted;
        event.token = response->token;
        event.is_cancelled = response->cause == FENCELOCK__V1__CAUSE__CANCELLED;
        if (response->holder != NULL) {
            fl_why_copy_text(holder.client, sizeof holder.client, response->holder->client);
            holder.token = response->holder->token;
            holder.held_for_ms = response->holder->held_for_ms;
            holder.mode = (int)response->holder->mode;
            event.holder = &holder;
        }
    }
    fl_session_step(session, &event);
}

static enum fl_lost_cause cause_of(Fencelock__V1__Cause cause)
{
    switch (cause) {
    case FENCELOCK__V1__CAUSE__SESSION_ENDED:
        return FL_LOST_SESSION_END;
    case FENCELOCK__V1__CAUSE__FORCE_RELEASED:
        return FL_LOST_FORCED;
    case FENCELOCK__V1__CAUSE__SESSION_EXPIRED:
        return FL_LOST_EXPIRED;
    default:
        return FL_LOST_GONE;
    }
}

static void deliver_lost(struct fl_session *session, uint64_t now_ms,
                         const Fencelock__V1__OpenSessionResponse__Lost *lost)
{
    bool is_session = lost->name[0] == '\0';
    struct fl_session_event event = {.type = is_session ? FL_SESSION_EV_ENDED : FL_SESSION_EV_LOST,
                                     .now_ms = now_ms,
                                     .request_id = lost->request_id,
                                     .token = lost->token,
                                     .cause = cause_of(lost->cause),
                                     .by = lost->by,
                                     .reason = lost->reason};

    if (is_session && event.cause == FL_LOST_GONE)
        event.cause = FL_LOST_EXPIRED; /* it is not known any more */
    fl_session_step(session, &event);
}

static void deliver_error(struct fl_session *session, uint64_t now_ms,
                          const Fencelock__V1__OpenSessionResponse__Error *error)
{
    struct fl_rpc_status status = {.code = fl_rpc_code_from_number((long)error->code),
                                   .message = error->message,
                                   .reason = error->reason,
                                   .field = error->field,
                                   .retry_after_ms = error->retry_after_ms};
    struct fl_why why;
    struct fl_session_event event = {.type = FL_SESSION_EV_ERROR,
                                     .now_ms = now_ms,
                                     .request_id = error->request_id,
                                     .why = &why};

    fl_wire_why(&status, &why);
    fl_session_step(session, &event);
}

static int deliver(struct fl_session *session, uint64_t now_ms, const response_t *response)
{
    struct fl_session_event event = {.now_ms = now_ms};

    switch (response->message_case) {
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_OPENED:
        return deliver_opened(session, now_ms, response->opened);
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_KEEP_ALIVE_ACK:
        event.type = FL_SESSION_EV_ACK;
        event.seq = response->keep_alive_ack->seq;
        fl_session_step(session, &event);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ACQUIRED:
        deliver_acquired(session, now_ms, response->acquired);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_RELEASED:
        event.type = FL_SESSION_EV_RELEASED;
        event.request_id = response->released->request_id;
        fl_session_step(session, &event);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_LOST:
        deliver_lost(session, now_ms, response->lost);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ERROR:
        deliver_error(session, now_ms, response->error);
        break;
    default:
        break;
    }
    return FL_OK;
}

int fl_wire_deliver(struct fl_session *session, uint64_t now_ms, const uint8_t *data, size_t len)
{
    int r;
    response_t *response =
        fl_unpack(&fencelock__v1__open_session_response__descriptor, data, len, &r, NULL);

    if (response == NULL)
        return r;
    r = deliver(session, now_ms, response);
    fl_unpacked_free(response);
    return r;
}

static bool has_reason(const struct fl_rpc_status *status, const char *reason)
{
    return status->reason != NULL && strcmp(status->reason, reason) == 0;
}

static int code_of(const struct fl_rpc_status *status)
{
    switch (status->code) {
    case FL_RPC_OK:
        return FL_OK;
    case FL_RPC_CANCELLED:
        return FL_E_CLOSED;
    case FL_RPC_INVALID_ARGUMENT:
    case FL_RPC_OUT_OF_RANGE:
        return FL_E_INVALID;
    case FL_RPC_NOT_FOUND:
        return has_reason(status, "SESSION_NOT_FOUND") ? FL_E_SESSION_GONE : FL_E_NOT_FOUND;
    case FL_RPC_PERMISSION_DENIED:
    case FL_RPC_UNAUTHENTICATED:
        return FL_E_DENIED;
    case FL_RPC_RESOURCE_EXHAUSTED:
        return has_reason(status, "DISK_FULL") ? FL_E_NOSPACE : FL_E_LIMITED;
    case FL_RPC_FAILED_PRECONDITION:
        if (has_reason(status, "STALE_TOKEN"))
            return FL_E_STALE;
        return has_reason(status, "REQUEST_ENDED") ? FL_E_LOST : FL_E_CONFLICT;
    case FL_RPC_UNIMPLEMENTED:
        return FL_E_UNSUPPORTED;
    case FL_RPC_UNAVAILABLE:
    case FL_RPC_ABORTED:
        /* A reason comes from a gateway that we reached; without one nobody was reached. */
        return status->reason != NULL && status->reason[0] != '\0' ? FL_E_NO_LEADER
                                                                   : FL_E_UNREACHABLE;
    case FL_RPC_DEADLINE_EXCEEDED:
        return FL_E_UNREACHABLE;
    default:
        return FL_E_INTERNAL;
    }
}

int fl_wire_why(const struct fl_rpc_status *status, struct fl_why *why)
{
    int code = code_of(status);
    bool has_message = status->message != NULL && status->message[0] != '\0';

    fl_why_set(why, code, status->reason, "%s",
               has_message ? status->message : fl_rpc_code_text(status->code));
    if (why != NULL) {
        why->retry_after_ms = status->retry_after_ms;
        fl_why_copy_text(why->field, sizeof why->field, status->field);
    }
    return code;
}
