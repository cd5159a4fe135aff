/* A process on a machine of its own: a node, a gateway or an application, with a clock that runs
 * up to some per mille wrong, and pauses. Its life counts its starts: what was meant for an earlier
 * one is dropped. */
#ifndef FL_TESTS_SIM_PLACE_H
#define FL_TESTS_SIM_PLACE_H

#include "../timeline.h"

struct place {
    struct timeline *time;
    unsigned number; /* in the network's table */
    char name[16];   /* "node 3" */
    bool is_up;
    uint64_t life;
    uint64_t rate_ppm, offset_ms; /* its clock */
    uint64_t paused_until_us;
};

/* Its clock, a monotonic one. */
uint64_t place_now_ms(const struct place *place);
/* The first moment of true time at which its clock shows that. */
uint64_t place_when_us(const struct place *place, uint64_t own_ms);
static inline bool place_is_paused(const struct place *place)
{
    return place->paused_until_us > place->time->now_us;
}

/* One alarm: set again, it moves. Fires at the end of a pause when it came during it. */
struct alarm {
    struct place *place;
    void (*fire)(void *ctx);
    void *ctx;
    uint64_t at_us;   /* when it is wanted; UINT64_MAX: not at all */
    uint64_t next_us; /* when the timeline comes back to it */
};
void alarm_init(struct alarm *alarm, struct place *place, void (*fire)(void *ctx), void *ctx);
/* By the place's clock; UINT64_MAX: never. */
void alarm_set(struct alarm *alarm, uint64_t own_ms);

#endif
