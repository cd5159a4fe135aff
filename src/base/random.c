#include "base/random.h"

#include "base/assert.h"
#include "base/hash.h"

void fl_random_init(struct fl_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        random->state[i] = fl_hash_mix64(seed);
    }
}

static uint64_t rotl(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

uint64_t fl_random_u64(struct fl_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t fl_random_below(struct fl_random *random, uint64_t bound)
{
    FL_REQUIRE(bound != 0);
    /* Lemire 2019, without the rejection step: the bias is below 2^-32 for the bounds used here. */
    return (uint64_t)(((unsigned __int128)fl_random_u64(random) * bound) >> 64);
}

uint64_t fl_random_between(struct fl_random *random, uint64_t low, uint64_t high)
{
    FL_REQUIRE(low <= high);
    return low + fl_random_below(random, high - low + 1);
}

bool fl_random_chance(struct fl_random *random, uint64_t numerator, uint64_t denominator)
{
    return fl_random_below(random, denominator) < numerator;
}
