/* A gateway: serves LockService and AdminService to clients, and asks nodes over links. Runs on the
 * loop that it is given, and only there. It holds no state that matters: a session survives its
 * gateway, and a client's stream survives the leader (README.md, G1 to G8).
 *
 * A link is a way to one node that carries frames in order (node/message.h): to the node of this
 * process through a mailbox, to others through the peers' port. Whoever makes the links tells
 * fl_gateway_link_up(), _frame() and _down(), on the gateway's loop. */
#ifndef FL_GATEWAY_GATEWAY_H
#define FL_GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/meter.h"
#include "gateway/rates.h"
#include "gateway/router.h"
#include "net/loop.h"
#include "rpc/server.h"

struct fl_gateway;

struct fl_gateway_config {
    const char *address;      /* HOST:PORT of the clients' port; port 0 takes a free one */
    size_t message_bytes_max; /* of a client's message; 0: 64 KiB */
    struct fl_router_config router;
    struct fl_rates_config rates; /* zero: none */
    /* Streams and watches end when no leader could be reached for so long, so that clients move on
     * (C24); 0: 3,000, a few election timeouts. */
    uint32_t leaderless_ms;
    /* May be NULL: which nodes there are, "ID=ADDRESS,...", whenever that changes. Adds links and
     * retires them. */
    void (*members)(void *ctx, struct fl_str members);
    void *members_ctx;
};

/* On failure `why` (256 bytes) says more. The config's strings are not kept. */
int fl_gateway_new(struct fl_loop *loop, const struct fl_gateway_config *config,
                   struct fl_gateway **ret_gateway, char *why);
unsigned fl_gateway_port(const struct fl_gateway *gateway);

/* How to speak to a node. `send` copies; it must not call back. `reset` gives a connection up that
 * is up but dead, fl_gateway_link_down() follows later; NULL for the node of this process. */
struct fl_gateway_link {
    uint64_t node_id;
    bool is_local;
    void (*send)(void *ctx, const void *data, size_t len);
    void (*reset)(void *ctx, const char *why);
    void *ctx;
};
/* Down at first. Returns the link's number. */
unsigned fl_gateway_add_link(struct fl_gateway *gateway, const struct fl_gateway_link *link);
/* The node is no member any more. The number may be given out again. */
void fl_gateway_retire_link(struct fl_gateway *gateway, unsigned link);
void fl_gateway_link_up(struct fl_gateway *gateway, unsigned link);
void fl_gateway_link_down(struct fl_gateway *gateway, unsigned link);
/* FL_E_MALFORMED or FL_E_VERSION: close the link. */
int fl_gateway_link_frame(struct fl_gateway *gateway, unsigned link, const void *data, size_t len);

/* Streams and watches end with UNAVAILABLE, reason SHUTTING_DOWN; other calls get `grace_ms` to
 * end; `done` follows once. The links must stay until then. */
void fl_gateway_drain(struct fl_gateway *gateway, unsigned grace_ms, void (*done)(void *ctx),
                      void *ctx);
/* Ends every call at once. No entry point may be called afterwards. */
void fl_gateway_free(struct fl_gateway *gateway);

struct fl_gateway_stats {
    struct fl_rpc_server_stats rpc;
    size_t streams, watches, unanswered;
    uint64_t leader_id;
    bool has_leader;
};
void fl_gateway_stats(const struct fl_gateway *gateway, struct fl_gateway_stats *ret_stats);
/* What was counted since the start; borrowed. */
const struct fl_gateway_meter *fl_gateway_meter(const struct fl_gateway *gateway);

#endif
