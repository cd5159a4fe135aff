#include "base/timing.h"

#define MS UINT64_C(1000)
#define S  (1000 * MS)

const uint64_t fl_timing_bounds_us[FL_TIMING_BOUNDS] = {
    100,      200,   500,   1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS,  100 * MS,  200 * MS,
    500 * MS, 1 * S, 2 * S, 5 * S,  10 * S, 30 * S, 60 * S,  300 * S, 3600 * S, 86400 * S,
};

static void add(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

void fl_timing_record(struct fl_timing *timing, uint64_t us)
{
    unsigned i = 0;

    while (i < FL_TIMING_BOUNDS && us > fl_timing_bounds_us[i])
        i++;
    add(&timing->counts[i], 1);
    add(&timing->sum_us, us);
}

void fl_timing_copy(const struct fl_timing *timing, struct fl_timing *ret_copy)
{
    for (unsigned i = 0; i <= FL_TIMING_BOUNDS; i++)
        ret_copy->counts[i] = __atomic_load_n(&timing->counts[i], __ATOMIC_RELAXED);
    ret_copy->sum_us = __atomic_load_n(&timing->sum_us, __ATOMIC_RELAXED);
}

uint64_t fl_timing_count(const struct fl_timing *timing)
{
    uint64_t n = 0;

    for (unsigned i = 0; i <= FL_TIMING_BOUNDS; i++)
        n += timing->counts[i];
    return n;
}

uint64_t fl_timing_at_us(const struct fl_timing *timing, double part)
{
    uint64_t n = fl_timing_count(timing), seen = 0;

    if (n == 0)
        return 0;
    for (unsigned i = 0; i < FL_TIMING_BOUNDS; i++) {
        seen += timing->counts[i];
        if ((double)seen >= part * (double)n)
            return fl_timing_bounds_us[i];
    }
    return fl_timing_bounds_us[FL_TIMING_BOUNDS - 1];
}
