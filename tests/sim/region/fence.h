/* The protected store: for each resource the highest token that it has seen. A claim raises it, a
 * write must not be below it (F1). What an unfenced store would have taken is counted. */
#ifndef FL_TESTS_SIM_FENCE_H
#define FL_TESTS_SIM_FENCE_H

#include "../judge.h"
#include "../timeline.h"

struct fence {
    struct timeline *time;
    struct {
        fl_token seen, written; /* the highest; of the last write that was taken */
    } resources[JUDGE_NAMES_MAX];
    uint64_t claims, writes, refused;
};

/* False: refused. */
bool fence_claim(struct fence *fence, unsigned resource, fl_token token);
bool fence_write(struct fence *fence, unsigned resource, fl_token token);

#endif
