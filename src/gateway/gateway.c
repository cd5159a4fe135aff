#include "gateway/gateway.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "gateway/descriptors.h"
#include "gateway/internal.h"

#define TICK_MS 100

static const char *const services[] = {"", "fencelock.v1.LockService", "fencelock.v1.AdminService"};

static void tell_health(struct fl_gateway *gateway)
{
    bool is_serving = fl_router_has_leader(gateway->router) && !gateway->is_draining;

    if (is_serving == gateway->is_serving)
        return;
    gateway->is_serving = is_serving;
    for (size_t i = 0; i < FL_ARRAY_LEN(services); i++)
        fl_rpc_server_set_serving(gateway->server, services[i], is_serving);
}

static void on_tick(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_gateway *gateway = FL_CONTAINER_OF(timer, struct fl_gateway, tick);

    FL_REQUIRE(fl_timer_set(gateway->loop, timer, now_ms + TICK_MS) == FL_OK);
    fl_router_tick(gateway->router, now_ms);
    tell_health(gateway);
    if (fl_router_leaderless_ms(gateway->router, now_ms) < gateway->leaderless_ms ||
        FL_BUG(GATEWAY_STAYS_WITHOUT_LEADER))
        return;
    /* C24: a client that stays with a gateway that reaches nobody would lose its lease here. */
    fl_gateway__streams_end(gateway, FL_REASON_NO_LEADER);
    fl_gateway__watches_end(gateway, FL_REASON_NO_LEADER);
}

/* --- What the router wants done --- */

static void router_send(void *ctx, unsigned link, const void *data, size_t len)
{
    struct fl_gateway *gateway = ctx;

    gateway->links[link].send(gateway->links[link].ctx, data, len);
}

static void router_reset(void *ctx, unsigned link, const char *why)
{
    struct fl_gateway *gateway = ctx;

    if (gateway->links[link].reset != NULL)
        gateway->links[link].reset(gateway->links[link].ctx, why);
}

static void router_push(void *ctx, const struct fl_push *push)
{
    fl_gateway__streams_push(ctx, push);
}

static void router_leader_up(void *ctx)
{
    fl_gateway__streams_resume(ctx);
}

/* Nodes that are behind tell what was: the latest change counts. */
static void router_members(void *ctx, uint64_t index, struct fl_str members)
{
    struct fl_gateway *gateway = ctx;

    if (gateway->members == NULL || index <= gateway->members_index)
        return;
    gateway->members_index = index;
    gateway->members(gateway->members_ctx, members);
}

static void router_asked(void *ctx, struct fl_ask *ask)
{
    (void)ctx;
    ask->asked_us = fl_monotonic_us();
}

static void router_ended(void *ctx, const struct fl_ask *ask, enum fl_ask_end how,
                         const struct fl_reply *reply)
{
    struct fl_gateway *gateway = ctx;

    fl_gateway_meter_ended(&gateway->meter, ask->type, fl_monotonic_us() - ask->asked_us, how,
                           reply);
}

static const struct fl_router_ops router_ops = {
    .asked = router_asked,
    .ended = router_ended,
    .send = router_send,
    .reset = router_reset,
    .push = router_push,
    .leader_up = router_leader_up,
    .members = router_members,
};

/* --- Links --- */

unsigned fl_gateway_add_link(struct fl_gateway *gateway, const struct fl_gateway_link *link)
{
    unsigned number = fl_router_add_link(gateway->router, link->node_id, link->is_local);

    gateway->links[number] = *link;
    return number;
}

void fl_gateway_retire_link(struct fl_gateway *gateway, unsigned link)
{
    fl_router_retire_link(gateway->router, fl_loop_now_ms(gateway->loop), link);
}

void fl_gateway_link_up(struct fl_gateway *gateway, unsigned link)
{
    fl_router_link_up(gateway->router, fl_loop_now_ms(gateway->loop), link);
}

void fl_gateway_link_down(struct fl_gateway *gateway, unsigned link)
{
    fl_router_link_down(gateway->router, fl_loop_now_ms(gateway->loop), link);
}

int fl_gateway_link_frame(struct fl_gateway *gateway, unsigned link, const void *data, size_t len)
{
    return fl_router_frame(gateway->router, fl_loop_now_ms(gateway->loop), link, data, len);
}

/* --- Life --- */

static void fill_methods(struct fl_gateway *gateway)
{
    size_t n = fl_unary_n_methods;

    gateway->methods = fl_xcalloc(n + 2, sizeof *gateway->methods);
    gateway->bindings = fl_xcalloc(n + 2, sizeof *gateway->bindings);
    for (size_t i = 0; i < n; i++) {
        gateway->bindings[i].unary = &fl_unary_methods[i];
        gateway->methods[i].path = fl_unary_methods[i].path;
        gateway->methods[i].handler = &fl_gateway__unary_handler;
    }
    gateway->methods[n] = (struct fl_rpc_method){.path = "/fencelock.v1.LockService/OpenSession",
                                                 .is_stream = true,
                                                 .handler = &fl_gateway__stream_handler};
    gateway->methods[n + 1] = (struct fl_rpc_method){.path = "/fencelock.v1.LockService/Watch",
                                                     .is_stream = true,
                                                     .handler = &fl_gateway__watch_handler};
    for (size_t i = 0; i < n + 2; i++) {
        gateway->bindings[i].gateway = gateway;
        gateway->methods[i].ctx = &gateway->bindings[i];
    }
}

/* protoc writes a FileDescriptorSet, whose field 1 is the one file that reflection serves. */
static struct fl_rpc_file file_of(const char *name, const uint8_t *set, size_t len)
{
    struct fl_reader r = fl_reader_from(set, len);
    uint8_t key = fl_reader_u8(&r);
    struct fl_str file = fl_reader_str(&r, len);

    FL_REQUIRE(key == 0x0a && fl_reader_end(&r) == FL_OK);
    return (struct fl_rpc_file){
        .name = name, .descriptor = (const uint8_t *)file.data, .len = file.len};
}

static int start_server(struct fl_gateway *gateway, const struct fl_gateway_config *config,
                        char *why)
{
    struct fl_rpc_server_config server = {
        .address = config->address,
        .message_bytes_max = config->message_bytes_max,
        .files = gateway->files,
        .n_files = FL_ARRAY_LEN(gateway->files),
    };

    gateway->files[0] =
        file_of("fencelock/v1/lock.proto", fl_descriptor_lock, fl_descriptor_lock_len);
    gateway->files[1] =
        file_of("fencelock/v1/admin.proto", fl_descriptor_admin, fl_descriptor_admin_len);
    fill_methods(gateway);
    return fl_rpc_server_new(gateway->loop, &server, gateway->methods, fl_unary_n_methods + 2,
                             &gateway->server, why);
}

int fl_gateway_new(struct fl_loop *loop, const struct fl_gateway_config *config,
                   struct fl_gateway **ret_gateway, char *why)
{
    struct fl_gateway *gateway = fl_xcalloc(1, sizeof *gateway);
    uint64_t hash_key[2];
    int r;

    gateway->loop = loop;
    gateway->leaderless_ms = config->leaderless_ms != 0 ? config->leaderless_ms : 3000;
    gateway->members = config->members;
    gateway->members_ctx = config->members_ctx;
    gateway->tick = FL_TIMER_INIT(on_tick);
    gateway->is_serving = true; /* until the first tick finds no leader */
    fl_list_init(&gateway->streams);
    fl_list_init(&gateway->watches);
    fl_gateway__new_hash_key(hash_key);
    gateway->rates = fl_rates_new(&config->rates, hash_key);
    gateway->router = fl_router_new(&config->router, &router_ops, gateway);
    r = start_server(gateway, config, why);
    if (r < 0) {
        fl_gateway_free(gateway);
        return r;
    }
    on_tick(&gateway->tick, fl_loop_update_now_ms(loop));
    *ret_gateway = gateway;
    return FL_OK;
}

unsigned fl_gateway_port(const struct fl_gateway *gateway)
{
    return fl_rpc_server_port(gateway->server);
}

void fl_gateway_drain(struct fl_gateway *gateway, unsigned grace_ms, void (*done)(void *ctx),
                      void *ctx)
{
    gateway->is_draining = true;
    tell_health(gateway);
    fl_gateway__streams_end(gateway, FL_REASON_SHUTTING_DOWN);
    fl_gateway__watches_end(gateway, FL_REASON_SHUTTING_DOWN);
    fl_rpc_server_drain(gateway->server, grace_ms, done, ctx);
}

void fl_gateway_free(struct fl_gateway *gateway)
{
    if (gateway == NULL)
        return;
    gateway->is_draining = true;
    fl_timer_clear(gateway->loop, &gateway->tick);
    if (gateway->server != NULL)
        fl_rpc_server_free(gateway->server); /* each call is gone before it returns */
    fl_router_free(gateway->router);
    fl_rates_free(gateway->rates);
    fl_map_deinit(&gateway->sessions);
    free(gateway->methods);
    free(gateway->bindings);
    free(gateway);
}

void fl_gateway_stats(const struct fl_gateway *gateway, struct fl_gateway_stats *ret_stats)
{
    *ret_stats = (struct fl_gateway_stats){
        .streams = gateway->n_streams,
        .watches = gateway->n_watches,
        .unanswered = fl_router_asked(gateway->router),
        .leader_id = fl_router_leader(gateway->router),
        .has_leader = fl_router_has_leader(gateway->router),
    };
    fl_rpc_server_stats(gateway->server, &ret_stats->rpc);
}

const struct fl_gateway_meter *fl_gateway_meter(const struct fl_gateway *gateway)
{
    return &gateway->meter;
}
