/* Consensus as it should be, without being built: one committed log, leaders by decree. What real
 * engines do to a node happens here at will: a leader that does not know that it was deposed, a
 * tail that is lost or inherited, commits and confirmations that come late or never. */
#ifndef FL_TESTS_SIM_IDEAL_LOG_H
#define FL_TESTS_SIM_IDEAL_LOG_H

#include "timeline.h"

#define LOG_NODES 3

struct log_entry {
    uint64_t term;
    uint8_t *data; /* owned; NULL: no commands */
    size_t len;
};

struct ideal_log_ops {
    /* Entries up to `index` are committed and have reached this node. */
    void (*deliver)(void *ctx, unsigned node, uint64_t index);
    void (*role)(void *ctx, unsigned node, uint64_t term, bool is_leader, unsigned leader);
    void (*confirmed)(void *ctx, unsigned node, uint64_t round, uint64_t begun_us,
                      uint64_t read_index);
    void (*committed)(void *ctx, uint64_t index, const struct log_entry *entry);
};

struct ideal_log {
    struct timeline *time;
    const struct ideal_log_ops *ops;
    void *ctx;
    struct log_entry *entries; /* [0] is not used */
    uint64_t n, capacity, committed;
    uint64_t term;
    unsigned leader;        /* 1 to LOG_NODES; 0: none */
    bool leader_is_cut_off; /* leads, but reaches no quorum */
    uint64_t barrier;       /* the first entry of the term */
    struct {
        uint64_t term;      /* in which it believes to lead; 0: it does not */
        uint64_t last;      /* the index it gave out last */
        uint64_t told_term; /* of the latest role it was told */
    } nodes[LOG_NODES + 1];
};

void ideal_log_init(struct ideal_log *log, struct timeline *time, const struct ideal_log_ops *ops,
                    void *ctx);
void ideal_log_deinit(struct ideal_log *log);
const struct log_entry *ideal_log_entry(const struct ideal_log *log, uint64_t index);

/* `term` is the one in which the node believes to lead: it may not have heard of a later yet. */
uint64_t ideal_log_propose(struct ideal_log *log, unsigned node, uint64_t term, const void *data,
                           size_t len);
void ideal_log_confirm(struct ideal_log *log, unsigned node, uint64_t term, uint64_t round);

/* The leader, if any, is deposed; it learns it after a while. Nobody leads until the next. */
void ideal_log_depose(struct ideal_log *log, uint64_t learns_after_us);
void ideal_log_elect(struct ideal_log *log, unsigned node);

#endif
