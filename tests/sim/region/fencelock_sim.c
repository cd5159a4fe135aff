/* A whole region in one process on one seed: docs/testing.md tells what is simulated and what is
 * asked of it.
 *
 *     fencelock-sim SEED [--seeds N] [--trace] [--quiet]    SEED: a number, or "fresh"
 *     fencelock-sim SEED --twice [--seeds N]    each twice: the same hash
 *     fencelock-sim --bugs [--seeds N]          each seeded bug: the first seed that finds it
 *
 * One line for each run; its hash is the history's. Fails when a property did not hold. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/log.h"
#include "region.h"

enum fl_bug fl_bug_on;

static const char *const bug_names[] = {"NONE",
#define X(name, what) #name,
                                        FL_BUG_TABLE(X)
#undef X
};

struct totals {
    uint64_t seeds, failed, asked, granted, events, faults, expiries, refused_writes, virtual_us;
};

struct result {
    uint64_t hash, virtual_us;
    bool holds;
    char failure[256];
};

static void run(uint64_t seed, bool is_telling, struct totals *totals, struct result *result)
{
    struct region *region = fl_xalloc(sizeof *region);

    region_init(region, seed, NULL, is_telling);
    region_play(region);
    result->hash = region->time.hash;
    result->virtual_us = region->time.now_us;
    result->holds = !timeline_has_failed(&region->time);
    memcpy(result->failure, region->time.failure, sizeof result->failure);
    totals->seeds++;
    totals->failed += !result->holds;
    totals->asked += region_asked(region);
    totals->granted += region_granted(region);
    totals->events += region->time.n_events;
    totals->faults += region->n_faults;
    totals->expiries += region->judge.expiries;
    totals->refused_writes += region->fence.refused;
    totals->virtual_us += region->time.now_us;
    region_deinit(region);
    free(region);
}

static double seconds_of_cpu(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void print_totals(uint64_t first, const struct totals *totals, double cpu_s)
{
    double hours = (double)totals->virtual_us / 3.6e9;

    printf("seeds from %" PRIu64 ": %" PRIu64 " run, %" PRIu64
           " failed; %.2f virtual hours in %.1f s (%.1f a minute), "
           "%" PRIu64 " requests, %" PRIu64 " grants, %" PRIu64 " faults, %" PRIu64
           " expiries, %" PRIu64 " stale writes refused, %" PRIu64 " events\n",
           first, totals->seeds, totals->failed, hours, cpu_s, cpu_s > 0 ? hours / cpu_s * 60 : 0,
           totals->asked, totals->granted, totals->faults, totals->expiries, totals->refused_writes,
           totals->events);
}

static int run_seeds(uint64_t first, uint64_t count, bool is_telling, bool is_quiet, bool twice)
{
    struct totals totals = {0};
    uint64_t differ = 0;
    double begun_s = seconds_of_cpu();

    for (uint64_t seed = first; seed < first + count; seed++) {
        struct result result, again;

        run(seed, is_telling, &totals, &result);
        if (!is_quiet || !result.holds)
            printf("seed %" PRIu64 ": hash %016" PRIx64 ", %.0f s%s%s\n", seed, result.hash,
                   (double)result.virtual_us / 1e6, result.holds ? "" : ", BROKEN ",
                   result.failure);
        fflush(stdout);
        if (!twice)
            continue;
        run(seed, false, &totals, &again);
        if (again.hash != result.hash) {
            printf("seed %" PRIu64 ": another hash when repeated, %016" PRIx64 "\n", seed,
                   again.hash);
            differ++;
        }
    }
    print_totals(first, &totals, seconds_of_cpu() - begun_s);
    return totals.failed + differ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_bugs(uint64_t seeds_max)
{
    unsigned survived = 0;

    for (unsigned bug = 1; bug < FL_BUG_COUNT; bug++) {
        struct totals totals = {0};
        struct result result = {.holds = true};
        uint64_t seed = 0;

        fl_bug_on = (enum fl_bug)bug;
        while (result.holds && seed < seeds_max)
            run(++seed, false, &totals, &result);
        printf("%-36s %s", bug_names[bug], result.holds ? "survives " : "found by ");
        printf("%4" PRIu64 " seeds, %8.0f s  %s\n", seed, (double)totals.virtual_us / 1e6,
               result.failure);
        fflush(stdout);
        survived += result.holds;
    }
    printf("%u of %d survive %" PRIu64 " seeds\n", survived, FL_BUG_COUNT - 1, seeds_max);
    return EXIT_SUCCESS;
}

static void usage(void)
{
    fprintf(stderr, "usage: fencelock-sim SEED [--seeds N] [--trace] [--quiet] [--twice]\n"
                    "       fencelock-sim --bugs [--seeds N]\n");
    exit(2);
}

static enum fl_bug bug_of(const char *name)
{
    for (unsigned i = 1; i < FL_BUG_COUNT; i++)
        if (strcmp(bug_names[i], name) == 0)
            return (enum fl_bug)i;
    usage();
    return FL_BUG_NONE;
}

/* "fresh": another each time. */
static uint64_t seed_of(const char *text)
{
    if (strcmp(text, "fresh") == 0)
        return (uint64_t)time(NULL) * 1000;
    return strtoull(text, NULL, 10);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seeds", required_argument, NULL, 'n'},
                                            {"trace", no_argument, NULL, 't'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"twice", no_argument, NULL, '2'},
                                            {"bugs", no_argument, NULL, 'b'},
                                            {"bug", required_argument, NULL, 'B'},
                                            {NULL, 0, NULL, 0}};
    uint64_t count = 1;
    bool is_telling = false, is_quiet = false, twice = false, bugs = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            count = strtoull(optarg, NULL, 10);
            break;
        case 't':
            is_telling = true;
            break;
        case 'q':
            is_quiet = true;
            break;
        case '2':
            twice = true;
            break;
        case 'b':
            bugs = true;
            break;
        case 'B':
            fl_bug_on = bug_of(optarg);
            break;
        default:
            usage();
        }
    }
    fl_log_set_level(FL_LOG_NONE);
    if (bugs)
        return run_bugs(count > 1 ? count : 100);
    if (optind + 1 != argc)
        usage();
    return run_seeds(seed_of(argv[optind]), count, is_telling, is_quiet, twice);
}
