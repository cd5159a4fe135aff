/* One byte stream over TCP: output gathered per turn into one write, TCP_NODELAY, back-pressure,
 * and the timers that notice a dead or stuck peer. Framed connections and HTTP/2 both stand on it.
 * Memory can run out: functions say so, nothing is leaked. */
#ifndef FL_NET_CONN_H
#define FL_NET_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"

struct fl_conn;
struct fl_conn_listener;

struct fl_conn_handler {
    void (*on_open)(struct fl_conn *c, void *ctx); /* connected, or accepted */
    /* Borrowed. A negative return closes the connection with that code. */
    int (*on_read)(struct fl_conn *c, void *ctx, const uint8_t *data, size_t len);
    /* The end of a turn in which it was marked: what is written now goes out with the turn. May be
     * NULL. */
    void (*on_turn_end)(struct fl_conn *c, void *ctx);
    /* The kernel has taken all that was written. May be NULL. */
    void (*on_drained)(struct fl_conn *c, void *ctx);
    /* Exactly once, last, and never from inside another call on it; also when connecting failed.
     * `error` is FL_E_*. May be NULL in a listener's handler. */
    void (*on_close)(struct fl_conn *c, void *ctx, int error, const char *why);
};

/* `address` is HOST:PORT or [V6]:PORT; names are resolved without blocking, and their addresses
 * tried in turn, each for `timeout_ms`. NULL: out of memory. */
struct fl_conn *fl_conn_connect(struct fl_loop *loop, const char *address, unsigned timeout_ms,
                                const struct fl_conn_handler *handler, void *ctx);
/* Of a name's addresses, begin with the nth, and go around. At once after fl_conn_connect(). */
void fl_conn_begin_with(struct fl_conn *c, unsigned nth);
/* `address` must be numeric; *:PORT is every address of both families; port 0 takes a free one. On
 * failure `why` (256 bytes) says more. */
int fl_conn_listen(struct fl_loop *loop, const char *address, const struct fl_conn_handler *handler,
                   void *ctx, struct fl_conn_listener **ret_listener, char *why);
unsigned fl_conn_listener_port(const struct fl_conn_listener *listener);
void fl_conn_listener_close(struct fl_conn_listener *listener); /* NULL is fine */

void fl_conn_set_handler(struct fl_conn *c, const struct fl_conn_handler *handler, void *ctx);
void *fl_conn_ctx(const struct fl_conn *c);
struct fl_loop *fl_conn_loop(const struct fl_conn *c);
const char *fl_conn_peer(const struct fl_conn *c); /* address, for logs */
bool fl_conn_is_open(const struct fl_conn *c);

/* Copies; goes out at the end of the turn. FL_E_NOMEM, FL_E_CLOSED: nothing was taken. */
int fl_conn_write(struct fl_conn *c, const void *data, size_t len);
size_t fl_conn_queued(const struct fl_conn *c); /* not taken by the kernel yet */
/* Asks for on_turn_end. */
void fl_conn_mark(struct fl_conn *c);
/* Closes when nothing was read for so long; 0: never. */
void fl_conn_set_idle_timeout(struct fl_conn *c, unsigned timeout_ms);
/* TCP asks, after so many seconds of silence, whether the other side is still there: for those that
 * rightly say nothing for long. */
void fl_conn_set_keepalive(struct fl_conn *c, unsigned after_s);
/* on_close follows, later. What was written and not taken is lost, unless `fl_conn_close_gently`.
 */
void fl_conn_close(struct fl_conn *c, int error, const char *why);
/* Sends what is queued first (or gives up after a second). */
void fl_conn_close_gently(struct fl_conn *c, const char *why);

#endif
