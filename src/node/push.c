/* What a node tells unasked. Pushes about a session go to the link that carries it: the last one
 * that opened or resumed it, or, when none did under this leader, that sent a heartbeat or an
 * acquire for it. */
#include "node/internal.h"

/* Holders of one name that are told that somebody waits: a hint, and a name with thousands of
 * shared holders would make one waiter cost thousands of messages. */
#define CONTENDED_HOLDERS_MAX 64

void fl_node__push_leader(struct fl_node *node, struct link *link)
{
    struct fl_push push = {
        .type = FL_PUSH_LEADER, .leader_id = node->leader_id, .term = node->term};

    fl_node__send_push(node, link, &push);
}

void fl_node__push_members(struct fl_node *node, struct link *link)
{
    struct fl_push push = {.type = FL_PUSH_MEMBERS,
                           .index = node->members_index,
                           .text = {(const char *)node->members.data, node->members.len}};

    if (node->members_index != 0)
        fl_node__send_push(node, link, &push);
}

static struct link *carrier_of(const struct fl_node *node, struct fl_session_id session)
{
    const struct live *live = fl_node__live(node, session);

    return live != NULL ? live->carrier : NULL;
}

void fl_node__push_effect(struct fl_node *node, const struct fl_effect *effect,
                          enum fl_push_type type)
{
    struct link *link = carrier_of(node, effect->session);
    struct fl_push push = {
        .type = type,
        .index = effect->index,
        .session = effect->session,
        .request_id = effect->request_id,
        .name = effect->name,
        .token = effect->token,
        .waiters = effect->waiters,
        .cause = effect->cause,
        .actor = effect->actor,
        .reason = effect->reason,
    };

    if (link != NULL)
        fl_node__send_push(node, link, &push);
}

struct contended {
    struct fl_node *node;
    uint32_t waiters;
};

static void tell_contended(void *ctx, const struct fl_request_info *info)
{
    struct contended *contended = ctx;
    struct link *link = carrier_of(contended->node, info->session);
    struct fl_push push = {
        .type = FL_PUSH_CONTENDED,
        .index = contended->node->applied_index,
        .session = info->session,
        .name = info->name,
        .token = info->token,
        .waiters = contended->waiters,
    };

    if (link != NULL)
        fl_node__send_push(contended->node, link, &push);
}

void fl_node__push_contended(struct fl_node *node, struct fl_str name)
{
    struct contended contended = {.node = node, .waiters = 1};

    fl_machine_each_holder(node->machine, name, CONTENDED_HOLDERS_MAX, tell_contended, &contended);
}
