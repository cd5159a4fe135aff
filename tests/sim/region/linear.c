#include "linear.h"

#include <stdlib.h>

#include "base/alloc.h"

void linear_add(struct linear *linear, uint64_t index, bool is_read, uint64_t asked_us,
                uint64_t answered_us)
{
    if (linear->n == linear->capacity) {
        linear->capacity = fl_grow_capacity(linear->capacity, linear->n + 1, sizeof *linear->ops);
        linear->ops = fl_xrealloc(linear->ops, linear->capacity * sizeof *linear->ops);
    }
    linear->ops[linear->n++] = (struct linear_op){index, asked_us, answered_us, is_read};
}

/* A read stands behind the write whose index it saw. Those of one index may have any order. */
static int by_place(const void *left, const void *right)
{
    const struct linear_op *a = left, *b = right;

    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    if (a->is_read != b->is_read)
        return a->is_read ? 1 : -1;
    return (a->asked_us > b->asked_us) - (a->asked_us < b->asked_us);
}

void linear_check(struct linear *linear, struct timeline *time)
{
    uint64_t asked_us = 0; /* the latest of those before */

    if (linear->n > 1)
        qsort(linear->ops, linear->n, sizeof *linear->ops, by_place);
    for (size_t i = 0; i < linear->n; i++) {
        const struct linear_op *op = &linear->ops[i];

        if (op->answered_us < asked_us) {
            timeline_fail(
                time,
                "L13: answered at %.3f s from entry %llu, and something that was asked at "
                "%.3f s stands before it",
                (double)op->answered_us / 1e6, (unsigned long long)op->index,
                (double)asked_us / 1e6);
            return;
        }
        if (op->asked_us > asked_us)
            asked_us = op->asked_us;
    }
}

void linear_deinit(struct linear *linear)
{
    free(linear->ops);
}
