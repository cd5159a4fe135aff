/* Engines in one process, on one seed: disks that lose what was not synced and tear what was being
 * written, a network that loses, repeats, delays and cuts, crashes, pauses, stalls, clocks that
 * drift, snapshots, changes of membership, transfers and rounds of confirmation.
 *
 *     engine_sim [-s FIRST_SEED] [-n SEEDS] [-r RULE_OFF] [-v]
 *
 * Each seed runs in a child, so that a broken invariant ends that seed only. With -r the run
 * succeeds when the rule's absence was seen. The same seed gives the same hash. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "engine_faults.h"
#include "engine_world.h"
#include "raft/message.h"
#include "raft/rules.h"

#define FAULTS_US 20000000u
#define CALM_US   40000000u
#define LAST_US   20000000u

/* Whether some change of the configuration was taken; a few reasons to be busy pass with time. */
static bool change_something(struct world *w)
{
    for (unsigned tries = 0; tries < 50; tries++) {
        struct world_node *n = world_leader(w);
        uint64_t id = 1 + world_below(w, w->n);
        int r = FL_E_NO_LEADER;

        if (n != NULL) {
            r = fl_engine_add(n->engine, world_ms(n), id, world_address(id));
            if (r == FL_E_EXISTS)
                r = fl_engine_remove(n->engine, world_ms(n), id);
            world_touched(n);
        }
        if (r == FL_OK)
            return true;
        world_run(w, S);
    }
    return false;
}

/* After the last fault everybody must agree, a new entry must pass, and a change. */
static void check_converged(struct world *w)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, "last", 4);
    struct world_node *leader = world_leader(w);
    int64_t index = FL_E_NO_LEADER;
    unsigned n;

    if (leader != NULL) {
        index = fl_engine_submit(leader->engine, world_ms(leader), entry);
        world_touched(leader);
    }
    fl_entry_unref(entry);
    if (index < 0)
        checks_broken(&w->checks, "no leader takes an entry: %s", fl_error_text((int)index));
    world_run(w, LAST_US);
    if (!change_something(w))
        checks_broken(&w->checks, "nobody takes a change of the configuration");
    world_run(w, LAST_US);
    leader = world_leader(w);
    if (leader == NULL)
        checks_broken(&w->checks, "nobody leads after a change");
    n = fl_engine_members(leader->engine, members, FL_RAFT_SERVERS_MAX);
    for (unsigned i = 0; i < n; i++) {
        const struct world_node *m = &w->nodes[members[i].id];

        if (m->id != w->lost && (m->engine == NULL || m->log.applied < (uint64_t)index))
            checks_broken(&w->checks, "node %u stays behind, at %" PRIu64 " of %" PRIi64, m->id,
                          m->log.applied, index);
    }
}

static void print_counts(const struct world *w, uint64_t seed)
{
    const struct world_counts *c = &w->counts;

    printf("seed %" PRIu64 ": hash %016" PRIx64 ", %" PRIu64 " entries, %" PRIu64 " events\n", seed,
           w->time.hash, w->checks.committed, w->time.n_events);
    printf("  leaders %" PRIu64 ", crashes %" PRIu64 ", added %" PRIu64 ", promoted %" PRIu64
           ", removed %" PRIu64 " (leaders %" PRIu64 "), transfers %" PRIu64 ", installs %" PRIu64
           ", snapshots %" PRIu64 ", confirmed %" PRIu64 "\n",
           c->leaders, c->crashes, c->adds, c->promotions, c->removals, c->leader_removals,
           c->transfers, c->installs, c->snapshots, c->confirmed);
}

static void run_seed(uint64_t seed, uint32_t rules_off, bool is_verbose)
{
    struct world *w = world_new(seed, rules_off, is_verbose);

    faults_begin(w);
    world_run(w, FAULTS_US);
    faults_end(w);
    world_run(w, CALM_US);
    check_converged(w);
    if (is_verbose)
        print_counts(w, seed);
    world_free(w);
}

static int rule_by_name(const char *name)
{
    static const char *const names[] = {
#define X(rule, number, sentence) #rule,
        FL_RULE_TABLE(X)
#undef X
    };

    for (unsigned i = 0; i < FL_RULE_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    fprintf(stderr, "no rule %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    uint64_t first = 1, count = 1, failed = 0;
    uint32_t rules_off = 0;
    bool is_verbose = false;
    int option;

    while ((option = getopt(argc, argv, "s:n:r:v")) != -1) {
        switch (option) {
        case 's':
            first = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            count = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            rules_off |= 1u << rule_by_name(optarg);
            break;
        case 'v':
            is_verbose = true;
            break;
        default:
            return 2;
        }
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        int status = 0;
        pid_t child;

        fflush(stdout);
        child = fork();
        if (child == 0) {
            run_seed(seed, rules_off, is_verbose);
            exit(0);
        }
        waitpid(child, &status, 0);
        if (status == 0)
            continue;
        failed++;
        printf("seed %llu fails (status %#x)\n", (unsigned long long)seed, (unsigned)status);
        if (rules_off != 0)
            break; /* seen */
    }
    printf("seeds %llu to %llu: %llu failed\n", (unsigned long long)first,
           (unsigned long long)(first + count - 1), (unsigned long long)failed);
    return (failed != 0) != (rules_off != 0);
}
