/* Somebody else's locks meanwhile: an acquire of a fresh name, and its release, at fixed instants,
 * whether earlier ones were answered or not. A latency counts from the instant, so that a stall is
 * seen by everything that was due in it. Has a thread of its own: what the swarm is busy with does
 * not count. */
#ifndef FL_TESTS_PROBE_H
#define FL_TESTS_PROBE_H

#include <pthread.h>
#include <stdatomic.h>

#include "swarm.h"

struct probe {
    pthread_t thread;
    uv_async_t stop;
    /* The thread's. */
    struct fl_loop *loop;
    struct swarm swarm; /* one session on a connection of its own */
    struct fl_timer timer;
    uint64_t every_ns, next_ns;
    uint64_t *due_ns; /* owned, by request id */
    uint64_t capacity;
    /* Shared. */
    pthread_mutex_t mutex;
    uint64_t n, n_granted;
    struct fl_histogram acquires;
    atomic_bool is_lost;
};

void probe_start(struct probe *probe, const char *endpoints, unsigned rate);
/* False when it lost its session. */
bool probe_stop(struct probe *probe);
/* Prints the latencies since the last time, and begins anew. */
void probe_tell(struct probe *probe, const char *what);

#endif
