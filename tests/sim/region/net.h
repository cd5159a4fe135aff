/* The network between all places. Datagrams (what nodes say to each other) are delayed, lost,
 * doubled, overtaken and replayed. Connections (a gateway's link, an application's stream) keep
 * their order; a cut holds them up, as TCP does, until an end gives up. */
#ifndef FL_TESTS_SIM_NET_H
#define FL_TESTS_SIM_NET_H

#include "base/list.h"
#include "place.h"

#define NET_PLACES_MAX 40

struct net {
    struct timeline *time;
    bool cut[NET_PLACES_MAX][NET_PLACES_MAX]; /* directed */
    uint64_t delay_us;                        /* of a message, at least; at most three times that */
    unsigned drop, repeat, late;              /* datagrams, per mille */
    uint64_t late_us;
    struct fl_list conns;
    uint64_t delivered;
    /* May be NULL: something of a connection reached a place, which may stand still. */
    void (*arrived)(void *ctx, const struct place *place, const void *data, size_t len);
    void *arrived_ctx;
};

typedef void (*net_datagram_fn)(void *ctx, const void *data, size_t len);

void net_init(struct net *net, struct timeline *time);
void net_deinit(struct net *net);
void net_heal(struct net *net);

/* Not before `sent_us` (the sender may be busy). Dropped when the place has another life by then.
 */
void net_datagram(struct net *net, const struct place *from, uint64_t sent_us, struct place *to,
                  net_datagram_fn fn, void *ctx, const void *data, size_t len);

struct conn;
/* `data` NULL: the other end is gone. It may close its own end, not free anything of the network.
 */
typedef void (*conn_fn)(void *ctx, struct conn *conn, const void *data, size_t len);

/* Both ends are there from the beginning; the far one learns by its first message. */
struct conn *conn_new(struct net *net, struct place *near, conn_fn near_fn, void *near_ctx,
                      struct place *far, conn_fn far_fn, void *far_ctx);
/* From now on this hears what comes to that end. */
void conn_set_hearer(struct conn *conn, const struct place *at, conn_fn fn, void *ctx);
void conn_send(struct conn *conn, const struct place *from, const void *data, size_t len);
/* The other end is told after what was sent before. */
void conn_close(struct conn *conn, const struct place *at);
/* The place's process ended: its ends are closed; with `is_silent` (the machine died) the others
 * hear of it late. */
void net_end_place(struct net *net, const struct place *place, bool is_silent);

#endif
