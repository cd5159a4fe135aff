/* A gRPC client: one current connection to one of several endpoints, for one loop. Dials when the
 * first call is made, and again after a loss, with a jittered back-off; walks endpoints and their
 * addresses, beginning with another address of a name each time, so that it also leaves one that
 * accepts and does not serve. Memory can run out: calls then fail, nothing is leaked (libfencelock
 * is built on this). */
#ifndef FL_RPC_CHANNEL_H
#define FL_RPC_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"
#include "rpc/server.h" /* messages */
#include "rpc/status.h"

struct fl_rpc_channel;
struct fl_rpc_client_call;

struct fl_rpc_channel_config {
    const char *endpoints; /* "HOST:PORT,HOST:PORT,..."; names are resolved again at each dial */
    unsigned connect_timeout_ms;             /* per address; 0: 2000 */
    unsigned backoff_min_ms, backoff_max_ms; /* 0: 50, 2000 */
    unsigned keepalive_ms;         /* ping when idle so long while calls are open; 0: 10000 */
    unsigned keepalive_timeout_ms; /* 0: 5000 */
    size_t message_bytes_max;      /* 0: 4 MiB */
    const char *user_agent;        /* NULL: "fencelock" */
    uint64_t random_seed;          /* for jitter and the first endpoint */
    /* Connected, or not any more, or one attempt has failed: why. */
    void (*on_state)(void *ctx, bool is_connected, const char *endpoint,
                     const char *why); /* or NULL */
    void *ctx;
};

/* FL_E_INVALID: endpoints (why: 256 bytes); FL_E_NOMEM. */
int fl_rpc_channel_new(struct fl_loop *loop, const struct fl_rpc_channel_config *config,
                       struct fl_rpc_channel **ret_channel, char *why);
/* Every open call ends with CANCELLED before this returns. */
void fl_rpc_channel_free(struct fl_rpc_channel *channel);
/* Leave this endpoint for the next one; open calls end with UNAVAILABLE. */
void fl_rpc_channel_move_on(struct fl_rpc_channel *channel, const char *why);
const char *fl_rpc_channel_endpoint(const struct fl_rpc_channel *channel); /* NULL: not connected */

struct fl_rpc_call_handler {
    void (*on_message)(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data, size_t len);
    /* Exactly once, last; the call is freed afterwards. `was_sent`: the request may have been
     * processed. */
    void (*on_done)(struct fl_rpc_client_call *call, void *ctx, const struct fl_rpc_status *status,
                    bool was_sent);
};

/* Begins a call. `deadline_ms` from now, 0: none (grpc-timeout). With `wait_for_ready` false it
 * fails at once (UNAVAILABLE) when no connection can be made; else it waits until its deadline.
 * NULL: out of memory, or the channel is being freed. */
struct fl_rpc_client_call *fl_rpc_channel_call(struct fl_rpc_channel *channel, const char *path,
                                               unsigned deadline_ms, bool wait_for_ready,
                                               const struct fl_rpc_call_handler *handler,
                                               void *ctx);
/* Takes `message`. FL_E_NOMEM, FL_E_CLOSED. */
int fl_rpc_client_call_send(struct fl_rpc_client_call *call, uint8_t *message, size_t len);
void fl_rpc_client_call_half_close(struct fl_rpc_client_call *call);
/* on_done(CANCELLED) follows before this returns. */
void fl_rpc_client_call_cancel(struct fl_rpc_client_call *call);

#endif
