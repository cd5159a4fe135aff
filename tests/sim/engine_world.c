#include "engine_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "raft/message.h"

#define MILLION 1000000u

uint64_t world_ms(const struct world_node *n)
{
    uint64_t rate = (uint64_t)((int64_t)MILLION + n->drift_ppm);

    return 1000 + n->world->time.now_us * rate / MILLION / 1000;
}

/* When its clock shows `ms`. */
static uint64_t us_at(const struct world_node *n, uint64_t ms)
{
    uint64_t rate = (uint64_t)((int64_t)MILLION + n->drift_ppm);

    return ms <= 1000 ? 0 : ((ms - 1000) * 1000 * MILLION + rate - 1) / rate;
}

const char *world_address(uint64_t id)
{
    static const char *const addresses[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7"};

    return addresses[id - 1];
}

struct world_node *world_leader(struct world *w)
{
    unsigned at = (unsigned)world_below(w, w->n);

    for (unsigned i = 0; i < w->n; i++) {
        struct world_node *n = &w->nodes[1 + (at + i) % w->n];

        if (n->engine != NULL && n->busy_until_us <= w->time.now_us &&
            fl_engine_role(n->engine) == FL_ROLE_LEADER)
            return n;
    }
    return NULL;
}

/* --- Ticks --- */

static void on_tick(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct world_node *n = ctx;
    struct world *w = n->world;

    (void)data, (void)len;
    /* Of another life, or one that was put earlier since. */
    if (n->engine == NULL || life != n->life || n->tick_at_us != w->time.now_us)
        return;
    n->tick_at_us = UINT64_MAX;
    if (us_at(n, fl_engine_deadline(n->engine)) <= w->time.now_us &&
        n->busy_until_us <= w->time.now_us) {
        fl_engine_tick(n->engine, world_ms(n));
        if (++n->ticks_at_once > 1000)
            checks_broken(&w->checks, "node %u ticks and ticks at the same time", n->id);
    }
    world_touched(n);
}

void world_touched(struct world_node *n)
{
    struct world *w = n->world;
    uint64_t at = us_at(n, fl_engine_deadline(n->engine));

    checks_configuration(&w->checks, &n->log, n->engine);
    if (at < n->busy_until_us)
        at = n->busy_until_us;
    if (at < w->time.now_us)
        at = w->time.now_us;
    if (at > w->time.now_us)
        n->ticks_at_once = 0;
    if (at >= n->tick_at_us)
        return;
    n->tick_at_us = at;
    timeline_at(&w->time, at, on_tick, n, n->life, NULL, 0);
}

/* --- Disk --- */

static void on_disk(void *ctx, uint64_t life, const void *data, size_t len);

static void disk_begin(struct world_node *n)
{
    struct world *w = n->world;
    uint64_t us;

    if (n->disk_is_busy || n->disk.ops == NULL)
        return;
    us = n->disk.ops->type == DISK_APPEND ? 100 + world_below(w, 1500)
                                          : 2000 + world_below(w, 60000);
    us *= n->disk_factor;
    if (w->has_faults && world_chance(w, 2))
        us += world_below(w, 2 * S);
    n->disk_is_busy = true;
    timeline_in(&w->time, us, on_disk, n, n->life);
}

static void disk_ask(struct world_node *n, struct disk_op op)
{
    disk_queue(&n->disk, op);
    disk_begin(n);
}

static void take_snapshot(struct world_node *n)
{
    struct world *w = n->world;
    uint64_t last = n->disk.snapshot != NULL ? n->disk.snapshot->index : 0;
    struct fl_snapshot *own;

    if (n->log.applied <= last + w->snapshot_every || !fl_engine_snapshot_begin(n->engine, &own))
        return;
    w->counts.snapshots++;
    checks_fill_snapshot(&w->checks, &n->log, own);
    disk_ask(n, (struct disk_op){.type = DISK_SAVE, .snapshot = own});
}

static void on_disk(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct world_node *n = ctx;
    struct world *w = n->world;
    struct disk_op *op;

    (void)data, (void)len;
    if (n->engine == NULL || life != n->life)
        return;
    if (n->busy_until_us > w->time.now_us) {
        timeline_at(&w->time, n->busy_until_us, on_disk, n, life, NULL, 0);
        return;
    }
    n->disk_is_busy = false;
    op = disk_do(&n->disk);
    if (op == NULL)
        checks_broken(&w->checks, "node %u: a hole in the log on disk", n->id);
    if (op->type == DISK_APPEND) {
        fl_engine_appended(n->engine, world_ms(n), op->append);
        op->append = NULL;
    } else if (op->type == DISK_INSTALL) {
        checks_installed(&w->checks, &n->log, op->snapshot);
        fl_engine_installed(n->engine, world_ms(n));
    } else if (op->type == DISK_SAVE) {
        fl_engine_snapshot_finish(n->engine, world_ms(n), op->snapshot);
    }
    disk_op_free(op);
    take_snapshot(n);
    disk_begin(n);
    world_touched(n);
}

/* --- Network --- */

static void on_mail(void *ctx, uint64_t slot, const void *data, size_t len)
{
    struct world_node *n = ctx;
    struct world *w = n->world;
    struct fl_raft_message *m = w->mail[slot];

    (void)data, (void)len;
    if (n->engine != NULL && n->busy_until_us > w->time.now_us) {
        timeline_at(&w->time, n->busy_until_us, on_mail, n, slot, NULL, 0);
        return;
    }
    w->mail[slot] = NULL;
    w->free_mail[w->n_free_mail++] = (unsigned)slot;
    if (n->engine != NULL) {
        fl_engine_receive(n->engine, world_ms(n), m->from, m);
        world_touched(n);
    }
    fl_raft_message_free(m);
}

static void send_one(struct world *w, uint64_t at_us, const struct fl_raft_message *m)
{
    unsigned slot;

    if (w->n_free_mail != 0)
        slot = w->free_mail[--w->n_free_mail];
    else if (w->n_mail < WORLD_MAIL_MAX)
        slot = w->n_mail++;
    else
        checks_broken(&w->checks, "too many messages in flight");
    w->mail[slot] = fl_raft_message_copy(m);
    timeline_at(&w->time, at_us, on_mail, &w->nodes[m->to], slot, NULL, 0);
}

static void send_after(struct world_node *n, const struct fl_raft_message *m, uint64_t extra_us)
{
    struct world *w = n->world;
    uint64_t at = n->busy_until_us > w->time.now_us ? n->busy_until_us : w->time.now_us;
    unsigned copies = world_chance(w, w->repeat) ? 2 : 1;

    if (m->to == 0 || m->to > w->n || w->cut[n->id][m->to] || world_chance(w, w->drop))
        return;
    for (; copies != 0; copies--) {
        uint64_t late = world_chance(w, w->late) ? world_below(w, 3 * S) : 0;

        send_one(w, at + w->delay_us + world_below(w, w->delay_us * 2 + 1) + late + extra_us, m);
    }
}

/* --- What the engine asks for --- */

static void op_set_vote(void *ctx, uint64_t term, uint64_t vote)
{
    struct world_node *n = ctx;

    checks_voted(&n->world->checks, n->id, &n->disk, term, vote);
    n->disk.term = term;
    n->disk.vote = vote;
    n->busy_until_us = n->world->time.now_us + 200 + world_below(n->world, 4000);
}

static void op_append(void *ctx, struct fl_append *append)
{
    struct world_node *n = ctx;

    checks_appended(&n->world->checks, &n->log, append);
    disk_ask(n, (struct disk_op){.type = DISK_APPEND, .append = append});
}

static void op_install(void *ctx, struct fl_snapshot *snapshot)
{
    struct world_node *n = ctx;

    n->world->counts.installs++;
    disk_ask(n, (struct disk_op){.type = DISK_INSTALL, .snapshot = snapshot});
}

static void op_compact(void *ctx, uint64_t first)
{
    disk_ask(ctx, (struct disk_op){.type = DISK_COMPACT, .first = first});
}

static void op_send(void *ctx, const struct fl_raft_message *m)
{
    send_after(ctx, m, 0);
}

static void op_send_snapshot(void *ctx, uint64_t to, const struct fl_raft_message *m)
{
    struct world_node *n = ctx;

    (void)to;
    send_after(n, m, world_below(n->world, 50000));
}

/* A commit is only one when a majority of the voters has it on disk. */
static void check_durable(struct world_node *n, uint64_t index, uint64_t term)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned have = 0, voters = 0;
    unsigned count = fl_engine_members(n->engine, members, FL_RAFT_SERVERS_MAX);

    for (unsigned i = 0; i < count; i++) {
        if (members[i].role != FL_MEMBER_VOTER)
            continue;
        voters++;
        have += disk_has(&n->world->nodes[members[i].id].disk, index, term);
    }
    if (have <= voters / 2)
        checks_broken(&n->world->checks, "entry %llu is committed, and durable on %u of %u",
                      (unsigned long long)index, have, voters);
}

static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    struct world_node *n = ctx;
    struct world *w = n->world;

    if (!checks_applied(&w->checks, &n->log, index, fl_engine_term(n->engine)))
        return;
    timeline_mix(&w->time, n->log.chains[index]);
    if (fl_engine_role(n->engine) == FL_ROLE_LEADER)
        check_durable(n, index, entry->term);
}

static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader)
{
    struct world_node *n = ctx;
    struct world *w = n->world;

    WORLD_STORY(w, "node %u is %s in term %llu, leader %llu", n->id,
                role == FL_ROLE_LEADER      ? "leader"
                : role == FL_ROLE_CANDIDATE ? "candidate"
                                            : "follower",
                (unsigned long long)term, (unsigned long long)leader);
    if (role != FL_ROLE_LEADER)
        return;
    w->counts.leaders++;
    checks_leads(&w->checks, &n->log, term);
}

static void op_confirmed(void *ctx, uint64_t round, uint64_t read_index)
{
    struct world_node *n = ctx;
    uint64_t floor = n->round_floor[round % WORLD_ROUNDS_MAX];

    n->world->counts.confirmed++;
    if (read_index < floor && round + WORLD_ROUNDS_MAX > n->next_round)
        checks_broken(&n->world->checks,
                      "stale read: confirmed at %llu, but %llu was committed before",
                      (unsigned long long)read_index, (unsigned long long)floor);
}

static const struct fl_engine_ops ops = {
    .set_vote = op_set_vote,
    .append = op_append,
    .install = op_install,
    .compact = op_compact,
    .send = op_send,
    .send_snapshot = op_send_snapshot,
    .apply = op_apply,
    .role = op_role,
    .confirmed = op_confirmed,
};

/* --- Life of a node --- */

void world_start(struct world_node *n)
{
    struct world *w = n->world;
    struct fl_engine_config config = {.id = n->id,
                                      .address = world_address(n->id),
                                      .election_timeout_ms = w->election_ms,
                                      .trailing = w->trailing,
                                      .seed = (unsigned)fl_random_u64(&w->time.random),
                                      .rules_off = w->rules_off};

    n->life++;
    n->busy_until_us = 0;
    n->tick_at_us = UINT64_MAX;
    disk_recover(&n->disk);
    checks_started(&w->checks, &n->log, &n->disk);
    n->engine = fl_engine_new(&config, &ops, n);
    if (fl_engine_start(n->engine, world_ms(n), n->disk.term, n->disk.vote, n->disk.snapshot,
                        n->disk.first, n->disk.log, (unsigned)n->disk.n) < 0)
        checks_broken(&w->checks, "node %u does not start", n->id);
    world_touched(n);
}

void world_crash(struct world_node *n)
{
    WORLD_STORY(n->world, "node %u crashes", n->id);
    n->world->counts.crashes++;
    if (!disk_power_cut(&n->disk, &n->world->time.random))
        checks_broken(&n->world->checks, "node %u: a hole in the log on disk", n->id);
    n->disk_is_busy = false;
    fl_engine_free(n->engine);
    n->engine = NULL;
    n->life++;
}

struct world *world_new(uint64_t seed, uint32_t rules_off, bool is_verbose)
{
    struct world *w = fl_xcalloc(1, sizeof *w);
    struct fl_member_info members[WORLD_NODES_MAX];
    struct fl_entry *first;

    w->rules_off = rules_off;
    w->is_verbose = is_verbose;
    timeline_init(&w->time, seed);
    w->voters = world_chance(w, 500) ? 5 : world_chance(w, 500) ? 4 : 3;
    w->n = w->voters + 2;
    w->election_ms = 200 + (unsigned)world_below(w, 800);
    w->delay_us = 50 + world_below(w, world_chance(w, 300) ? 20000 : 1500);
    w->trailing = world_chance(w, 250) ? 1 : 1 + world_below(w, 80);
    w->snapshot_every = 10 + world_below(w, 300);
    for (unsigned i = 0; i < w->voters; i++)
        members[i] = (struct fl_member_info){i + 1, world_address(i + 1), FL_MEMBER_VOTER};
    first = fl_engine_bootstrap_entry(members, w->voters);
    checks_init(&w->checks, &w->time, first);
    for (unsigned i = 1; i <= w->n; i++) {
        struct world_node *n = &w->nodes[i];

        n->world = w;
        n->id = n->log.id = i;
        n->disk_factor = 1;
        n->drift_ppm = (int64_t)world_below(w, 60000) - 30000;
        disk_init(&n->disk);
        if (i <= w->voters) {
            n->disk.term = 1;
            disk_push(&n->disk, first);
        }
    }
    fl_entry_unref(first);
    for (unsigned i = 1; i <= w->n; i++)
        world_start(&w->nodes[i]);
    return w;
}

void world_run(struct world *w, uint64_t us)
{
    timeline_run(&w->time, w->time.now_us + us);
}

void world_free(struct world *w)
{
    for (unsigned i = 1; i <= w->n; i++) {
        fl_engine_free(w->nodes[i].engine);
        disk_deinit(&w->nodes[i].disk);
    }
    for (unsigned i = 0; i < w->n_mail; i++)
        fl_raft_message_free(w->mail[i]);
    timeline_deinit(&w->time);
    checks_deinit(&w->checks);
    free(w);
}
