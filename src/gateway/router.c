#include "gateway/router.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "gateway/router_parts.h"

/* A tick that comes this late means that we were stopped ourselves (G5). */
#define STALL_MS 400
/* A cancel that finds no leader is tried again: about a minute, longer than a cluster should need.
 */
#define POST_TRIES 30

/* --- Links --- */

unsigned fl_router_add_link(struct fl_router *router, uint64_t node_id, bool is_local)
{
    unsigned number = 0;
    struct link *link;

    while (number < router->n_links && router->links[number].node_id != 0)
        number++;
    FL_REQUIRE(number < FL_ROUTER_LINKS_MAX && node_id != 0);
    if (number == router->n_links)
        router->n_links++;
    link = &router->links[number];
    *link = (struct link){.node_id = node_id, .is_local = is_local};
    fl_list_init(&link->sent);
    return number;
}

void fl_router_retire_link(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    FL_REQUIRE(number < router->n_links && router->links[number].node_id != 0);
    if (router->links[number].is_up)
        fl_router_link_down(router, now_ms, number);
    router->links[number].node_id = 0;
}

void fl_router_link_up(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct link *link = &router->links[number];

    FL_REQUIRE(number < router->n_links && !link->is_up);
    link->is_up = true;
    link->heard_ms = now_ms;
    link->pinged_ms = 0;
    if (link->node_id == router->leader_id)
        fl_router__leader_changed(router, now_ms);
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

        fl_router__lift(router, ask);
        if (other != NULL)
            fl_router__transmit_again(router, now_ms, ask, (unsigned)(other - router->links));
        else
            fl_router__end(router, ask, FL_ASK_UNREACHABLE, NULL);
    }
}

void fl_router_link_down(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct link *link = &router->links[number];

    FL_REQUIRE(number < router->n_links && link->is_up);
    link->is_up = false;
    fl_router__take_back(router, now_ms, link);
    scatter(router, now_ms, link);
    if (router->leader_id != link->node_id)
        return;
    /* It may still lead, but then it tells us so when it is back. */
    router->leader_id = 0;
    fl_router__leader_changed(router, now_ms);
}

/* --- Time --- */

static void send_ping(struct fl_router *router, uint64_t now_ms, unsigned number)
{
    struct fl_request request = {.type = FL_REQ_STATUS};

    router->links[number].pinged_ms = now_ms;
    fl_router__tell(router, number, &request);
}

/* G5. The local node shares our fate: a link to it cannot be half open. */
static void watch_over(struct fl_router *router, uint64_t now_ms, uint64_t stalled_ms,
                       unsigned number)
{
    struct link *link = &router->links[number];

    if (!link->is_up || link->is_local || FL_BUG(GATEWAY_KEEPS_SILENT_LINK))
        return;
    link->heard_ms += stalled_ms;
    if (link->pinged_ms != 0)
        link->pinged_ms += stalled_ms;
    if (link->pinged_ms == 0 && now_ms >= link->heard_ms + router->config.ping_ms)
        send_ping(router, now_ms, number);
    else if (link->pinged_ms != 0 && now_ms >= link->pinged_ms + router->config.silence_ms)
        router->ops.reset(router->ctx, number, "the node does not answer");
}

/* What a node pushed may have been about a link that was down, or not believed: who leads is asked
 * until it is known. */
static void ask_who_leads(struct fl_router *router, uint64_t now_ms)
{
    if (fl_router_leaderless_ms(router, now_ms) < router->config.ping_ms ||
        now_ms < router->leader_asked_ms + router->config.ping_ms)
        return;
    router->leader_asked_ms = now_ms;
    for (unsigned i = 0; i < router->n_links; i++) {
        struct fl_request request = {.type = FL_REQ_STATUS};

        if (router->links[i].is_up)
            fl_router__tell(router, i, &request);
    }
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
        fl_router__end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_NO_LEADER,
                       NULL);
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
    ask_who_leads(router, now_ms);
    /* In this order: what the leader refuses again and again must end, too. */
    fail_leaderless(router, now_ms);
    fl_router__flush_waiting(router, now_ms);
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
        *ret_link = fl_list_is_empty(&router->waiting) ? fl_router__reachable_leader(router) : NULL;
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
    fl_router__set_frame(router, ask, &tagged);
    if (link != NULL)
        fl_router__transmit(router, now_ms, ask, (unsigned)(link - router->links));
    else
        fl_list_append(&router->waiting, &ask->in_place);
    if (router->ops.asked != NULL)
        router->ops.asked(router->ctx, ask);
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
        fl_router__send_unwatch(router, ask);
    fl_router__drop(router, ask);
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
        fl_router__end(router, FL_CONTAINER_OF(at, struct fl_ask, in_place), FL_ASK_STOPPED, NULL);
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
