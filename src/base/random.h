/* A small seeded generator (xoshiro256**, Blackman and Vigna, 2018): jitter, simulations, tests.
 * Not for secrets: those come from getrandom(2). */
#ifndef FL_BASE_RANDOM_H
#define FL_BASE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct fl_random {
    uint64_t state[4];
};

void fl_random_init(struct fl_random *random, uint64_t seed);
uint64_t fl_random_u64(struct fl_random *random);
/* Evenly from 0 to bound - 1; bound must not be 0. */
uint64_t fl_random_below(struct fl_random *random, uint64_t bound);
/* Evenly from low to high, both included. */
uint64_t fl_random_between(struct fl_random *random, uint64_t low, uint64_t high);
/* True `numerator` times in `denominator`. */
bool fl_random_chance(struct fl_random *random, uint64_t numerator, uint64_t denominator);

#endif
