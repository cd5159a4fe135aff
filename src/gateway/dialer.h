/* A gateway's way to a node of another process: dials the peers' port, greets, and dials again
 * after a loss, with a jittered back-off. Carries frames; what they say is the link's business. */
#ifndef FL_GATEWAY_DIALER_H
#define FL_GATEWAY_DIALER_H

#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"

struct fl_dialer;

struct fl_dialer_ops {
    void (*up)(void *ctx);                    /* greeted: frames may be sent */
    void (*down)(void *ctx, const char *why); /* after an up, before the next one */
    /* Borrowed. A negative return closes the connection (and it is dialled again). */
    int (*frame)(void *ctx, const uint8_t *data, size_t len);
};

/* `address` is HOST:PORT, copied, resolved at each dial. Begins at once. */
struct fl_dialer *fl_dialer_new(struct fl_loop *loop, const char *cluster, uint64_t node_id,
                                const char *address, const struct fl_dialer_ops *ops, void *ctx);
/* No callback comes any more; NULL is fine. */
void fl_dialer_free(struct fl_dialer *dialer);

/* Copies. FL_E_CLOSED: not up; FL_E_BUSY: the node takes too slowly, and the connection is given
 * up. */
int fl_dialer_send(struct fl_dialer *dialer, const void *data, size_t len);
/* Gives the connection up, e.g. since nothing comes back; dials again. */
void fl_dialer_reset(struct fl_dialer *dialer, const char *why);

#endif
