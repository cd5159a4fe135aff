/* What comes from the nodes: who leads, answers, pushes. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "gateway/router_parts.h"

/* A request that is refused sooner than this after it went out has found no leader: its time
 * without one goes on. */
#define REFUSED_SOON_MS 1000

/* --- The leader --- */

static struct link *leader_link(struct fl_router *router)
{
    for (unsigned i = 0; router->leader_id != 0 && i < router->n_links; i++)
        if (router->links[i].node_id == router->leader_id)
            return &router->links[i];
    return NULL;
}

struct link *fl_router__reachable_leader(struct fl_router *router)
{
    struct link *link = leader_link(router);

    return link != NULL && link->is_up ? link : NULL;
}

void fl_router__flush_waiting(struct fl_router *router, uint64_t now_ms)
{
    struct link *link = fl_router__reachable_leader(router);
    struct fl_list *at;

    while (link != NULL && (at = fl_list_first(&router->waiting)) != NULL) {
        struct fl_ask *ask = FL_CONTAINER_OF(at, struct fl_ask, in_place);

        fl_list_remove(at);
        fl_router__transmit_again(router, now_ms, ask, (unsigned)(link - router->links));
    }
}

static void wait_again(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask)
{
    if (ask->is_sent && now_ms - ask->sent_ms >= REFUSED_SOON_MS)
        ask->unsent_since_ms = now_ms;
    fl_router__lift(router, ask);
    fl_router__put_waiting(router, ask);
}

/* What went to `link` and was meant for the leader waits for the next one; watches are told to
 * begin again, since only their owner knows how far they came. */
void fl_router__take_back(struct fl_router *router, uint64_t now_ms, struct link *link)
{
    struct fl_list moved;

    fl_list_init(&moved);
    FL_LIST_EACH(at, &link->sent)
    {
        struct fl_ask *ask = FL_CONTAINER_OF(at, struct fl_ask, in_place);

        if (ask->route != FL_ROUTE_LEADER)
            continue;
        if (ask->is_watching) {
            if (link->is_up)
                fl_router__send_unwatch(router, ask);
            fl_router__lift(router, ask);
            fl_list_append(&moved, at);
        } else if (!FL_BUG(GATEWAY_FORGETS_ON_LOSS)) {
            wait_again(router, now_ms, ask);
        }
    }
    for (struct fl_list *at; (at = fl_list_first(&moved)) != NULL;)
        fl_router__end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_MOVED, NULL);
}

void fl_router__leader_changed(struct fl_router *router, uint64_t now_ms)
{
    struct link *link = fl_router__reachable_leader(router);

    if (link == NULL) {
        if (router->had_leader)
            router->leaderless_since_ms = now_ms;
        router->had_leader = false;
        return;
    }
    router->had_leader = true;
    fl_router__flush_waiting(router, now_ms);
    router->ops.leader_up(router->ctx);
}

static void set_leader(struct fl_router *router, uint64_t now_ms, uint64_t leader_id, uint64_t term)
{
    struct link *old = leader_link(router);
    bool is_same = router->leader_id == leader_id;

    router->term = term;
    router->leader_id = leader_id;
    if (is_same)
        return;
    if (old != NULL)
        fl_router__take_back(router, now_ms, old);
    fl_router__leader_changed(router, now_ms);
}

/* G4. That nobody leads is believed only of the leader itself: a node that is cut off says so too.
 */
static void hear_of_leader(struct fl_router *router, uint64_t now_ms, const struct link *from,
                           uint64_t leader_id, uint64_t term)
{
    if (term < router->term)
        return;
    if (leader_id == 0 && from->node_id != router->leader_id)
        return;
    if (leader_id != 0 && term == router->term && router->leader_id != 0 &&
        leader_id != router->leader_id && from->node_id != router->leader_id)
        return;
    set_leader(router, now_ms, leader_id, term);
}

/* --- Replies and pushes --- */

static void receive_refusal(struct fl_router *router, uint64_t now_ms, struct link *link,
                            struct fl_ask *ask, const struct fl_reply *reply)
{
    wait_again(router, now_ms, ask);
    if (reply->status == FL_REPLY_NOT_LEADER)
        hear_of_leader(router, now_ms, link, reply->leader_id, reply->term);
    /* It may have been on its way while the leader changed: that change did not send it. What the
     * leader itself refuses (it hands over, or starts) goes out with the next tick. */
    if (fl_router__reachable_leader(router) != link)
        fl_router__flush_waiting(router, now_ms);
}

static bool is_refusal(const struct fl_reply *reply)
{
    return reply->status == FL_REPLY_NOT_LEADER || reply->status == FL_REPLY_NOT_READY;
}

static int receive_reply(struct fl_router *router, uint64_t now_ms, struct link *link,
                         const uint8_t *data, size_t len)
{
    struct fl_reply reply;
    struct fl_ask *ask;
    int r = fl_reply_decode(data, len, &reply);

    if (r < 0)
        return r;
    ask = fl_router__find_ask(router, reply.tag);
    if (ask == NULL || &router->links[ask->link] != link || ask->is_watching) {
        /* A ping's, or to somebody who is gone. */
        if (reply.request_type == FL_REQ_STATUS && reply.status == FL_REPLY_ANSWER)
            hear_of_leader(router, now_ms, link, reply.info.leader_id, reply.info.term);
        fl_reply_deinit(&reply);
        return FL_OK;
    }
    if (ask->type != reply.request_type) {
        fl_reply_deinit(&reply);
        return FL_E_MALFORMED;
    }
    if (ask->route == FL_ROUTE_LEADER && is_refusal(&reply)) {
        receive_refusal(router, now_ms, link, ask, &reply);
    } else if (ask->type == FL_REQ_WATCH && reply.status == FL_REPLY_ANSWER &&
               reply.answer == FL_ANS_OK) {
        ask->is_watching = true;
    } else {
        fl_router__end(router, ask, FL_ASK_REPLIED, &reply);
    }
    fl_reply_deinit(&reply);
    return FL_OK;
}

static void receive_watch_push(struct fl_router *router, struct link *link,
                               const struct fl_push *push)
{
    struct fl_ask *ask = fl_router__find_ask(router, push->tag);

    if (ask == NULL || ask->type != FL_REQ_WATCH || &router->links[ask->link] != link)
        return;
    if (push->type == FL_PUSH_WATCH_END) {
        struct fl_reply reply = {.tag = push->tag,
                                 .request_type = FL_REQ_WATCH,
                                 .status = FL_REPLY_ANSWER,
                                 .answer = FL_ANS_ENDED,
                                 .text = push->text};

        fl_router__end(router, ask, FL_ASK_REPLIED, &reply);
        return;
    }
    ask->pushed(ask, push);
}

static int receive_push(struct fl_router *router, uint64_t now_ms, struct link *link,
                        const uint8_t *data, size_t len)
{
    struct fl_push push;
    int r = fl_push_decode(data, len, &push);

    if (r < 0)
        return r;
    switch (push.type) {
    case FL_PUSH_LEADER:
        hear_of_leader(router, now_ms, link, push.leader_id, push.term);
        break;
    case FL_PUSH_WATCH:
    case FL_PUSH_WATCH_END:
    case FL_PUSH_CAUGHT_UP:
        receive_watch_push(router, link, &push);
        break;
    case FL_PUSH_MEMBERS:
        if (router->ops.members != NULL)
            router->ops.members(router->ctx, push.index, push.text);
        break;
    case FL_PUSH_LOST:
    case FL_PUSH_SESSION_END:
    case FL_PUSH_CONTENDED:
        router->ops.push(router->ctx, &push);
        break;
    }
    return FL_OK;
}

int fl_router_frame(struct fl_router *router, uint64_t now_ms, unsigned number, const void *data,
                    size_t len)
{
    struct link *link = &router->links[number];
    const uint8_t *bytes = data;

    FL_REQUIRE(number < router->n_links);
    if (!link->is_up)
        return FL_OK;
    if (len == 0)
        return FL_E_MALFORMED;
    link->heard_ms = now_ms;
    link->pinged_ms = 0;
    if (bytes[0] == FL_LINK_REPLY)
        return receive_reply(router, now_ms, link, bytes + 1, len - 1);
    if (bytes[0] == FL_LINK_PUSH)
        return receive_push(router, now_ms, link, bytes + 1, len - 1);
    return FL_E_MALFORMED;
}
