/* A whole region in one process on one seed: docs/testing.md tells what is simulated and what is
 * asked of it.
 *
 *     fencelock-sim SEED [--seeds N] [--trace] [--quiet]    SEED: a number, or "fresh"
 *     fencelock-sim SEED --twice [--seeds N]    each twice: the same hash
 *     fencelock-sim --bugs [--rules] [--seeds N]   each seeded bug (and each rule of consensus
 *                                                  switched off): the first seed that finds it
 *
 * One line for each run; its hash is the history's. Fails when a property did not hold. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/log.h"
#include "raft/rules.h"
#include "region.h"

enum fl_bug fl_bug_on;

/* Fewer than so many found, and it is the simulator that is broken. */
#define BUGS_FOUND_MIN 35

static const char *const bug_names[] = {"NONE",
#define X(name, what) #name,
                                        FL_BUG_TABLE(X)
#undef X
};

static const char *const rule_names[] = {
#define X(name, number, what) #name,
    FL_RULE_TABLE(X)
#undef X
};

/* What no history of this simulator can show, and where it is seen instead. */
static const struct {
    enum fl_bug bug;
    const char *why;
} unseen[] = {
#define UNSEEN(bug, why)                                                                           \
    {                                                                                              \
        FL_BUG_##bug, why                                                                          \
    }
    UNSEEN(CORE_DEAD_HOLDER_SHOWN, "needs a session with hundreds of holds: tests/model"),
    UNSEEN(CORE_HAND_ON_STOPS, "needs hundreds of readers of one name: tests/model"),
    UNSEEN(CORE_HAND_ON_UNBOUNDED, "needs hundreds of readers of one name: tests/model"),
    UNSEEN(CORE_TIME_GOES_BACK, "no node stamps below log time, so this is a second guard"),
    UNSEEN(CORE_EXPIRY_OF_ANY_TERM, "no node forwards an expiry, so this is a second guard"),
    UNSEEN(NODE_STALL_NOT_ADDED, "clients count the stall against themselves: node_sim"),
    UNSEEN(NODE_READ_BEFORE_APPLIED, "a driver applies before it confirms: node_sim"),
    UNSEEN(CLIENT_ANY_ACK_COUNTS, "a stream keeps its order: client_session"),
    UNSEEN(CLIENT_WALL_CLOCK, "the clock is read outside the judgement: client_threads"),
    UNSEEN(GATEWAY_ZERO_MEANS_ABSENT, "an answer's words: gateway_calls"),
    UNSEEN(GATEWAY_NAME_ENDS_AT_ZERO_BYTE, "an answer's words: gateway_calls"),
    UNSEEN(STORE_DAMAGE_TAKEN_FOR_TORN, "sectors do not rot here: tests/crash"),
    UNSEEN(STORE_CHECKSUM_WITHOUT_POSITION, "sectors do not rot here: tests/crash"),
#undef UNSEEN
};

struct totals {
    uint64_t seeds, failed, asked, granted, events, faults, expiries, refused_writes, virtual_us;
};

struct result {
    uint64_t hash, virtual_us;
    bool holds;
    char failure[256];
};

static void run(uint64_t seed, uint32_t rules_off, bool is_telling, struct totals *totals,
                struct result *result)
{
    struct region *region = fl_xalloc(sizeof *region);

    region_init(region, seed, NULL, is_telling);
    region->options.replica.rules_off = rules_off;
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

        run(seed, 0, is_telling, &totals, &result);
        if (!is_quiet || !result.holds)
            printf("seed %" PRIu64 ": hash %016" PRIx64 ", %.0f s%s%s\n", seed, result.hash,
                   (double)result.virtual_us / 1e6, result.holds ? "" : ", BROKEN ",
                   result.failure);
        fflush(stdout);
        if (!twice)
            continue;
        run(seed, 0, false, &totals, &again);
        if (again.hash != result.hash) {
            printf("seed %" PRIu64 ": another hash when repeated, %016" PRIx64 "\n", seed,
                   again.hash);
            differ++;
        }
    }
    print_totals(first, &totals, seconds_of_cpu() - begun_s);
    return totals.failed + differ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const char *why_unseen(enum fl_bug bug)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(unseen); i++)
        if (unseen[i].bug == bug)
            return unseen[i].why;
    return NULL;
}

/* Whether a seed up to `seeds_max` finds it; a line of the table. A broken assertion of ours ends
 * the process: each runs in a child. */
static bool is_found(const char *name, enum fl_bug bug, uint32_t rules_off, uint64_t seeds_max)
{
    struct totals totals = {0};
    struct result result = {.holds = true};
    uint64_t seed = 0;
    int status = 0;

    while (result.holds && seed < seeds_max) {
        pid_t child;
        int ends[2];

        seed++;
        if (pipe(ends) < 0)
            abort();
        child = fork();
        if (child == 0) {
            fl_bug_on = bug;
            if (freopen("/dev/null", "w", stderr) == NULL)
                _exit(2);
            run(seed, rules_off, false, &totals, &result);
            _exit(write(ends[1], &result, sizeof result) == (ssize_t)sizeof result ? 0 : 2);
        }
        close(ends[1]);
        if (read(ends[0], &result, sizeof result) != (ssize_t)sizeof result) {
            result.holds = false;
            snprintf(result.failure, sizeof result.failure, "an assertion");
        }
        close(ends[0]);
        waitpid(child, &status, 0);
        totals.virtual_us += result.virtual_us;
    }
    printf("%-34s %-8s %4" PRIu64 " seeds %7.0f s  %.80s\n", name,
           result.holds ? "survives" : "found", seed, (double)totals.virtual_us / 1e6,
           result.failure);
    fflush(stdout);
    return !result.holds;
}

static int run_bugs(uint64_t seeds_max, bool with_rules)
{
    unsigned n_found = 0, n_unseen = 0, n_survived = 0;

    for (unsigned bug = 1; bug < FL_BUG_COUNT; bug++) {
        const char *why = why_unseen((enum fl_bug)bug);

        if (why != NULL)
            printf("%-34s not here: %s\n", bug_names[bug], why);
        n_unseen += why != NULL;
        if (why != NULL)
            continue;
        if (is_found(bug_names[bug], (enum fl_bug)bug, 0, seeds_max))
            n_found++;
        else
            n_survived++;
    }
    for (unsigned rule = 0; with_rules && rule < FL_RULE_COUNT; rule++) {
        char name[64];

        snprintf(name, sizeof name, "without rule %s", rule_names[rule]);
        if (is_found(name, FL_BUG_NONE, 1u << rule, seeds_max))
            n_found++;
        else
            n_survived++;
    }
    printf("%u found, %u survive %" PRIu64 " seeds, %u are seen by other tests\n", n_found,
           n_survived, seeds_max, n_unseen);
    return n_found >= BUGS_FOUND_MIN ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void usage(void)
{
    fprintf(stderr, "usage: fencelock-sim SEED [--seeds N] [--trace] [--quiet] [--twice]\n"
                    "       fencelock-sim --bugs [--rules] [--seeds N]\n");
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
    static const struct option options[] = {
        {"seeds", required_argument, NULL, 'n'}, {"trace", no_argument, NULL, 't'},
        {"quiet", no_argument, NULL, 'q'},       {"twice", no_argument, NULL, '2'},
        {"bugs", no_argument, NULL, 'b'},        {"bug", required_argument, NULL, 'B'},
        {"rules", no_argument, NULL, 'R'},       {NULL, 0, NULL, 0}};
    uint64_t count = 1;
    bool is_telling = false, is_quiet = false, twice = false, bugs = false, with_rules = false;
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
        case 'R':
            with_rules = true;
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
        return run_bugs(count > 1 ? count : 100, with_rules);
    if (optind + 1 != argc)
        usage();
    return run_seeds(seed_of(argv[optind]), count, is_telling, is_quiet, twice);
}
