/* The museum: failures that others published, told again to a region of ours. Each title is what
 * must happen; what must hold anyway (docs/testing.md) is asked by the judge in every one. The
 * clients do only what the story says; time is virtual.
 *
 *     museum             all
 *     TELL=1 museum      with what happens, dated */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/log.h"
#include "region.h"

enum fl_bug fl_bug_on;

#define TTL_MS 5000u

/* Who is who. */
enum { ANN, BOB, CLIENTS };
enum { L }; /* the name */

static struct region *region;

/* --- The words of a story --- */

static void a_region_of(unsigned nodes)
{
    struct region_options options = {
        .nodes = nodes,
        .doors = 2,
        .apps = CLIENTS,
        .replica = {.election_ms = 500,
                    .tick_ms = 50,
                    .voters = nodes,
                    .trailing = 20,
                    .snapshot_every = 50,
                    .segment_bytes = 16384,
                    .reserve_bytes = 4096},
        .app = {.ttl_ms = TTL_MS, .timeout_ms = 5000, .workers = 1, .is_scripted = true},
        .delay_us = 500,
    };

    region = fl_xalloc(sizeof *region);
    region_init(region, nodes, &options, getenv("TELL") != NULL);
    region_start(region);
}

static void after(uint64_t ms)
{
    timeline_run(&region->time, region->time.now_us + ms * MS);
    if (timeline_has_failed(&region->time))
        fail_msg("%s", region->time.failure);
}

static void the_end(void)
{
    region_heal(region);
    after(1000);
    region_check_end(region);
    if (timeline_has_failed(&region->time))
        fail_msg("%s", region->time.failure);
    region_deinit(region);
    free(region);
}

static void asks(unsigned who, uint32_t wait_ms)
{
    app_ask(&region->apps[who], 0, L, FL_EXCLUSIVE, wait_ms);
}

static bool holds(unsigned who)
{
    return app_holds(&region->apps[who], 0);
}

static fl_token token_of(unsigned who)
{
    return region->apps[who].workers[0].bid.token;
}

static void gives_back(unsigned who)
{
    app_give_back(&region->apps[who], 0);
}

static void writes(unsigned who)
{
    app_write(&region->apps[who], 0);
}

static void stands_still(unsigned who, uint64_t ms)
{
    app_pause(&region->apps[who], region->time.now_us + ms * MS);
}

static struct replica *leader(void)
{
    struct replica *r = region_leader(region);

    assert_non_null(r);
    return r;
}

static void cut(struct replica *a, struct replica *b)
{
    region->net.cut[a->place.number][b->place.number] = true;
    region->net.cut[b->place.number][a->place.number] = true;
}

static void cut_off(struct replica *r)
{
    for (unsigned i = 1; i <= region->options.nodes; i++)
        if (i != r->id)
            cut(r, &region->replicas[i]);
}

static void cut_off_from_gateways(struct replica *r)
{
    for (unsigned i = 0; i < region->options.doors; i++) {
        region->net.cut[r->place.number][region->doors[i].place.number] = true;
        region->net.cut[region->doors[i].place.number][r->place.number] = true;
    }
}

static void the_power_goes_everywhere(void)
{
    for (unsigned i = 1; i <= region->options.nodes; i++)
        replica_crash(&region->replicas[i], true);
}

/* Ann has L. */
static void ann_holds(unsigned nodes)
{
    a_region_of(nodes);
    after(3000);
    asks(ANN, 0);
    after(200);
    assert_true(holds(ANN));
}

/* --- Leases and pauses --- */

/* C84 (Kleppmann 2016; etcd 10811; curator 727): the holder sleeps through its lease, and writes.
 */
static void a_zombie_write_meets_the_fence(void **state)
{
    (void)state;
    ann_holds(3);
    writes(ANN);
    asks(BOB, 60000);
    after(100);
    stands_still(ANN, 3 * TTL_MS);
    after(2 * TTL_MS);
    assert_true(holds(BOB));
    assert_true(token_of(BOB) > token_of(ANN));
    writes(BOB);
    after(100);
    writes(ANN); /* what it had begun before it slept */
    after(100);
    assert_int_equal(region->fence.refused, 1);
    assert_int_equal(region->fence.resources[L].written, token_of(BOB));
    after(2 * TTL_MS);
    assert_false(holds(ANN)); /* it was told */
    the_end();
}

/* C07 (etcd 15247, 13766): a leader that was stopped goes on to renew leases when it wakes. */
static void a_leader_that_slept_comforts_nobody(void **state)
{
    struct replica *old;

    (void)state;
    ann_holds(3);
    old = leader();
    replica_pause(old, region->time.now_us + 20 * S);
    after(10000);
    assert_true(leader() != old);
    after(15000); /* it wakes, with heartbeats in its sockets: T2 is asked of each answer */
    assert_true(holds(ANN));
    the_end();
}

/* C07, C50: all servers stand still (a snapshot of the machines), and on waking the leader finds
 * every lease overdue. */
static void all_nodes_sleep_and_no_session_is_lost(void **state)
{
    (void)state;
    ann_holds(3);
    for (unsigned i = 1; i <= 3; i++)
        replica_pause(&region->replicas[i], region->time.now_us + TTL_MS * 2 / 3 * MS);
    after(TTL_MS * 2);
    assert_true(holds(ANN));
    the_end();
}

/* C08 (etcd 12528; Chubby's epochs): who waits for a crashed holder gets the lock within its TTL
 * and an election, also when the leader dies meanwhile. */
static void a_crashed_holder_is_replaced_over_a_failover(void **state)
{
    (void)state;
    ann_holds(5);
    asks(BOB, 60000);
    after(100);
    app_crash(&region->apps[ANN], true);
    after(TTL_MS / 2);
    replica_crash(leader(), true);
    after(TTL_MS + 4000);
    assert_true(holds(BOB));
    the_end();
}

/* consul 1843: the client loses its gateway, the gateway loses nothing. */
static void a_client_cut_off_knows_before_the_next_has_it(void **state)
{
    (void)state;
    ann_holds(3);
    asks(BOB, 60000);
    after(100);
    for (unsigned i = 0; i < 2; i++) {
        region->net.cut[region->apps[ANN].place.number][region->doors[i].place.number] = true;
        region->net.cut[region->doors[i].place.number][region->apps[ANN].place.number] = true;
    }
    while (!holds(BOB))
        after(10); /* T1 is asked at each step */
    assert_false(holds(ANN));
    the_end();
}

/* --- Consensus --- */

/* Cloudflare 2020; openraft 2080: some see the leader, some do not, and one sees both sides. */
static void a_bridge_keeps_a_leader_that_can_commit(void **state)
{
    (void)state;
    ann_holds(5);
    for (unsigned a = 1; a <= 2; a++)
        for (unsigned b = 4; b <= 5; b++)
            cut(&region->replicas[a], &region->replicas[b]); /* node 3 is the bridge */
    after(10000);
    gives_back(ANN);
    after(2000);
    asks(BOB, 0);
    after(2000);
    assert_true(holds(BOB));
    the_end();
}

/* NEAT 2018: a leader that can send and not hear keeps its followers quiet for ever. */
static void a_deaf_leader_steps_down(void **state)
{
    struct replica *deaf;

    (void)state;
    ann_holds(3);
    deaf = leader();
    for (unsigned i = 1; i <= 3; i++)
        region->net.cut[region->replicas[i].place.number][deaf->place.number] = true;
    after(5000);
    assert_true(leader() != deaf);
    assert_true(holds(ANN));
    the_end();
}

/* C21 (redisraft 44): a minority serves nothing, reads included. */
static void a_minority_grants_nothing(void **state)
{
    struct replica *old;

    (void)state;
    ann_holds(3);
    gives_back(ANN);
    after(500);
    old = leader();
    cut_off(old);
    for (unsigned i = 1; i <= 3; i++)
        if (i != old->id)
            cut_off_from_gateways(&region->replicas[i]);
    asks(BOB, 0);
    after(4000);
    assert_false(holds(BOB));
    the_end();
}

/* etcd 14370; NATS under Jepsen: acknowledged, and gone after the power came back. */
static void a_grant_survives_the_power_of_all_nodes(void **state)
{
    fl_token before;

    (void)state;
    ann_holds(3);
    before = token_of(ANN);
    the_power_goes_everywhere();
    after(500);
    region_heal(region);
    after(4000);
    assert_true(holds(ANN));
    gives_back(ANN);
    after(1000);
    asks(BOB, 1000);
    after(1000);
    assert_true(holds(BOB));
    assert_true(token_of(BOB) > before);
    the_end();
}

/* hashicorp/raft 503: a leader whose disk hangs goes on to send heartbeats and blocks everybody. */
static void a_slow_disk_does_not_stop_the_others(void **state)
{
    (void)state;
    ann_holds(3);
    region->replicas[leader()->id % 3 + 1].disk_factor = 2000; /* seconds for each write */
    gives_back(ANN);
    after(500);
    asks(BOB, 0);
    after(500);
    assert_true(holds(BOB));
    the_end();
}

/* C56 (canonical/raft 199, 373; etcd 20426): a node that was away gets a snapshot, loses its power,
 * and starts with a log that does not fit. */
static void a_node_that_was_away_comes_back_by_a_snapshot(void **state)
{
    struct replica *away;

    (void)state;
    ann_holds(3);
    away = &region->replicas[leader()->id % 3 + 1];
    cut_off(away);
    for (int i = 0; i < 120; i++) {
        gives_back(ANN);
        after(100);
        asks(ANN, 0);
        after(100);
    }
    net_heal(&region->net);
    after(3000);
    assert_true(away->counts.installs > 0);
    replica_crash(away, true);
    after(100);
    replica_start(away);
    after(3000);
    assert_int_equal(fl_engine_applied_index(away->engine), region->truth.committed);
    the_end();
}

/* --- What was on its way --- */

/* C02 (curator 3; zk 51): the answer is lost, and asked for again, behind itself. */
static void a_lost_answer_is_the_same_grant(void **state)
{
    (void)state;
    a_region_of(3);
    after(3000);
    asks(ANN, 5000);
    while (fl_machine_token(region->truth.machine) == 0)
        after(1); /* it is granted, and nobody knows */
    for (unsigned i = 0; i < 2; i++)
        door_end(&region->doors[i], false);
    after(300);
    region_heal(region);
    after(TTL_MS / 2);
    assert_true(holds(ANN));
    assert_int_equal(token_of(ANN), 1);
    the_end();
}

/* C05 (zk 51; redisson 4661): who stopped waiting is granted later, and nobody gives it back. */
static void a_waiter_that_died_holds_nothing_up(void **state)
{
    (void)state;
    ann_holds(3);
    asks(BOB, 60000);
    after(100);
    app_crash(&region->apps[BOB], true);
    after(500);
    gives_back(ANN);
    after(TTL_MS + 2000);
    asks(ANN, 0);
    after(500);
    assert_true(holds(ANN));
    the_end();
}

/* C04: a wait outlives the leader that it was asked of, and keeps its place. */
static void a_wait_keeps_its_place_over_a_failover(void **state)
{
    (void)state;
    ann_holds(5);
    asks(BOB, 20000);
    after(100);
    replica_crash(leader(), true);
    after(3000);
    gives_back(ANN);
    after(2000);
    assert_true(holds(BOB));
    the_end();
}

int main(void)
{
    static const struct CMUnitTest stories[] = {
        cmocka_unit_test(a_zombie_write_meets_the_fence),
        cmocka_unit_test(a_leader_that_slept_comforts_nobody),
        cmocka_unit_test(all_nodes_sleep_and_no_session_is_lost),
        cmocka_unit_test(a_crashed_holder_is_replaced_over_a_failover),
        cmocka_unit_test(a_client_cut_off_knows_before_the_next_has_it),
        cmocka_unit_test(a_bridge_keeps_a_leader_that_can_commit),
        cmocka_unit_test(a_deaf_leader_steps_down),
        cmocka_unit_test(a_minority_grants_nothing),
        cmocka_unit_test(a_grant_survives_the_power_of_all_nodes),
        cmocka_unit_test(a_slow_disk_does_not_stop_the_others),
        cmocka_unit_test(a_node_that_was_away_comes_back_by_a_snapshot),
        cmocka_unit_test(a_lost_answer_is_the_same_grant),
        cmocka_unit_test(a_waiter_that_died_holds_nothing_up),
        cmocka_unit_test(a_wait_keeps_its_place_over_a_failover),
    };

    fl_log_set_level(FL_LOG_NONE);
    return cmocka_run_group_tests(stories, NULL, NULL);
}
