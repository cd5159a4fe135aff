#include "gateway/router.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/map.h"

/* A request that is refused sooner than this after it went out has found no leader: its time
 * without one goes on. */
#define REFUSED_SOON_MS 1000
/* A tick that comes this late means that we were stopped ourselves (G5). */
#define STALL_MS 400
/* A cancel that finds no leader is tried again: about a minute, longer than a cluster should need.
 */
#define POST_TRIES 30

struct link {
    uint64_t node_id;
    bool is_local, is_up;
    uint64_t heard_ms, pinged_ms; /* pinged 0: no ping is out */
    struct fl_list sent;          /* fl_ask.in_place, in order of sending */
};

struct fl_router {
    struct fl_router_config config;
    struct fl_router_ops ops;
    void *ctx;
    struct link links[FL_ROUTER_LINKS_MAX];
    unsigned n_links;
    uint64_t leader_id, term; /* leader 0: not known */
    uint64_t leaderless_since_ms, tick_ms;
    struct fl_list waiting; /* for a leader, by sequence (G2) */
    struct fl_map by_tag;   /* what was sent */
    uint64_t last_tag, last_sequence;
    size_t n_asked, n_bytes;
    struct fl_buf scratch;
    bool had_leader, is_stopped;
};

/* --- Asks: in their place and out of it --- */

static bool has_tag(const void *value, const void *key)
{
    return ((const struct fl_ask *)value)->tag == *(const uint64_t *)key;
}

static struct fl_ask *find_ask(const struct fl_router *router, uint64_t tag)
{
    return fl_map_find(&router->by_tag, fl_hash_mix64(tag), has_tag, &tag);
}

static void set_frame(struct fl_router *router, struct fl_ask *ask,
                      const struct fl_request *request)
{
    fl_buf_clear(&router->scratch);
    fl_buf_put_u8(&router->scratch, FL_LINK_REQUEST);
    fl_request_encode(&router->scratch, request);
    router->n_bytes -= ask->len;
    ask->frame = fl_xrealloc(ask->frame, router->scratch.len);
    memcpy(ask->frame, router->scratch.data, router->scratch.len);
    ask->len = router->scratch.len;
    router->n_bytes += ask->len;
}

/* Out of the list and the table that it is in. */
static void lift(struct fl_router *router, struct fl_ask *ask)
{
    fl_list_remove(&ask->in_place);
    if (ask->is_sent)
        fl_map_remove(&router->by_tag, fl_hash_mix64(ask->tag), ask);
    ask->is_sent = false;
    ask->is_watching = false;
}

/* Out of the router. */
static void drop(struct fl_router *router, struct fl_ask *ask)
{
    lift(router, ask);
    router->n_asked--;
    router->n_bytes -= ask->len;
    free(ask->frame);
    ask->frame = NULL;
    ask->len = 0;
    ask->is_asked = false;
}

static void end(struct fl_router *router, struct fl_ask *ask, enum fl_ask_end how)
{
    drop(router, ask);
    ask->done(ask, how, NULL);
}

/* By sequence; nearly always at the end. */
static void put_waiting(struct fl_router *router, struct fl_ask *ask)
{
    struct fl_list *before = router->waiting.prev;

    while (before != &router->waiting &&
           FL_CONTAINER_OF(before, struct fl_ask, in_place)->sequence > ask->sequence)
        before = before->prev;
    fl_list_prepend(before, &ask->in_place);
}

static void transmit(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask, unsigned link)
{
    ask->link = (uint8_t)link;
    ask->is_sent = ask->was_sent = true;
    ask->sent_ms = now_ms;
    fl_map_insert(&router->by_tag, fl_hash_mix64(ask->tag), ask);
    fl_list_append(&router->links[link].sent, &ask->in_place);
    router->ops.send(router->ctx, link, ask->frame, ask->len);
}

/* A new tag for each sending, so that a late answer to an earlier one is nobody's (G3), and the
 * rest of the wait (G1). */
static void transmit_again(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                           unsigned link)
{
    struct fl_request request;
    uint8_t *old = fl_xmemdup(ask->frame, ask->len);
    int r = fl_request_decode(old + 1, ask->len - 1, &request);

    FL_REQUIRE(r == FL_OK); /* our own encoding */
    request.tag = ask->tag = ++router->last_tag;
    if (request.wait_ms != 0 && !FL_BUG(GATEWAY_RESENDS_WHOLE_WAIT))
        request.wait_ms = ask->wait_until_ms > now_ms ? (uint32_t)(ask->wait_until_ms - now_ms) : 0;
    if (FL_BUG(GATEWAY_RESENDS_AS_NEW) && request.type == FL_REQ_ACQUIRE)
        request.request_id += 1000000;
    set_frame(router, ask, &request);
    free(old);
    transmit(router, now_ms, ask, link);
}

/* Tells the node that nobody listens to this watch any more. */
static void send_unwatch(struct fl_router *router, const struct fl_ask *ask)
{
    struct fl_request request = {.type = FL_REQ_UNWATCH, .request_id = ask->tag};

    request.tag = ++router->last_tag;
    fl_buf_clear(&router->scratch);
    fl_buf_put_u8(&router->scratch, FL_LINK_REQUEST);
    fl_request_encode(&router->scratch, &request);
    router->ops.send(router->ctx, ask->link, router->scratch.data, router->scratch.len);
}

/* --- The leader --- */

static struct link *leader_link(struct fl_router *router)
{
    for (unsigned i = 0; router->leader_id != 0 && i < router->n_links; i++)
        if (router->links[i].node_id == router->leader_id)
            return &router->links[i];
    return NULL;
}

static struct link *reachable_leader(struct fl_router *router)
{
    struct link *link = leader_link(router);

    return link != NULL && link->is_up ? link : NULL;
}

static void flush_waiting(struct fl_router *router, uint64_t now_ms)
{
    struct link *link = reachable_leader(router);
    struct fl_list *at;

    while (link != NULL && (at = fl_list_first(&router->waiting)) != NULL) {
        struct fl_ask *ask = FL_CONTAINER_OF(at, struct fl_ask, in_place);

        fl_list_remove(at);
        transmit_again(router, now_ms, ask, (unsigned)(link - router->links));
    }
}

static void wait_again(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask)
{
    if (ask->is_sent && now_ms - ask->sent_ms >= REFUSED_SOON_MS)
        ask->unsent_since_ms = now_ms;
    lift(router, ask);
    put_waiting(router, ask);
}

/* What went to `link` and was meant for the leader waits for the next one; watches are told to
 * begin again, since only their owner knows how far they came. */
static void take_back(struct fl_router *router, uint64_t now_ms, struct link *link)
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
                send_unwatch(router, ask);
            lift(router, ask);
            fl_list_append(&moved, at);
        } else if (!FL_BUG(GATEWAY_FORGETS_ON_LOSS)) {
            wait_again(router, now_ms, ask);
        }
    }
    for (struct fl_list *at; (at = fl_list_first(&moved)) != NULL;)
        end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_MOVED);
}

/* After any change of who leads, or of whether its link is up. */
static void leader_changed(struct fl_router *router, uint64_t now_ms)
{
    struct link *link = reachable_leader(router);

    if (link == NULL) {
        if (router->had_leader)
            router->leaderless_since_ms = now_ms;
        router->had_leader = false;
        return;
    }
    router->had_leader = true;
    flush_waiting(router, now_ms);
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
        take_back(router, now_ms, old);
    leader_changed(router, now_ms);
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
    if (reachable_leader(router) != link)
        flush_waiting(router, now_ms);
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
    ask = find_ask(router, reply.tag);
    if (ask == NULL || &router->links[ask->link] != link || ask->is_watching) {
        fl_reply_deinit(&reply); /* a ping's, or to somebody who is gone */
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
        drop(router, ask);
        ask->done(ask, FL_ASK_REPLIED, &reply);
    }
    fl_reply_deinit(&reply);
    return FL_OK;
}

static void receive_watch_push(struct fl_router *router, struct link *link,
                               const struct fl_push *push)
{
    struct fl_ask *ask = find_ask(router, push->tag);

    if (ask == NULL || ask->type != FL_REQ_WATCH || &router->links[ask->link] != link)
        return;
    if (push->type == FL_PUSH_WATCH_END) {
        struct fl_reply reply = {.tag = push->tag,
                                 .request_type = FL_REQ_WATCH,
                                 .status = FL_REPLY_ANSWER,
                                 .answer = FL_ANS_ENDED,
                                 .text = push->text};

        drop(router, ask);
        ask->done(ask, FL_ASK_REPLIED, &reply);
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

/* --- Links --- */

unsigned fl_router_add_link(struct fl_router *router, uint64_t node_id, bool is_local)
{
    struct link *link = &router->links[router->n_links];

    FL_REQUIRE(router->n_links < FL_ROUTER_LINKS_MAX && node_id != 0);
    *link = (struct link){.node_id = node_id, .is_local = is_local};
    fl_list_init(&link->sent);
    return router->n_links++;
}

void fl_router_link_up(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct link *link = &router->links[number];

    FL_REQUIRE(number < router->n_links && !link->is_up);
    link->is_up = true;
    link->heard_ms = now_ms;
    link->pinged_ms = 0;
    if (link->node_id == router->leader_id)
        leader_changed(router, now_ms);
}

static struct link *nearest(struct fl_router *router)
{
    struct link *best = NULL;

    for (unsigned i = 0; i < router->n_links; i++) {
        struct link *link = &router->links[i];

        if (!link->is_up)
            continue;
        if (link->is_local)
            return link;
        if (best == NULL || link->node_id == router->leader_id)
            best = link;
    }
    return best;
}

/* What was not for the leader: another node may be as near, or there is none. */
static void scatter(struct fl_router *router, uint64_t now_ms, struct link *link)
{
    for (struct fl_list *at; (at = fl_list_first(&link->sent)) != NULL;) {
        struct fl_ask *ask = FL_CONTAINER_OF(at, struct fl_ask, in_place);
        struct link *other = ask->route == FL_ROUTE_NEAREST ? nearest(router) : NULL;

        lift(router, ask);
        if (other != NULL)
            transmit_again(router, now_ms, ask, (unsigned)(other - router->links));
        else
            end(router, ask, FL_ASK_UNREACHABLE);
    }
}

void fl_router_link_down(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct link *link = &router->links[number];

    FL_REQUIRE(number < router->n_links && link->is_up);
    link->is_up = false;
    take_back(router, now_ms, link);
    scatter(router, now_ms, link);
    if (router->leader_id != link->node_id)
        return;
    /* It may still lead, but then it tells us so when it is back. */
    router->leader_id = 0;
    leader_changed(router, now_ms);
}

/* --- Time --- */

static void send_ping(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct fl_request request = {.type = FL_REQ_STATUS};

    request.tag = ++router->last_tag;
    router->links[number].pinged_ms = now_ms;
    fl_buf_clear(&router->scratch);
    fl_buf_put_u8(&router->scratch, FL_LINK_REQUEST);
    fl_request_encode(&router->scratch, &request);
    router->ops.send(router->ctx, number, router->scratch.data, router->scratch.len);
}

/* G5. The local node shares our fate: a link to it cannot be half open. */
static void watch_over(struct fl_router *router, uint64_t now_ms, uint64_t stalled_ms,
                       unsigned number)
{
    struct link *link = &router->links[number];

    if (!link->is_up || link->is_local)
        return;
    link->heard_ms += stalled_ms;
    if (link->pinged_ms != 0)
        link->pinged_ms += stalled_ms;
    if (link->pinged_ms == 0 && now_ms >= link->heard_ms + router->config.ping_ms)
        send_ping(router, now_ms, number);
    else if (link->pinged_ms != 0 && now_ms >= link->pinged_ms + router->config.silence_ms)
        router->ops.reset(router->ctx, number, "the node does not answer");
}

static void fail_leaderless(struct fl_router *router, uint64_t now_ms)
{
    struct fl_list failed;

    fl_list_init(&failed);
    FL_LIST_EACH(at, &router->waiting)
    {
        const struct fl_ask *ask = FL_CONTAINER_OF(at, struct fl_ask, in_place);

        if (now_ms < ask->unsent_since_ms + router->config.no_leader_ms)
            continue;
        fl_list_remove(at);
        fl_list_append(&failed, at);
    }
    for (struct fl_list *at; (at = fl_list_first(&failed)) != NULL;)
        end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_NO_LEADER);
}

void fl_router_tick(struct fl_router *router, uint64_t now_ms)
{
    uint64_t gap_ms = router->tick_ms == 0 ? 0 : now_ms - router->tick_ms;
    uint64_t stalled_ms = gap_ms > STALL_MS ? gap_ms : 0;

    if (router->tick_ms == 0)
        router->leaderless_since_ms = now_ms;
    router->tick_ms = now_ms;
    for (unsigned i = 0; i < router->n_links; i++)
        watch_over(router, now_ms, stalled_ms, i);
    /* In this order: what the leader refuses again and again must end, too. */
    fail_leaderless(router, now_ms);
    flush_waiting(router, now_ms);
}

/* --- Asking --- */

static bool is_always_taken(enum fl_request_type type)
{
    return type == FL_REQ_KEEP_ALIVE || type == FL_REQ_RELEASE || type == FL_REQ_CLOSE_SESSION ||
           type == FL_REQ_DETACH || type == FL_REQ_CANCEL || type == FL_REQ_RESUME_SESSION;
}

static bool is_full(const struct fl_router *router)
{
    return router->n_asked >= router->config.requests_max ||
           router->n_bytes >= router->config.bytes_max;
}

/* The link to use now, or NULL: wait. */
static int choose(struct fl_router *router, enum fl_route route, unsigned number,
                  struct link **ret_link)
{
    struct link *link;

    if (route == FL_ROUTE_LEADER) {
        /* G2: not before those who wait already. */
        *ret_link = fl_list_is_empty(&router->waiting) ? reachable_leader(router) : NULL;
        return FL_OK;
    }
    link = route == FL_ROUTE_NEAREST ? nearest(router) : &router->links[number];
    if (link == NULL || !link->is_up)
        return FL_E_UNREACHABLE;
    *ret_link = link;
    return FL_OK;
}

int fl_router_ask(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                  const struct fl_request *request, enum fl_route route, unsigned number)
{
    struct fl_request tagged = *request;
    struct link *link = NULL;
    int r;

    FL_REQUIRE(!ask->is_asked && (route != FL_ROUTE_LINK || number < router->n_links));
    if (router->is_stopped)
        return FL_E_CLOSED;
    if (is_full(router) && !is_always_taken(request->type))
        return FL_E_BUSY;
    r = choose(router, route, number, &link);
    if (r < 0)
        return r;
    tagged.tag = ask->tag = ++router->last_tag;
    ask->sequence = ++router->last_sequence;
    ask->type = (uint8_t)request->type;
    ask->route = (uint8_t)route;
    ask->is_asked = true;
    ask->is_sent = ask->was_sent = ask->is_watching = false;
    ask->unsent_since_ms = now_ms;
    ask->wait_until_ms = now_ms + request->wait_ms;
    ask->frame = NULL;
    ask->len = 0;
    fl_list_init(&ask->in_place);
    router->n_asked++;
    set_frame(router, ask, &tagged);
    if (link != NULL)
        transmit(router, now_ms, ask, (unsigned)(link - router->links));
    else
        fl_list_append(&router->waiting, &ask->in_place);
    return FL_OK;
}

/* A cancel or a detach that nobody waits for. */
struct posted {
    struct fl_ask ask;
    struct fl_router *router;
    struct fl_request request; /* without strings */
    unsigned tries_left;
};

static void posted_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct posted *posted = FL_CONTAINER_OF(ask, struct posted, ask);
    struct fl_router *router = posted->router;

    (void)reply;
    if (how != FL_ASK_NO_LEADER || posted->tries_left-- == 0 ||
        fl_router_ask(router, router->tick_ms, ask, &posted->request, FL_ROUTE_LEADER, 0) < 0)
        free(posted);
}

void fl_router_post(struct fl_router *router, uint64_t now_ms, const struct fl_request *request)
{
    struct posted *posted = fl_xcalloc(1, sizeof *posted);

    FL_REQUIRE(request->name.len == 0 && request->client.len == 0);
    posted->ask.done = posted_done;
    posted->router = router;
    posted->request = *request;
    posted->tries_left = POST_TRIES;
    if (fl_router_ask(router, now_ms, &posted->ask, &posted->request, FL_ROUTE_LEADER, 0) < 0)
        free(posted);
}

bool fl_router_forget(struct fl_router *router, struct fl_ask *ask)
{
    if (!ask->is_asked)
        return false;
    if (ask->type == FL_REQ_WATCH && ask->is_sent && router->links[ask->link].is_up)
        send_unwatch(router, ask);
    drop(router, ask);
    return ask->was_sent;
}

/* --- Life --- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

struct fl_router *fl_router_new(const struct fl_router_config *config,
                                const struct fl_router_ops *ops, void *ctx)
{
    struct fl_router *router = fl_xcalloc(1, sizeof *router);

    router->config = *config;
    if (config->requests_max == 0)
        router->config.requests_max = 1000000;
    if (config->bytes_max == 0)
        router->config.bytes_max = (size_t)512 * 1024 * 1024;
    router->config.no_leader_ms = or_default(config->no_leader_ms, 2000);
    router->config.ping_ms = or_default(config->ping_ms, 500);
    router->config.silence_ms = or_default(config->silence_ms, 1000);
    router->ops = *ops;
    router->ctx = ctx;
    fl_list_init(&router->waiting);
    return router;
}

static void end_all(struct fl_router *router, struct fl_list *asks)
{
    for (struct fl_list *at; (at = fl_list_first(asks)) != NULL;)
        end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_STOPPED);
}

void fl_router_stop(struct fl_router *router)
{
    router->is_stopped = true;
    end_all(router, &router->waiting);
    for (unsigned i = 0; i < router->n_links; i++)
        end_all(router, &router->links[i].sent);
    FL_REQUIRE(router->n_asked == 0);
}

void fl_router_free(struct fl_router *router)
{
    if (router == NULL)
        return;
    fl_router_stop(router);
    fl_map_deinit(&router->by_tag);
    fl_buf_deinit(&router->scratch);
    free(router);
}

unsigned fl_router_links(const struct fl_router *router)
{
    return router->n_links;
}

uint64_t fl_router_link_node(const struct fl_router *router, unsigned number)
{
    FL_REQUIRE(number < router->n_links);
    return router->links[number].node_id;
}

bool fl_router_link_is_up(const struct fl_router *router, unsigned number)
{
    FL_REQUIRE(number < router->n_links);
    return router->links[number].is_up;
}

uint64_t fl_router_leader(const struct fl_router *router)
{
    return router->leader_id;
}

bool fl_router_has_leader(const struct fl_router *router)
{
    return router->had_leader;
}

uint64_t fl_router_leaderless_ms(const struct fl_router *router, uint64_t now_ms)
{
    return router->had_leader ? 0 : now_ms - router->leaderless_since_ms;
}

size_t fl_router_asked(const struct fl_router *router)
{
    return router->n_asked;
}
