#include "sim_client.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define RETRY_US (400 * MS)

static const struct fl_str names[JUDGE_NAMES_MAX] = {{"n0", 2}, {"n1", 2}, {"n2", 2}, {"n3", 2},
                                                     {"n4", 2}, {"n5", 2}, {"n6", 2}, {"n7", 2}};

static void think(struct sim_client *c);

/* --- Time and timers --- */

/* True time in which this client's clock advances so far. */
static uint64_t true_us(const struct sim_client *c, uint64_t own_us)
{
    return own_us * 1000000 / c->rate_ppm;
}

static void after(struct sim_client *c, uint64_t own_us, timeline_fn fn)
{
    timeline_in(c->time, true_us(c, own_us), fn, c, c->life);
}

static bool is_past(const struct sim_client *c, uint64_t life)
{
    return life != c->life;
}

/* --- Links --- */

static void arrive_after(struct sim_client *c, uint64_t *last_us)
{
    uint64_t at = c->time->now_us + timeline_between(c->time, 300, 6 * MS);

    if (timeline_one_in(c->time, 40))
        at += timeline_between(c->time, 0, 100 * MS);
    *last_us = at > *last_us ? at : *last_us; /* a link keeps its order */
}

static bool link_open(struct sim_client *c, unsigned node)
{
    if (c->blocked_until_us[node] > c->time->now_us)
        return false;
    if (c->links[node] != 0)
        return true;
    c->links[node] = (*c->next_link)++ << 4 | c->id;
    arrive_after(c, &c->link_last_us[node]);
    cluster_link_up(c->cluster, c->link_last_us[node], node, c->links[node]);
    return true;
}

void client_cut(struct sim_client *c, unsigned node, uint64_t until_us)
{
    uint64_t noticed_us = c->time->now_us + timeline_between(c->time, 0, 2 * S);

    c->blocked_until_us[node] = until_us;
    if (c->links[node] == 0)
        return;
    if (noticed_us < c->link_last_us[node])
        noticed_us = c->link_last_us[node];
    cluster_link_down(c->cluster, noticed_us, node, c->links[node]);
    c->links[node] = 0;
}

/* --- Operations --- */

static void op_send(struct sim_client *c, struct client_op *op)
{
    if (!link_open(c, c->target)) {
        c->target = c->target % LOG_NODES + 1;
        if (!link_open(c, c->target))
            return;
    }
    op->request.tag =
        op->number << CLIENT_ATTEMPT_BITS | (op->attempts++ & ((1u << CLIENT_ATTEMPT_BITS) - 1));
    arrive_after(c, &c->link_last_us[c->target]);
    cluster_request(c->cluster, c->link_last_us[c->target], c->target, c->links[c->target],
                    &op->request);
}

static struct client_op *op_find(struct sim_client *c, uint64_t number)
{
    for (size_t i = 0; i < CLIENT_OPS_MAX; i++) {
        if (c->ops[i].is_active && c->ops[i].number == number)
            return &c->ops[i];
    }
    return NULL;
}

static void on_retry(void *ctx, uint64_t number, const void *data, size_t len)
{
    struct sim_client *c = ctx;
    struct client_op *op = op_find(c, number);

    (void)data;
    (void)len;
    if (op == NULL)
        return;
    if (timeline_one_in(c->time, 3))
        c->target = (unsigned)timeline_between(c->time, 1, LOG_NODES);
    op_send(c, op);
    timeline_in(c->time, RETRY_US, on_retry, c, number);
}

/* The oldest is forgotten when there are too many: only heartbeats come in numbers. */
static struct client_op *op_begin(struct sim_client *c, struct fl_request request)
{
    struct client_op *op = NULL;

    for (size_t i = 0; i < CLIENT_OPS_MAX && op == NULL; i++) {
        if (!c->ops[i].is_active)
            op = &c->ops[i];
    }
    if (op == NULL)
        return NULL;
    request.session = (struct fl_session_id){0x51, c->session};
    *op = (struct client_op){.is_active = true,
                             .number = c->next_op++,
                             .request = request,
                             .asked_us = c->time->now_us,
                             .committed = c->cluster->log.committed};
    op_send(c, op);
    timeline_in(c->time, RETRY_US, on_retry, c, op->number);
    return op;
}

/* --- The session --- */

static void hold_off(struct sim_client *c)
{
    if (c->holds)
        judge_lock_off(c->judge, c->name, c->session, (uint32_t)c->request_id);
    c->holds = false;
}

static void on_start(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct sim_client *c = ctx;

    (void)data;
    (void)len;
    if (life == c->life)
        client_start(c);
}

/* The session is gone, or given up: begin again with another. */
static void session_over(struct sim_client *c)
{
    hold_off(c);
    c->life++;
    c->is_open = false;
    memset(c->ops, 0, sizeof c->ops);
    if (!*c->is_winding_down)
        timeline_in(c->time, timeline_between(c->time, 0, S), on_start, c, c->life);
}

static void on_lease_end(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct sim_client *c = ctx;

    (void)data;
    (void)len;
    if (is_past(c, life) || c->believed_until_us > c->time->now_us)
        return;
    session_over(c);
}

/* The lease counts from when the acknowledged heartbeat was sent first (T6). */
static void believe(struct sim_client *c, uint64_t sent_us)
{
    uint64_t own_us = (uint64_t)c->ttl_ms * MS * (1000000 - RHO_PPM) / (1000000 + RHO_PPM);
    uint64_t until_us = sent_us + true_us(c, own_us);

    if (until_us <= c->believed_until_us || until_us <= c->time->now_us)
        return;
    c->believed_until_us = until_us;
    judge_believes(c->judge, c->session, until_us);
    timeline_at(c->time, until_us, on_lease_end, c, c->life, NULL, 0);
}

static void on_beat(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct sim_client *c = ctx;

    (void)data;
    (void)len;
    if (is_past(c, life))
        return;
    if (c->mute_until_us > c->time->now_us) {
        timeline_at(c->time, c->mute_until_us, on_beat, c, life, NULL, 0);
        return;
    }
    op_begin(c, (struct fl_request){.type = FL_REQ_KEEP_ALIVE});
    after(c, (uint64_t)c->ttl_ms * MS / 3, on_beat);
}

void client_mute(struct sim_client *c, uint64_t until_us)
{
    c->mute_until_us = until_us;
}

void client_start(struct sim_client *c)
{
    if (*c->is_winding_down || *c->next_session == CLUSTER_SESSIONS_MAX)
        return;
    c->session = (uint32_t)(*c->next_session)++;
    c->ttl_ms = (uint32_t)timeline_between(c->time, 3000, 6000);
    c->believed_until_us = 0;
    c->next_request = 1;
    judge_session(c->judge, c->session, c->ttl_ms);
    op_begin(c, (struct fl_request){
                    .type = FL_REQ_OPEN_SESSION, .client = FL_STR("client"), .ttl_ms = c->ttl_ms});
}

void client_crash(struct sim_client *c)
{
    bool closes = timeline_one_in(c->time, 2);

    hold_off(c);
    c->life++;
    c->is_open = false;
    memset(c->ops, 0, sizeof c->ops);
    for (unsigned node = 1; closes && node <= LOG_NODES; node++)
        client_cut(c, node, c->time->now_us);
    if (!*c->is_winding_down)
        timeline_in(c->time, timeline_between(c->time, S, 3 * S), on_start, c, c->life);
}

/* --- What it does with locks --- */

static void acquire(struct sim_client *c)
{
    uint32_t wait_ms =
        timeline_one_in(c->time, 3) ? 0 : (uint32_t)timeline_between(c->time, 1, 4000);

    c->name = (unsigned)timeline_between(c->time, 0, 3);
    c->mode = timeline_one_in(c->time, 5) ? FL_MODE_SHARED : FL_MODE_EXCLUSIVE;
    c->request_id = c->next_request++;
    judge_asked(c->judge, c->session, (uint32_t)c->request_id, wait_ms);
    op_begin(c, (struct fl_request){.type = FL_REQ_ACQUIRE,
                                    .request_id = c->request_id,
                                    .name = names[c->name],
                                    .mode = c->mode,
                                    .wait_ms = wait_ms});
    c->has_cancelled = wait_ms > 0 && timeline_one_in(c->time, 8);
    if (c->has_cancelled)
        op_begin(c, (struct fl_request){
                        .type = FL_REQ_CANCEL, .request_id = c->request_id, .abandon = true});
}

static void on_think(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct sim_client *c = ctx;

    (void)data;
    (void)len;
    if (is_past(c, life) || c->holds)
        return;
    if (c->next_request == JUDGE_REQUESTS_MAX || timeline_one_in(c->time, 60))
        op_begin(c, (struct fl_request){.type = FL_REQ_CLOSE_SESSION});
    else if (timeline_one_in(c->time, 8))
        op_begin(c,
                 (struct fl_request){.type = FL_REQ_DESCRIBE, .name = names[c->name], .max = 10});
    else
        acquire(c);
}

static void think(struct sim_client *c)
{
    if (!*c->is_winding_down)
        after(c, timeline_between(c->time, 0, 300 * MS), on_think);
}

static void on_release(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct sim_client *c = ctx;

    (void)data;
    (void)len;
    if (is_past(c, life) || !c->holds)
        return;
    hold_off(c);
    op_begin(
        c, (struct fl_request){.type = FL_REQ_RELEASE, .name = names[c->name], .token = c->token});
}

/* --- What it is told --- */

static void on_acquired(struct sim_client *c, const struct client_op *op,
                        const struct fl_reply *reply)
{
    uint32_t request = (uint32_t)op->request.request_id;

    switch (reply->answer) {
    case FL_ANS_GRANTED:
        judge_granted(c->judge, c->session, request, reply->token, reply->index);
        if (c->has_cancelled)
            break;
        if (c->believed_until_us <= c->time->now_us) { /* T10: a lost lock */
            session_over(c);
            return;
        }
        c->holds = true;
        c->token = reply->token;
        judge_lock_on(c->judge, c->name,
                      (struct judge_hold){c->session, request, reply->token, c->mode});
        after(c, timeline_between(c->time, 0, 600 * MS), on_release);
        return;
    case FL_ANS_HELD:
    case FL_ANS_TIMED_OUT:
    case FL_ANS_CANCELLED:
        judge_refused(c->judge, c->session, request, reply->answer);
        break;
    default:
        break;
    }
    think(c);
}

static void on_answer(struct sim_client *c, const struct client_op *op,
                      const struct fl_reply *reply)
{
    if (reply->answer == FL_ANS_SESSION_NOT_FOUND) {
        session_over(c);
        return;
    }
    switch (op->request.type) {
    case FL_REQ_OPEN_SESSION:
        c->is_open = true;
        believe(c, op->asked_us);
        on_beat(c, c->life, NULL, 0);
        think(c);
        break;
    case FL_REQ_KEEP_ALIVE:
        believe(c, op->asked_us);
        break;
    case FL_REQ_ACQUIRE:
        on_acquired(c, op, reply);
        break;
    case FL_REQ_CLOSE_SESSION:
        session_over(c);
        break;
    case FL_REQ_DESCRIBE:
        c->judge->reads++;
        if (reply->index < op->committed)
            timeline_fail(c->time, "L13: a read at %llu began when %llu was committed",
                          (unsigned long long)reply->index, (unsigned long long)op->committed);
        think(c);
        break;
    case FL_REQ_CANCEL:
        if (reply->answer == FL_ANS_CANCELLED)
            judge_refused(c->judge, c->session, (uint32_t)op->request.request_id, reply->answer);
        break;
    case FL_REQ_RELEASE:
        think(c);
        break;
    default:
        break;
    }
}

static void on_reply(struct sim_client *c, unsigned node, const struct fl_reply *reply)
{
    struct client_op *op = op_find(c, reply->tag >> CLIENT_ATTEMPT_BITS);
    struct client_op done;

    timeline_mix(c->time, reply->tag ^ reply->index << 20 ^ (uint64_t)reply->answer << 50);
    if (op == NULL)
        return;
    if (reply->status != FL_REPLY_ANSWER) { /* sent again by its timer */
        if (reply->leader_id != 0)
            c->target = (unsigned)reply->leader_id;
        else if (c->target == node)
            c->target = node % LOG_NODES + 1;
        return;
    }
    done = *op;
    op->is_active = false;
    on_answer(c, &done, reply);
}

struct arrival {
    uint64_t link;
    unsigned node;
};

static void on_frame(void *ctx, uint64_t a, const void *data, size_t len)
{
    struct sim_client *c = ctx;
    const struct arrival *arrival = data;
    const uint8_t *frame = (const uint8_t *)data + sizeof *arrival;
    struct fl_reply reply;

    (void)a;
    len -= sizeof *arrival;
    if (c->links[arrival->node] != arrival->link || frame[0] != FL_LINK_REPLY)
        return;
    if (fl_reply_decode(frame + 1, len - 1, &reply) != FL_OK) {
        timeline_fail(c->time, "a reply that cannot be read");
        return;
    }
    on_reply(c, arrival->node, &reply);
    fl_reply_deinit(&reply);
}

void client_frame(struct sim_client *c, unsigned node, uint64_t link, const void *data, size_t len)
{
    struct arrival arrival = {link, node};
    struct fl_buf buf = FL_BUF_INIT;

    arrive_after(c, &c->reply_last_us[node]);
    fl_buf_put(&buf, &arrival, sizeof arrival);
    fl_buf_put(&buf, data, len);
    timeline_at(c->time, c->reply_last_us[node], on_frame, c, 0, buf.data, buf.len);
    fl_buf_deinit(&buf);
}

void client_init(struct sim_client *c, struct cluster *cluster, unsigned id)
{
    memset(c, 0, sizeof *c);
    c->cluster = cluster;
    c->time = cluster->time;
    c->judge = cluster->judge;
    c->id = id;
    c->rate_ppm = timeline_between(c->time, 1000000 - RHO_PPM, 1000000 + RHO_PPM);
    c->target = (unsigned)timeline_between(c->time, 1, LOG_NODES);
    c->next_op = (uint64_t)id << 20 | 1;
}
