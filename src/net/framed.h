/* Connections between nodes and gateways: TCP, frames of {u32 length, u32 CRC-32C of the bytes,
 * bytes}, TCP_NODELAY, output gathered per turn, bounded output per connection. What the frames say
 * is the user's business (net/handshake.h comes first). Daemon only: memory is base/alloc.h's. */
#ifndef FL_NET_FRAMED_H
#define FL_NET_FRAMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"

struct fl_framed;          /* one connection */
struct fl_framed_listener; /* accepts */

/* The longest that is: the state of a session that is resumed with half a million holds. */
#define FL_FRAME_BYTES_MAX (64u * 1024 * 1024)

struct fl_framed_handler {
    void (*on_open)(struct fl_framed *c,
                    void *ctx); /* connected, or accepted: send the handshake */
    /* Borrowed. A negative return closes the connection. */
    int (*on_frame)(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len);
    void (*on_drained)(struct fl_framed *c, void *ctx); /* may be NULL: all output was taken */
    /* Exactly once, last; also when connecting failed. `error` is FL_E_*; the object is freed
     * afterwards. May be NULL in a listener's handler. */
    void (*on_close)(struct fl_framed *c, void *ctx, int error, const char *why);
};

/* `address` is HOST:PORT, [V6]:PORT. Resolved without blocking. NULL: out of memory. */
struct fl_framed *fl_framed_connect(struct fl_loop *loop, const char *address, unsigned timeout_ms,
                                    const struct fl_framed_handler *handler, void *ctx);
/* Binds and listens. `address` as above; port 0 takes a free one: see fl_framed_listener_port().
 * For each connection `handler` is used with `ctx` until fl_framed_set_handler(). On failure `why`
 * (256) says more. */
int fl_framed_listen(struct fl_loop *loop, const char *address,
                     const struct fl_framed_handler *handler, void *ctx,
                     struct fl_framed_listener **ret_listener, char *why);
unsigned fl_framed_listener_port(const struct fl_framed_listener *listener);
void fl_framed_listener_close(struct fl_framed_listener *listener);

void fl_framed_set_handler(struct fl_framed *c, const struct fl_framed_handler *handler, void *ctx);
void *fl_framed_ctx(const struct fl_framed *c);
const char *fl_framed_peer(const struct fl_framed *c); /* address, for logs */

/* Copies; goes out at the end of the turn. FL_E_BUSY when more than `limit_bytes` are queued: the
 * caller drops it or closes. FL_E_TOO_BIG: longer than a frame can be. */
int fl_framed_send(struct fl_framed *c, const void *data, size_t len);
void fl_framed_set_limit(struct fl_framed *c, size_t limit_bytes); /* default 8 MiB */
size_t fl_framed_queued(const struct fl_framed *c);
/* Closes when nothing was read for so long; 0: never. */
void fl_framed_set_idle_timeout(struct fl_framed *c, unsigned timeout_ms);
void fl_framed_close(struct fl_framed *c, const char *why); /* on_close follows, later */

#endif
