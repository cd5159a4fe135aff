/* Virtual time, in microseconds, and everything that will happen in it. One seed decides all: the
 * same seed gives the same events in the same order, and so the same hash. */
#ifndef FL_TESTS_SIM_TIMELINE_H
#define FL_TESTS_SIM_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/random.h"

#define MS 1000u
#define S  1000000u

struct timeline {
    uint64_t now_us;
    struct fl_random random;
    struct fl_heap events;
    uint64_t hash, n_events, n_at_once;
    char failure[256]; /* the first property that did not hold; empty: all did */
    bool is_telling;   /* the story is printed, with dates */
};

/* `a` and the bytes are the event's own; they are copied. */
typedef void (*timeline_fn)(void *ctx, uint64_t a, const void *data, size_t len);

void timeline_init(struct timeline *t, uint64_t seed);
void timeline_deinit(struct timeline *t);
void timeline_at(struct timeline *t, uint64_t at_us, timeline_fn fn, void *ctx, uint64_t a,
                 const void *data, size_t len);
void timeline_in(struct timeline *t, uint64_t delay_us, timeline_fn fn, void *ctx, uint64_t a);
/* Until then, or until a property fails. */
void timeline_run(struct timeline *t, uint64_t until_us);
void timeline_mix(struct timeline *t, uint64_t value);
void timeline_fail(struct timeline *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void timeline_tell(struct timeline *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline bool timeline_has_failed(const struct timeline *t)
{
    return t->failure[0] != '\0';
}

/* Chance. */
uint64_t timeline_between(struct timeline *t, uint64_t low, uint64_t high);
bool timeline_one_in(struct timeline *t, uint64_t n);

#endif
