#include "engine_rig.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

#include "base/alloc.h"
#include "base/error.h"

struct rig_op {
    struct fl_append *append; /* or an installation of `snapshot`, or dropping below `first` */
    struct fl_snapshot *snapshot;
    uint64_t first;
    struct rig_op *next;
};

/* --- Disks --- */

static void truncate_log(struct rig_node *node, uint64_t from)
{
    while (node->n != 0 && node->first + node->n > from)
        fl_entry_unref(node->log[--node->n]);
}

static void drop_below(struct rig_node *node, uint64_t first)
{
    uint64_t k = 0;

    while (k < node->n && node->first + k < first)
        fl_entry_unref(node->log[k++]);
    memmove(node->log, node->log + k, (node->n - k) * sizeof node->log[0]);
    node->n -= k;
    node->first += k;
}

static void append_log(struct rig_node *node, const struct fl_append *append)
{
    truncate_log(node, append->index);
    assert_int_equal(node->first + node->n, append->index);
    for (unsigned i = 0; i < append->n; i++) {
        assert_true(node->n < RIG_INDEX_MAX);
        node->log[node->n++] = fl_entry_ref(append->entries[i]);
    }
}

static void keep_snapshot(struct rig_node *node, struct fl_snapshot *snapshot)
{
    fl_snapshot_ref(snapshot);
    fl_snapshot_unref(node->snapshot);
    node->snapshot = snapshot;
}

static void queue(struct rig_node *node, struct rig_op op)
{
    struct rig_op *copy = fl_xmemdup(&op, sizeof op);

    *node->ops_end = copy;
    node->ops_end = &copy->next;
}

static struct rig_op *take_op(struct rig_node *node)
{
    struct rig_op *op = node->ops;

    node->ops = op->next;
    if (node->ops == NULL)
        node->ops_end = &node->ops;
    return op;
}

void rig_write(struct rig *rig, uint64_t id)
{
    struct rig_node *node = &rig->nodes[id];
    struct rig_op *op;

    assert_non_null(node->ops);
    op = take_op(node);
    if (op->append != NULL) {
        append_log(node, op->append);
        fl_engine_appended(node->engine, rig->now_ms, op->append);
    } else if (op->snapshot != NULL) {
        truncate_log(node, 0);
        node->first = op->snapshot->index + 1;
        keep_snapshot(node, op->snapshot);
        fl_engine_installed(node->engine, rig->now_ms);
        fl_snapshot_unref(op->snapshot);
    } else {
        drop_below(node, op->first);
    }
    free(op);
}

/* --- What an engine asks for --- */

static void op_set_vote(void *ctx, uint64_t term, uint64_t vote)
{
    struct rig_node *node = ctx;

    node->term = term;
    node->vote = vote;
}

static void op_append(void *ctx, struct fl_append *append)
{
    queue(ctx, (struct rig_op){.append = append});
}

static void op_install(void *ctx, struct fl_snapshot *snapshot)
{
    queue(ctx, (struct rig_op){.snapshot = snapshot});
}

static void op_compact(void *ctx, uint64_t first)
{
    queue(ctx, (struct rig_op){.first = first});
}

static void op_send(void *ctx, const struct fl_raft_message *m)
{
    struct rig_node *node = ctx;
    struct rig *rig = node->rig;

    if (m->type == FL_RAFT_APPEND_RESULT && m->rejected != 0 && !m->is_old)
        node->refusals++;
    if (m->to == 0 || m->to > rig->n || rig->cut[node->id][m->to])
        return;
    assert_true(rig->n_mail < sizeof rig->mail / sizeof rig->mail[0]);
    rig->mail[rig->n_mail++] = fl_raft_message_copy(m);
}

static void op_send_snapshot(void *ctx, uint64_t to, const struct fl_raft_message *m)
{
    struct rig_node *node = ctx;

    assert_int_equal(to, m->to);
    node->snapshots_sent++;
    op_send(node, m);
}

static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    struct rig_node *node = ctx;

    assert_true(index < RIG_INDEX_MAX);
    node->applied_terms[index] = entry->term;
}

static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader)
{
    struct rig_node *node = ctx;
    struct rig *rig = node->rig;

    (void)leader;
    if (role != FL_ROLE_LEADER)
        return;
    assert_true(term < RIG_TERM_MAX);
    if (rig->leader_of[term] != 0 && rig->leader_of[term] != node->id)
        rig->had_two_leaders = true;
    rig->leader_of[term] = node->id;
}

static void op_confirmed(void *ctx, uint64_t round, uint64_t read_index)
{
    (void)ctx, (void)round, (void)read_index;
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

void rig_restart(struct rig *rig, uint64_t id)
{
    struct rig_node *node = &rig->nodes[id];
    struct fl_engine_config config = {.id = id,
                                      .address = rig_address(id),
                                      .election_timeout_ms = RIG_ELECTION_MS,
                                      .tick_ms = RIG_TICK_MS,
                                      .trailing = RIG_TRAILING,
                                      .seed = (unsigned)id,
                                      .rules_off = rig->rules_off};

    assert_null(node->engine);
    node->engine = fl_engine_new(&config, &ops, node);
    assert_int_equal(fl_engine_start(node->engine, rig->now_ms, node->term, node->vote,
                                     node->snapshot, node->first, node->log, (unsigned)node->n),
                     FL_OK);
}

void rig_crash(struct rig *rig, uint64_t id)
{
    struct rig_node *node = &rig->nodes[id];

    while (node->ops != NULL) {
        struct rig_op *op = take_op(node);

        fl_append_free(op->append);
        fl_snapshot_unref(op->snapshot);
        free(op);
    }
    fl_engine_free(node->engine);
    node->engine = NULL;
}

void rig_start(struct rig *rig, unsigned voters, unsigned others, uint32_t rules_off)
{
    struct fl_member_info members[RIG_NODES_MAX];
    struct fl_entry *first;

    *rig = (struct rig){.now_ms = 1000, .n = voters + others, .rules_off = rules_off};
    assert_true(rig->n <= RIG_NODES_MAX);
    for (unsigned i = 0; i < voters; i++)
        members[i] = (struct fl_member_info){i + 1, rig_address(i + 1), FL_MEMBER_VOTER};
    first = fl_engine_bootstrap_entry(members, voters);
    for (unsigned i = 1; i <= rig->n; i++) {
        struct rig_node *node = &rig->nodes[i];

        *node = (struct rig_node){.rig = rig, .id = i, .first = 1};
        node->ops_end = &node->ops;
        if (i <= voters) {
            node->term = 1;
            node->log[node->n++] = fl_entry_ref(first);
        }
        rig_restart(rig, i);
    }
    fl_entry_unref(first);
}

void rig_start_led(struct rig *rig, unsigned voters, unsigned others, uint32_t rules_off)
{
    rig_start(rig, voters, others, rules_off);
    rig_elect(rig, 1);
    rig_run(rig);
    rig_beats(rig, 3);
}

void rig_stop(struct rig *rig)
{
    rig_lose_mail(rig);
    for (unsigned i = 1; i <= rig->n; i++) {
        rig_crash(rig, i);
        truncate_log(&rig->nodes[i], 0);
        fl_snapshot_unref(rig->nodes[i].snapshot);
    }
}

void rig_snapshot(struct rig *rig, uint64_t id)
{
    struct fl_engine *engine = rig_engine(rig, id);
    struct fl_snapshot *snapshot;

    assert_true(fl_engine_snapshot_begin(engine, &snapshot));
    keep_snapshot(&rig->nodes[id], snapshot);
    fl_engine_snapshot_finish(engine, rig->now_ms, snapshot);
    fl_snapshot_unref(snapshot);
    rig_run(rig);
}

/* --- The network --- */

void rig_cut(struct rig *rig, uint64_t from, uint64_t to)
{
    rig->cut[from][to] = true;
}

void rig_isolate(struct rig *rig, uint64_t id)
{
    for (unsigned i = 1; i <= rig->n; i++)
        if (i != id)
            rig->cut[id][i] = rig->cut[i][id] = true;
}

void rig_heal(struct rig *rig)
{
    memset(rig->cut, 0, sizeof rig->cut);
}

static struct fl_raft_message *take_mail(struct rig *rig, unsigned i)
{
    struct fl_raft_message *m = rig->mail[i];

    rig->n_mail--;
    memmove(rig->mail + i, rig->mail + i + 1, (rig->n_mail - i) * sizeof rig->mail[0]);
    return m;
}

struct fl_raft_message *rig_take(struct rig *rig, uint64_t from, uint64_t to, uint8_t type)
{
    for (unsigned i = 0; i < rig->n_mail; i++) {
        const struct fl_raft_message *m = rig->mail[i];

        if (m->from == from && m->to == to && m->type == type)
            return take_mail(rig, i);
    }
    fail_msg("no message of type %u from node %u to node %u", type, (unsigned)from, (unsigned)to);
    return NULL;
}

void rig_deliver(struct rig *rig, struct fl_raft_message *m)
{
    struct rig_node *node = &rig->nodes[m->to];

    if (node->engine != NULL)
        fl_engine_receive(node->engine, rig->now_ms, m->from, m);
    fl_raft_message_free(m);
}

void rig_lose_mail(struct rig *rig)
{
    while (rig->n_mail != 0)
        fl_raft_message_free(take_mail(rig, 0));
}

/* --- Time --- */

static bool write_some(struct rig *rig)
{
    for (unsigned i = 1; i <= rig->n; i++) {
        struct rig_node *node = &rig->nodes[i];

        if (node->ops == NULL || node->is_slow)
            continue;
        rig_write(rig, i);
        return true;
    }
    return false;
}

void rig_run(struct rig *rig)
{
    unsigned steps = 0;

    while (write_some(rig) || rig->n_mail != 0) {
        if (rig->n_mail != 0)
            rig_deliver(rig, take_mail(rig, 0));
        assert_true(++steps < 100000);
    }
}

void rig_tick(struct rig *rig, uint64_t id)
{
    fl_engine_tick(rig_engine(rig, id), rig->now_ms);
}

void rig_beat(struct rig *rig)
{
    rig->now_ms += RIG_TICK_MS;
    for (unsigned i = 1; i <= rig->n; i++) {
        struct rig_node *node = &rig->nodes[i];

        if (node->engine != NULL && fl_engine_role(node->engine) == FL_ROLE_LEADER)
            rig_tick(rig, i);
    }
    rig_run(rig);
}

void rig_beats(struct rig *rig, unsigned n)
{
    while (n-- != 0)
        rig_beat(rig);
}

void rig_pass(struct rig *rig, uint64_t ms)
{
    uint64_t end = rig->now_ms + ms;

    for (;;) {
        uint64_t at = UINT64_MAX;
        unsigned next = 0;

        for (unsigned i = 1; i <= rig->n; i++) {
            struct rig_node *node = &rig->nodes[i];

            if (node->engine != NULL && fl_engine_deadline(node->engine) < at) {
                at = fl_engine_deadline(node->engine);
                next = i;
            }
        }
        if (at > end)
            break;
        /* A deadline in the past moves time on, so that no rule's absence stops it. */
        rig->now_ms = at > rig->now_ms ? at : rig->now_ms + 1;
        rig_tick(rig, next);
        rig_run(rig);
    }
    rig->now_ms = end > rig->now_ms ? end : rig->now_ms;
}

void rig_elect(struct rig *rig, uint64_t id)
{
    rig_lose_mail(rig);
    rig->now_ms += (uint64_t)RIG_ELECTION_MS * 2;
    for (unsigned i = 1; i <= rig->n; i++)
        if (i != id && rig->nodes[i].engine != NULL && !rig->cut[id][i] &&
            fl_engine_role(rig->nodes[i].engine) != FL_ROLE_LEADER)
            rig_tick(rig, i);
    rig_lose_mail(rig); /* they do not win it themselves */
    rig_tick(rig, id);
    while (fl_engine_role(rig_engine(rig, id)) != FL_ROLE_LEADER && rig->n_mail != 0)
        rig_deliver(rig, take_mail(rig, 0));
    assert_int_equal(fl_engine_role(rig_engine(rig, id)), FL_ROLE_LEADER);
}

/* --- Looking --- */

const char *rig_address(uint64_t id)
{
    static const char *const addresses[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7"};

    assert_true(id >= 1 && id <= RIG_NODES_MAX);
    return addresses[id - 1];
}

struct fl_engine *rig_engine(struct rig *rig, uint64_t id)
{
    assert_non_null(rig->nodes[id].engine);
    return rig->nodes[id].engine;
}

uint64_t rig_submit(struct rig *rig, uint64_t id, unsigned n)
{
    int64_t index = 0;

    for (unsigned i = 0; i < n; i++) {
        struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, "x", 1);

        index = fl_engine_submit(rig_engine(rig, id), rig->now_ms, entry);
        fl_entry_unref(entry);
        assert_true(index > 0);
    }
    return (uint64_t)index;
}

uint64_t rig_leader(const struct rig *rig)
{
    uint64_t leader = 0, term = 0;

    for (unsigned i = 1; i <= rig->n; i++) {
        const struct rig_node *node = &rig->nodes[i];

        if (node->engine == NULL || fl_engine_role(node->engine) != FL_ROLE_LEADER ||
            fl_engine_term(node->engine) < term)
            continue;
        leader = i;
        term = fl_engine_term(node->engine);
    }
    return leader;
}

static bool has_member(struct rig *rig, uint64_t at, uint64_t id, bool voters_only)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned n = fl_engine_members(rig_engine(rig, at), members, FL_RAFT_SERVERS_MAX);

    for (unsigned i = 0; i < n; i++)
        if (members[i].id == id)
            return !voters_only || members[i].role == FL_MEMBER_VOTER;
    return false;
}

bool rig_is_member(struct rig *rig, uint64_t at, uint64_t id)
{
    return has_member(rig, at, id, false);
}

bool rig_is_voter(struct rig *rig, uint64_t at, uint64_t id)
{
    return has_member(rig, at, id, true);
}

bool rig_agrees(const struct rig *rig)
{
    for (unsigned index = 0; index < RIG_INDEX_MAX; index++) {
        uint64_t term = 0;

        for (unsigned i = 1; i <= rig->n; i++) {
            uint64_t applied = rig->nodes[i].applied_terms[index];

            if (applied != 0 && term != 0 && applied != term)
                return false;
            if (applied != 0)
                term = applied;
        }
    }
    return true;
}
