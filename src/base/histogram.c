#include "base/histogram.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/alloc.h"

#define SUB_BITS 10
#define SUB      (1u << SUB_BITS)
#define BUCKETS  ((42 - SUB_BITS + 1) * SUB)

/* Values below 1,024 have a bucket each; above, the bucket is the power of two and the ten bits
 * that follow the highest one. */
static size_t bucket_of(uint64_t value)
{
    unsigned shift;

    if (value < SUB)
        return (size_t)value;
    shift = 63 - SUB_BITS - (unsigned)__builtin_clzll(value);
    return (size_t)(shift + 1) * SUB + (size_t)((value >> shift) - SUB);
}

static uint64_t highest_in(size_t bucket)
{
    size_t shift;

    if (bucket < SUB)
        return bucket;
    shift = bucket / SUB - 1;
    return ((uint64_t)(bucket % SUB + SUB + 1) << shift) - 1;
}

void fl_histogram_init(struct fl_histogram *histogram)
{
    *histogram = (struct fl_histogram){.counts = fl_xcalloc(BUCKETS, sizeof(uint64_t))};
}

void fl_histogram_deinit(struct fl_histogram *histogram)
{
    if (histogram == NULL)
        return;
    free(histogram->counts);
    *histogram = (struct fl_histogram){0};
}

void fl_histogram_record(struct fl_histogram *histogram, uint64_t value)
{
    if (value > FL_HISTOGRAM_VALUE_MAX)
        value = FL_HISTOGRAM_VALUE_MAX;
    histogram->counts[bucket_of(value)]++;
    histogram->n++;
    histogram->sum += value;
    if (value > histogram->max)
        histogram->max = value;
}

void fl_histogram_add(struct fl_histogram *to, const struct fl_histogram *from)
{
    for (size_t i = 0; i < BUCKETS; i++)
        to->counts[i] += from->counts[i];
    to->n += from->n;
    to->sum += from->sum;
    if (from->max > to->max)
        to->max = from->max;
}

uint64_t fl_histogram_at(const struct fl_histogram *histogram, double part)
{
    double exact = part * (double)histogram->n;
    uint64_t rank = (uint64_t)exact, seen = 0;

    if (histogram->n == 0)
        return 0;
    if ((double)rank < exact || rank == 0)
        rank++; /* the least rank that covers the part */
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen >= rank)
            return highest_in(i) < histogram->max ? highest_in(i) : histogram->max;
    }
    return histogram->max;
}

double fl_histogram_mean(const struct fl_histogram *histogram)
{
    return histogram->n > 0 ? (double)histogram->sum / (double)histogram->n : 0;
}
