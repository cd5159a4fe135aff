/* Very many sessions from one thread: what thousands of clients do, without their threads. Each
 * member is a stream (OpenSession) on one of some connections, and beats every third of its TTL
 * until it is told to fall silent. Nobody reconnects: what is lost is counted. */
#ifndef FL_TESTS_SWARM_H
#define FL_TESTS_SWARM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "net/loop.h"
#include "rpc/channel.h"

struct swarm;

struct member {
    struct swarm *swarm;
    uint64_t number;
    struct fl_rpc_client_call *call; /* NULL: not begun, or ended */
    struct fl_timer beat;
    uint64_t seq, sent_ns; /* of the last heartbeat */
    bool is_open, is_silent, is_lost, is_unanswered;
};

struct swarm_config {
    const char *endpoints;
    const char *client; /* their name */
    unsigned n_connections;
    uint64_t n_members;
    uint32_t ttl_ms;
    unsigned opening_max; /* streams that open at a time */
    void *ctx;
    void (*on_all_open)(void *ctx);
    /* NULL: not wanted. */
    void (*on_acquired)(void *ctx, struct member *member, uint64_t request_id, bool granted,
                        uint64_t token);
    void (*on_released)(void *ctx, struct member *member, uint64_t request_id);
    /* A session that beat ended; or (`is_stream`) only its stream did, since no leader was there
     * for long: what came of the session is not known, as nobody resumes it. */
    void (*on_lost)(void *ctx, bool is_stream, const char *why);
    /* All that fell silent have been told their end. */
    void (*on_all_ended)(void *ctx);
};

struct swarm {
    struct swarm_config config;
    struct fl_loop *loop;
    struct fl_rpc_channel **channels; /* owned */
    struct member *members;           /* owned */
    uint64_t n_begun, n_open, n_errors;
    uint64_t n_lost;           /* of those that beat */
    uint64_t n_ended;          /* of those that had fallen silent */
    struct fl_histogram beats; /* how long acknowledgements took, ns */
    uint64_t n_beats, n_silent;
    char first_loss[256];
};

/* Ends the process, with a sentence, when it cannot. */
void swarm_init(struct swarm *swarm, struct fl_loop *loop, const struct swarm_config *config);
void swarm_deinit(struct swarm *swarm);
void swarm_open(struct swarm *swarm);
void swarm_acquire(struct member *member, uint64_t request_id, const char *name, uint32_t wait_ms);
void swarm_release(struct member *member, uint64_t request_id, const char *name, uint64_t token);
/* No more heartbeats: as if the machine had stopped. */
void swarm_fall_silent(struct member *member);
uint64_t swarm_now_ns(void);

#endif
