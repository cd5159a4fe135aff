/* The node and the state machine, three of each, on an ideal log: clients that drift, crash and
 * repeat themselves; leaders that are deposed without knowing it; pauses, lost tails, late
 * confirmations, broken links. Every history is judged. Usage:
 *
 *     node_sim                 1,000 seeds, then each of the first 20 again: same hash
 *     node_sim SEED [COUNT]    those seeds
 *     node_sim_bugs            each seeded bug that a history can show is found (see `kills`) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "sim_client.h"

#define CLIENTS       6
#define FAULTS_END_US (30 * S)
#define WIND_DOWN_US  (36 * S)
#define EMPTY_BY_US   (WIND_DOWN_US + 9 * S)

struct sim {
    struct timeline time;
    struct judge judge;
    struct cluster cluster;
    struct sim_client clients[CLIENTS];
    uint64_t next_link, next_session, is_winding_down;
};

struct totals {
    uint64_t events, grants, expiries, acks, reads;
};

static void on_cluster_frame(void *ctx, unsigned node, uint64_t link, const void *data, size_t len)
{
    struct sim *sim = ctx;

    client_frame(&sim->clients[link & 15], node, link, data, len);
}

/* --- Faults --- */

static void disturb(struct sim *sim, uint64_t until_us)
{
    if (until_us > sim->judge.disturbed_until_us)
        sim->judge.disturbed_until_us = until_us;
}

static void on_elect(void *ctx, uint64_t node, const void *data, size_t len)
{
    struct sim *sim = ctx;

    (void)data;
    (void)len;
    ideal_log_elect(&sim->cluster.log, (unsigned)node);
}

static void change_leader(struct sim *sim)
{
    struct timeline *t = &sim->time;
    uint64_t gone_us = timeline_between(t, 0, S);
    uint64_t learns_us =
        timeline_one_in(t, 2) ? timeline_between(t, 0, 6 * S) : timeline_between(t, 0, 50 * MS);

    ideal_log_depose(&sim->cluster.log, learns_us);
    timeline_in(t, gone_us, on_elect, sim, timeline_between(t, 1, LOG_NODES));
    disturb(sim, t->now_us + (learns_us > gone_us ? learns_us : gone_us) + 500 * MS);
}

static void on_reconnect(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct sim *sim = ctx;

    (void)a;
    (void)data;
    (void)len;
    sim->cluster.log.leader_is_cut_off = false;
}

static void on_fault(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct sim *sim = ctx;
    struct timeline *t = &sim->time;
    uint64_t span_us = timeline_between(t, 0, 3 * S);

    (void)a;
    (void)data;
    (void)len;
    if (t->now_us >= FAULTS_END_US)
        return;
    switch (timeline_between(t, 0, 7)) {
    case 0:
    case 1:
        change_leader(sim);
        break;
    case 2:
        span_us = timeline_one_in(t, 4) ? 9 * S : span_us;
        cluster_pause(&sim->cluster, (unsigned)timeline_between(t, 1, LOG_NODES),
                      t->now_us + span_us);
        break;
    case 3:
        client_cut(&sim->clients[timeline_between(t, 0, CLIENTS - 1)],
                   (unsigned)timeline_between(t, 1, LOG_NODES), t->now_us + span_us);
        break;
    case 4:
        client_crash(&sim->clients[timeline_between(t, 0, CLIENTS - 1)]);
        break;
    case 5:
    case 6:
        client_mute(&sim->clients[timeline_between(t, 0, CLIENTS - 1)],
                    t->now_us + timeline_between(t, S, 6 * S));
        break;
    default:
        sim->cluster.log.leader_is_cut_off = sim->cluster.log.leader != 0;
        timeline_in(t, span_us, on_reconnect, sim, 0);
        break;
    }
    disturb(sim, t->now_us + span_us + 500 * MS);
    timeline_in(t, timeline_between(t, 100 * MS, 4 * S), on_fault, sim, 0);
}

/* --- One seed --- */

static void sim_init(struct sim *sim, uint64_t seed)
{
    timeline_init(&sim->time, seed);
    judge_init(&sim->judge, &sim->time);
    cluster_init(&sim->cluster, &sim->time, &sim->judge, on_cluster_frame, sim);
    /* Two messages, and three entries on their slow way: in flight, the acquire's, the deadline's.
     */
    sim->judge.late_us = 2 * 110 * MS + 3 * 360 * MS;
    sim->next_link = sim->next_session = 1;
    sim->is_winding_down = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_init(&sim->clients[i], &sim->cluster, i);
        sim->clients[i].next_link = &sim->next_link;
        sim->clients[i].next_session = &sim->next_session;
        sim->clients[i].is_winding_down = &sim->is_winding_down;
        client_start(&sim->clients[i]);
    }
    ideal_log_elect(&sim->cluster.log, (unsigned)timeline_between(&sim->time, 1, LOG_NODES));
    timeline_in(&sim->time, S, on_fault, sim, 0);
}

/* Faults, then quiet with somebody leading, then silence: all must end by itself. */
static void sim_play(struct sim *sim)
{
    timeline_run(&sim->time, FAULTS_END_US + 2 * S);
    sim->cluster.log.leader_is_cut_off = false;
    ideal_log_elect(&sim->cluster.log, 1);
    timeline_run(&sim->time, WIND_DOWN_US);
    sim->is_winding_down = 1;
    for (unsigned i = 0; i < CLIENTS; i++)
        client_crash(&sim->clients[i]);
    timeline_run(&sim->time, EMPTY_BY_US);
    if (!timeline_has_failed(&sim->time))
        cluster_check_empty(&sim->cluster);
}

/* True when every property held. */
static bool sim_run(uint64_t seed, uint64_t *ret_hash, struct totals *totals, bool is_quiet)
{
    struct sim *sim = fl_xalloc(sizeof *sim);
    bool holds;

    sim_init(sim, seed);
    sim_play(sim);
    holds = !timeline_has_failed(&sim->time);
    if (!holds && !is_quiet)
        printf("seed %" PRIu64 ": %s\n", seed, sim->time.failure);
    *ret_hash = sim->time.hash;
    totals->events += sim->time.n_events;
    totals->grants += sim->judge.grants;
    totals->expiries += sim->judge.expiries;
    totals->acks += sim->judge.acks;
    totals->reads += sim->judge.reads;
    cluster_deinit(&sim->cluster);
    judge_deinit(&sim->judge);
    timeline_deinit(&sim->time);
    free(sim);
    return holds;
}

/* --- The judge is judged --- */

#ifdef FL_BUGS
enum fl_bug fl_bug_on;

static const struct {
    enum fl_bug bug;
    const char *name;
} kills[] = {
#define KILL(bug)                                                                                  \
    {                                                                                              \
        FL_BUG_##bug, #bug                                                                         \
    }
    KILL(NODE_ACK_WITHOUT_CONFIRM),
    KILL(NODE_CONFIRM_BEGUN_BEFORE_RECEIPT),
    KILL(NODE_NO_GRACE),
    KILL(NODE_GRACE_HALVED),
    KILL(NODE_TABLE_KEPT),
    KILL(NODE_STALL_NOT_ADDED),
    KILL(NODE_READ_WITHOUT_CONFIRM),
    KILL(NODE_READ_BEFORE_APPLIED),
    KILL(NODE_REPLY_MATCHED_BY_INDEX),
    KILL(NODE_LOG_TIME_OF_OWN_CLOCK),
#undef KILL
};

#define KILL_SEEDS_MAX 400

static int run_kills(void)
{
    int survived = 0;

    for (size_t i = 0; i < FL_ARRAY_LEN(kills); i++) {
        struct totals totals = {0};
        uint64_t seed = 1, hash;

        fl_bug_on = kills[i].bug;
        while (seed <= KILL_SEEDS_MAX && sim_run(seed, &hash, &totals, true))
            seed++;
        printf("%-40s %s %" PRIu64 "\n", kills[i].name,
               seed <= KILL_SEEDS_MAX ? "found by seed" : "SURVIVED", seed);
        survived += seed > KILL_SEEDS_MAX;
    }
    return survived == 0 ? 0 : 1;
}

int main(void)
{
    return run_kills();
}
#else
static int run_seeds(uint64_t first, uint64_t count, uint64_t again)
{
    struct totals totals = {0};
    uint64_t failed = 0, differ = 0;

    for (uint64_t seed = first; seed < first + count; seed++) {
        uint64_t hash, second;

        failed += !sim_run(seed, &hash, &totals, false);
        if (seed - first >= again)
            continue;
        sim_run(seed, &second, &(struct totals){0}, true);
        differ += hash != second;
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " failed, %" PRIu64 " differ when repeated; %" PRIu64
           " events, %" PRIu64 " grants, %" PRIu64 " expiries, %" PRIu64 " heartbeats, %" PRIu64
           " reads\n",
           count, failed, differ, totals.events, totals.grants, totals.expiries, totals.acks,
           totals.reads);
    return failed + differ == 0 && totals.grants > 0 && totals.expiries > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_seeds(strtoull(argv[1], NULL, 10), argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
                         1);
    return run_seeds(1, 1000, 20);
}
#endif
