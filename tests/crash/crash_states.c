/* Loses power at every step of long scripts, in every way (or in many, where there are too many),
 * and looks whether what was acknowledged is there, and nothing that never was.
 *
 *     crash_states [SEED [SCRIPTS]]      one seed again, or another number of them */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "power_cut.h"

#define SCRIPTS    60
#define STEPS      200
#define STATES_MIN 1000000

static uint64_t run(uint64_t seed, bool *ret_is_good)
{
    struct story *story = story_new(seed);
    uint64_t checks;

    power_cut_everywhere(story, STEPS);
    *ret_is_good = !story_is_broken(story);
    if (!*ret_is_good)
        fprintf(stderr, "seed %" PRIu64 ", state %" PRIu64 ": %s\n", seed, story->checks,
                story->problem);
    checks = story->checks;
    story_free(story);
    return checks;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? 1 : SCRIPTS;
    uint64_t states = 0;
    double start = seconds(), took;
    bool is_good = true;

    fl_log_set_level(FL_LOG_NONE);
    for (uint64_t seed = first; seed < first + n && is_good; seed++)
        states += run(seed, &is_good);
    took = seconds() - start;
    printf("%" PRIu64 " crash states of %" PRIu64 " scripts of %d operations in %.1f s, %.0f/s\n",
           states, n, STEPS, took, (double)states / took);
    if (is_good && argc == 1 && states < STATES_MIN) {
        fprintf(stderr, "fewer than %d states were tried\n", STATES_MIN);
        return 1;
    }
    return is_good ? 0 : 1;
}
