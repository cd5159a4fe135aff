/* The peers' port: it listens, greets every connection (net/handshake.h), and carries the messages
 * of consensus between nodes. Connections of other roles are handed on once greeted.
 *
 * Each node has one outgoing connection to each peer, for what it sends; what it receives comes
 * over the peer's. A message to a peer that is away, or that takes too slowly, is dropped:
 * consensus repeats what matters, and memory for a slow peer stays bounded. */
#ifndef FL_RAFT_TRANSPORT_H
#define FL_RAFT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/framed.h"
#include "net/handshake.h"
#include "net/loop.h"

struct fl_transport;

struct fl_transport_ops {
    /* A message of consensus; borrowed. A negative return closes the connection. */
    int (*message)(void *ctx, uint64_t from, const uint8_t *data, size_t len);
    /* A node of our cluster greets or answers: enum fl_peer_verdict. */
    uint8_t (*meet)(void *ctx, const struct fl_handshake *theirs);
    /* What we say of ourselves beside the identity: life, level, address, whom we know. */
    void (*introduce)(void *ctx, struct fl_handshake *ours);
    /* A node refuses us. */
    void (*refused)(void *ctx, uint64_t by, uint8_t verdict);
    /* A greeted connection of another role: the callee sets its own handler now. */
    void (*accepted)(void *ctx, const struct fl_handshake *theirs, struct fl_framed *c);
};

struct fl_transport_config {
    const char *listen;
    uint8_t cluster_id[16];
    uint32_t group_id;
    uint64_t node_id;
    uint64_t seed; /* of the jitter */
};

/* On failure `why` (256 bytes) says more. */
int fl_transport_new(struct fl_loop *loop, const struct fl_transport_config *config,
                     const struct fl_transport_ops *ops, void *ctx,
                     struct fl_transport **ret_transport, char *why);
/* Closes all; `done` follows once, then the object is gone. */
void fl_transport_close(struct fl_transport *transport, void (*done)(void *ctx), void *ctx);
unsigned fl_transport_port(const struct fl_transport *transport);

/* Adds a peer, or gives it a new address: dialled from now on. */
void fl_transport_set_peer(struct fl_transport *transport, uint64_t id, const char *address);
/* Writes the ids of at most `max` peers; returns how many. */
size_t fl_transport_peers(const struct fl_transport *transport, uint64_t *out, size_t max);
/* Forgets a peer. */
void fl_transport_drop_peer(struct fl_transport *transport, uint64_t id);
const char *fl_transport_address(const struct fl_transport *transport, uint64_t id); /* or NULL */
bool fl_transport_is_reachable(const struct fl_transport *transport, uint64_t id);

void fl_transport_send(struct fl_transport *transport, uint64_t to, const void *data, size_t len);

/* Our side of a greeting, for connections that others dial (role, to). */
void fl_transport_greet(const struct fl_transport *transport, struct fl_framed *c,
                        enum fl_handshake_role role, uint64_t to);

#endif
