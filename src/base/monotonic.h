/* A clock for measuring durations: never set, and still during a suspend. For leases and deadlines
 * there is the loop's (net/loop.h). */
#ifndef FL_BASE_MONOTONIC_H
#define FL_BASE_MONOTONIC_H

#include <stdint.h>

uint64_t fl_monotonic_us(void);

#endif
