/* The gateway as it is shipped, in a process of the simulator. What it stands on is played here:
 * the loop's clock and timers, the gRPC server's functions, and the dialling of nodes. */
#ifndef FL_TESTS_SIM_DOOR_H
#define FL_TESTS_SIM_DOOR_H

#include "gateway/gateway.h"
#include "net.h"
#include "rpc/status.h"

#define DOOR_NODES_MAX 8

/* Where a gateway may dial; the node answers `hello` when it takes the link. */
struct door_target {
    struct place *place;
    uint64_t node_id;
    conn_fn hear; /* the node's end of a new link */
    void *ctx;
};

struct fl_loop {
    struct place *place;
    struct fl_heap timers;
    struct alarm alarm;
};

struct door {
    struct place place;
    struct net *net;
    struct fl_loop loop;
    struct fl_gateway *gateway; /* NULL: down */
    struct door_target targets[DOOR_NODES_MAX];
    unsigned n_targets;
    struct door_link {
        struct door *door;
        unsigned number, target;
        struct conn *conn; /* NULL: none */
        bool is_up;
        struct alarm dial; /* again, or to give up */
    } links[DOOR_NODES_MAX];
};

void door_init(struct door *door, struct net *net);
void door_start(struct door *door, const struct fl_gateway_config *config);
/* As kill -9 does, or with `is_silent` as when the machine dies. */
void door_end(struct door *door, bool is_silent);
void door_deinit(struct door *door);

void door__loop_init(struct fl_loop *loop, struct place *place);
void door__loop_deinit(struct fl_loop *loop);

/* --- An application's side of a call --- */

enum door_word { DOOR_OPEN = 1, DOOR_MESSAGE, DOOR_HALF_CLOSE, DOOR_STATUS };
/* The application's end; NULL when nobody listens there (it is refused). The words that come are
 * DOOR_MESSAGE and DOOR_STATUS, each in the first byte. */
struct conn *door_call(struct door *door, struct place *from, conn_fn hear, void *ctx,
                       const char *path);
void door_say(struct conn *conn, const struct place *from, enum door_word word, const void *data,
              size_t len);
/* Strings borrow from `data`. False: not a status. */
bool door_read_status(const void *data, size_t len, struct fl_rpc_status *ret_status);

/* The first frame of a link, both ways. */
#define DOOR_HELLO "hello"

#endif
