/* A cluster of one in one thread, for strangers to call: the real gateway and gRPC server, and a
 * node over a log that commits at once (tests/unit/solo_node.h). Prints its port. SIGUSR1 takes
 * leadership away, SIGUSR2 gives it back; SIGTERM drains, and ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../unit/solo_node.h"
#include "base/alloc.h"
#include "gateway/gateway.h"

struct service {
    struct fl_loop *loop;
    struct fl_gateway *gateway;
    struct solo *node;
    struct fl_timer tick;
    struct fl_turn_hook pump;
    uv_signal_t signals[3];
};

static void to_gateway(void *ctx, const void *data, size_t len)
{
    struct service *service = ctx;

    if (fl_gateway_link_frame(service->gateway, 0, data, len) < 0)
        abort();
}

static void to_node(void *ctx, const void *data, size_t len)
{
    struct service *service = ctx;

    solo_send(service->node, data, len);
    fl_turn_hook_mark(service->loop, &service->pump);
}

static void on_pump(struct fl_turn_hook *hook)
{
    struct service *service = FL_CONTAINER_OF(hook, struct service, pump);

    solo_pump(service->node, fl_loop_now_ms(service->loop));
}

static void on_tick(struct fl_timer *timer, uint64_t now_ms)
{
    struct service *service = FL_CONTAINER_OF(timer, struct service, tick);

    solo_pump(service->node, now_ms);
    fl_timer_set(service->loop, timer, now_ms + 20);
}

static void on_drained(void *ctx)
{
    struct service *service = ctx;

    fl_timer_clear(service->loop, &service->tick);
    fl_gateway_free(service->gateway);
    fl_turn_hook_clear(&service->pump);
    solo_free(service->node);
    for (int i = 0; i < 3; i++)
        uv_close((uv_handle_t *)&service->signals[i], NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct service *service = handle->data;

    if (number == SIGTERM) {
        fl_gateway_drain(service->gateway, 2000, on_drained, service);
        return;
    }
    solo_set_leader(service->node, fl_loop_now_ms(service->loop), number == SIGUSR2);
    fl_turn_hook_mark(service->loop, &service->pump);
}

static void listen_to_signals(struct service *service)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGUSR2};

    for (int i = 0; i < 3; i++) {
        uv_signal_init(fl_loop_uv(service->loop), &service->signals[i]);
        service->signals[i].data = service;
        uv_signal_start(&service->signals[i], on_signal, numbers[i]);
    }
}

int main(void)
{
    struct service service = {.loop = fl_loop_new()};
    struct fl_gateway_config config = {.address = "*:0"};
    struct fl_gateway_link link = {
        .node_id = 1, .is_local = true, .send = to_node, .ctx = &service};
    char why[256];

    signal(SIGPIPE, SIG_IGN);
    service.pump = FL_TURN_HOOK_INIT(on_pump);
    service.tick = FL_TIMER_INIT(on_tick);
    if (fl_gateway_new(service.loop, &config, &service.gateway, why) < 0) {
        fprintf(stderr, "solo: %s\n", why);
        return EXIT_FAILURE;
    }
    listen_to_signals(&service);
    fl_gateway_add_link(service.gateway, &link);
    service.node = solo_new(fl_loop_now_ms(service.loop), to_gateway, &service);
    fl_gateway_link_up(service.gateway, 0);
    solo_set_leader(service.node, fl_loop_now_ms(service.loop), true);
    on_tick(&service.tick, fl_loop_now_ms(service.loop));
    printf("%u\n", fl_gateway_port(service.gateway));
    fflush(stdout);
    fl_loop_run(service.loop);
    fl_loop_free(service.loop);
    return EXIT_SUCCESS;
}
