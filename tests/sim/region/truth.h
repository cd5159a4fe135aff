/* What was decided, entry by entry, told by the first node that applies it. A machine of its own, a
 * second implementation (tests/model) and the rules on effects (history.h) follow the log beside
 * the nodes, and each node is held against them: R1, R2, R4, R5 and what `history.h` numbers. */
#ifndef FL_TESTS_SIM_TRUTH_H
#define FL_TESTS_SIM_TRUTH_H

#include "../../model/history.h"
#include "../../model/model.h"
#include "../judge.h"
#include "raft/entry.h"

#define TRUTH_TERMS_MAX    8192
#define TRUTH_SESSIONS_MAX 1024

struct fact {
    uint64_t term, content; /* of the entry */
    uint64_t commit_term;   /* not later than this was it committed */
    uint64_t effects;       /* hash over all effects up to it */
    uint64_t at_us;
};

struct truth {
    struct timeline *time;
    struct judge *judge;
    struct fl_machine *machine;
    struct model *model;
    struct history *history;
    struct fl_buf theirs, ours; /* effects of the entry at hand, as text */
    struct fact *facts;         /* by index; [0] is not used */
    uint64_t committed, capacity;
    uint64_t effects;
    struct {
        unsigned node;
        uint64_t at_us;
    } leaders[TRUTH_TERMS_MAX];                   /* by term */
    uint64_t last_term;                           /* of the latest leader */
    uint64_t changed_at[JUDGE_NAMES_MAX];         /* index at which a name's holders changed last */
    uint64_t sessions_opened[TRUTH_SESSIONS_MAX]; /* by the entry at hand */
    unsigned n_sessions_opened;
    void (*committed_entry)(void *ctx, uint64_t index, uint64_t term); /* for R4 */
    void *ctx;
};

void truth_init(struct truth *truth, struct timeline *time, struct judge *judge);
void truth_deinit(struct truth *truth);

/* A node applies an entry; `commit_term`: its term now. */
void truth_applies(struct truth *truth, unsigned node, uint64_t index, const struct fl_entry *entry,
                   uint64_t commit_term);
/* And this is the hash over all its effects since the beginning. */
void truth_applied(struct truth *truth, unsigned node, uint64_t index, uint64_t effects);
uint64_t truth_hash_effect(uint64_t hash, const struct fl_effect *effect);
/* A node leads; its log ends at `last`. */
void truth_leads(struct truth *truth, unsigned node, uint64_t term, uint64_t last);
/* The latest leader's node, or 0. */
unsigned truth_leader(const struct truth *truth);
/* What a description seen at `index` must show of "n0" to "n7": the sum of its holders' tokens.
 * False when that is not known any more. */
bool truth_holders(const struct truth *truth, unsigned name, uint64_t index, fl_token *ret_sum);
/* Whether somebody was elected in a later term before that moment. */
bool truth_was_deposed(const struct truth *truth, uint64_t term, uint64_t at_us);

#endif
