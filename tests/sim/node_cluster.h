/* Three real nodes on the ideal log, each with a clock of its own and pauses. Frames go in and out;
 * what only an observer inside can see (T2, T3, T5, equal replicas) is checked here. */
#ifndef FL_TESTS_SIM_NODE_CLUSTER_H
#define FL_TESTS_SIM_NODE_CLUSTER_H

#include "ideal_log.h"
#include "judge.h"
#include "node/node.h"

#define CLUSTER_LINKS_MAX    8192
#define CLUSTER_SESSIONS_MAX 512

struct cluster_node {
    struct cluster *cluster;
    unsigned id;
    struct fl_node *node;
    uint64_t rate_ppm, offset_ms; /* its clock */
    uint64_t paused_until_us;
    uint64_t applied, effects_hash;
    uint64_t term; /* of the latest role */
    /* Since the role changed last: */
    uint64_t settled_ms; /* its own clock when the first entry of its term was applied; or 0 */
    uint64_t confirmed_begun_us;
    uint64_t heard_ms[CLUSTER_SESSIONS_MAX]; /* by its own clock; 0: not heard */
    bool is_expiring[CLUSTER_SESSIONS_MAX];
    uint64_t expire_index[CLUSTER_SESSIONS_MAX];
};

/* A frame for the gateway at the other end of `link`. */
typedef void (*cluster_frame_fn)(void *ctx, unsigned node, uint64_t link, const void *data,
                                 size_t len);

struct cluster {
    struct timeline *time;
    struct judge *judge;
    struct ideal_log log;
    struct cluster_node nodes[LOG_NODES + 1]; /* [0] is not used */
    struct fl_machine *reference;             /* applies each entry at the moment of its commit */
    uint64_t reference_hash;
    uint64_t *effects_at; /* by index: the reference's hash over all effects up to it */
    size_t effects_capacity;
    cluster_frame_fn frame;
    void *ctx;
    bool link_is_up[CLUSTER_LINKS_MAX];
    struct cluster_beat {
        uint64_t link, tag, received_us, session;
    } beats[4096]; /* where heartbeats came in, by tag */
};

void cluster_init(struct cluster *c, struct timeline *time, struct judge *judge,
                  cluster_frame_fn frame, void *ctx);
void cluster_deinit(struct cluster *c);

/* These happen at `at_us`, or when the node's pause is over. A request's data: the message. */
void cluster_link_up(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link);
void cluster_link_down(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link);
void cluster_request(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link,
                     const struct fl_request *request);
void cluster_pause(struct cluster *c, unsigned node, uint64_t until_us);
/* Everything healed, every client gone: nothing is left, and all replicas agree. */
void cluster_check_empty(struct cluster *c);

#endif
