#include "engine_faults.h"

#include <string.h>

#include "base/error.h"
#include "raft/message.h"

/* --- Clients --- */

static void submit_some(struct world *w, struct world_node *n)
{
    uint64_t count = 1 + world_below(w, world_chance(w, 100) ? 40 : 4);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = fl_random_u64(&w->time.random);
        struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, &value, sizeof value);

        (void)fl_engine_submit(n->engine, world_ms(n), entry);
        fl_entry_unref(entry);
    }
    if (world_chance(w, 300)) {
        uint64_t round = n->next_round++;

        n->round_floor[round % WORLD_ROUNDS_MAX] = w->checks.committed;
        fl_engine_confirm(n->engine, world_ms(n), round);
    }
    world_touched(n);
}

static void on_client(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct world *w = ctx;
    struct world_node *n;

    (void)a, (void)data, (void)len;
    if (!w->has_faults)
        return;
    n = world_leader(w);
    if (n != NULL)
        submit_some(w, n);
    timeline_in(&w->time, 2000 + world_below(w, 24000), on_client, w, 0);
}

/* --- Administrators --- */

/* What makes sense for the server, as this leader sees it. */
static int change_place(struct world *w, struct world_node *n, uint64_t id)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned count = fl_engine_members(n->engine, members, FL_RAFT_SERVERS_MAX);
    int r;

    for (unsigned i = 0; i < count; i++) {
        if (members[i].id != id)
            continue;
        if (members[i].role != FL_MEMBER_VOTER && world_chance(w, 800)) {
            r = fl_engine_promote(n->engine, world_ms(n), id);
            w->counts.promotions += r == FL_OK;
            return r;
        }
        r = fl_engine_remove(n->engine, world_ms(n), id);
        w->counts.removals += r == FL_OK;
        w->counts.leader_removals += r == FL_OK && id == n->id;
        return r;
    }
    r = fl_engine_add(n->engine, world_ms(n), id, world_address(id));
    w->counts.adds += r == FL_OK;
    return r;
}

static void on_admin(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct world *w = ctx;
    struct world_node *n;
    uint64_t id = 1 + world_below(w, w->n);
    int r;

    (void)a, (void)data, (void)len;
    if (!w->has_faults)
        return;
    timeline_in(&w->time, 20 * MS + world_below(w, 200 * MS), on_admin, w, 0);
    n = world_leader(w);
    if (n == NULL)
        return;
    if (world_chance(w, 150)) {
        r = fl_engine_transfer(n->engine, world_ms(n), world_chance(w, 500) ? 0 : id);
        w->counts.transfers += r == FL_OK;
    } else {
        r = change_place(w, n, id);
        if (r == FL_OK)
            WORLD_STORY(w, "node %u changes the place of node %u", n->id, (unsigned)id);
    }
    world_touched(n);
}

/* --- Faults --- */

static void heal(struct world *w)
{
    memset(w->cut, 0, sizeof w->cut);
}

static void on_heal(void *ctx, uint64_t a, const void *data, size_t len)
{
    (void)a, (void)data, (void)len;
    heal(ctx);
}

static bool is_cut(struct world *w, unsigned style, unsigned mask, unsigned k, unsigned a,
                   unsigned b)
{
    switch (style) {
    case 0: /* one server alone */
        return (a == k) != (b == k);
    case 1: /* two halves */
        return ((mask >> a) & 1) != ((mask >> b) & 1);
    case 2: /* one is not heard by some */
        return a == k && world_chance(w, 500);
    default: /* one does not hear some */
        return b == k && world_chance(w, 500);
    }
}

static void cut_some(struct world *w, unsigned k)
{
    unsigned mask = (unsigned)fl_random_u64(&w->time.random), style = (unsigned)world_below(w, 4);

    WORLD_STORY(w, "the network is cut around node %u, style %u", k, style);
    for (unsigned a = 1; a <= w->n; a++)
        for (unsigned b = 1; b <= w->n; b++)
            if (is_cut(w, style, mask, k, a, b))
                w->cut[a][b] = true;
    timeline_in(&w->time, 50000 + world_below(w, world_chance(w, 200) ? 8 * S : 2 * S), on_heal, w,
                0);
}

static void on_restart(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct world_node *n = ctx;

    (void)a, (void)data, (void)len;
    if (n->engine == NULL && n->world->lost != n->id)
        world_start(n);
}

static void crash_for(struct world_node *n, uint64_t us)
{
    struct world *w = n->world;

    if (n->engine == NULL)
        return;
    world_crash(n);
    timeline_in(&w->time, 10000 + world_below(w, us), on_restart, n, 0);
}

static void crash_many(struct world *w)
{
    for (unsigned i = 1; i <= w->n; i++)
        if (world_chance(w, 600))
            crash_for(&w->nodes[i], 500 * MS);
}

static void on_fault(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct world *w = ctx;
    unsigned k = 1 + (unsigned)world_below(w, w->n), what = (unsigned)world_below(w, 12);
    struct world_node *n = &w->nodes[k];

    (void)a, (void)data, (void)len;
    if (!w->has_faults)
        return;
    if (what < 3) {
        crash_for(n, world_chance(w, 200) ? 8 * S : 800 * MS);
    } else if (what < 6) {
        cut_some(w, k);
    } else if (what < 8) {
        n->busy_until_us =
            w->time.now_us + 5000 + world_below(w, world_chance(w, 200) ? 6 * S : 600 * MS);
    } else if (what < 9) {
        n->disk_factor = world_chance(w, 500) ? 1 : 1 + world_below(w, 60);
    } else if (what < 10 && world_chance(w, 300)) {
        crash_many(w);
    } else {
        w->drop = world_chance(w, 500) ? 0 : (unsigned)world_below(w, 150);
        w->repeat = world_chance(w, 500) ? 0 : (unsigned)world_below(w, 100);
        w->late = world_chance(w, 500) ? 0 : (unsigned)world_below(w, 60);
    }
    timeline_in(&w->time, world_below(w, 700 * MS), on_fault, w, 0);
}

void faults_begin(struct world *w)
{
    w->has_faults = true;
    timeline_in(&w->time, 500 * MS, on_fault, w, 0);
    timeline_in(&w->time, MS, on_client, w, 0);
    timeline_in(&w->time, 800 * MS, on_admin, w, 0);
}

/* A standby becomes a voter, and does not hear of it. */
static void promote_unheard(struct world *w, struct world_node *n)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned count = fl_engine_members(n->engine, members, FL_RAFT_SERVERS_MAX);

    for (unsigned i = 0; i < count; i++) {
        uint64_t id = members[i].id;

        if (members[i].role == FL_MEMBER_VOTER)
            continue;
        w->cut[n->id][id] = true;
        if (fl_engine_promote(n->engine, world_ms(n), id) == FL_OK) {
            WORLD_STORY(w, "node %u promotes node %u unheard", n->id, (unsigned)id);
            w->counts.promotions++;
        }
        world_touched(n);
        world_run(w, (uint64_t)w->election_ms * MS / 2);
        heal(w);
        return;
    }
}

/* Every configuration has three voters, and does without one of them: the leader, if it can be. */
static void lose_one(struct world *w)
{
    struct world_node *n;

    world_run(w, 3 * S); /* time to find a leader */
    n = world_leader(w);
    if (n == NULL)
        n = &w->nodes[1 + world_below(w, w->n)];
    else
        promote_unheard(w, n);
    w->lost = n->id;
    if (n->engine != NULL)
        world_crash(n);
}

void faults_end(struct world *w)
{
    w->has_faults = false;
    w->drop = w->repeat = w->late = 0;
    heal(w);
    for (unsigned i = 1; i <= w->n; i++)
        w->nodes[i].disk_factor = 1;
    if (world_chance(w, 500))
        lose_one(w);
}
