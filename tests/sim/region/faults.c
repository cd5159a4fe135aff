/* What happens to a region: faults of every kind that its seed allows, several at a time. */
#include "base/error.h"
#include "region.h"

static uint64_t between(struct region *g, uint64_t low, uint64_t high)
{
    return timeline_between(&g->time, low, high);
}

static bool one_in(struct region *g, uint64_t n)
{
    return timeline_one_in(&g->time, n);
}

static struct replica *some_replica(struct region *g)
{
    return &g->replicas[between(g, 1, g->options.nodes)];
}

/* --- Death and rebirth --- */

static void on_restart(void *ctx, uint64_t i, const void *data, size_t len)
{
    struct region *g = ctx;

    (void)data;
    (void)len;
    if (!g->replicas[i].place.is_up)
        timeline_tell(&g->time, "%s starts", g->replicas[i].place.name);
    replica_start(&g->replicas[i]);
    if (!g->replicas[i].place.is_up && !g->replicas[i].is_ruined)
        timeline_in(&g->time, S, on_restart, g, i);
}

static void crash(struct region *g, struct replica *r, bool loses_power, uint64_t for_us)
{
    if (!r->place.is_up)
        return;
    replica_crash(r, loses_power);
    timeline_in(&g->time, for_us, on_restart, g, r->id);
}

static void crash_some(struct region *g)
{
    bool loses_power = g->options.has_power_cuts && one_in(g, 2);
    uint64_t for_us = one_in(g, 4) ? between(g, S, 15 * S) : between(g, 10 * MS, S);

    if (!one_in(g, 8)) {
        crash(g, some_replica(g), loses_power, for_us);
        return;
    }
    for (unsigned i = 1; i <= g->options.nodes; i++)
        if (!one_in(g, 4))
            crash(g, &g->replicas[i], loses_power, for_us / 4 + between(g, 0, S));
}

static void on_door_restart(void *ctx, uint64_t i, const void *data, size_t len)
{
    struct region *g = ctx;
    struct fl_gateway_config config = {.address = "0.0.0.0:1", .router = g->options.router};

    (void)data;
    (void)len;
    if (!g->doors[i].place.is_up)
        door_start(&g->doors[i], &config);
}

static void on_app_restart(void *ctx, uint64_t i, const void *data, size_t len)
{
    struct region *g = ctx;

    (void)data;
    (void)len;
    app_start(&g->apps[i]);
}

static void crash_outside(struct region *g)
{
    if (one_in(g, 3)) {
        uint64_t i = between(g, 0, g->options.doors - 1);

        timeline_tell(&g->time, "%s is killed", g->doors[i].place.name);
        door_end(&g->doors[i], one_in(g, 2));
        timeline_in(&g->time, between(g, 10 * MS, 3 * S), on_door_restart, g, i);
    } else {
        uint64_t i = between(g, 0, g->options.apps - 1);

        app_crash(&g->apps[i], one_in(g, 2));
        timeline_in(&g->time, between(g, 100 * MS, 5 * S), on_app_restart, g, i);
    }
}

/* --- The network --- */

static void cut(struct region *g, const struct place *a, const struct place *b, bool both_ways)
{
    g->net.cut[a->number][b->number] = true;
    if (both_ways)
        g->net.cut[b->number][a->number] = true;
}

static void on_heal(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct region *g = ctx;

    (void)a;
    (void)data;
    (void)len;
    if (!g->has_faults)
        return;
    timeline_tell(&g->time, "the network is whole again");
    net_heal(&g->net);
}

/* Between nodes: one alone, two halves, one way out, one way in, a bridge, a ring, one pair. */
static void cut_nodes(struct region *g)
{
    static const char *const styles[] = {"one is alone",    "two halves", "one cannot send",
                                         "one cannot hear", "a bridge",   "a ring",
                                         "one pair"};
    unsigned style = (unsigned)between(g, 0, 6), k = (unsigned)between(g, 1, g->options.nodes);
    unsigned n = g->options.nodes;
    uint64_t mask = fl_random_u64(&g->time.random);

    timeline_tell(&g->time, "the network is cut: %s (node %u)", styles[style], k);
    for (unsigned a = 1; a <= n; a++) {
        for (unsigned b = a + 1; b <= n; b++) {
            const struct place *pa = &g->replicas[a].place, *pb = &g->replicas[b].place;
            bool is_other_half = ((mask >> a) & 1) != ((mask >> b) & 1);

            if (style == 0 && (a == k || b == k))
                cut(g, pa, pb, true);
            if ((style == 1 || (style == 4 && a != k && b != k)) && is_other_half)
                cut(g, pa, pb, true);
            if (style == 2 && (a == k || b == k))
                cut(g, a == k ? pa : pb, a == k ? pb : pa, false);
            if (style == 3 && (a == k || b == k))
                cut(g, a == k ? pb : pa, a == k ? pa : pb, false);
            if (style == 5 && b - a != 1 && b - a != n - 1)
                cut(g, pa, pb, true);
            if (style == 6 && a == k && b == k % n + 1)
                cut(g, pa, pb, true);
        }
    }
}

/* A gateway from the nodes (all, or those that it finds), or clients from a gateway. */
static void cut_outside(struct region *g)
{
    const struct door *door = &g->doors[between(g, 0, g->options.doors - 1)];
    bool both_ways = !one_in(g, 3), all = one_in(g, 2);

    timeline_tell(&g->time, "%s is cut off", door->place.name);
    if (one_in(g, 2)) {
        for (unsigned i = 1; i <= g->options.nodes; i++)
            if (all || one_in(g, 2))
                cut(g, &g->replicas[i].place, &door->place, both_ways);
    } else {
        for (unsigned i = 0; i < g->options.apps; i++)
            if (all || one_in(g, 2))
                cut(g, &g->apps[i].place, &door->place, both_ways);
    }
}

/* The leader keeps a gateway and the clients, and loses everybody else: who serves on alone? It may
 * sleep first, and find on waking what was asked meanwhile. */
static void cut_leader(struct region *g)
{
    struct replica *leader = region_leader(g);
    uint64_t kept = between(g, 0, g->options.doors - 1);

    if (leader == NULL)
        return;
    timeline_tell(&g->time, "%s is cut off, with %s", leader->place.name,
                  g->doors[kept].place.name);
    for (unsigned i = 1; i <= g->options.nodes; i++) {
        if (i == leader->id)
            continue;
        cut(g, &g->replicas[i].place, &leader->place, true);
        cut(g, &g->replicas[i].place, &g->doors[kept].place, true);
    }
    if (one_in(g, 2))
        replica_pause(leader,
                      g->time.now_us + between(g, 1, 4) * g->options.replica.election_ms * MS);
}

static void cut_some(struct region *g)
{
    if (one_in(g, 4))
        cut_leader(g);
    else if (one_in(g, 3))
        cut_outside(g);
    else
        cut_nodes(g);
    timeline_in(&g->time, one_in(g, 4) ? between(g, S, 12 * S) : between(g, 50 * MS, 2 * S),
                on_heal, g, 0);
}

static void change_weather(struct region *g)
{
    g->net.drop = one_in(g, 2) ? 0 : (unsigned)between(g, 0, 200);
    g->net.repeat = one_in(g, 2) ? 0 : (unsigned)between(g, 0, 200);
    g->net.late = one_in(g, 2) ? 0 : (unsigned)between(g, 0, 80);
    g->net.late_us = one_in(g, 5) ? 60 * S : 3 * S; /* a replay */
    timeline_tell(&g->time, "of a thousand messages %u are lost, %u doubled, %u late", g->net.drop,
                  g->net.repeat, g->net.late);
}

/* --- Pauses --- */

static void pause_some(struct region *g)
{
    uint64_t now_us = g->time.now_us;
    uint64_t for_us = one_in(g, 4) ? between(g, 0, 9 * S) : between(g, 5 * MS, 900 * MS);

    if (one_in(g, 8)) { /* a freezer that holds them all */
        for_us = between(g, 0, 2 * (uint64_t)g->options.app.ttl_ms * MS);
        timeline_tell(&g->time, "all nodes stand still for %.3f s", (double)for_us / 1e6);
        for (unsigned i = 1; i <= g->options.nodes; i++)
            replica_pause(&g->replicas[i], now_us + for_us);
    } else if (one_in(g, 2)) {
        struct replica *r = some_replica(g);

        timeline_tell(&g->time, "%s stands still for %.3f s", r->place.name, (double)for_us / 1e6);
        replica_pause(r, now_us + for_us);
    } else if (one_in(g, 4)) {
        g->doors[between(g, 0, g->options.doors - 1)].place.paused_until_us = now_us + for_us;
    } else {
        struct app *app = &g->apps[between(g, 0, g->options.apps - 1)];

        for_us = between(g, 0, 3 * (uint64_t)g->options.app.ttl_ms * MS);
        timeline_tell(&g->time, "%s stands still for %.3f s", app->place.name,
                      (double)for_us / 1e6);
        app_pause(app, now_us + for_us);
    }
}

/* --- Disks --- */

static void on_disk_room(void *ctx, uint64_t i, const void *data, size_t len)
{
    struct region *g = ctx;

    (void)data;
    (void)len;
    g->replicas[i].disk->capacity = 0;
}

static void trouble_disk(struct region *g)
{
    struct replica *r = some_replica(g);

    if (g->options.has_slow_disks && one_in(g, 2)) {
        r->disk_factor = one_in(g, 2) ? 1 : between(g, 1, 60);
        timeline_tell(&g->time, "the disk of %s is %llu times slower", r->place.name,
                      (unsigned long long)r->disk_factor);
    } else if (g->options.has_disk_errors && one_in(g, 2)) {
        r->disk_fault_in = (unsigned)between(g, 1, 4);
        r->disk_fault = one_in(g, 2) ? MEM_FAULT_IO : MEM_FAULT_SHORT;
        timeline_tell(&g->time, "the disk of %s will fail", r->place.name);
    } else if (g->options.has_full_disks) {
        r->disk->capacity = 1; /* nothing may grow */
        timeline_tell(&g->time, "the disk of %s is full", r->place.name);
        timeline_in(&g->time, between(g, S, 10 * S), on_disk_room, g, r->id);
    }
}

/* --- Drawing one --- */

static void one_fault(struct region *g)
{
    const struct region_options *o = &g->options;

    switch (between(g, 0, 11)) {
    case 0:
    case 1:
        if (o->has_crashes)
            crash_some(g);
        break;
    case 2:
        if (o->has_crashes)
            crash_outside(g);
        break;
    case 3:
    case 4:
    case 5:
        if (o->has_cuts)
            cut_some(g);
        break;
    case 6:
    case 7:
    case 8:
        if (o->has_pauses)
            pause_some(g);
        break;
    case 9:
        if (o->has_loss)
            change_weather(g);
        break;
    default:
        trouble_disk(g);
        break;
    }
    g->n_faults++;
}

static void on_fault(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct region *g = ctx;

    (void)data;
    (void)len;
    if (!g->has_faults)
        return;
    one_fault(g);
    timeline_in(&g->time, between(g, 0, g->options.fault_every_us * 2), on_fault, g, a);
}

static void on_change(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct region *g = ctx;
    struct replica *leader = region_leader(g);
    unsigned id = (unsigned)between(g, 1, g->options.nodes);
    int r = FL_E_NOT_LEADER;
    static const char *const words[] = {"adds", "promotes", "removes", "hands over to"};
    unsigned what = (unsigned)between(g, 0, 3);

    (void)data;
    (void)len;
    if (!g->has_faults)
        return;
    if (leader != NULL)
        r = what == 0   ? replica_add(leader, id)
            : what == 1 ? replica_promote(leader, id)
            : what == 2 ? replica_remove(leader, id)
                        : replica_transfer(leader, one_in(g, 2) ? 0 : id);
    if (r == 0)
        timeline_tell(&g->time, "%s %s node %u", leader->place.name, words[what], id);
    timeline_in(&g->time, between(g, 0, g->options.change_every_us * 2), on_change, g, a);
}

void region_faults_begin(struct region *g)
{
    g->has_faults = true;
    timeline_in(&g->time, S, on_fault, g, 0);
    if (g->options.has_changes)
        timeline_in(&g->time, 2 * S, on_change, g, 0);
}

void region_faults_end(struct region *g)
{
    g->has_faults = false;
}

void region_heal(struct region *g)
{
    net_heal(&g->net);
    g->net.drop = g->net.repeat = g->net.late = 0;
    for (unsigned i = 1; i <= g->options.nodes; i++) {
        struct replica *r = &g->replicas[i];

        r->disk_factor = 1;
        r->disk_fault_in = 0;
        r->disk->capacity = 0;
        r->place.paused_until_us = 0;
        on_restart(g, i, NULL, 0);
        if (r->place.is_up)
            alarm_set(&r->alarm, place_now_ms(&r->place));
    }
    for (unsigned i = 0; i < g->options.doors; i++) {
        g->doors[i].place.paused_until_us = 0;
        on_door_restart(g, i, NULL, 0);
        alarm_set(&g->doors[i].loop.alarm, place_now_ms(&g->doors[i].place));
    }
    for (unsigned i = 0; i < g->options.apps; i++) {
        app_start(&g->apps[i]);
        app_wake(&g->apps[i]);
    }
}
