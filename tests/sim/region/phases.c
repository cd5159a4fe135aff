/* The seed's story in its phases, and what is asked at the end of each. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "region.h"

typedef unsigned long long ull;

/* After the last fault: broken links are noticed, leaders elected, sessions opened anew. */
#define SETTLE_US (12 * S)
#define CALM_US   (15 * S)

static uint64_t ttl_us(const struct region *g)
{
    return (uint64_t)g->options.app.ttl_ms * MS;
}

static void enter(struct region *g, const char *phase)
{
    g->phase = phase;
    timeline_tell(&g->time, "--- %s", phase);
}

static void run_for(struct region *g, uint64_t us)
{
    timeline_run(&g->time, g->time.now_us + us);
}

/* --- A core that must serve --- */

/* Whether these are a majority of the voters, as each node knows them. */
static bool is_core(struct region *g, const bool *chosen)
{
    for (unsigned i = 1; i <= g->options.nodes; i++) {
        struct fl_member_info members[REPLICAS_MAX];
        unsigned n, voters = 0, have = 0;

        if (!replica_is_up(&g->replicas[i]))
            continue;
        n = fl_engine_members(g->replicas[i].engine, members, REPLICAS_MAX);
        for (unsigned k = 0; k < n; k++) {
            voters += members[k].role == FL_MEMBER_VOTER;
            have += members[k].role == FL_MEMBER_VOTER && chosen[members[k].id];
        }
        if (voters > 0 && have <= voters / 2)
            return false;
    }
    return true;
}

static void choose_core(struct region *g, bool *chosen)
{
    while (!is_core(g, chosen)) {
        unsigned i = (unsigned)timeline_between(&g->time, 1, g->options.nodes);

        chosen[i] = replica_is_up(&g->replicas[i]);
    }
}

/* The others are dead, or talk only to each other and to the gateways. */
static void break_rest(struct region *g, const bool *chosen)
{
    bool is_dead = timeline_one_in(&g->time, 2);

    for (unsigned i = 1; i <= g->options.nodes; i++) {
        if (chosen[i])
            continue;
        timeline_tell(&g->time, "%s is outside the core", g->replicas[i].place.name);
        if (is_dead)
            replica_crash(&g->replicas[i], true);
        for (unsigned k = 1; k <= g->options.nodes; k++) {
            if (!chosen[k])
                continue;
            g->net.cut[g->replicas[i].place.number][g->replicas[k].place.number] = true;
            g->net.cut[g->replicas[k].place.number][g->replicas[i].place.number] = true;
        }
    }
}

static uint64_t lost(const struct region *g)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < g->options.apps; i++)
        n += g->apps[i].counts.ended;
    return n;
}

void region_check_core(struct region *g)
{
    bool chosen[REPLICAS_MAX + 1] = {false};
    uint64_t since_us, n_lost, granted;

    enter(g, "a core must serve");
    region_heal(g);
    run_for(g, 10 * MS); /* those that come back read their disks */
    choose_core(g, chosen);
    break_rest(g, chosen);
    run_for(g, SETTLE_US + ttl_us(g) * 2);
    since_us = g->time.now_us;
    n_lost = lost(g);
    granted = region_granted(g);
    region_disturb(g, 0);
    run_for(g, CALM_US + (uint64_t)(g->options.app.wait_ms_max + g->options.app.hold_ms_max * 2 +
                                    g->options.app.think_ms_max * 2) *
                             MS);
    region_disturb(g, 1000000 * (uint64_t)S);
    if (timeline_has_failed(&g->time))
        return;
    if (region_leader(g) == NULL)
        timeline_fail(&g->time, "V1: a majority is connected, and nobody leads");
    if (region_granted(g) == granted)
        timeline_fail(&g->time, "V3: nothing is granted");
    if (lost(g) != n_lost && !g->options.clocks_are_off)
        timeline_fail(&g->time, "V4: a session is lost though nothing happens");
    for (unsigned i = 0; i < g->options.apps; i++)
        if (g->apps[i].done_us < since_us)
            timeline_fail(&g->time, "V3: %s is served no more", g->apps[i].place.name);
}

/* --- All healed --- */

struct orphans {
    const struct app *app;
    unsigned n;
};

static void look_for_owner(void *ctx, const struct fl_request_info *info)
{
    struct orphans *orphans = ctx;

    for (unsigned i = 0; i < orphans->app->config->workers; i++) {
        const struct app_worker *worker = &orphans->app->workers[i];

        if (worker->state != WORKER_IDLE && worker->bid.id == info->request_id)
            return;
    }
    orphans->n++;
}

/* What the log holds for a client's session, the client knows of. */
static void check_orphans(struct region *g)
{
    for (unsigned i = 0; i < g->options.apps; i++) {
        struct orphans orphans = {.app = &g->apps[i]};

        if (g->apps[i].place.is_up && g->apps[i].session.state == FL_SESSION_LIVE)
            fl_machine_each_request(g->truth.machine, (struct fl_session_id){1, g->apps[i].number},
                                    look_for_owner, &orphans);
        if (orphans.n > 0)
            timeline_fail(&g->time, "L11: %s has forgotten %u of its holds and waits",
                          g->apps[i].place.name, orphans.n);
    }
}

/* V10: where leases are long enough for an election, neither costs anybody a session. */
static void lose_leader_and_gateway(struct region *g)
{
    struct fl_gateway_config config = {.address = "0.0.0.0:1", .router = g->options.router};
    uint64_t n_lost = lost(g);
    bool may_ask = !g->options.clocks_are_off && g->options.router.requests_max == 0 &&
                   g->options.replica.pending_max == 0 &&
                   g->options.app.ttl_ms > 6 * g->options.replica.election_ms + 3000;
    struct replica *leader = region_leader(g);

    if (leader == NULL || !may_ask)
        return;
    enter(g, "the leader dies, then a gateway");
    replica_crash(leader, false);
    run_for(g, ttl_us(g) * 2);
    replica_start(leader);
    run_for(g, ttl_us(g));
    if (g->options.doors > 1) {
        door_end(&g->doors[0], false);
        run_for(g, ttl_us(g) * 2);
        door_start(&g->doors[0], &config);
    }
    if (!timeline_has_failed(&g->time) && lost(g) != n_lost)
        timeline_fail(&g->time, "V10: a session is lost with a leader or a gateway");
}

void region_check_power_cut(struct region *g)
{
    uint64_t committed;

    enter(g, "all is healed");
    region_heal(g);
    run_for(g, SETTLE_US + ttl_us(g));
    check_orphans(g);
    if (!timeline_has_failed(&g->time))
        lose_leader_and_gateway(g);
    if (timeline_has_failed(&g->time))
        return;
    enter(g, "the power goes everywhere");
    committed = g->truth.committed;
    for (unsigned i = 1; i <= g->options.nodes; i++)
        replica_crash(&g->replicas[i], true);
    run_for(g, timeline_between(&g->time, 0, 2 * S));
    region_heal(g);
    run_for(g, SETTLE_US);
    if (!timeline_has_failed(&g->time) && g->truth.committed <= committed)
        timeline_fail(&g->time, "R5: the cluster does not go on after a power cut");
}

/* --- The end --- */

static int add_to_hash(void *ctx, const void *data, size_t len)
{
    uint64_t *hash = ctx;

    *hash = fl_hash_mix64(*hash ^ fl_crc32c(0, data, len)) + len;
    return FL_OK;
}

static void check_state(struct region *g, const struct replica *r)
{
    const struct fl_machine *m = fl_node_machine(r->node);
    struct fl_machine_stats stats;
    uint64_t hash = 0, truth = 0;
    char why[128];

    fl_machine_stats(m, &stats);
    if (stats.sessions + stats.holds + stats.waits + stats.names != 0)
        timeline_fail(&g->time, "L11, V2: node %u keeps %llu sessions, %llu holds, %llu waits",
                      r->id, (ull)stats.sessions, (ull)stats.holds, (ull)stats.waits);
    if (fl_machine_check(m, why, sizeof why) != FL_OK)
        timeline_fail(&g->time, "invariant of node %u: %s", r->id, why);
    fl_machine_save(m, add_to_hash, &hash);
    fl_machine_save(g->truth.machine, add_to_hash, &truth);
    if (hash != truth)
        timeline_fail(&g->time, "R2: node %u has another state than the log", r->id);
    timeline_mix(&g->time, hash);
}

void region_check_end(struct region *g)
{
    struct fl_member_info members[REPLICAS_MAX];
    const struct replica *leader;
    unsigned n;

    enter(g, "all clients are gone");
    for (unsigned i = 0; i < g->options.apps; i++)
        app_crash(&g->apps[i], timeline_one_in(&g->time, 2));
    stranger_end(&g->stranger);
    run_for(g, SETTLE_US + ttl_us(g) * 3 / 2);
    linear_check(&g->linear, &g->time);
    leader = region_leader(g);
    if (leader == NULL)
        timeline_fail(&g->time, "V1: nobody leads at the end");
    if (timeline_has_failed(&g->time))
        return;
    n = fl_engine_members(leader->engine, members, REPLICAS_MAX);
    for (unsigned i = 0; i < n; i++)
        check_state(g, &g->replicas[members[i].id]);
}

void region_play(struct region *g)
{
    enter(g, "faults");
    region_start(g);
    region_faults_begin(g);
    run_for(g, g->options.faults_us);
    region_faults_end(g);
    if (!timeline_has_failed(&g->time))
        region_check_core(g);
    if (!timeline_has_failed(&g->time))
        region_check_power_cut(g);
    if (!timeline_has_failed(&g->time))
        region_check_end(g);
}
