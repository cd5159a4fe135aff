/* Whole histories, ordered by the log's indexes: what was answered before something else was asked
 * must not stand behind it (L13). Writes bear the index they were decided at, reads what they saw.
 */
#ifndef FL_TESTS_SIM_LINEAR_H
#define FL_TESTS_SIM_LINEAR_H

#include "../timeline.h"

struct linear {
    struct linear_op {
        uint64_t index, asked_us, answered_us;
        bool is_read;
    } * ops; /* owned */
    size_t n, capacity;
};

void linear_add(struct linear *linear, uint64_t index, bool is_read, uint64_t asked_us,
                uint64_t answered_us);
/* n log n. Fails the timeline. */
void linear_check(struct linear *linear, struct timeline *time);
void linear_deinit(struct linear *linear);

#endif
