#include "region.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "chance.h"

/* Of a clock, when it is not the bound that is tried. */
#define RHO_BEYOND_PPM 80000u

static uint64_t between(struct timeline *t, uint64_t low, uint64_t high)
{
    return timeline_between(t, low, high);
}

static void draw_replicas(struct region_options *o, struct timeline *t)
{
    o->replica.voters = timeline_one_in(t, 3) ? 5 : 3;
    o->nodes = o->replica.voters + (unsigned)between(t, 0, 2);
    o->replica.election_ms = (unsigned)between(t, 300, 1200);
    o->replica.tick_ms = (unsigned)between(t, 50, 100);
    o->replica.trailing = timeline_one_in(t, 4) ? 1 : between(t, 1, 120);
    o->replica.snapshot_every = timeline_one_in(t, 3) ? between(t, 10, 60) : between(t, 60, 1000);
    o->replica.segment_bytes = 4096u << between(t, 0, 4);
    o->replica.reserve_bytes = 4096;
    o->replica.pending_max = timeline_one_in(t, 8) ? (uint32_t)between(t, 8, 40) : 0;
}

static void draw_apps(struct region_options *o, struct timeline *t)
{
    o->doors = (unsigned)between(t, 1, REGION_DOORS_MAX);
    o->apps = (unsigned)between(t, 2, REGION_APPS_MAX);
    o->app.ttl_ms = (uint32_t)between(t, 2000, 12000);
    o->app.wait_ms_max = (uint32_t)between(t, 500, 15000);
    o->app.hold_ms_max = (uint32_t)between(t, 20, 2000);
    o->app.think_ms_max = (uint32_t)between(t, 20, 2000);
    o->app.timeout_ms = (uint32_t)between(t, 2000, 10000);
    o->app.workers = (unsigned)between(t, 1, APP_WORKERS_MAX);
    o->app.cancel_one_in = (unsigned)between(t, 2, 16);
    o->app.look_one_in = (unsigned)between(t, 2, 12);
    o->app.lock_delay_ms = timeline_one_in(t, 4) ? (uint32_t)between(t, 1, 1500) : 0;
    o->app.uses_shared = timeline_one_in(t, 2);
    o->app.uses_counted = timeline_one_in(t, 2);
    o->router =
        (struct fl_router_config){.requests_max = timeline_one_in(t, 8) ? between(t, 4, 40) : 0};
}

void region_draw(struct region_options *o, struct timeline *t)
{
    *o = (struct region_options){0};
    draw_replicas(o, t);
    draw_apps(o, t);
    o->has_stranger = timeline_one_in(t, 2);
    o->delay_us = timeline_one_in(t, 3) ? between(t, 1000, 15000) : between(t, 50, 1000);
    o->faults_us = between(t, 40, 160) * S;
    o->fault_every_us = between(t, 300 * MS, 6 * S);
    o->change_every_us = between(t, 2 * S, 20 * S);
    o->clocks_are_off = timeline_one_in(t, 12);
    o->has_cuts = !timeline_one_in(t, 4);
    o->has_crashes = !timeline_one_in(t, 4);
    o->has_pauses = !timeline_one_in(t, 4);
    o->has_power_cuts = !timeline_one_in(t, 3);
    o->has_loss = !timeline_one_in(t, 4);
    o->has_changes = timeline_one_in(t, 2);
    o->has_slow_disks = timeline_one_in(t, 2);
    o->has_disk_errors = timeline_one_in(t, 4);
    o->has_full_disks = timeline_one_in(t, 5);
}

/* --- Building --- */

static void settle_down(struct region *g, struct place *place, unsigned *number, const char *kind,
                        unsigned i)
{
    uint64_t rho = g->options.clocks_are_off ? RHO_BEYOND_PPM : RHO_PPM;

    place->time = &g->time;
    place->number = (*number)++;
    snprintf(place->name, sizeof place->name, "%s %u", kind, i);
    place->rate_ppm = between(&g->time, 1000000 - rho, 1000000 + rho);
    place->offset_ms = between(&g->time, 1, 100000000);
}

static void build_replicas(struct region *g, unsigned *number)
{
    for (unsigned i = 1; i <= g->options.nodes; i++) {
        struct replica *r = &g->replicas[i];

        settle_down(g, &r->place, number, "node", i);
        replica_init(r, &g->net, &g->truth, i, &g->options.replica);
        r->peers = g->replicas;
        r->n_peers = g->options.nodes;
        r->is_joiner = i > g->options.replica.voters;
    }
}

static void build_doors(struct region *g, unsigned *number)
{
    for (unsigned i = 0; i < g->options.doors; i++) {
        struct door *door = &g->doors[i];

        settle_down(g, &door->place, number, "gateway", i + 1);
        door_init(door, &g->net);
        for (unsigned n = 1; n <= g->options.nodes; n++)
            door->targets[door->n_targets++] = (struct door_target){
                &g->replicas[n].place, n, replica_hear_newcomer, &g->replicas[n]};
    }
}

/* R4: a commit is one when a majority of the voters has it on disk. Asked of a leader, which knows
 * who they are. */
static void on_committed(void *ctx, uint64_t index, uint64_t term)
{
    struct region *g = ctx;
    struct replica *leader = region_leader(g);
    struct fl_member_info members[REPLICAS_MAX];
    unsigned n, have = 0, voters = 0;

    if (index == 1 || leader == NULL || fl_engine_commit_index(leader->engine) < index ||
        fl_engine_term(leader->engine) != g->truth.last_term)
        return;
    n = fl_engine_members(leader->engine, members, REPLICAS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (members[i].role != FL_MEMBER_VOTER)
            continue;
        voters++;
        have += replica__promised(&g->replicas[members[i].id], index, term);
    }
    if (have <= voters / 2)
        timeline_fail(&g->time, "R4: entry %llu is committed, and durable on %u of %u",
                      (unsigned long long)index, have, voters);
}

/* A heartbeat that lies at the leader's door counts, whether or not the leader runs (T9). */
static void on_arrived(void *ctx, const struct place *place, const void *data, size_t len)
{
    struct region *g = ctx;
    unsigned leader = truth_leader(&g->truth);
    const uint8_t *bytes = data;
    struct fl_request request;

    if (leader == 0 || place != &g->replicas[leader].place || len < 2 ||
        bytes[0] != FL_LINK_REQUEST)
        return;
    if (fl_request_decode(bytes + 1, len - 1, &request) == FL_OK &&
        request.type == FL_REQ_KEEP_ALIVE)
        judge_beat(&g->judge, (uint32_t)request.session.low);
}

void region_init(struct region *g, uint64_t seed, const struct region_options *options,
                 bool is_telling)
{
    unsigned number = 0;

    memset(g, 0, sizeof *g);
    timeline_init(&g->time, seed);
    g->time.is_telling = is_telling;
    chance_begin(&g->time);
    if (options != NULL)
        g->options = *options;
    else
        region_draw(&g->options, &g->time);
    judge_init(&g->judge, &g->time);
    g->judge.clocks_are_off = g->options.clocks_are_off;
    /* What L14 allows, and a dozen messages on their way. */
    g->judge.late_us = 250 * MS + 12 * 3 * g->options.delay_us;
    truth_init(&g->truth, &g->time, &g->judge);
    g->truth.committed_entry = on_committed;
    g->truth.ctx = g;
    net_init(&g->net, &g->time);
    g->net.delay_us = g->options.delay_us;
    g->net.late_us = 3 * S;
    g->fence.time = &g->time;
    build_replicas(g, &number);
    build_doors(g, &number);
    for (unsigned i = 0; i < g->options.apps; i++) {
        settle_down(g, &g->apps[i].place, &number, "client", i + 1);
        app_init(&g->apps[i], &g->net, &g->truth, &g->fence, &g->linear, g->doors, g->options.doors,
                 &g->options.app);
    }
    settle_down(g, &g->stranger.place, &number, "stranger", 1);
    stranger_init(&g->stranger, &g->net, &g->truth, g->doors, g->options.doors);
    g->net.arrived = on_arrived;
    g->net.arrived_ctx = g;
    region_disturb(g, 1000000 * (uint64_t)S);
}

void region_start(struct region *g)
{
    struct fl_gateway_config config = {.address = "0.0.0.0:1", .router = g->options.router};

    for (unsigned i = 1; i <= g->options.nodes; i++)
        replica_start(&g->replicas[i]);
    for (unsigned i = 0; i < g->options.doors; i++)
        door_start(&g->doors[i], &config);
    for (unsigned i = 0; i < g->options.apps; i++)
        app_start(&g->apps[i]);
    if (g->options.has_stranger)
        stranger_start(&g->stranger);
}

void region_deinit(struct region *g)
{
    g->time.is_telling = false;
    for (unsigned i = 0; i < g->options.apps; i++)
        app_deinit(&g->apps[i]);
    for (unsigned i = 0; i < g->options.doors; i++)
        door_deinit(&g->doors[i]);
    for (unsigned i = 1; i <= g->options.nodes; i++)
        replica_deinit(&g->replicas[i]);
    net_deinit(&g->net);
    linear_deinit(&g->linear);
    truth_deinit(&g->truth);
    judge_deinit(&g->judge);
    timeline_deinit(&g->time);
}

void region_disturb(struct region *g, uint64_t for_us)
{
    g->judge.disturbed_until_us = g->time.now_us + for_us;
}

struct replica *region_leader(struct region *g)
{
    struct replica *best = NULL;

    for (unsigned i = 1; i <= g->options.nodes; i++) {
        struct replica *r = &g->replicas[i];

        if (replica_is_up(r) && fl_engine_role(r->engine) == FL_ROLE_LEADER &&
            (best == NULL || fl_engine_term(r->engine) > fl_engine_term(best->engine)))
            best = r;
    }
    return best;
}

uint64_t region_granted(const struct region *g)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < g->options.apps; i++)
        n += g->apps[i].counts.granted;
    return n;
}

uint64_t region_asked(const struct region *g)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < g->options.apps; i++)
        n += g->apps[i].counts.asked + g->apps[i].counts.reads;
    return n;
}
