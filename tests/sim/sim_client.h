/* Clients, each with the part of a gateway that it needs: a session, heartbeats on its own drifting
 * clock, one thing at a time that it does with locks, and requests that are repeated with the same
 * ids until they are answered, at whichever node. Tells the judge what it asked, was told, and
 * believes. */
#ifndef FL_TESTS_SIM_CLIENT_H
#define FL_TESTS_SIM_CLIENT_H

#include "node_cluster.h"

#define CLIENT_OPS_MAX 8
/* Bits of a tag that number the attempts of one operation. */
#define CLIENT_ATTEMPT_BITS 6

struct client_op {
    bool is_active;
    uint64_t number;
    unsigned attempts;
    struct fl_request request; /* its name points into the static table of names */
    uint64_t asked_us;         /* when it was sent first */
    uint64_t committed;        /* at that moment: what a read must see */
};

struct sim_client {
    struct cluster *cluster;
    struct timeline *time;
    struct judge *judge;
    unsigned id;
    uint64_t *next_link, *next_session; /* shared by all clients */
    uint64_t *is_winding_down;          /* no new work */

    uint64_t rate_ppm;
    unsigned target; /* the node it talks to */
    uint64_t links[LOG_NODES + 1], link_last_us[LOG_NODES + 1], blocked_until_us[LOG_NODES + 1];
    uint64_t reply_last_us[LOG_NODES + 1];

    uint32_t session, ttl_ms; /* session 0: none */
    bool is_open;
    uint64_t life; /* timers of an earlier session do nothing */
    uint64_t believed_until_us, mute_until_us;
    uint64_t next_request;
    struct client_op ops[CLIENT_OPS_MAX];
    uint64_t next_op;

    bool holds, has_cancelled; /* has_cancelled: whatever comes of the request, it is given back */
    unsigned name;
    uint64_t request_id;
    fl_token token;
    enum fl_mode mode;
};

void client_init(struct sim_client *c, struct cluster *cluster, unsigned id);
void client_start(struct sim_client *c);
void client_crash(struct sim_client *c);
/* It sends no heartbeats until then. */
void client_mute(struct sim_client *c, uint64_t until_us);
/* Its link to a node breaks, and cannot be made again until then. */
void client_cut(struct sim_client *c, unsigned node, uint64_t until_us);
/* A frame from a node to this client; `link` tells by which link. */
void client_frame(struct sim_client *c, unsigned node, uint64_t link, const void *data, size_t len);

#endif
