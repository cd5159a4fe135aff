/* A histogram of durations for monitoring: fixed buckets from 100 microseconds to a day, so that
 * all of them, of all processes, can be added up. One thread records, any may copy: without locks,
 * a copy may miss what is being recorded and no more. For exact quantiles take base/histogram.h. */
#ifndef FL_BASE_TIMING_H
#define FL_BASE_TIMING_H

#include <stdint.h>

#define FL_TIMING_BOUNDS 21

/* Upper bounds in microseconds, rising; what is above the last falls into a bucket of its own. */
extern const uint64_t fl_timing_bounds_us[FL_TIMING_BOUNDS];

struct fl_timing {
    uint64_t counts[FL_TIMING_BOUNDS + 1]; /* each bucket's own */
    uint64_t sum_us;
};

void fl_timing_record(struct fl_timing *timing, uint64_t us);
void fl_timing_copy(const struct fl_timing *timing, struct fl_timing *ret_copy);
uint64_t fl_timing_count(const struct fl_timing *timing);
/* The time that `part` (0 to 1) did not exceed, to within its bucket; 0 when there are none. */
uint64_t fl_timing_at_us(const struct fl_timing *timing, double part);

#endif
