#include "node_cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"

static uint64_t clock_ms(const struct cluster_node *n)
{
    return n->offset_ms + n->cluster->time->now_us * n->rate_ppm / 1000000 / 1000;
}

/* True when the event was put off to the end of the node's pause. */
static bool put_off(struct cluster_node *n, timeline_fn fn, uint64_t a, const void *data,
                    size_t len)
{
    if (n->paused_until_us <= n->cluster->time->now_us)
        return false;
    timeline_at(n->cluster->time, n->paused_until_us, fn, n, a, data, len);
    return true;
}

/* What lies in the sockets is read after the node's own timers, one gateway after the other: its
 * judgement comes first, and must not be fooled (N5). */
static bool put_off_link(struct cluster_node *n, timeline_fn fn, uint64_t link, const void *data,
                         size_t len)
{
    uint64_t read_us = n->paused_until_us + (link & 15) * 8 * MS;

    if (n->paused_until_us == 0 || read_us <= n->cluster->time->now_us)
        return false;
    timeline_at(n->cluster->time, read_us, fn, n, link, data, len);
    return true;
}

static uint64_t hash_effect(uint64_t hash, const struct fl_effect *e)
{
    const uint64_t words[] = {
        e->index, e->sub,         (uint64_t)e->command, e->type,     e->answer,
        e->cause, e->session.low, e->request_id,        e->token,    e->mode,
        e->limit, e->position,    e->waiters,           e->name.len, e->holder_token};

    for (size_t i = 0; i < FL_ARRAY_LEN(words); i++)
        hash = fl_hash_mix64(hash ^ words[i]) + i;
    return hash;
}

/* --- The log's side --- */

static void on_reference_effect(void *ctx, const struct fl_effect *effect)
{
    struct cluster *c = ctx;

    c->reference_hash = hash_effect(c->reference_hash, effect);
    timeline_mix(c->time, c->reference_hash);
    judge_effect(c->judge, effect);
}

static void on_committed(void *ctx, uint64_t index, const struct log_entry *entry)
{
    struct cluster *c = ctx;
    char why[128];

    if (entry->len > 0) {
        int r = fl_machine_apply(c->reference, index, entry->term, entry->data, entry->len,
                                 on_reference_effect, c);

        if (r != FL_OK)
            timeline_fail(c->time, "a node wrote an entry that is no batch");
        judge_committed_batch(c->judge, fl_machine_now_ms(c->reference));
        if (index % 64 == 0 && fl_machine_check(c->reference, why, sizeof why) != FL_OK)
            timeline_fail(c->time, "machine: %s", why);
    }
    if (index >= c->effects_capacity) {
        c->effects_capacity =
            fl_grow_capacity(c->effects_capacity, index + 1, sizeof *c->effects_at);
        c->effects_at = fl_xrealloc(c->effects_at, c->effects_capacity * sizeof *c->effects_at);
    }
    c->effects_at[index] = c->reference_hash;
}

static void on_node_effect(void *ctx, const struct fl_effect *effect)
{
    struct cluster_node *n = ctx;

    n->effects_hash = hash_effect(n->effects_hash, effect);
}

static void forget_expiring(struct cluster_node *n, uint64_t up_to)
{
    for (size_t i = 0; i < CLUSTER_SESSIONS_MAX; i++) {
        if (n->is_expiring[i] && n->expire_index[i] <= up_to)
            n->is_expiring[i] = false;
    }
}

static void on_deliver_late(void *ctx, uint64_t index, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    struct cluster *c = n->cluster;

    if (put_off(n, on_deliver_late, index, data, len))
        return;
    while (n->applied < index) {
        const struct log_entry *entry = ideal_log_entry(&c->log, ++n->applied);

        if (fl_node_applied(n->node, clock_ms(n), n->applied, entry->term, entry->data,
                            entry->len) != FL_OK)
            timeline_fail(c->time, "an entry could not be applied");
        if (n->effects_hash != c->effects_at[n->applied])
            timeline_fail(c->time, "R2: replicas differ at %llu", (unsigned long long)n->applied);
        if (c->log.nodes[n->id].term == entry->term && n->settled_ms == 0)
            n->settled_ms = clock_ms(n);
    }
    forget_expiring(n, n->applied);
    fl_node_flush(n->node, clock_ms(n));
}

static void on_deliver(void *ctx, unsigned node, uint64_t index)
{
    on_deliver_late(&((struct cluster *)ctx)->nodes[node], index, NULL, 0);
}

struct role {
    uint64_t term;
    bool is_leader;
    unsigned leader;
};

static void on_role_late(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    const struct role *role = data;

    if (put_off(n, on_role_late, a, data, len))
        return;
    n->settled_ms = n->confirmed_begun_us = 0;
    memset(n->heard_ms, 0, sizeof n->heard_ms);
    memset(n->is_expiring, 0, sizeof n->is_expiring);
    n->term = role->term;
    fl_node_role(n->node, clock_ms(n), role->term, role->is_leader, role->leader);
    fl_node_flush(n->node, clock_ms(n));
}

static void on_role(void *ctx, unsigned node, uint64_t term, bool is_leader, unsigned leader)
{
    struct role role = {term, is_leader, leader};

    on_role_late(&((struct cluster *)ctx)->nodes[node], 0, &role, sizeof role);
}

struct confirmed {
    uint64_t term, round, begun_us, read_index;
};

static void on_confirmed_late(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    const struct confirmed *confirmed = data;

    if (put_off(n, on_confirmed_late, a, data, len))
        return;
    if (confirmed->term != n->term)
        return;
    if (confirmed->begun_us > n->confirmed_begun_us)
        n->confirmed_begun_us = confirmed->begun_us;
    fl_node_confirmed(n->node, clock_ms(n), confirmed->round, confirmed->read_index);
    fl_node_flush(n->node, clock_ms(n));
}

static void on_confirmed(void *ctx, unsigned node, uint64_t round, uint64_t begun_us,
                         uint64_t read_index)
{
    struct cluster *c = ctx;
    struct confirmed confirmed = {c->log.nodes[node].term, round, begun_us, read_index};

    on_confirmed_late(&c->nodes[node], 0, &confirmed, sizeof confirmed);
}

/* --- The node's effects --- */

/* T3, with its exception: the log may know that the session is silent. */
static void check_expiry(struct cluster_node *n, const struct fl_command *command, uint64_t index)
{
    size_t session = command->session.low % CLUSTER_SESSIONS_MAX;
    uint64_t since = n->settled_ms, needed = judge_ttl_ms(n->cluster->judge, (uint32_t)session);
    struct fl_session_info info;

    if (command->term != n->term)
        timeline_fail(n->cluster->time, "T4: an expiry of another term");
    if (!fl_machine_session(fl_node_machine(n->node), command->session, &info))
        return;
    if (n->heard_ms[session] != 0)
        since = n->heard_ms[session];
    else
        needed -= info.silence_ms < needed ? info.silence_ms : needed;
    if (clock_ms(n) < since + needed)
        timeline_fail(n->cluster->time, "T3: expiry proposed %llu ms early",
                      (unsigned long long)(since + needed - clock_ms(n)));
    n->is_expiring[session] = true;
    n->expire_index[session] = index;
}

static uint64_t on_propose(void *ctx, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    uint64_t index = ideal_log_propose(&n->cluster->log, n->id, n->term, data, len);
    struct fl_batch batch;

    if (index == 0 || fl_batch_decode(data, len, &batch) != FL_OK)
        return index;
    for (size_t i = 0; i < batch.n; i++) {
        if (batch.commands[i].type == FL_CMD_EXPIRE_SESSION)
            check_expiry(n, &batch.commands[i], index);
    }
    fl_batch_deinit(&batch);
    return index;
}

static void on_confirm(void *ctx, uint64_t round)
{
    struct cluster_node *n = ctx;

    ideal_log_confirm(&n->cluster->log, n->id, n->term, round);
}

/* T2, T5: seen where the acknowledgement leaves. */
static void check_acknowledgement(struct cluster_node *n, uint64_t link,
                                  const struct fl_reply *reply)
{
    const struct cluster_beat *beat =
        &n->cluster->beats[reply->tag % FL_ARRAY_LEN(n->cluster->beats)];

    if (beat->link != link || beat->tag != reply->tag)
        return;
    n->cluster->judge->acks++;
    if (n->confirmed_begun_us < beat->received_us)
        timeline_fail(n->cluster->time, "T2: acknowledged without a confirmation after receipt");
    if (n->is_expiring[beat->session % CLUSTER_SESSIONS_MAX])
        timeline_fail(n->cluster->time, "T5: acknowledged while an expiry is under way");
}

static void on_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    struct fl_reply reply;
    const uint8_t *bytes = data;

    if (bytes[0] == FL_LINK_REPLY && fl_reply_decode(bytes + 1, len - 1, &reply) == FL_OK) {
        if (reply.request_type == FL_REQ_KEEP_ALIVE && reply.status == FL_REPLY_ANSWER &&
            reply.answer == FL_ANS_OK)
            check_acknowledgement(n, link, &reply);
        fl_reply_deinit(&reply);
    }
    n->cluster->frame(n->cluster->ctx, n->id, link, data, len);
}

/* --- The outside --- */

static void on_tick(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    uint64_t now, at;

    if (put_off(n, on_tick, a, data, len))
        return;
    now = clock_ms(n);
    fl_node_tick(n->node, now);
    at = fl_node_deadline(n->node);
    timeline_in(n->cluster->time, (at > now ? at - now : 1) * MS, on_tick, n, 0);
}

static void on_link_up(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct cluster_node *n = ctx;

    if (put_off_link(n, on_link_up, link, data, len))
        return;
    n->cluster->link_is_up[link >> 4] = true;
    fl_node_link_up(n->node, clock_ms(n), link);
}

static void on_link_down(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct cluster_node *n = ctx;

    if (put_off_link(n, on_link_down, link, data, len) || !n->cluster->link_is_up[link >> 4])
        return;
    n->cluster->link_is_up[link >> 4] = false;
    fl_node_link_down(n->node, clock_ms(n), link);
}

void cluster_link_up(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link)
{
    FL_REQUIRE(link >> 4 < CLUSTER_LINKS_MAX);
    timeline_at(c->time, at_us, on_link_up, &c->nodes[node], link, NULL, 0);
}

void cluster_link_down(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link)
{
    timeline_at(c->time, at_us, on_link_down, &c->nodes[node], link, NULL, 0);
}

/* The node reads it: from here on it is heard. */
static void note_beat(struct cluster_node *n, uint64_t link, const struct fl_request *request)
{
    struct cluster *c = n->cluster;

    c->beats[request->tag % FL_ARRAY_LEN(c->beats)] =
        (struct cluster_beat){link, request->tag, c->time->now_us, request->session.low};
    n->heard_ms[request->session.low % CLUSTER_SESSIONS_MAX] = clock_ms(n);
}

static void on_read(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    struct fl_request request;

    if (put_off_link(n, on_read, link, data, len) || !n->cluster->link_is_up[link >> 4])
        return;
    if (fl_request_decode(data, len, &request) == FL_OK && request.type == FL_REQ_KEEP_ALIVE)
        note_beat(n, link, &request);
    fl_node_request(n->node, clock_ms(n), link, data, len);
    fl_node_flush(n->node, clock_ms(n));
}

/* It lies in the socket, whether or not the node runs. */
static void on_arrive(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct cluster_node *n = ctx;
    struct fl_request request;

    if (n->cluster->log.leader == n->id && fl_request_decode(data, len, &request) == FL_OK &&
        request.type == FL_REQ_KEEP_ALIVE)
        judge_beat(n->cluster->judge, (uint32_t)request.session.low);
    on_read(ctx, link, data, len);
}

void cluster_request(struct cluster *c, uint64_t at_us, unsigned node, uint64_t link,
                     const struct fl_request *request)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_request_encode(&buf, request);
    timeline_at(c->time, at_us, on_arrive, &c->nodes[node], link, buf.data, buf.len);
    fl_buf_deinit(&buf);
}

void cluster_pause(struct cluster *c, unsigned node, uint64_t until_us)
{
    if (until_us > c->nodes[node].paused_until_us)
        c->nodes[node].paused_until_us = until_us;
}

void cluster_check_empty(struct cluster *c)
{
    for (unsigned i = 1; i <= LOG_NODES; i++) {
        const struct fl_machine *m = fl_node_machine(c->nodes[i].node);
        struct fl_machine_stats stats;
        char why[128];

        fl_machine_stats(m, &stats);
        if (stats.sessions + stats.holds + stats.waits + stats.names != 0)
            timeline_fail(c->time, "V2, V3: node %u keeps %llu sessions, %llu holds, %llu waits", i,
                          (unsigned long long)stats.sessions, (unsigned long long)stats.holds,
                          (unsigned long long)stats.waits);
        if (fl_machine_history_hash(m) != fl_machine_history_hash(c->reference))
            timeline_fail(c->time, "V6: node %u has another history", i);
        if (fl_machine_check(m, why, sizeof why) != FL_OK)
            timeline_fail(c->time, "machine of node %u: %s", i, why);
    }
}

void cluster_init(struct cluster *c, struct timeline *time, struct judge *judge,
                  cluster_frame_fn frame, void *ctx)
{
    static const struct ideal_log_ops log_ops = {.deliver = on_deliver,
                                                 .role = on_role,
                                                 .confirmed = on_confirmed,
                                                 .committed = on_committed};
    static const struct fl_node_ops node_ops = {
        .propose = on_propose, .confirm = on_confirm, .send = on_send, .observe = on_node_effect};

    memset(c, 0, sizeof *c);
    c->time = time;
    c->judge = judge;
    c->frame = frame;
    c->ctx = ctx;
    ideal_log_init(&c->log, time, &log_ops, c);
    c->reference = fl_machine_new((const uint64_t[2]){1, 2});
    for (unsigned i = 1; i <= LOG_NODES; i++) {
        struct fl_node_config config = {
            .node_id = i, .hash_key = {i, 7}, .election_timeout_ms = 500};
        struct cluster_node *n = &c->nodes[i];

        n->cluster = c;
        n->id = i;
        n->rate_ppm = timeline_between(time, 1000000 - RHO_PPM, 1000000 + RHO_PPM);
        n->offset_ms = timeline_between(time, 1, 100000000);
        n->node = fl_node_new(&config, &node_ops, n);
        timeline_in(time, timeline_between(time, 0, 50 * MS), on_tick, n, 0);
    }
}

void cluster_deinit(struct cluster *c)
{
    for (unsigned i = 1; i <= LOG_NODES; i++)
        fl_node_free(c->nodes[i].node);
    fl_machine_free(c->reference);
    free(c->effects_at);
    ideal_log_deinit(&c->log);
}
