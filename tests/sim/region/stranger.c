#include "stranger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "lock.pb-c.h"

#define REQUEST_IDS 12

static const char *const names[] = {"n0", "n1", "n2", "n3"};

static uint64_t between(struct stranger *s, uint64_t low, uint64_t high)
{
    return timeline_between(s->place.time, low, high);
}

static void on_created(struct stranger *s, const uint8_t *data, size_t len)
{
    Fencelock__V1__CreateSessionResponse *response =
        fencelock__v1__create_session_response__unpack(NULL, len, data);

    if (response == NULL)
        return;
    snprintf(s->session, sizeof s->session, "%s", response->session_id);
    fencelock__v1__create_session_response__free_unpacked(response, NULL);
}

static void hear(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct stranger_call *call = ctx;
    const uint8_t *bytes = data;
    struct fl_rpc_status status;

    if (conn != call->conn)
        return;
    if (data != NULL && bytes[0] == DOOR_MESSAGE) {
        if (call->kind == CALL_CREATE)
            on_created(call->stranger, bytes + 1, len - 1);
        return;
    }
    if (data != NULL) {
        door_read_status(bytes + 1, len - 1, &status);
        timeline_mix(call->stranger->place.time, status.code);
        if (status.code == FL_RPC_NOT_FOUND)
            call->stranger->session[0] = '\0';
        conn_close(conn, &call->stranger->place);
    }
    call->conn = NULL;
}

static void make_call(struct stranger *s, enum stranger_asks kind, const char *path,
                      const ProtobufCMessage *request)
{
    struct stranger_call *call = &s->calls[between(s, 0, STRANGER_CALLS - 1)];
    uint8_t bytes[256];
    size_t len = protobuf_c_message_pack(request, bytes);

    if (call->conn != NULL) /* it does not wait for the answer */
        conn_close(call->conn, &s->place);
    *call = (struct stranger_call){.stranger = s};
    call->kind = kind;
    call->conn = door_call(&s->doors[between(s, 0, s->n_doors - 1)], &s->place, hear, call, path);
    s->n_calls++;
    if (call->conn == NULL)
        return;
    door_say(call->conn, &s->place, DOOR_MESSAGE, bytes, len);
    door_say(call->conn, &s->place, DOOR_HALF_CLOSE, NULL, 0);
}

static void create(struct stranger *s)
{
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__CreateSessionRequest request = FENCELOCK__V1__CREATE_SESSION_REQUEST__INIT;

    options.client = "stranger";
    options.has_ttl_ms_case = FENCELOCK__V1__SESSION_OPTIONS__HAS_TTL_MS_TTL_MS;
    options.ttl_ms = s->ttl_ms;
    options.has_lock_delay_ms_case =
        FENCELOCK__V1__SESSION_OPTIONS__HAS_LOCK_DELAY_MS_LOCK_DELAY_MS;
    options.lock_delay_ms = s->lock_delay_ms;
    request.options = &options;
    make_call(s, CALL_CREATE, "/fencelock.v1.LockService/CreateSession", &request.base);
}

static void beat(struct stranger *s)
{
    Fencelock__V1__KeepAliveRequest request = FENCELOCK__V1__KEEP_ALIVE_REQUEST__INIT;

    s->beat_at_ms = place_now_ms(&s->place) + s->ttl_ms / 3;
    request.session_id = s->session;
    make_call(s, CALL_BEAT, "/fencelock.v1.LockService/KeepAlive", &request.base);
}

static void acquire(struct stranger *s)
{
    Fencelock__V1__AcquireRequest request = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;

    request.session_id = s->session;
    request.name = (char *)(uintptr_t)names[between(s, 0, 3)];
    request.mode = (Fencelock__V1__Mode)between(s, 1, 3);
    if (request.mode == FENCELOCK__V1__MODE__COUNTED) {
        request.has_limit_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_LIMIT_LIMIT;
        request.limit = (uint32_t)between(s, 1, 3);
    }
    request.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    request.wait_ms = timeline_one_in(s->place.time, 3) ? 0 : (uint32_t)between(s, 0, 2000);
    request.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    request.request_id = between(s, 1, REQUEST_IDS);
    make_call(s, CALL_ACQUIRE, "/fencelock.v1.LockService/Acquire", &request.base);
}

static void release(struct stranger *s)
{
    Fencelock__V1__ReleaseRequest request = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    uint64_t last = fl_machine_token(s->truth->machine);

    request.session_id = s->session;
    request.name = (char *)(uintptr_t)names[between(s, 0, 3)];
    request.token = last > 8 ? last - between(s, 0, 8) : 1;
    make_call(s, CALL_OTHER, "/fencelock.v1.LockService/Release", &request.base);
}

static void close_session(struct stranger *s)
{
    Fencelock__V1__CloseSessionRequest request = FENCELOCK__V1__CLOSE_SESSION_REQUEST__INIT;

    request.session_id = s->session;
    make_call(s, CALL_OTHER, "/fencelock.v1.LockService/CloseSession", &request.base);
    s->session[0] = '\0';
}

static void act(struct stranger *s)
{
    if (s->session[0] == '\0') {
        create(s);
        return;
    }
    if (place_now_ms(&s->place) >= s->beat_at_ms) {
        beat(s);
        return;
    }
    switch (between(s, 0, 40)) {
    case 0:
        close_session(s);
        break;
    case 1:
        s->session[0] = '\0'; /* forgotten: its TTL ends it */
        break;
    case 2:
        s->beat_at_ms += s->ttl_ms / 3 * between(s, 1, 4); /* late, or too late */
        break;
    default:
        if (timeline_one_in(s->place.time, 2))
            acquire(s);
        else
            release(s);
    }
}

static void on_alarm(void *ctx)
{
    struct stranger *s = ctx;

    if (!s->place.is_up)
        return;
    act(s);
    alarm_set(&s->alarm, place_now_ms(&s->place) + between(s, 10, 800));
}

void stranger_init(struct stranger *s, struct net *net, struct truth *truth, struct door *doors,
                   unsigned n_doors)
{
    s->place.time = net->time;
    s->net = net;
    s->truth = truth;
    s->doors = doors;
    s->n_doors = n_doors;
    s->ttl_ms = (uint32_t)between(s, 1000, 5000);
    s->lock_delay_ms = timeline_one_in(net->time, 2) ? (uint32_t)between(s, 1, 1000) : 0;
    alarm_init(&s->alarm, &s->place, on_alarm, s);
}

void stranger_start(struct stranger *s)
{
    s->place.is_up = true;
    s->place.life++;
    alarm_set(&s->alarm, place_now_ms(&s->place) + 500);
}

void stranger_end(struct stranger *s)
{
    s->place.is_up = false;
    s->place.life++;
    alarm_set(&s->alarm, UINT64_MAX);
    net_end_place(s->net, &s->place, false);
}
