/* The first frame in each direction on the peers' port: who speaks, to whom, of which cluster. Both
 * sides check it before anything else is read, so that a node of another cluster, or of an earlier
 * life at the same address, never reaches consensus. */
#ifndef FL_NET_HANDSHAKE_H
#define FL_NET_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define FL_HANDSHAKE_VERSION 1

enum fl_handshake_role {
    FL_SPEAKS_RAFT = 1,     /* a node's messages of consensus */
    FL_SPEAKS_LINK = 2,     /* a gateway: node/message.h */
    FL_SPEAKS_SNAPSHOT = 3, /* a node that sends a snapshot */
};

/* Nodes tell each other whom they know: as many as a cluster has members. */
#define FL_HANDSHAKE_KNOWN_MAX   32
#define FL_HANDSHAKE_ADDRESS_MAX 255

struct fl_handshake {
    uint16_t version;
    enum fl_handshake_role role;
    uint8_t cluster_id[16];
    uint32_t group_id;
    uint64_t from; /* node id; a gateway's is 0 */
    uint64_t to;   /* the node that it wants; 0 in the answer to a gateway */
    /* A node's; zero and empty from a gateway. */
    uint64_t life;   /* of its directory: raft/store.h */
    uint16_t level;  /* the newest formats that it knows */
    uint8_t verdict; /* in an answer: 0, or why the other is refused (enum fl_peer_verdict) */
    char address[FL_HANDSHAKE_ADDRESS_MAX + 1]; /* where others dial it */
    uint8_t n_known;
    struct fl_handshake_known {
        uint64_t id, life;
    } known[FL_HANDSHAKE_KNOWN_MAX];
};

/* The id of a cluster from its name: the same on every node. */
void fl_handshake_cluster_id(const char *cluster_name, uint8_t ret_id[16]);

void fl_handshake_encode(struct fl_buf *buf, const struct fl_handshake *handshake);
/* FL_E_PROTOCOL: not a handshake; FL_E_VERSION: of another release's protocol. */
int fl_handshake_decode(const void *data, size_t len, struct fl_handshake *ret_handshake);

/* Why the peer is not who we want to speak to, as a sentence; NULL when it is. `self` is our own
 * node id (0: a gateway's), `expected` the id of the one we dialled (0: anyone). */
const char *fl_handshake_fault(const struct fl_handshake *theirs, const uint8_t cluster_id[16],
                               uint64_t self, uint64_t expected);

#endif
