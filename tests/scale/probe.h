/* Somebody else's locks meanwhile: an acquire of a fresh name, and its release, at fixed instants,
 * whether earlier ones were answered or not. A latency counts from the instant, so that a stall is
 * seen by everything that was due in it. */
#ifndef FL_TESTS_PROBE_H
#define FL_TESTS_PROBE_H

#include "swarm.h"

struct probe {
    struct swarm swarm; /* one session on a connection of its own */
    struct fl_timer timer;
    uint64_t every_ns, next_ns;
    uint64_t *due_ns; /* owned, by request id */
    uint64_t n, capacity, n_granted;
    struct fl_histogram acquires;
    bool is_running;
};

void probe_init(struct probe *probe, struct fl_loop *loop, const char *endpoints, unsigned rate);
void probe_deinit(struct probe *probe);
/* Prints the latencies since the last time, and begins anew. */
void probe_tell(struct probe *probe, const char *what);

#endif
