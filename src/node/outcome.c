/* The machine's effects become replies and pushes. Runs inside fl_machine_apply(), so it must not
 * query the machine: what needs a query is noted, and done by fl_node__outcome_finish(). */
#include "base/alloc.h"
#include "base/bugs.h"
#include "node/internal.h"

static uint32_t clamp_ms(uint64_t ms)
{
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

uint32_t fl_node__since_ms(const struct fl_node *node, uint64_t log_ms)
{
    uint64_t now = fl_node__log_now(node);

    return now > log_ms ? clamp_ms(now - log_ms) : 0;
}

static uint32_t ttl_of(const struct fl_node *node, struct fl_session_id session)
{
    const struct live *live = fl_node__live(node, session);

    return live != NULL ? live->ttl_ms : 0;
}

/* --- Answers to our own commands --- */

static void answer_acquire(struct fl_node *node, struct pending *p, const struct fl_effect *effect)
{
    struct fl_reply reply = fl_node__reply_to(node, p, effect->answer);
    struct live *live = fl_node__live(node, p->session);

    if (live != NULL && live->carrier == NULL)
        fl_node__live_carry(live, p->link);
    if (effect->answer == FL_ANS_QUEUED) {
        fl_node__pending_lift(node, p);
        fl_node__waiters_add(node, p);
        return;
    }
    reply.token = effect->token;
    reply.mode = effect->mode;
    reply.limit = effect->limit;
    reply.ttl_ms = ttl_of(node, p->session);
    reply.position = effect->position;
    reply.holder_client = effect->holder_client;
    reply.holder_token = effect->holder_token;
    if (effect->holder_token != 0)
        reply.holder_for_ms = fl_node__since_ms(node, effect->holder_since_ms);
    fl_node__answer(node, p, &reply);
}

static void answer_open(struct fl_node *node, struct pending *p, const struct fl_effect *effect,
                        uint32_t ttl_ms)
{
    struct fl_reply reply = fl_node__reply_to(node, p, effect->answer);
    struct live *live = fl_node__live(node, p->session);

    if (effect->answer == FL_ANS_OK) {
        reply.ttl_ms = ttl_ms;
        if (live != NULL)
            fl_node__live_carry(live, p->link);
    }
    fl_node__answer(node, p, &reply);
}

/* Commands that nobody asked for: the node's own. */
static void own_command_done(struct fl_node *node, const struct fl_command *command,
                             const struct fl_effect *effect)
{
    if (command->type == FL_CMD_NOTE_SILENCE && command->silence_ms == 0)
        fl_node__live_cleared(node, command->session);
    else if (command->type == FL_CMD_EXPIRE_SESSION && effect->answer != FL_ANS_OK)
        fl_node__live_not_expired(node, command->session);
}

static void answer_command(struct fl_node *node, const struct fl_effect *effect)
{
    const struct draft *draft = node->applying;
    const struct fl_command *command;
    struct pending *p;

    if (draft == NULL || effect->command < 0 || (size_t)effect->command >= draft->n)
        return;
    command = &draft->commands[effect->command];
    p = draft->owners[effect->command];
    if (p == NULL) {
        own_command_done(node, command, effect);
    } else if (p->type == FL_REQ_ACQUIRE) {
        answer_acquire(node, p, effect);
    } else if (p->type == FL_REQ_OPEN_SESSION) {
        answer_open(node, p, effect, command->ttl_ms);
    } else {
        struct fl_reply reply = fl_node__reply_to(node, p, effect->answer);

        reply.token = effect->token;
        fl_node__answer(node, p, &reply);
    }
}

/* --- What happened to those who waited --- */

static void granted(struct fl_node *node, const struct fl_effect *effect)
{
    struct pending *p;

    while ((p = fl_node__waiters_find(node, effect->session, effect->request_id)) != NULL) {
        struct fl_reply reply = fl_node__reply_to(node, p, FL_ANS_GRANTED);

        reply.token = effect->token;
        reply.mode = effect->mode;
        reply.limit = effect->limit;
        reply.ttl_ms = ttl_of(node, effect->session);
        fl_node__answer(node, p, &reply);
    }
    if (effect->waiters > 0)
        fl_node__push_effect(node, effect, FL_PUSH_CONTENDED);
}

static void wait_ended(struct fl_node *node, const struct fl_effect *effect)
{
    struct pending *p;

    while ((p = fl_node__waiters_find(node, effect->session, effect->request_id)) != NULL) {
        switch (effect->cause) {
        case FL_CAUSE_TIMED_OUT: /* answered with the holder, which takes a query */
            fl_node__pending_lift(node, p);
            p->message = fl_xmemdup(effect->name.data, effect->name.len);
            p->message_len = effect->name.len;
            fl_list_append(&node->timed_out, &p->in_place);
            break;
        case FL_CAUSE_CLOSED:
        case FL_CAUSE_EXPIRED:
        case FL_CAUSE_ENDED:
            fl_node__answer_plain(node, p, FL_ANS_SESSION_NOT_FOUND);
            break;
        default:
            fl_node__answer_plain(node, p, FL_ANS_CANCELLED);
            break;
        }
    }
}

static void session_opened(struct fl_node *node, const struct fl_effect *effect)
{
    const struct draft *draft = node->applying;

    /* Before the table begins (fl_node__liveness_begin) the entries are of earlier leaders. */
    if (draft != NULL && effect->command >= 0 && (size_t)effect->command < draft->n)
        fl_node__live_open(node, effect->session, draft->commands[effect->command].ttl_ms);
}

void fl_node__outcome(void *ctx, const struct fl_effect *effect)
{
    struct fl_node *node = ctx;

    if (node->ops.observe != NULL)
        node->ops.observe(node->ctx, effect);
    if (effect->type == FL_EFF_GRANT || effect->type == FL_EFF_HOLD_END)
        fl_node__watch_record(node, effect);
    if (!node->is_leader && !FL_BUG(NODE_REPLY_MATCHED_BY_INDEX))
        return;
    switch (effect->type) {
    case FL_EFF_ANSWER:
        answer_command(node, effect);
        break;
    case FL_EFF_GRANT:
        granted(node, effect);
        break;
    case FL_EFF_ENQUEUE: /* the first waiter is news to the holder, the others are not */
        if (effect->waiters == 1)
            fl_buf_put_str(&node->contended, effect->name);
        break;
    case FL_EFF_HOLD_END:
        if (effect->cause == FL_CAUSE_FORCED)
            fl_node__push_effect(node, effect, FL_PUSH_LOST);
        break;
    case FL_EFF_WAIT_END:
        wait_ended(node, effect);
        break;
    case FL_EFF_SESSION_OPEN:
        session_opened(node, effect);
        break;
    case FL_EFF_SESSION_END:
        fl_node__push_effect(node, effect, FL_PUSH_SESSION_END);
        fl_node__live_end(node, effect->session);
        break;
    }
}

/* --- With the machine at rest --- */

struct oldest {
    const struct fl_node *node;
    struct fl_reply *reply;
};

static void take_oldest_holder(void *ctx, const struct fl_request_info *info)
{
    struct oldest *oldest = ctx;

    oldest->reply->mode = info->mode;
    oldest->reply->limit = info->limit;
    oldest->reply->holder_client = info->client;
    oldest->reply->holder_token = info->token;
    oldest->reply->holder_for_ms = fl_node__since_ms(oldest->node, info->since_ms);
}

static void answer_timed_out(struct fl_node *node, struct pending *p)
{
    struct fl_reply reply = fl_node__reply_to(node, p, FL_ANS_TIMED_OUT);
    struct oldest oldest = {node, &reply};
    struct fl_str name = {(const char *)p->message, p->message_len};

    fl_machine_each_holder(node->machine, name, 1, take_oldest_holder, &oldest);
    reply.ttl_ms = ttl_of(node, p->session);
    fl_node__answer(node, p, &reply);
}

void fl_node__outcome_finish(struct fl_node *node)
{
    struct fl_reader names = fl_reader_from(node->contended.data, node->contended.len);
    struct fl_list *at;

    while ((at = fl_list_first(&node->timed_out)) != NULL)
        answer_timed_out(node, FL_CONTAINER_OF(at, struct pending, in_place));
    while (fl_reader_left(&names) > 0)
        fl_node__push_contended(node, fl_reader_str(&names, FL_NAME_MAX));
    fl_buf_clear(&node->contended);
    fl_node__watch_entry_done(node);
}
