#include "client/clock.h"

#include <time.h>

#include "base/bugs.h"

uint64_t fl_client_now_ms(void)
{
    struct timespec now;

    clock_gettime(FL_BUG(CLIENT_WALL_CLOCK) ? CLOCK_REALTIME : CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
