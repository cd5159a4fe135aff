#include "chance.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

/* The program has one history at a time. */
static struct timeline *history;
static struct fl_random random_bytes;
static uint64_t sessions;

void chance_begin(struct timeline *time)
{
    history = time;
    sessions = 0;
    fl_random_init(&random_bytes, fl_random_u64(&time->random));
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    uint64_t words[2] = {1, ++sessions};

    (void)flags;
    if (size == sizeof words) {
        memcpy(out, words, size);
        return (ssize_t)size;
    }
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)out)[i] = (uint8_t)fl_random_u64(&random_bytes);
    return (ssize_t)size;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (clock != CLOCK_REALTIME || history == NULL)
        return __real_clock_gettime(clock, ret_time);
    ret_time->tv_sec = (time_t)fl_random_below(&random_bytes, 4000000000u);
    ret_time->tv_nsec = 0;
    return 0;
}
