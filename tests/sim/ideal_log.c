#include "ideal_log.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"

void ideal_log_init(struct ideal_log *log, struct timeline *time, const struct ideal_log_ops *ops,
                    void *ctx)
{
    *log = (struct ideal_log){.time = time, .ops = ops, .ctx = ctx};
}

static void truncate_to(struct ideal_log *log, uint64_t index)
{
    FL_REQUIRE(index >= log->committed);
    while (log->n > index)
        free(log->entries[log->n--].data);
}

void ideal_log_deinit(struct ideal_log *log)
{
    log->committed = 0;
    truncate_to(log, 0);
    free(log->entries);
}

const struct log_entry *ideal_log_entry(const struct ideal_log *log, uint64_t index)
{
    FL_REQUIRE(index >= 1 && index <= log->committed);
    return &log->entries[index];
}

static uint64_t append(struct ideal_log *log, const void *data, size_t len)
{
    if (log->n + 2 > log->capacity) {
        log->capacity = fl_grow_capacity(log->capacity, log->n + 2, sizeof *log->entries);
        log->entries = fl_xrealloc(log->entries, log->capacity * sizeof *log->entries);
    }
    log->entries[++log->n] = (struct log_entry){
        .term = log->term, .data = len > 0 ? fl_xmemdup(data, len) : NULL, .len = len};
    return log->n;
}

/* --- Commits --- */

static void on_deliver(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct ideal_log *log = ctx;

    (void)data;
    (void)len;
    log->ops->deliver(log->ctx, (unsigned)(a & 7), a >> 3);
}

static void commit_to(struct ideal_log *log, uint64_t index)
{
    while (log->committed < index) {
        log->committed++;
        log->ops->committed(log->ctx, log->committed, &log->entries[log->committed]);
    }
    for (unsigned node = 1; node <= LOG_NODES; node++) {
        bool is_slow = node != log->leader || timeline_one_in(log->time, 8);
        uint64_t delay = timeline_between(log->time, 0, is_slow ? 60 * MS : 2 * MS);

        timeline_in(log->time, delay, on_deliver, log, index << 3 | node);
    }
}

/* The term is part of the event: what another leader had under way does not count. */
static void on_replicated(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct ideal_log *log = ctx;
    uint64_t term = a & 0xffff, index = a >> 16;

    (void)data;
    (void)len;
    if (term != log->term || log->leader == 0 || index <= log->committed)
        return;
    if (log->leader_is_cut_off)
        timeline_in(log->time, 50 * MS, on_replicated, log, a);
    else
        commit_to(log, index);
}

static void replicate(struct ideal_log *log, uint64_t index)
{
    uint64_t delay = timeline_between(log->time, MS, 8 * MS);

    if (timeline_one_in(log->time, 50))
        delay = timeline_between(log->time, 8 * MS, 300 * MS);
    timeline_in(log->time, delay, on_replicated, log, index << 16 | (log->term & 0xffff));
}

uint64_t ideal_log_propose(struct ideal_log *log, unsigned node, uint64_t term, const void *data,
                           size_t len)
{
    uint64_t index;

    /* A deposed leader goes on numbering its own tail, which nobody will ever see. */
    if (log->leader != node || term != log->term)
        return ++log->nodes[node].last;
    index = append(log, data, len);
    log->nodes[node].last = index;
    replicate(log, index);
    return index;
}

/* --- Confirmations --- */

struct confirmation {
    unsigned node;
    uint64_t term, round, begun_us, read_index;
};

static void on_confirmed(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct ideal_log *log = ctx;
    const struct confirmation *c = data;

    (void)a;
    (void)len;
    if (log->nodes[c->node].term == c->term)
        log->ops->confirmed(log->ctx, c->node, c->round, c->begun_us, c->read_index);
}

/* A quorum answers now: nobody else was elected since the round began. The news may reach the
 * leader much later, when it is no leader any more. */
static void on_answered(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct ideal_log *log = ctx;
    struct confirmation c = *(const struct confirmation *)data;
    uint64_t delay = timeline_one_in(log->time, 10) ? timeline_between(log->time, 0, 900 * MS)
                                                    : timeline_between(log->time, 0, 5 * MS);

    if (log->leader != c.node || log->term != c.term)
        return;
    if (log->leader_is_cut_off || log->committed < log->barrier) {
        timeline_at(log->time, log->time->now_us + 10 * MS, on_answered, log, a, data, len);
        return;
    }
    c.read_index = log->committed;
    timeline_at(log->time, log->time->now_us + delay, on_confirmed, log, 0, &c, sizeof c);
}

void ideal_log_confirm(struct ideal_log *log, unsigned node, uint64_t term, uint64_t round)
{
    struct confirmation c = {
        .node = node, .term = term, .round = round, .begun_us = log->time->now_us};
    uint64_t delay = timeline_between(log->time, 500, 8 * MS);

    if (timeline_one_in(log->time, 20)) /* lost */
        return;
    timeline_at(log->time, log->time->now_us + delay, on_answered, log, 0, &c, sizeof c);
}

/* --- Leaders --- */

static void tell(struct ideal_log *log, unsigned node)
{
    bool leads = log->leader == node;

    if (log->nodes[node].told_term == log->term && leads == (log->nodes[node].term != 0))
        return;
    log->nodes[node].told_term = log->term;
    log->nodes[node].term = leads ? log->term : 0;
    log->nodes[node].last = log->n;
    log->ops->role(log->ctx, node, log->term, leads, log->leader);
}

static void on_tell(void *ctx, uint64_t a, const void *data, size_t len)
{
    (void)data;
    (void)len;
    tell(ctx, (unsigned)a);
}

void ideal_log_depose(struct ideal_log *log, uint64_t learns_after_us)
{
    unsigned old = log->leader;

    if (old == 0)
        return;
    log->leader = 0;
    log->leader_is_cut_off = false;
    timeline_in(log->time, learns_after_us, on_tell, log, old);
}

/* Some of the old leader's tail may have reached the new one: it commits it with its barrier. */
void ideal_log_elect(struct ideal_log *log, unsigned node)
{
    uint64_t inherited = log->n - log->committed;

    if (log->leader != 0)
        return;
    truncate_to(log, log->committed + timeline_between(log->time, 0, inherited));
    log->term++;
    log->leader = node;
    log->barrier = append(log, NULL, 0);
    tell(log, node);
    replicate(log, log->barrier);
    for (unsigned other = 1; other <= LOG_NODES; other++) {
        if (log->nodes[other].term == 0)
            timeline_in(log->time, timeline_between(log->time, MS, 50 * MS), on_tell, log, other);
    }
}
