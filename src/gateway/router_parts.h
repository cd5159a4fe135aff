/* The inside of the router, shared by router.c (asking, links, time), router_asks.c (where each
 * request is) and router_receive.c (the leader, replies, pushes). */
#ifndef FL_GATEWAY_ROUTER_PARTS_H
#define FL_GATEWAY_ROUTER_PARTS_H

#include "base/map.h"
#include "gateway/router.h"

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
    uint64_t leaderless_since_ms, leader_asked_ms, tick_ms;
    struct fl_list waiting; /* for a leader, by sequence (G2) */
    struct fl_map by_tag;   /* what was sent */
    uint64_t last_tag, last_sequence;
    size_t n_asked, n_bytes;
    struct fl_buf scratch;
    bool had_leader, is_stopped;
};

/* --- router_asks.c --- */

struct fl_ask *fl_router__find_ask(const struct fl_router *router, uint64_t tag);
/* Encodes it anew. */
void fl_router__set_frame(struct fl_router *router, struct fl_ask *ask,
                          const struct fl_request *request);
/* Out of the list and the table that it is in. */
void fl_router__lift(struct fl_router *router, struct fl_ask *ask);
/* Out of the router. */
void fl_router__drop(struct fl_router *router, struct fl_ask *ask);
/* That, and its owner is told. */
void fl_router__end(struct fl_router *router, struct fl_ask *ask, enum fl_ask_end how,
                    const struct fl_reply *reply);
void fl_router__put_waiting(struct fl_router *router, struct fl_ask *ask);
void fl_router__transmit(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                         unsigned link);
/* What may have been sent before. */
void fl_router__transmit_again(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                               unsigned link);
/* A message that nobody waits for an answer to. */
void fl_router__tell(struct fl_router *router, unsigned link, struct fl_request *request);
void fl_router__send_unwatch(struct fl_router *router, const struct fl_ask *ask);

/* --- router_receive.c --- */

struct link *fl_router__reachable_leader(struct fl_router *router); /* or NULL */
void fl_router__flush_waiting(struct fl_router *router, uint64_t now_ms);
/* What went to `link` and was meant for the leader waits for the next one. */
void fl_router__take_back(struct fl_router *router, uint64_t now_ms, struct link *link);
/* After any change of who leads, or of whether its link is up. */
void fl_router__leader_changed(struct fl_router *router, uint64_t now_ms);

#endif
