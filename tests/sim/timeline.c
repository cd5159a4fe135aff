#include "timeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

/* More events at one moment are a loop without end. */
#define AT_ONCE_MAX 100000u

struct event {
    struct fl_heap_node node;
    timeline_fn fn;
    void *ctx;
    uint64_t a;
    size_t len;
    uint8_t data[];
};

void timeline_init(struct timeline *t, uint64_t seed)
{
    *t = (struct timeline){.events = FL_HEAP_INIT};
    fl_random_init(&t->random, seed);
}

static struct event *take_first(struct timeline *t)
{
    struct fl_heap_node *first = fl_heap_first(&t->events);

    if (first == NULL)
        return NULL;
    fl_heap_remove(&t->events, first);
    return FL_CONTAINER_OF(first, struct event, node);
}

void timeline_deinit(struct timeline *t)
{
    struct event *event;

    while ((event = take_first(t)) != NULL)
        free(event);
    fl_heap_deinit(&t->events);
}

void timeline_at(struct timeline *t, uint64_t at_us, timeline_fn fn, void *ctx, uint64_t a,
                 const void *data, size_t len)
{
    struct event *event = fl_xalloc(sizeof *event + len);

    *event = (struct event){.fn = fn, .ctx = ctx, .a = a, .len = len};
    if (len > 0)
        memcpy(event->data, data, len);
    fl_heap_set(&t->events, &event->node, at_us > t->now_us ? at_us : t->now_us);
}

void timeline_in(struct timeline *t, uint64_t delay_us, timeline_fn fn, void *ctx, uint64_t a)
{
    timeline_at(t, t->now_us + delay_us, fn, ctx, a, NULL, 0);
}

void timeline_run(struct timeline *t, uint64_t until_us)
{
    while (!timeline_has_failed(t)) {
        struct fl_heap_node *first = fl_heap_first(&t->events);
        struct event *event;

        if (first == NULL || first->key > until_us)
            break;
        t->n_at_once = first->key == t->now_us ? t->n_at_once + 1 : 0;
        if (t->n_at_once > AT_ONCE_MAX) {
            timeline_fail(t, "time stands still");
            break;
        }
        t->now_us = first->key;
        event = take_first(t);
        t->n_events++;
        event->fn(event->ctx, event->a, event->data, event->len);
        free(event);
    }
    if (t->now_us < until_us && !timeline_has_failed(t))
        t->now_us = until_us;
}

void timeline_mix(struct timeline *t, uint64_t value)
{
    t->hash = fl_hash_mix64(t->hash ^ value ^ fl_hash_mix64(t->now_us));
}

void timeline_fail(struct timeline *t, const char *format, ...)
{
    va_list args;
    int n;

    if (timeline_has_failed(t))
        return;
    n = snprintf(t->failure, sizeof t->failure, "at %.3f s: ", (double)t->now_us / 1e6);
    va_start(args, format);
    vsnprintf(t->failure + n, sizeof t->failure - (size_t)n, format, args);
    va_end(args);
    timeline_tell(t, "BROKEN %s", t->failure);
}

void timeline_tell(struct timeline *t, const char *format, ...)
{
    va_list args;

    if (!t->is_telling)
        return;
    printf("%10.3f  ", (double)t->now_us / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

uint64_t timeline_between(struct timeline *t, uint64_t low, uint64_t high)
{
    return fl_random_between(&t->random, low, high);
}

bool timeline_one_in(struct timeline *t, uint64_t n)
{
    return fl_random_below(&t->random, n) == 0;
}
