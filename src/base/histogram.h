/* A log-linear histogram of latencies: every power of two is cut into 1,024 equal parts, so a value
 * is kept to better than three significant digits whatever its size. Recording allocates nothing.
 */
#ifndef FL_BASE_HISTOGRAM_H
#define FL_BASE_HISTOGRAM_H

#include <stdint.h>

#define FL_HISTOGRAM_VALUE_MAX ((UINT64_C(1) << 42) - 1) /* over an hour in nanoseconds */

struct fl_histogram {
    uint64_t *counts; /* owned */
    uint64_t n, max, sum;
};

void fl_histogram_init(struct fl_histogram *histogram);
void fl_histogram_deinit(struct fl_histogram *histogram);
/* Values above FL_HISTOGRAM_VALUE_MAX count as that. */
void fl_histogram_record(struct fl_histogram *histogram, uint64_t value);
void fl_histogram_add(struct fl_histogram *to, const struct fl_histogram *from);
/* The value that `part` (0 to 1) of the recorded ones do not exceed; 0 when there are none. Never
 * below the true one, and at most 0.1 % above. */
uint64_t fl_histogram_at(const struct fl_histogram *histogram, double part);
double fl_histogram_mean(const struct fl_histogram *histogram);

#endif
