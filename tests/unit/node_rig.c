#include "node_rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

static uint64_t append(struct rig *rig, const void *data, size_t len)
{
    FL_REQUIRE(rig->last + 1 < RIG_ENTRIES_MAX);
    rig->log[++rig->last] = (struct rig_entry){
        .term = rig->term, .data = len > 0 ? fl_xmemdup(data, len) : NULL, .len = len};
    return rig->last;
}

static uint64_t on_propose(void *ctx, const void *data, size_t len)
{
    struct rig *rig = ctx;

    return rig->refuses ? 0 : append(rig, data, len);
}

static void on_confirm(void *ctx, uint64_t round)
{
    struct rig *rig = ctx;

    FL_REQUIRE(round > rig->round);
    rig->round = round;
}

static void on_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct rig *rig = ctx;
    struct rig_frame *frame = &rig->frames[rig->n_frames++];
    int r = FL_OK;

    FL_REQUIRE(rig->n_frames < RIG_FRAMES_MAX);
    *frame = (struct rig_frame){.link = link, .data = fl_xmemdup(data, len)};
    frame->type = (enum fl_link_frame)frame->data[0];
    if (frame->type == FL_LINK_REPLY)
        r = fl_reply_decode(frame->data + 1, len - 1, &frame->reply);
    else
        r = fl_push_decode(frame->data + 1, len - 1, &frame->push);
    FL_REQUIRE(r == FL_OK);
}

static int on_transfer(void *ctx, uint64_t node_id)
{
    ((struct rig *)ctx)->transfer_to = node_id;
    return node_id == 99 ? FL_E_NOT_FOUND : FL_OK;
}

static int on_change_members(void *ctx, enum fl_request_type type, uint64_t node_id,
                             struct fl_str address)
{
    struct rig *rig = ctx;

    rig->change = type;
    rig->change_id = node_id;
    snprintf(rig->change_address, sizeof rig->change_address, "%.*s", FL_STR_ARGS(address));
    return rig->change_result;
}

struct rig *rig_new(uint32_t pending_max)
{
    static const struct fl_node_ops ops = {.propose = on_propose,
                                           .confirm = on_confirm,
                                           .send = on_send,
                                           .transfer = on_transfer,
                                           .change_members = on_change_members};
    struct fl_node_config config = {
        .node_id = 1, .hash_key = {1, 2}, .election_timeout_ms = 500, .pending_max = pending_max};
    struct rig *rig = fl_xcalloc(1, sizeof *rig);

    rig->now_ms = 1000;
    rig->next_tag = 1;
    rig->node = fl_node_new(&config, &ops, rig);
    fl_node_tick(rig->node, rig->now_ms);
    fl_node_link_up(rig->node, rig->now_ms, 1);
    fl_node_link_up(rig->node, rig->now_ms, 2);
    return rig;
}

void rig_free(struct rig *rig)
{
    fl_node_free(rig->node);
    for (size_t i = 0; i < rig->n_frames; i++) {
        fl_reply_deinit(&rig->frames[i].reply);
        free(rig->frames[i].data);
    }
    for (uint64_t i = 1; i <= rig->last; i++)
        free(rig->log[i].data);
    free(rig);
}

void rig_pass(struct rig *rig, uint64_t ms)
{
    while (ms > 0) {
        uint64_t step = ms < 50 ? ms : 50;

        rig->now_ms += step;
        ms -= step;
        fl_node_tick(rig->node, rig->now_ms);
    }
}

void rig_stall(struct rig *rig, uint64_t ms)
{
    rig->now_ms += ms;
}

void rig_flush(struct rig *rig)
{
    fl_node_flush(rig->node, rig->now_ms);
}

void rig_elect(struct rig *rig)
{
    rig->term++;
    fl_node_role(rig->node, rig->now_ms, rig->term, true, 1);
}

void rig_lead(struct rig *rig)
{
    rig_elect(rig);
    rig_append_empty(rig);
    rig_commit(rig);
}

void rig_follow(struct rig *rig)
{
    rig->term++;
    fl_node_role(rig->node, rig->now_ms, rig->term, false, 2);
}

void rig_commit(struct rig *rig)
{
    while (rig->applied < rig->last) {
        const struct rig_entry *entry = &rig->log[++rig->applied];

        FL_REQUIRE(fl_node_applied(rig->node, rig->now_ms, rig->applied, entry->term, entry->data,
                                   entry->len) == FL_OK);
    }
}

void rig_lose_tail(struct rig *rig)
{
    while (rig->last > rig->applied)
        free(rig->log[rig->last--].data);
}

void rig_append(struct rig *rig, uint64_t now_ms, const struct fl_command *commands, size_t n)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_batch_begin(&buf, now_ms);
    for (size_t i = 0; i < n; i++)
        fl_batch_add(&buf, &commands[i]);
    append(rig, buf.data, buf.len);
    fl_buf_deinit(&buf);
}

void rig_append_empty(struct rig *rig)
{
    append(rig, NULL, 0);
}

void rig_confirm(struct rig *rig)
{
    fl_node_confirmed(rig->node, rig->now_ms, rig->round, rig->applied);
}

void rig_settle(struct rig *rig)
{
    uint64_t last, round;

    rig_flush(rig);
    do {
        last = rig->last;
        round = rig->round;
        rig_commit(rig);
        rig_confirm(rig);
        rig_flush(rig);
    } while (last != rig->last || round != rig->round);
}

void rig_live(struct rig *rig, uint64_t ms)
{
    for (; ms > 0; ms -= ms < 50 ? ms : 50) {
        rig_pass(rig, ms < 50 ? ms : 50);
        rig_settle(rig);
    }
}

struct fl_session_id rig_session(uint64_t number)
{
    return (struct fl_session_id){0x5e55, number};
}

uint64_t rig_ask(struct rig *rig, uint64_t link, struct fl_request request)
{
    struct fl_buf buf = FL_BUF_INIT;

    request.tag = rig->next_tag++;
    fl_request_encode(&buf, &request);
    FL_REQUIRE(fl_node_request(rig->node, rig->now_ms, link, buf.data, buf.len) == FL_OK);
    fl_buf_deinit(&buf);
    return request.tag;
}

uint64_t rig_open(struct rig *rig, uint64_t session, uint32_t ttl_ms)
{
    uint64_t tag = rig_ask(rig, 1,
                           (struct fl_request){.type = FL_REQ_OPEN_SESSION,
                                               .session = rig_session(session),
                                               .client = FL_STR("client"),
                                               .ttl_ms = ttl_ms});

    rig_settle(rig);
    return tag;
}

uint64_t rig_beat(struct rig *rig, uint64_t session)
{
    return rig_ask(rig, 1,
                   (struct fl_request){.type = FL_REQ_KEEP_ALIVE, .session = rig_session(session)});
}

uint64_t rig_acquire(struct rig *rig, uint64_t session, uint64_t request_id, const char *name,
                     uint32_t wait_ms)
{
    return rig_ask(rig, 1,
                   (struct fl_request){.type = FL_REQ_ACQUIRE,
                                       .session = rig_session(session),
                                       .request_id = request_id,
                                       .name = fl_str_from(name),
                                       .mode = FL_MODE_EXCLUSIVE,
                                       .wait_ms = wait_ms});
}

const struct fl_reply *rig_reply(const struct rig *rig, uint64_t tag)
{
    const struct fl_reply *found = NULL;

    for (size_t i = 0; i < rig->n_frames; i++) {
        if (rig->frames[i].type != FL_LINK_REPLY || rig->frames[i].reply.tag != tag)
            continue;
        FL_REQUIRE(found == NULL); /* each tag is answered once */
        found = &rig->frames[i].reply;
    }
    return found;
}

bool rig_has_reply(const struct rig *rig, uint64_t tag, enum fl_answer answer)
{
    const struct fl_reply *reply = rig_reply(rig, tag);

    return reply != NULL && reply->status == FL_REPLY_ANSWER && reply->answer == answer;
}

bool rig_has_status(const struct rig *rig, uint64_t tag, enum fl_reply_status status)
{
    const struct fl_reply *reply = rig_reply(rig, tag);

    return reply != NULL && reply->status == status;
}

const struct rig_frame *rig_push(const struct rig *rig, enum fl_push_type type, size_t n)
{
    for (size_t i = 0; i < rig->n_frames; i++) {
        if (rig->frames[i].type == FL_LINK_PUSH && rig->frames[i].push.type == type && n-- == 0)
            return &rig->frames[i];
    }
    return NULL;
}

size_t rig_count(const struct rig *rig, enum fl_command_type type, uint64_t after)
{
    size_t count = 0;

    for (uint64_t i = after + 1; i <= rig->last; i++) {
        struct fl_batch batch;

        if (rig->log[i].len == 0)
            continue;
        FL_REQUIRE(fl_batch_decode(rig->log[i].data, rig->log[i].len, &batch) == FL_OK);
        for (size_t c = 0; c < batch.n; c++)
            count += batch.commands[c].type == type;
        fl_batch_deinit(&batch);
    }
    return count;
}

bool rig_is_alive(const struct rig *rig, uint64_t session)
{
    struct fl_session_info info;

    return fl_machine_session(fl_node_machine(rig->node), rig_session(session), &info);
}
