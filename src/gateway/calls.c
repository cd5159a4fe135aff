/* What every call of the server shares, and the unary ones. */
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"
#include "gateway/internal.h"
#include "gateway/wire.h"

/* Request ids that we choose stay below 2^53, so that they survive JavaScript. */
#define REQUEST_ID_MASK ((UINT64_C(1) << 53) - 1)

uint64_t fl_gateway__wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Whoever knows a session's id can speak for it, so it must not be guessed. */
static void fill_secret(void *out, size_t size)
{
    /* Up to 256 bytes come whole once the kernel's pool is seeded. */
    FL_REQUIRE(getrandom(out, size, 0) == (ssize_t)size);
}

void fl_gateway__new_hash_key(uint64_t ret_key[2])
{
    fill_secret(ret_key, 2 * sizeof ret_key[0]);
}

struct fl_session_id fl_gateway__new_session_id(void)
{
    struct fl_session_id id;

    do
        fill_secret(&id, sizeof id);
    while (fl_session_id_is_none(id));
    return id;
}

uint64_t fl_gateway__new_request_id(void)
{
    uint64_t id;

    do {
        fill_secret(&id, sizeof id);
        id &= REQUEST_ID_MASK;
    } while (id == 0);
    return id;
}

/* An address without its port: connections come and go. */
static struct fl_str host_of(const char *peer)
{
    const char *colon = strrchr(peer, ':');

    return (struct fl_str){peer, colon != NULL ? (size_t)(colon - peer) : strlen(peer)};
}

static uint32_t take_acquire(struct fl_gateway *gateway, uint64_t now_ms,
                             const struct fl_request *request)
{
    struct fl_str session = {(const char *)&request->session, sizeof request->session};
    uint32_t retry_ms = fl_rates_take(gateway->rates, now_ms, FL_RATE_SESSION, session);

    return retry_ms != 0 ? retry_ms
                         : fl_rates_take(gateway->rates, now_ms, FL_RATE_NAME, request->name);
}

bool fl_gateway__is_limited(struct fl_gateway *gateway, const struct fl_request *request,
                            const char *peer, struct fl_outcome *outcome)
{
    uint64_t now_ms = fl_loop_now_ms(gateway->loop);
    uint32_t retry_ms = 0;

    switch (request->type) {
    case FL_REQ_ACQUIRE:
        retry_ms = take_acquire(gateway, now_ms, request);
        break;
    case FL_REQ_OPEN_SESSION:
    case FL_REQ_DESCRIBE:
    case FL_REQ_LIST:
    case FL_REQ_SESSIONS:
    case FL_REQ_WAITS:
    case FL_REQ_WATCH:
        retry_ms = fl_rates_take(gateway->rates, now_ms, FL_RATE_PEER, host_of(peer));
        break;
    default: /* what keeps alive or gives back, and what operators do */
        break;
    }
    if (retry_ms != 0)
        fl_outcome_set_rate_limited(outcome, retry_ms);
    return retry_ms != 0;
}

ProtobufCMessage *fl_gateway__unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                     size_t len, struct fl_outcome *outcome)
{
    const char *field;
    ProtobufCMessage *message = fl_wire_unpack(type, data, len, &field);

    if (message != NULL)
        return message;
    if (field != NULL)
        fl_outcome_set_fault(outcome, field, "is not valid UTF-8, or has a zero byte");
    else
        fl_outcome_set(outcome, FL_REASON_BAD_MESSAGE);
    return NULL;
}

bool fl_gateway__send(struct fl_rpc_call *call, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = fl_rpc_message_new(size);

    if (bytes == NULL)
        return false;
    protobuf_c_message_pack(message, bytes);
    (void)fl_rpc_call_send(call, bytes, size);
    return true;
}

/* --- Unary calls: the call's data is its fl_unary while that is open --- */

static void reply(void *ctx, const ProtobufCMessage *response)
{
    static const struct fl_rpc_status ok = {.code = FL_RPC_OK};
    struct fl_rpc_call *call = ctx;

    struct fl_outcome outcome;

    fl_rpc_call_set_data(call, NULL);
    if (fl_gateway__send(call, response)) {
        fl_rpc_call_finish(call, &ok);
        return;
    }
    fl_outcome_set(&outcome, FL_REASON_OUT_OF_MEMORY);
    fl_rpc_call_finish(call, &outcome.status);
}

static void fail(void *ctx, const struct fl_rpc_status *status)
{
    struct fl_rpc_call *call = ctx;

    fl_rpc_call_set_data(call, NULL);
    fl_rpc_call_finish(call, status);
}

static const struct fl_unary_sink sink = {reply, fail};

static void on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    const struct fl_gateway_method *method = fl_rpc_call_method_ctx(call);
    struct fl_outcome outcome;
    ProtobufCMessage *message = fl_gateway__unpack(method->unary->request, data, len, &outcome);
    struct fl_unary *unary;

    if (message == NULL) {
        fl_rpc_call_finish(call, &outcome.status);
        return;
    }
    unary = fl_unary_start(method->gateway, method->unary, message, fl_rpc_call_peer(call), &sink,
                           call);
    if (unary != NULL)
        fl_rpc_call_set_data(call, unary);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    struct fl_unary *unary = fl_rpc_call_data(call);
    bool has_given_up = why == FL_RPC_GONE_CANCELLED || why == FL_RPC_GONE_DEADLINE;

    if (unary != NULL)
        fl_unary_gone(unary, has_given_up ? FL_UNARY_CANCELLED : FL_UNARY_CUT_OFF);
}

const struct fl_rpc_handler fl_gateway__unary_handler = {
    .on_message = on_message,
    .on_gone = on_gone,
};
