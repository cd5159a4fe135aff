/* session: one with very many locks falls silent. crowd: very many fall silent together. Meanwhile
 * healthy sessions beat, and others acquire and release. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "load.h"

/* Acquires of the owner that are not answered yet. */
#define WINDOW   2000
#define SETTLE_S 3

static struct {
    struct swarm owners; /* those that fall silent */
    uint64_t n_asked, n_held, n_freed;
    uint64_t silent_ns;
} expiry;

static void name_of(char *out, size_t size, uint64_t n)
{
    snprintf(out, size, "scale/expiry/%010llu/of-a-session-that-falls-silent",
             (unsigned long long)n);
}

static double since_silence_s(void)
{
    return (double)(swarm_now_ns() - expiry.silent_ns) / 1e9;
}

/* --- The end --- */

static void on_settled(struct fl_timer *timer, uint64_t now_ms)
{
    struct load *load = FL_CONTAINER_OF(timer, struct load, timer);

    (void)now_ms;
    probe_tell(&load->probe, "from the silence on");
    load_tell_swarm(load);
    load_end(load, probe_stop(&load->probe) ? NULL : "the prober lost its session");
    swarm_deinit(&expiry.owners);
}

/* Each of them ended, and the names that are waited for were handed on. */
static void settle_when_done(struct load *load, uint64_t n_wanted)
{
    if (expiry.n_freed < n_wanted || expiry.owners.n_ended < expiry.owners.n_silent)
        return;
    load->timer.fire = on_settled;
    fl_timer_set(load->loop, &load->timer, fl_loop_now_ms(load->loop) + SETTLE_S * 1000);
}

static void fall_silent(struct fl_timer *timer, uint64_t now_ms)
{
    struct load *load = FL_CONTAINER_OF(timer, struct load, timer);

    (void)now_ms;
    probe_tell(&load->probe, "before");
    load_say(load, "silence");
    expiry.silent_ns = swarm_now_ns();
    for (uint64_t i = 0; i < expiry.owners.config.n_members; i++)
        swarm_fall_silent(&expiry.owners.members[i]);
}

static void fall_silent_soon(struct load *load)
{
    probe_start(&load->probe, load->probe_endpoints, load->rate);
    load->timer.fire = fall_silent;
    fl_timer_set(load->loop, &load->timer, fl_loop_now_ms(load->loop) + SETTLE_S * 1000);
}

static void on_all_ended(void *ctx)
{
    struct load *load = ctx;

    load_say(load, "all that fell silent are ended, %.2f s after", since_silence_s());
    settle_when_done(load, load->locks != 0 ? 3 : 0);
}

/* --- The healthy wait for three of the names --- */

static void wait_for(struct load *load, uint64_t request_id, uint64_t n)
{
    char name[80];

    name_of(name, sizeof name, n);
    swarm_acquire(&load->swarm.members[0], request_id, name, 600000);
}

static void on_freed(void *ctx, struct member *member, uint64_t request_id, bool granted,
                     uint64_t token)
{
    static const char *const places[] = {"first", "middle", "last"};
    struct load *load = ctx;

    (void)member, (void)token;
    if (!granted) {
        load_end(load, "a waiter was refused");
        return;
    }
    expiry.n_freed++;
    load_say(load, "the %s of its names is handed on, %.2f s after", places[request_id - 1],
             since_silence_s());
    settle_when_done(load, 3);
}

/* --- One session with very many locks --- */

static void acquire_some(struct load *load)
{
    char name[80];

    while (expiry.n_asked < load->locks && expiry.n_asked < expiry.n_held + WINDOW) {
        name_of(name, sizeof name, expiry.n_asked);
        swarm_acquire(&expiry.owners.members[0], ++expiry.n_asked, name, 60000);
    }
}

static void on_owner_acquired(void *ctx, struct member *member, uint64_t request_id, bool granted,
                              uint64_t token)
{
    struct load *load = ctx;

    (void)member, (void)request_id, (void)token;
    if (!granted) {
        load_end(load, "the owner was refused");
        return;
    }
    if (++expiry.n_held < load->locks) {
        acquire_some(load);
        return;
    }
    load_say(load, "one session holds %llu locks", (unsigned long long)load->locks);
    wait_for(load, 1, 0);
    wait_for(load, 2, load->locks / 2);
    wait_for(load, 3, load->locks - 1);
    fall_silent_soon(load);
}

static void on_owner_open(void *ctx)
{
    acquire_some(ctx);
}

static void on_healthy_open(void *ctx)
{
    struct load *load = ctx;
    struct swarm_config config = {
        .endpoints = load->endpoints,
        .client = "scale, falls silent",
        .n_connections =
            load->locks != 0 || load->connections > load->sessions ? 1 : load->connections,
        .n_members = load->locks != 0 ? 1 : load->sessions,
        .ttl_ms = load->ttl_ms,
        .opening_max = 256,
        .ctx = load,
        .on_lost = load_lost,
        .on_all_ended = on_all_ended,
        .on_acquired = on_owner_acquired,
        .on_all_open = on_owner_open,
    };

    swarm_init(&expiry.owners, load->loop, &config);
    swarm_open(&expiry.owners);
}

void load_session(struct load *load)
{
    struct swarm_config callbacks = {.on_all_open = on_healthy_open, .on_acquired = on_freed};

    if (load->locks == 0)
        load->locks = 1000;
    load_open(load, load->healthy, &callbacks);
}

/* --- Very many sessions, of a lock each --- */

static void on_crowd_acquired(void *ctx, struct member *member, uint64_t request_id, bool granted,
                              uint64_t token)
{
    struct load *load = ctx;

    (void)member, (void)request_id, (void)token;
    if (!granted)
        load_end(load, "one of the crowd was refused");
    else if (++expiry.n_held == load->sessions)
        fall_silent_soon(load);
}

static void on_crowd_open(void *ctx)
{
    struct load *load = ctx;
    char name[80];

    load_say(load, "%llu sessions are open", (unsigned long long)load->sessions);
    expiry.owners.config.on_acquired = on_crowd_acquired;
    for (uint64_t i = 0; i < load->sessions; i++) {
        name_of(name, sizeof name, i);
        swarm_acquire(&expiry.owners.members[i], 1, name, 60000);
    }
}

static void on_healthy_open_for_crowd(void *ctx)
{
    on_healthy_open(ctx);
    expiry.owners.config.on_all_open = on_crowd_open;
}

void load_crowd(struct load *load)
{
    struct swarm_config callbacks = {.on_all_open = on_healthy_open_for_crowd};

    load->locks = 0;
    load_open(load, load->healthy, &callbacks);
}
