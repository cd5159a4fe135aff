/* A scenario of the load program: what it needs, and how it ends. */
#ifndef FL_TESTS_LOAD_H
#define FL_TESTS_LOAD_H

#include "probe.h"
#include "swarm.h"

struct load {
    const char *endpoints, *probe_endpoints;
    uint64_t sessions, waiters, locks, healthy;
    unsigned connections, seconds, rate;
    uint32_t ttl_ms;
    struct fl_loop *loop;
    struct swarm swarm;
    struct probe probe;
    struct fl_timer timer;
    uint64_t began_ns;
    bool has_failed;
};

/* Says something, with the seconds since the last `began_ns`. */
__attribute__((format(printf, 2, 3))) void load_say(struct load *load, const char *format, ...);
/* The scenario is over; a failure is said by `why`, else NULL. */
void load_end(struct load *load, const char *why);
/* A swarm's on_lost: ends the scenario, since what it waits for may never come. */
void load_lost(void *ctx, bool is_stream, const char *why);
void load_open(struct load *load, uint64_t n, const struct swarm_config *callbacks);
void load_tell_swarm(struct load *load);

void load_sessions(struct load *load);
void load_queue(struct load *load);
void load_session(struct load *load);
void load_crowd(struct load *load);

#endif
