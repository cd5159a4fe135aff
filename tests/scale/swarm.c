#include "swarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/list.h"
#include "lock.pb-c.h"
#include "rpc/server.h"

#define PATH "/fencelock.v1.LockService/OpenSession"

typedef Fencelock__V1__OpenSessionRequest request_t;
typedef Fencelock__V1__OpenSessionResponse response_t;

uint64_t swarm_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void lose(struct member *member, bool is_stream, const char *why)
{
    struct swarm *swarm = member->swarm;

    fl_timer_clear(swarm->loop, &member->beat);
    member->is_open = false;
    if (member->is_lost)
        return;
    member->is_lost = true;
    if (!member->is_silent) {
        if (swarm->n_lost++ == 0)
            snprintf(swarm->first_loss, sizeof swarm->first_loss, "%s", why);
        if (swarm->config.on_lost != NULL)
            swarm->config.on_lost(swarm->config.ctx, is_stream, why);
    } else if (++swarm->n_ended == swarm->n_silent && swarm->config.on_all_ended != NULL) {
        swarm->config.on_all_ended(swarm->config.ctx);
    }
}

static void send_request(struct member *member, const request_t *request)
{
    size_t len = protobuf_c_message_get_packed_size(&request->base);
    uint8_t *message = fl_rpc_message_new(len);

    FL_REQUIRE(message != NULL);
    protobuf_c_message_pack(&request->base, message);
    if (member->call == NULL)
        fl_rpc_message_free(message);
    else if (fl_rpc_client_call_send(member->call, message, len) < 0)
        lose(member, true, "a message could not be sent");
}

/* --- Heartbeats --- */

static void set_beat(struct member *member, uint64_t at_ms)
{
    FL_REQUIRE(fl_timer_set(member->swarm->loop, &member->beat, at_ms) == 0);
}

/* Clients did not start together: the first ones are spread. */
static void begin_to_beat(struct member *member)
{
    uint32_t every_ms = member->swarm->config.ttl_ms / 3;

    set_beat(member,
             fl_loop_now_ms(member->swarm->loop) + 1 + fl_hash_mix64(member->number) % every_ms);
}

static void on_beat(struct fl_timer *timer, uint64_t now_ms)
{
    struct member *member = FL_CONTAINER_OF(timer, struct member, beat);
    Fencelock__V1__OpenSessionRequest__Heartbeat heartbeat =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__HEARTBEAT__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    heartbeat.seq = ++member->seq;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE;
    request.keep_alive = &heartbeat;
    member->sent_ns = swarm_now_ns();
    member->is_unanswered = true;
    send_request(member, &request);
    if (!member->is_lost)
        set_beat(member, now_ms + member->swarm->config.ttl_ms / 3);
}

static void take_ack(struct member *member, uint64_t seq)
{
    struct swarm *swarm = member->swarm;

    if (seq != member->seq)
        return; /* a later one is on its way */
    member->is_unanswered = false;
    swarm->n_beats++;
    fl_histogram_record(&swarm->beats, swarm_now_ns() - member->sent_ns);
}

void swarm_fall_silent(struct member *member)
{
    if (!member->is_silent)
        member->swarm->n_silent++;
    member->is_silent = true;
    fl_timer_clear(member->swarm->loop, &member->beat);
}

/* --- Opening --- */

static const struct fl_rpc_call_handler handler;

static void open_some(struct swarm *swarm);

static void open_member(struct member *member)
{
    struct swarm *swarm = member->swarm;
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__OpenSessionRequest__Open open = FENCELOCK__V1__OPEN_SESSION_REQUEST__OPEN__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    options.client = (char *)swarm->config.client;
    options.has_ttl_ms_case = FENCELOCK__V1__SESSION_OPTIONS__HAS_TTL_MS_TTL_MS;
    options.ttl_ms = swarm->config.ttl_ms;
    open.options = &options;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_OPEN;
    request.open = &open;
    member->call =
        fl_rpc_channel_call(swarm->channels[member->number % swarm->config.n_connections], PATH, 0,
                            true, &handler, member);
    FL_REQUIRE(member->call != NULL);
    send_request(member, &request);
}

static void open_some(struct swarm *swarm)
{
    while (swarm->n_begun < swarm->config.n_members &&
           swarm->n_begun < swarm->n_open + swarm->n_lost + swarm->config.opening_max)
        open_member(&swarm->members[swarm->n_begun++]);
}

void swarm_open(struct swarm *swarm)
{
    open_some(swarm);
}

static void take_opened(struct member *member)
{
    struct swarm *swarm = member->swarm;

    if (member->is_open)
        return; /* again, by a new leader */
    member->is_open = true;
    begin_to_beat(member);
    if (++swarm->n_open == swarm->config.n_members && swarm->config.on_all_open != NULL)
        swarm->config.on_all_open(swarm->config.ctx);
    open_some(swarm);
}

/* --- What comes --- */

static void take(struct member *member, const response_t *response)
{
    const struct swarm_config *config = &member->swarm->config;

    switch (response->message_case) {
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_OPENED:
        take_opened(member);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_KEEP_ALIVE_ACK:
        take_ack(member, response->keep_alive_ack->seq);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ACQUIRED:
        if (config->on_acquired != NULL)
            config->on_acquired(config->ctx, member, response->acquired->request_id,
                                response->acquired->response->granted,
                                response->acquired->response->token);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_RELEASED:
        if (config->on_released != NULL)
            config->on_released(config->ctx, member, response->released->request_id);
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_LOST:
        if (response->lost->name[0] == '\0')
            lose(member, false, "the session ended");
        break;
    case FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ERROR:
        if (member->swarm->n_errors++ == 0)
            fprintf(stderr, "swarm: a request failed: %s\n", response->error->message);
        break;
    default:
        break;
    }
}

static void on_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data, size_t len)
{
    response_t *response = fencelock__v1__open_session_response__unpack(NULL, len, data);

    (void)call;
    FL_REQUIRE(response != NULL);
    take(ctx, response);
    fencelock__v1__open_session_response__free_unpacked(response, NULL);
}

static void on_done(struct fl_rpc_client_call *call, void *ctx, const struct fl_rpc_status *status,
                    bool was_sent)
{
    struct member *member = ctx;
    char why[200];

    (void)call, (void)was_sent;
    member->call = NULL;
    snprintf(why, sizeof why, "code %d: %.150s", (int)status->code,
             status->message != NULL ? status->message : "");
    lose(member, status->code == FL_RPC_UNAVAILABLE, why);
}

static const struct fl_rpc_call_handler handler = {.on_message = on_message, .on_done = on_done};

/* --- Life --- */

void swarm_init(struct swarm *swarm, struct fl_loop *loop, const struct swarm_config *config)
{
    memset(swarm, 0, sizeof *swarm);
    swarm->config = *config;
    swarm->loop = loop;
    fl_histogram_init(&swarm->beats);
    swarm->channels = fl_xcalloc(config->n_connections, sizeof *swarm->channels);
    for (unsigned i = 0; i < config->n_connections; i++) {
        struct fl_rpc_channel_config channel = {
            .endpoints = config->endpoints, .connect_timeout_ms = 30000, .random_seed = i + 1};
        char why[256];

        if (fl_rpc_channel_new(loop, &channel, &swarm->channels[i], why) < 0) {
            fprintf(stderr, "swarm: %s\n", why);
            exit(1);
        }
    }
    swarm->members = fl_xcalloc(config->n_members, sizeof *swarm->members);
    for (uint64_t i = 0; i < config->n_members; i++) {
        swarm->members[i].swarm = swarm;
        swarm->members[i].number = i;
        swarm->members[i].beat = FL_TIMER_INIT(on_beat);
    }
}

void swarm_deinit(struct swarm *swarm)
{
    swarm->config.on_all_ended = NULL;
    for (uint64_t i = 0; i < swarm->config.n_members; i++)
        swarm_fall_silent(&swarm->members[i]);
    for (unsigned i = 0; i < swarm->config.n_connections; i++)
        fl_rpc_channel_free(swarm->channels[i]);
    free(swarm->channels);
    free(swarm->members);
    fl_histogram_deinit(&swarm->beats);
}

void swarm_acquire(struct member *member, uint64_t request_id, const char *name, uint32_t wait_ms)
{
    Fencelock__V1__AcquireRequest acquire = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    acquire.name = (char *)name;
    acquire.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    acquire.wait_ms = wait_ms;
    acquire.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    acquire.request_id = request_id;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_ACQUIRE;
    request.acquire = &acquire;
    send_request(member, &request);
}

void swarm_release(struct member *member, uint64_t request_id, const char *name, uint64_t token)
{
    Fencelock__V1__ReleaseRequest release = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    request_t request = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    release.name = (char *)name;
    release.token = token;
    release.request_id = request_id;
    request.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RELEASE;
    request.release = &release;
    send_request(member, &request);
}
