/* Engines in one process, on one seed: disks that lose what was not synced and tear what was being
 * written, a network that loses, repeats, delays and cuts, crashes, pauses, stalls, clocks that
 * drift, snapshots, changes of membership, transfers and rounds of confirmation.
 *
 *     engine_sim [-s FIRST_SEED] [-n SEEDS] [-r RULE_OFF] [-v]
 *
 * Each seed runs in a child, so that a broken invariant ends that seed only. With -r the run
 * succeeds when the rule's absence was seen. The same seed gives the same hash. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "raft/engine.h"
#include "raft/message.h"
#include "raft/rules.h"

#define NODES_MAX      7
#define INDEX_MAX      60000
#define TERM_MAX       4000
#define SIM_US         20000000ull
#define CALM_US        40000000ull
#define FAILURE_STATUS 3

enum disk_op_type { DISK_APPEND, DISK_INSTALL, DISK_SAVE, DISK_COMPACT };

struct disk_op {
    enum disk_op_type type;
    struct fl_append *append;
    struct fl_snapshot *snapshot;
    uint64_t first;
    struct disk_op *next;
};

struct machine {
    uint64_t index, chain;
};

struct node {
    struct world *w;
    struct fl_engine *engine; /* NULL: down */
    unsigned id, life;
    uint64_t busy_until, disk_factor;
    int64_t drift_ppm;
    /* disk */
    uint64_t term, vote, first;
    struct fl_snapshot *snapshot;
    struct fl_entry **log;
    size_t n, capacity;
    struct disk_op *ops, **ops_end;
    bool disk_busy, installed;
    /* what it would know */
    struct machine machine;
    uint64_t next_round, round_floor[64], round_first;
};

enum event_type { EV_DELIVER, EV_DISK, EV_FAULT, EV_CLIENT, EV_ADMIN, EV_RESTART, EV_HEAL };

struct event {
    uint64_t at, seq;
    enum event_type type;
    unsigned node, life;
    struct fl_raft_message *message;
};

struct truth {
    uint64_t term, hash, chain, commit_term;
};

struct world {
    struct fl_random random;
    uint64_t now, seq, hash;
    struct event *events;
    size_t n_events, events_capacity;
    struct node nodes[NODES_MAX + 1];
    unsigned n, voters;
    bool cut[NODES_MAX + 1][NODES_MAX + 1];
    bool faults, is_verbose;
    unsigned drop, repeat, late; /* per mille */
    uint64_t delay;
    unsigned election_ms;
    uint64_t trailing, snapshot_every;
    uint32_t rules_off;
    uint64_t leader_of[TERM_MAX];
    struct truth truth[INDEX_MAX];
    uint64_t committed; /* all below and at are in truth */
    uint64_t counts[8];
};
enum { N_LEADERS, N_CRASHES, N_CHANGES, N_TRANSFERS, N_INSTALLS, N_SAVES, N_CONFIRMED, N_STEPS };

__attribute__((format(printf, 2, 3), noreturn)) static void broken(struct world *w,
                                                                   const char *format, ...)
{
    va_list args;

    va_start(args, format);
    printf("%.3f s: ", (double)w->now / 1e6);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    _exit(FAILURE_STATUS);
}

#define STORY(w, ...)                                                                              \
    do {                                                                                           \
        if ((w)->is_verbose) {                                                                     \
            printf("%10.3f  ", (double)(w)->now / 1e6);                                            \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

static uint64_t below(struct world *w, uint64_t bound)
{
    return fl_random_below(&w->random, bound);
}
static bool chance(struct world *w, unsigned per_mille)
{
    return fl_random_chance(&w->random, per_mille, 1000);
}
static uint64_t mix(uint64_t a, uint64_t b)
{
    return fl_hash_mix64(a ^ (b + 0x9e3779b97f4a7c15u));
}
static uint64_t entry_hash(const struct fl_entry *e)
{
    return mix(fl_crc32c(0, e->data, e->len), e->type);
}
static uint64_t local_ms(const struct node *n, uint64_t at)
{
    return 1000 + (uint64_t)((int64_t)at + (int64_t)at / 1000000 * n->drift_ppm) / 1000;
}

/* --- Events --- */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}
static void schedule(struct world *w, struct event ev)
{
    size_t i;

    ev.seq = ++w->seq;
    if (w->n_events == w->events_capacity) {
        w->events_capacity = w->events_capacity != 0 ? w->events_capacity * 2 : 1024;
        w->events = fl_xrealloc(w->events, w->events_capacity * sizeof ev);
    }
    for (i = w->n_events++; i != 0 && is_before(&ev, &w->events[(i - 1) / 2]); i = (i - 1) / 2)
        w->events[i] = w->events[(i - 1) / 2];
    w->events[i] = ev;
}
static struct event take_event(struct world *w)
{
    struct event top = w->events[0], last = w->events[--w->n_events];
    size_t i = 0, k;

    while ((k = 2 * i + 1) < w->n_events) {
        if (k + 1 < w->n_events && is_before(&w->events[k + 1], &w->events[k]))
            k++;
        if (!is_before(&w->events[k], &last))
            break;
        w->events[i] = w->events[k];
        i = k;
    }
    if (w->n_events != 0)
        w->events[i] = last;
    return top;
}

/* --- Disk --- */

static uint64_t disk_last(const struct node *n)
{
    return n->first + n->n - 1;
}
static void disk_truncate(struct node *n, uint64_t from)
{
    while (n->n != 0 && disk_last(n) >= from)
        fl_entry_unref(n->log[--n->n]);
}
static void disk_push(struct node *n, struct fl_entry *entry)
{
    if (n->n == n->capacity) {
        n->capacity = n->capacity != 0 ? n->capacity * 2 : 64;
        n->log = fl_xrealloc(n->log, n->capacity * sizeof(struct fl_entry *));
    }
    n->log[n->n++] = fl_entry_ref(entry);
}
static void disk_set_snapshot(struct node *n, struct fl_snapshot *s)
{
    fl_snapshot_ref(s);
    fl_snapshot_unref(n->snapshot);
    n->snapshot = s;
}
/* The first `part` entries of an append. */
static void disk_do(struct node *n, const struct disk_op *op, unsigned part)
{
    size_t k = 0;

    switch (op->type) {
    case DISK_APPEND:
        if (op->append->index > disk_last(n) + 1)
            broken(n->w, "node %u: hole in the log on disk", n->id);
        disk_truncate(n, op->append->index);
        for (unsigned i = 0; i < op->append->n && i < part; i++)
            disk_push(n, op->append->entries[i]);
        break;
    case DISK_INSTALL:
        disk_set_snapshot(n, op->snapshot);
        disk_truncate(n, 0);
        n->first = op->snapshot->index + 1;
        break;
    case DISK_SAVE:
        if (n->snapshot == NULL || n->snapshot->index < op->snapshot->index)
            disk_set_snapshot(n, op->snapshot);
        break;
    case DISK_COMPACT:
        while (k < n->n && n->first + k < op->first)
            fl_entry_unref(n->log[k++]);
        memmove(n->log, n->log + k, (n->n - k) * sizeof(struct fl_entry *));
        n->n -= k;
        n->first += k;
        break;
    }
}
static void disk_op_free(struct disk_op *op)
{
    fl_append_free(op->append);
    fl_snapshot_unref(op->snapshot);
    free(op);
}
static void disk_begin(struct node *n)
{
    struct world *w = n->w;
    uint64_t us;

    if (n->disk_busy || n->ops == NULL)
        return;
    us = n->ops->type == DISK_APPEND ? 100 + below(w, 1500) : 2000 + below(w, 60000);
    us *= n->disk_factor;
    if (w->faults && chance(w, 2))
        us += below(w, 2000000);
    n->disk_busy = true;
    schedule(w, (struct event){.at = w->now + us, .type = EV_DISK, .node = n->id, .life = n->life});
}
static void disk_queue(struct node *n, struct disk_op op)
{
    struct disk_op *copy = fl_xmemdup(&op, sizeof op);

    *n->ops_end = copy;
    n->ops_end = &copy->next;
    disk_begin(n);
}

/* --- What the engine asks for --- */

static void op_set_vote(void *ctx, uint64_t term, uint64_t vote)
{
    struct node *n = ctx;

    if (term < n->term || (term == n->term && n->vote != 0 && vote != n->vote))
        broken(n->w, "one vote per term: node %u, term %llu", n->id, (unsigned long long)term);
    n->term = term;
    n->vote = vote;
    n->busy_until = n->w->now + 200 + below(n->w, 4000);
}
static void op_append(void *ctx, struct fl_append *append)
{
    struct node *n = ctx;

    if (append->index <= n->machine.index)
        broken(n->w, "node %u overwrites applied entry %llu", n->id,
               (unsigned long long)append->index);
    disk_queue(n, (struct disk_op){.type = DISK_APPEND, .append = append});
}
static void op_install(void *ctx, struct fl_snapshot *snapshot)
{
    struct node *n = ctx;

    n->w->counts[N_INSTALLS]++;
    disk_queue(n, (struct disk_op){.type = DISK_INSTALL, .snapshot = fl_snapshot_ref(snapshot)});
}
static void op_compact(void *ctx, uint64_t first)
{
    disk_queue(ctx, (struct disk_op){.type = DISK_COMPACT, .first = first});
}
static void send_at(struct node *n, const struct fl_raft_message *m, uint64_t extra)
{
    struct world *w = n->w;
    uint64_t at = n->busy_until > w->now ? n->busy_until : w->now;
    unsigned copies = chance(w, w->repeat) ? 2 : 1;

    if (m->to == 0 || m->to > w->n || w->cut[n->id][m->to] || chance(w, w->drop))
        return;
    for (; copies != 0; copies--) {
        uint64_t late = chance(w, w->late) ? below(w, 3000000) : 0;

        schedule(w, (struct event){.at = at + w->delay + below(w, w->delay * 2 + 1) + late + extra,
                                   .type = EV_DELIVER,
                                   .node = (unsigned)m->to,
                                   .message = fl_raft_message_copy(m)});
    }
}
static void op_send(void *ctx, const struct fl_raft_message *m)
{
    send_at(ctx, m, 0);
}
static void op_send_snapshot(void *ctx, uint64_t to, const struct fl_raft_message *m)
{
    struct node *n = ctx;

    (void)to;
    send_at(n, m, below(n->w, 50000));
}

/* A commit is only one when a majority of the voters has it on disk. */
static void check_durable(struct node *n, uint64_t index, uint64_t term)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned have = 0, voters = 0;
    unsigned count = fl_engine_members(n->engine, members, FL_RAFT_SERVERS_MAX);

    for (unsigned i = 0; i < count; i++) {
        const struct node *d = &n->w->nodes[members[i].id];

        if (members[i].role != FL_MEMBER_VOTER)
            continue;
        voters++;
        if ((d->snapshot != NULL && d->snapshot->index >= index) ||
            (index >= d->first && index <= disk_last(d) && d->log[index - d->first]->term == term))
            have++;
    }
    if (have <= voters / 2)
        broken(n->w, "entry %llu committed but durable on %u of %u", (unsigned long long)index,
               have, voters);
}
static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    struct node *n = ctx;
    struct world *w = n->w;
    uint64_t hash = entry_hash(entry);

    if (index != n->machine.index + 1 || index >= INDEX_MAX)
        broken(w, "node %u applies %llu out of order", n->id, (unsigned long long)index);
    n->machine.index = index;
    n->machine.chain = mix(n->machine.chain, mix(hash, entry->term));
    if (index <= w->committed) {
        if (w->truth[index].chain != n->machine.chain)
            broken(w, "states differ at entry %llu on node %u", (unsigned long long)index, n->id);
        return;
    }
    if (fl_engine_role(n->engine) == FL_ROLE_LEADER && index > 1)
        check_durable(n, index, entry->term);
    w->committed = index;
    w->truth[index] =
        (struct truth){entry->term, hash, n->machine.chain, fl_engine_term(n->engine)};
    w->hash = mix(w->hash, n->machine.chain);
}
static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader)
{
    struct node *n = ctx;
    struct world *w = n->w;

    STORY(w, "node %u is %s in term %llu, leader %llu", n->id,
          role == FL_ROLE_LEADER      ? "leader"
          : role == FL_ROLE_CANDIDATE ? "candidate"
                                      : "follower",
          (unsigned long long)term, (unsigned long long)leader);
    n->round_first = n->next_round;
    if (role != FL_ROLE_LEADER || term >= TERM_MAX)
        return;
    w->counts[N_LEADERS]++;
    if (w->leader_of[term] != 0 && w->leader_of[term] != n->id)
        broken(w, "election safety: two leaders in term %llu", (unsigned long long)term);
    w->leader_of[term] = n->id;
    for (uint64_t i = w->committed; i != 0 && i + 300 > w->committed; i--) {
        const struct fl_snapshot *s = n->snapshot;

        if (w->truth[i].commit_term < term && i > fl_engine_last_index(n->engine) &&
            (s == NULL || s->index < i))
            broken(w, "leader completeness: node %u lacks committed entry %llu", n->id,
                   (unsigned long long)i);
    }
}
static void op_confirmed(void *ctx, uint64_t round, uint64_t read_index)
{
    struct node *n = ctx;

    n->w->counts[N_CONFIRMED]++;
    if (read_index < n->round_floor[round % 64] && round + 64 > n->next_round)
        broken(n->w, "stale read: confirmed at %llu, but %llu was committed before",
               (unsigned long long)read_index, (unsigned long long)n->round_floor[round % 64]);
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

static void restore(struct node *n, const struct fl_snapshot *s)
{
    n->machine.index = s->index;
    n->machine.chain = n->w->truth[s->index].chain;
    if (s->index > n->w->committed)
        broken(n->w, "snapshot of entry %llu that is not committed", (unsigned long long)s->index);
}
static void node_start(struct node *n)
{
    struct world *w = n->w;
    char address[16];
    struct fl_engine_config config = {.id = n->id,
                                      .address = address,
                                      .election_timeout_ms = w->election_ms,
                                      .trailing = w->trailing,
                                      .seed = (unsigned)fl_random_u64(&w->random),
                                      .rules_off = w->rules_off};

    snprintf(address, sizeof address, "n%u", n->id);
    n->life++;
    n->busy_until = 0;
    n->machine = (struct machine){0, 0};
    if (n->snapshot != NULL) {
        if (disk_last(n) < n->snapshot->index) {
            disk_truncate(n, 0);
            n->first = n->snapshot->index + 1;
        }
        restore(n, n->snapshot);
    }
    n->engine = fl_engine_new(&config, &ops, n);
    if (fl_engine_start(n->engine, local_ms(n, w->now), n->term, n->vote, n->snapshot, n->first,
                        n->log, (unsigned)n->n) < 0)
        broken(w, "node %u does not start", n->id);
}
static void node_crash(struct node *n)
{
    struct world *w = n->w;
    bool lost = false;

    STORY(w, "node %u crashes", n->id);
    w->counts[N_CRASHES]++;
    while (n->ops != NULL) {
        struct disk_op *op = n->ops;

        n->ops = op->next;
        if (!lost && !chance(w, 400)) {
            lost = true;
            if (op->type == DISK_APPEND && chance(w, 500))
                disk_do(n, op, (unsigned)below(w, op->append->n)); /* torn */
        } else if (!lost) {
            disk_do(n, op, UINT32_MAX);
        }
        disk_op_free(op);
    }
    n->ops_end = &n->ops;
    n->disk_busy = false;
    fl_engine_free(n->engine);
    n->engine = NULL;
    n->life++;
}
static void disk_done(struct node *n)
{
    struct world *w = n->w;
    struct disk_op *op = n->ops;
    uint64_t ms = local_ms(n, w->now);
    struct fl_snapshot *own;

    disk_do(n, op, UINT32_MAX);
    n->ops = op->next;
    if (n->ops == NULL)
        n->ops_end = &n->ops;
    n->disk_busy = false;
    if (op->type == DISK_APPEND) {
        fl_engine_appended(n->engine, ms, op->append);
        op->append = NULL;
    } else if (op->type == DISK_INSTALL) {
        restore(n, op->snapshot);
        fl_engine_installed(n->engine, ms);
    } else if (op->type == DISK_SAVE) {
        fl_engine_snapshot_finish(n->engine, ms, op->snapshot);
    }
    disk_op_free(op);
    if (n->machine.index > (n->snapshot != NULL ? n->snapshot->index : 0) + w->snapshot_every &&
        fl_engine_snapshot_begin(n->engine, &own)) {
        w->counts[N_SAVES]++;
        disk_queue(n, (struct disk_op){.type = DISK_SAVE, .snapshot = own});
    }
    disk_begin(n);
}

/* --- What happens to them --- */

static struct node *some_leader(struct world *w)
{
    unsigned at = (unsigned)below(w, w->n);

    for (unsigned i = 0; i < w->n; i++) {
        struct node *n = &w->nodes[1 + (at + i) % w->n];

        if (n->engine != NULL && n->busy_until <= w->now &&
            fl_engine_role(n->engine) == FL_ROLE_LEADER)
            return n;
    }
    return NULL;
}
static void client(struct world *w)
{
    struct node *n = some_leader(w);
    unsigned count = 1 + (unsigned)below(w, chance(w, 100) ? 40 : 4);

    for (unsigned i = 0; n != NULL && i < count; i++) {
        uint64_t value = ++w->seq;
        struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, &value, sizeof value);

        (void)fl_engine_submit(n->engine, local_ms(n, w->now), entry);
        fl_entry_unref(entry);
    }
    if (n != NULL && chance(w, 300)) {
        uint64_t round = n->next_round++;

        n->round_floor[round % 64] = w->committed;
        fl_engine_confirm(n->engine, local_ms(n, w->now), round);
    }
}
static void admin(struct world *w)
{
    struct node *n = some_leader(w);
    uint64_t id = 1 + below(w, w->n), ms;
    char address[16];
    int r = -1;

    if (n == NULL)
        return;
    ms = local_ms(n, w->now);
    snprintf(address, sizeof address, "n%u", (unsigned)id);
    switch (below(w, 10)) {
    case 0:
    case 1:
    case 2:
        r = fl_engine_add(n->engine, ms, id, address);
        break;
    case 3:
    case 4:
    case 5:
        r = fl_engine_promote(n->engine, ms, id);
        break;
    case 6:
    case 7:
    case 8:
        r = fl_engine_remove(n->engine, ms, id);
        break;
    default:
        r = fl_engine_transfer(n->engine, ms, chance(w, 500) ? 0 : id);
        w->counts[N_TRANSFERS] += r == 0;
        return;
    }
    if (r == 0)
        STORY(w, "node %u changes the place of node %u", n->id, (unsigned)id);
    w->counts[N_CHANGES] += r == 0;
}
static void cut_some(struct world *w, unsigned k)
{
    unsigned mask = (unsigned)fl_random_u64(&w->random), style = (unsigned)below(w, 4);

    STORY(w, "the network is cut around node %u, style %u", k, style);
    for (unsigned a = 1; a <= w->n; a++)
        for (unsigned b = 1; b <= w->n; b++) {
            if (style == 0 && (a == k) != (b == k))
                w->cut[a][b] = true;
            if (style == 1 && ((mask >> a) & 1) != ((mask >> b) & 1))
                w->cut[a][b] = true;
            if (style == 2 && a == k && chance(w, 500)) /* one way */
                w->cut[a][b] = true;
            if (style == 3 && b == k && chance(w, 500))
                w->cut[a][b] = true;
        }
    schedule(w, (struct event){.at = w->now + 50000 + below(w, chance(w, 200) ? 8000000 : 2000000),
                               .type = EV_HEAL});
}
static void crash_for(struct world *w, struct node *n, uint64_t us)
{
    if (n->engine == NULL)
        return;
    node_crash(n);
    schedule(
        w, (struct event){.at = w->now + 10000 + below(w, us), .type = EV_RESTART, .node = n->id});
}
static void fault(struct world *w)
{
    unsigned k = 1 + (unsigned)below(w, w->n), what = (unsigned)below(w, 12);
    struct node *n = &w->nodes[k];

    if (what < 3) {
        crash_for(w, n, chance(w, 200) ? 8000000 : 800000);
    } else if (what < 6) {
        cut_some(w, k);
    } else if (what < 8) {
        n->busy_until = w->now + 5000 + below(w, chance(w, 200) ? 6000000 : 600000);
    } else if (what < 9) {
        n->disk_factor = chance(w, 500) ? 1 : 1 + below(w, 60);
    } else if (what < 10 && chance(w, 300)) {
        for (unsigned i = 1; i <= w->n; i++)
            if (chance(w, 600))
                crash_for(w, &w->nodes[i], 500000);
    } else {
        w->drop = chance(w, 500) ? 0 : (unsigned)below(w, 150);
        w->repeat = chance(w, 500) ? 0 : (unsigned)below(w, 100);
        w->late = chance(w, 500) ? 0 : (unsigned)below(w, 60);
    }
}
static void heal(struct world *w)
{
    memset(w->cut, 0, sizeof w->cut);
}

/* --- Time --- */

static uint64_t deadline_us(const struct node *n)
{
    uint64_t ms = fl_engine_deadline(n->engine), at = n->w->now;

    if (local_ms(n, at) < ms) {
        at += (ms - local_ms(n, at)) * 960;
        while (local_ms(n, at) < ms)
            at += 100;
    }
    return at > n->busy_until ? at : n->busy_until;
}
static void handle(struct world *w, struct event *ev)
{
    struct node *n = &w->nodes[ev->node];

    switch (ev->type) {
    case EV_DELIVER:
        if (n->engine != NULL)
            fl_engine_receive(n->engine, local_ms(n, w->now), ev->message->from, ev->message);
        fl_raft_message_free(ev->message);
        break;
    case EV_DISK:
        if (n->engine != NULL && n->life == ev->life)
            disk_done(n);
        break;
    case EV_FAULT:
        if (w->faults) {
            fault(w);
            schedule(w, (struct event){.at = w->now + below(w, 700000), .type = EV_FAULT});
        }
        break;
    case EV_CLIENT:
        if (w->faults) {
            client(w);
            schedule(w, (struct event){.at = w->now + 2000 + below(w, 24000), .type = EV_CLIENT});
        }
        break;
    case EV_ADMIN:
        if (w->faults) {
            admin(w);
            schedule(w, (struct event){.at = w->now + 50000 + below(w, 400000), .type = EV_ADMIN});
        }
        break;
    case EV_RESTART:
        if (n->engine == NULL)
            node_start(n);
        break;
    case EV_HEAL:
        heal(w);
        break;
    }
}
static void run_until(struct world *w, uint64_t end)
{
    uint64_t same = 0;

    for (;;) {
        uint64_t best = w->n_events != 0 ? w->events[0].at : UINT64_MAX;
        struct node *ticks = NULL;
        struct event ev;

        for (unsigned i = 1; i <= w->n; i++) {
            struct node *n = &w->nodes[i];
            uint64_t at = n->engine != NULL ? deadline_us(n) : UINT64_MAX;

            if (at < best) {
                best = at;
                ticks = n;
            }
        }
        if (best > end) {
            w->now = end;
            return;
        }
        same = best == w->now ? same + 1 : 0;
        if (same > 100000)
            broken(w, "time stands still");
        w->now = best;
        w->counts[N_STEPS]++;
        if (ticks != NULL) {
            fl_engine_tick(ticks->engine, local_ms(ticks, w->now));
            continue;
        }
        ev = take_event(w);
        if ((ev.type == EV_DELIVER || ev.type == EV_DISK) &&
            w->nodes[ev.node].busy_until > w->now) {
            ev.at = w->nodes[ev.node].busy_until;
            schedule(w, ev);
            continue;
        }
        handle(w, &ev);
    }
}

/* --- A seed --- */

static void build(struct world *w, uint64_t seed)
{
    struct fl_member_info members[NODES_MAX];
    static char addresses[NODES_MAX][16];
    struct fl_entry *first;

    fl_random_init(&w->random, seed);
    w->voters = chance(w, 500) ? 5 : 3;
    w->n = w->voters + 2;
    w->election_ms = 200 + (unsigned)below(w, 800);
    w->delay = 50 + below(w, chance(w, 300) ? 20000 : 1500);
    w->trailing = chance(w, 250) ? 1 : 1 + below(w, 80);
    w->snapshot_every = 10 + below(w, 300);
    w->faults = true;
    for (unsigned i = 0; i < w->voters; i++) {
        snprintf(addresses[i], sizeof addresses[i], "n%u", i + 1);
        members[i] = (struct fl_member_info){i + 1, addresses[i], FL_MEMBER_VOTER};
    }
    first = fl_engine_bootstrap_entry(members, w->voters);
    for (unsigned i = 1; i <= w->n; i++) {
        struct node *n = &w->nodes[i];

        *n = (struct node){.w = w, .id = i, .first = 1, .disk_factor = 1};
        n->ops_end = &n->ops;
        n->drift_ppm = (int64_t)below(w, 60000) - 30000;
        if (i <= w->voters) {
            n->term = 1;
            disk_push(n, first);
        }
    }
    w->truth[1] = (struct truth){1, entry_hash(first), mix(0, mix(entry_hash(first), 1)), 1};
    w->committed = 1;
    fl_entry_unref(first);
    for (unsigned i = 1; i <= w->n; i++)
        node_start(&w->nodes[i]);
    schedule(w, (struct event){.at = 500000, .type = EV_FAULT});
    schedule(w, (struct event){.at = 1000, .type = EV_CLIENT});
    schedule(w, (struct event){.at = 800000, .type = EV_ADMIN});
}
/* After the last fault everybody must agree, and a new entry must pass. */
static void check_converged(struct world *w)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, "last", 4);
    struct node *leader = some_leader(w);
    int64_t index = leader != NULL
                        ? fl_engine_submit(leader->engine, local_ms(leader, w->now), entry)
                        : FL_E_NO_LEADER;
    unsigned n;

    fl_entry_unref(entry);
    if (index < 0)
        broken(w, "no leader takes an entry: %s", fl_error_text((int)index));
    run_until(w, w->now + 20000000);
    n = fl_engine_members(leader->engine, members, FL_RAFT_SERVERS_MAX);
    for (unsigned i = 0; i < n; i++) {
        const struct node *m = &w->nodes[members[i].id];

        if (m->engine == NULL || m->machine.index < (uint64_t)index)
            broken(w, "node %u stays behind, at %llu of %llu", m->id,
                   (unsigned long long)m->machine.index, (unsigned long long)index);
    }
}
static void tear_down(struct world *w)
{
    for (unsigned i = 1; i <= w->n; i++) {
        struct node *n = &w->nodes[i];

        if (n->engine != NULL)
            node_crash(n);
        disk_truncate(n, 0);
        free(n->log);
        fl_snapshot_unref(n->snapshot);
    }
    while (w->n_events != 0)
        fl_raft_message_free(take_event(w).message);
    free(w->events);
}
static void run_seed(uint64_t seed, uint32_t rules_off, bool is_verbose)
{
    struct world *w = fl_xcalloc(1, sizeof *w);

    w->rules_off = rules_off;
    w->is_verbose = is_verbose;
    build(w, seed);
    run_until(w, SIM_US);
    w->faults = false;
    w->drop = w->repeat = w->late = 0;
    heal(w);
    for (unsigned i = 1; i <= w->n; i++)
        w->nodes[i].disk_factor = 1;
    run_until(w, w->now + CALM_US);
    check_converged(w);
    if (is_verbose)
        printf("seed %llu: hash %016llx, %llu entries, %llu steps, leaders %llu, crashes %llu, "
               "changes %llu, transfers %llu, installs %llu, snapshots %llu, confirmed %llu\n",
               (unsigned long long)seed, (unsigned long long)w->hash,
               (unsigned long long)w->committed, (unsigned long long)w->counts[N_STEPS],
               (unsigned long long)w->counts[N_LEADERS], (unsigned long long)w->counts[N_CRASHES],
               (unsigned long long)w->counts[N_CHANGES], (unsigned long long)w->counts[N_TRANSFERS],
               (unsigned long long)w->counts[N_INSTALLS], (unsigned long long)w->counts[N_SAVES],
               (unsigned long long)w->counts[N_CONFIRMED]);
    tear_down(w);
    free(w);
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
