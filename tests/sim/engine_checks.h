/* What must hold of engines, watched from outside, each at a cost that does not grow with the log.
 * A log is known by the chain of its entries' hashes: two logs that have the same chain at an index
 * are the same up to there. */
#ifndef FL_TESTS_SIM_ENGINE_CHECKS_H
#define FL_TESTS_SIM_ENGINE_CHECKS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine_disk.h"
#include "raft/engine.h"
#include "timeline.h"

#define CHECKS_INDEX_MAX 16384
#define CHECKS_TERM_MAX  4096
#define BROKEN_STATUS    3

/* A node's log, as its engine sees it, and what it applied. */
struct checked_log {
    unsigned id;
    uint64_t last, applied;
    /* By index, up to `last`, from what is not compacted on: the chain, and the configuration that
     * is in force when the log ends there. */
    uint64_t chains[CHECKS_INDEX_MAX];
    uint32_t configurations[CHECKS_INDEX_MAX];
    /* What was seen in force last, and the same as it is in `configurations`. */
    uint64_t seen_members;
    uint32_t seen_configuration;
};

/* Content of a snapshot: the state that it carries. */
struct checked_state {
    uint64_t index, chain;
};

struct checked_entry; /* what is known of an index and a term */

struct checks {
    const struct timeline *time;
    uint64_t leader_of[CHECKS_TERM_MAX];
    uint64_t committed; /* the highest index that anybody applied */
    struct {
        uint64_t chain, term; /* the term of whoever applied it first */
        uint32_t configuration;
    } truth[CHECKS_INDEX_MAX];
    struct checked_entry *entries; /* owned */
    unsigned n_entries;
};

/* Ends the process: the seed has failed. */
void checks_broken(const struct checks *c, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* A cluster begins, with this entry committed. */
void checks_init(struct checks *c, const struct timeline *time, const struct fl_entry *first);
void checks_deinit(struct checks *c);

/* A node starts with what is on its disk. */
void checks_started(struct checks *c, struct checked_log *log, const struct disk *disk);
/* Log matching: an index and a term stand for one log up to there; and nothing that was applied is
 * replaced. */
void checks_appended(struct checks *c, struct checked_log *log, const struct fl_append *append);
/* The log is replaced by a snapshot, which carries the committed state of its index. */
void checks_installed(struct checks *c, struct checked_log *log,
                      const struct fl_snapshot *snapshot);
/* In order, and the same on all. True: the first to apply it. */
bool checks_applied(struct checks *c, struct checked_log *log, uint64_t index, uint64_t term);
/* The configuration in force is the last one in the log, committed or not. */
void checks_configuration(struct checks *c, struct checked_log *log,
                          const struct fl_engine *engine);
/* One leader per term, that has all that was committed in older ones. */
void checks_leads(struct checks *c, const struct checked_log *log, uint64_t term);
void checks_voted(struct checks *c, unsigned id, const struct disk *disk, uint64_t term,
                  uint64_t vote);
/* An own snapshot gets the state that was applied. */
void checks_fill_snapshot(const struct checks *c, const struct checked_log *log,
                          struct fl_snapshot *snapshot);

#endif
