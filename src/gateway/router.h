/* Which node gets a request, and what becomes of it when that node is lost.
 *
 * Pure: no I/O, no clock, no randomness, no threads. Frames and `now_ms` come in, frames go out
 * through the ops; the gateway and the simulator drive the same object.
 *
 *   G1  what is unanswered when its link breaks, or its node is not the leader (any more), goes to
 *       the next leader with the same session and request ids, and with what is left of its wait
 *   G2  requests go out in the order in which they were asked; what waits for a leader goes before
 *       what comes later (T11)
 *   G3  an answer is passed on only if it came from the link that the request went to last: the
 *       router answers nothing by itself but "no leader" and "unreachable" (T11)
 *   G4  the leader is the one of the highest term that any node told of; while none is known, all
 *       are asked
 *   G5  a link that is up but silent is given up within ping_ms + silence_ms (C22); the time that
 *       we ourselves were stopped does not count
 *   G6  requests in hand are bounded, but what keeps alive, gives back or makes room is never
 *       refused */
#ifndef FL_GATEWAY_ROUTER_H
#define FL_GATEWAY_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "node/message.h"

struct fl_router;
struct fl_ask;

#define FL_ROUTER_LINKS_MAX 64

struct fl_router_config {
    size_t requests_max;   /* 0: 1,000,000 (200,000 waiters on one name, five times) */
    size_t bytes_max;      /* 0: 512 MiB, of encoded requests */
    uint32_t no_leader_ms; /* a request without a leader fails after; 0: 2,000 */
    uint32_t ping_ms;      /* a link that is quiet so long is asked; 0: 500 */
    uint32_t silence_ms;   /* and given up when that stays unanswered for; 0: 1,000 */
};

enum fl_ask_end {
    FL_ASK_REPLIED,     /* see the reply */
    FL_ASK_NO_LEADER,   /* none was reachable for no_leader_ms */
    FL_ASK_UNREACHABLE, /* the link (or every link) is down */
    FL_ASK_MOVED,       /* a watch that began must begin again, elsewhere */
    FL_ASK_STOPPED,     /* the router is being stopped */
};

/* Bytes are borrowed during the call. `send` and `reset` must not call back into the router; a
 * reset's fl_router_link_down() follows later. */
struct fl_router_ops {
    void (*send)(void *ctx, unsigned link, const void *data, size_t len);
    /* The link is up but dead: give it up. */
    void (*reset)(void *ctx, unsigned link, const char *why);
    /* LOST, SESSION_END and CONTENDED. */
    void (*push)(void *ctx, const struct fl_push *push);
    /* A leader can be reached (again): it does not know yet which sessions we carry. */
    void (*leader_up)(void *ctx);
    /* May be NULL. The members as of entry `index`, "ID=ADDRESS,..."; any node may tell it, also
     * one that is behind. Links may be added now, and retired. */
    void (*members)(void *ctx, uint64_t index, struct fl_str members);
    /* May be NULL, both: for whoever counts. An ask was taken; it ends now, before its `done`. One
     * that is forgotten does not end. */
    void (*asked)(void *ctx, struct fl_ask *ask);
    void (*ended)(void *ctx, const struct fl_ask *ask, enum fl_ask_end how,
                  const struct fl_reply *reply);
};

enum fl_route {
    FL_ROUTE_LEADER,  /* whoever leads; waits for a leader, and follows it */
    FL_ROUTE_NEAREST, /* the local node, else the leader, else any */
    FL_ROUTE_LINK,    /* that link only */
};

/* One request; lives in its owner. From fl_router_ask() until `done` or fl_router_forget() it is in
 * the router's hands; then it may be used again. */
struct fl_ask {
    /* Exactly once, unless forgotten. `reply` is NULL but for REPLIED, and borrowed. May ask, and
     * may free the ask. */
    void (*done)(struct fl_ask *ask, enum fl_ask_end end, const struct fl_reply *reply);
    /* WATCH only: WATCH and CAUGHT_UP pushes. */
    void (*pushed)(struct fl_ask *ask, const struct fl_push *push);

    /* The router's. */
    struct fl_list in_place;
    uint64_t asked_us; /* for whoever counts */
    uint64_t tag, sequence, sent_ms, unsent_since_ms, wait_until_ms;
    uint8_t *frame; /* owned */
    size_t len;
    uint8_t type, route, link;
    bool is_asked, is_sent, was_sent, is_watching;
};

struct fl_router *fl_router_new(const struct fl_router_config *config,
                                const struct fl_router_ops *ops, void *ctx);
/* Every ask ends with STOPPED; then it is safe to free. Asking is refused from then on. */
void fl_router_stop(struct fl_router *router);
void fl_router_free(struct fl_router *router);

/* A node to route to; its link is down at first. Returns the link's number. */
unsigned fl_router_add_link(struct fl_router *router, uint64_t node_id, bool is_local);
/* The node is no member any more: the link is taken down if it is up, and its number may be given
 * out again. */
void fl_router_retire_link(struct fl_router *router, uint64_t now_ms, unsigned link);
void fl_router_link_up(struct fl_router *router, uint64_t now_ms, unsigned link);
void fl_router_link_down(struct fl_router *router, uint64_t now_ms, unsigned link);
/* A frame from the node, with its type byte. FL_E_MALFORMED or FL_E_VERSION: close the link. */
int fl_router_frame(struct fl_router *router, uint64_t now_ms, unsigned link, const void *data,
                    size_t len);
/* At least every 100 ms. */
void fl_router_tick(struct fl_router *router, uint64_t now_ms);

/* The request's tag is the router's to set; strings are copied. `link` is for FL_ROUTE_LINK. On
 * failure the ask is not taken: FL_E_BUSY (G6), FL_E_UNREACHABLE (not for the leader's),
 * FL_E_CLOSED (stopped). */
int fl_router_ask(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                  const struct fl_request *request, enum fl_route route, unsigned link);
/* Asks the leader, and nobody waits for the answer: cancels, detaches. */
void fl_router_post(struct fl_router *router, uint64_t now_ms, const struct fl_request *request);
/* Safe when it is not asked. Whether it ever went out: if not, no node has heard of it. */
bool fl_router_forget(struct fl_router *router, struct fl_ask *ask);

unsigned fl_router_links(const struct fl_router *router);
uint64_t fl_router_link_node(const struct fl_router *router, unsigned link); /* 0: retired */
bool fl_router_link_is_up(const struct fl_router *router, unsigned link);
uint64_t fl_router_leader(const struct fl_router *router); /* its node id; 0: none known */
bool fl_router_has_leader(const struct fl_router *router); /* known, and its link is up */
/* For how long no leader could be reached; 0 when one can be. */
uint64_t fl_router_leaderless_ms(const struct fl_router *router, uint64_t now_ms);
size_t fl_router_asked(const struct fl_router *router); /* requests in hand */

#endif
