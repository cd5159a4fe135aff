/* Inside libfencelock: a client, its threads and its locks.
 *
 * Three kinds of threads. Callers' threads make operations and wait for them. The loop's thread
 * owns session, channel and stream; nothing else touches those. The callback thread runs what the
 * application gave us; it starts with the first callback that is asked for.
 *
 * What they share stands under client->mutex, but for the lease, which fl_lock_valid() reads from
 * atomics. */
#ifndef FL_CLIENT_CLIENT_H
#define FL_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "client/session.h"
#include "client/wire.h"
#include "net/loop.h"
#include "rpc/channel.h"

#define FL_SESSION_PATH "/fencelock.v1.LockService/OpenSession"

/* Something for the loop's thread to do. The caller's stack owns those that are waited for; others
 * free themselves in `finished`. */
struct fl_op {
    struct fl_list link;                                       /* inbox; a lock's release_ops */
    void (*start)(struct fl_op *op, struct fl_client *client); /* on the loop's thread */
    /* On the loop's thread, last: the op may be gone afterwards. */
    void (*finished)(struct fl_op *op, struct fl_client *client);
    struct fl_lock *lock;
    struct fl_why *why; /* or NULL */
    int code;
    bool is_done;         /* under the mutex */
    pthread_cond_t *done; /* who waits */
};

/* Something for the callback thread to run. */
struct fl_callback {
    struct fl_list link;
    void (*run)(struct fl_callback *callback);
};

struct fl_client {
    atomic_uint refs; /* the owner's, and one of each lock */
    pid_t owner_pid;

    /* The lease, for fl_lock_valid(): `until` counts for locks of the present session only. When a
     * session is over `until` becomes 0 before `session` moves on, so no reader takes the next
     * session's lease for the last one's. */
    _Atomic uint64_t lease_until_ms;
    atomic_uint lease_session;

    /* Fixed by fl_client_new(). */
    char *name, *endpoints;
    struct fl_wire_options wire;
    uint32_t timeout_ms;
    fl_lost_callback on_lost;
    void *on_lost_ctx;

    pthread_mutex_t mutex;
    struct fl_list inbox;
    bool is_stopped; /* nothing more is taken in */
    char session_id[FL_CLIENT_SESSION_ID_SIZE];
    struct fl_list callbacks;
    pthread_cond_t callbacks_changed;
    pthread_t callback_thread;
    bool has_callback_thread, is_callback_stop;
    int dispatch_fd; /* an eventfd for those who run the callbacks themselves; else -1 */

    /* The loop's thread only. */
    pthread_t thread;
    struct fl_loop *loop;
    uv_async_t wake;
    struct fl_rpc_channel
        *channel;                 /* the session's stream alone: nothing stands before heartbeats */
    struct fl_rpc_channel *calls; /* all else; connects with the first call */
    struct fl_session session;
    struct fl_timer tick, later, stop_timer;
    struct fl_rpc_client_call *stream;  /* the session's; NULL: none */
    struct fl_rpc_client_call *dropped; /* to be cancelled when no callback of it runs */
    bool is_moving_on, is_stopping;
    int broken_code;       /* the stream cannot be used: why; 0: it can */
    char connect_why[256]; /* of the last failure to connect */
};

struct fl_lock {
    atomic_uint refs; /* the handle's, the session's, a queued callback's */
    struct fl_client *client;
    struct fl_bid bid;
    unsigned lease_session; /* of client->lease_session when it was granted */
    atomic_bool is_over;    /* lost, or released */
    uint32_t max_hold_ms;
    _Atomic uint64_t progress_ms;
    atomic_bool is_given_back; /* by fl_release() or fl_lock_free(): a loss is no news */
    fl_lost_callback on_lost;
    void *on_lost_ctx;

    /* The loop's thread only. */
    struct fl_op *acquire_op;
    struct fl_timer hold_timer;
    struct fl_list release_ops; /* of fl_op.link */
    int end_code; /* once the session knows it no longer: 0 released, else why it was not ours */

    struct fl_op free_op;
    struct fl_callback lost_callback;
    enum fl_lost_cause lost_cause;
    char *lost_by, *lost_reason; /* NULL: nothing, or no memory */
    char name[];
};

bool fl_client__is_forked(const struct fl_client *client);
int fl_client__forked_why(struct fl_why *why);
void fl_client__ref(struct fl_client *client);
void fl_client__unref(struct fl_client *client);

/* Hands an op to the loop's thread. FL_E_CLOSED after fl_client_free(). */
int fl_client__post(struct fl_client *client, struct fl_op *op);
/* Posts, and waits until it is finished; returns its code. */
int fl_client__run(struct fl_client *client, struct fl_op *op);
/* Ends an op, with `why` (NULL: success). */
void fl_client__finish(struct fl_client *client, struct fl_op *op, const struct fl_why *why);
/* The `finished` of ops that somebody waits for. */
void fl_client__wake_waiter(struct fl_op *op, struct fl_client *client);

/* Starts the callback thread if there is none. FL_E_NOMEM. */
int fl_client__need_callbacks(struct fl_client *client);
void fl_client__call_back(struct fl_client *client, struct fl_callback *callback);
/* Runs what is queued, then ends the thread, or closes the descriptor. */
void fl_client__stop_callbacks(struct fl_client *client);
/* A thread that takes no signals: they belong to the application's. */
int fl_client__start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* Steps the session and does what follows (stream.c). */
void fl_stream__init(struct fl_client *client, uint64_t seed);
void fl_stream__step(struct fl_client *client, struct fl_session_event *event);
void fl_stream__stop(struct fl_client *client);

/* The session's effects on a lock (lock.c). */
void fl_lock__effect(struct fl_client *client, const struct fl_session_effect *effect);

/* fl_acquire_async(), and a reference to the request itself: to be cancelled while it waits. */
int fl_lock__acquire_async(struct fl_client *client, const char *name,
                           const struct fl_acquire_options *options, fl_acquired_callback done,
                           void *ctx, struct fl_lock **ret_request, struct fl_why *why);
/* Returns when the loop's thread has done it; the request's own callback follows. */
void fl_lock__cancel(struct fl_lock *request);
void fl_lock__unref(struct fl_lock *request);

/* A unary call, tried anew while nobody can answer, for at most timeout_ms; one that is not
 * repeatable only while it was never sent. `request` is borrowed. The response is malloc'ed and the
 * caller's. */
struct ProtobufCMessage;
int fl_call__unary(struct fl_client *client, const char *path, bool is_repeatable,
                   const struct ProtobufCMessage *request, uint8_t **ret_data, size_t *ret_len,
                   struct fl_why *why);

#endif
