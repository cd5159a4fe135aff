/* libfencelock: locks with fencing tokens, from a Fencelock cluster.
 *
 *     struct fl_client *client = NULL;
 *     struct fl_lock *lock = NULL;
 *     if (fl_client_new("10.0.0.1:3362,10.0.0.2:3362", NULL, &client, NULL) == 0 &&
 *         fl_acquire(client, "payout/INV-55102", &(struct fl_acquire_options){.wait_ms = 30000},
 *                    &lock, NULL) == 0) {
 *         settle("INV-55102", fl_lock_token(lock));
 *         fl_release(lock, NULL);
 *     }
 *     fl_lock_free(lock);
 *     fl_client_free(client);
 *
 * Holding a lock is never proof that you still hold it: a process can be stopped for half a minute,
 * and wake in the middle of its write with the lock in other hands. So pass fl_lock_token() to
 * every write, and let the store refuse a token lower than the highest it has seen. Ask
 * fl_lock_valid() before work that the store cannot check, and say how long that work takes.
 *
 * A client holds one session with the cluster, opened by the first fl_acquire(). A background
 * thread sends its heartbeats, finds another endpoint when one is silent, and repeats what is
 * unanswered with the same request id, so that nothing is done twice. The lease is counted on
 * CLOCK_BOOTTIME from the moment the last acknowledged heartbeat was sent, less a margin for clocks
 * that run apart; no wall clock counts, and nobody else's clock.
 *
 * When the session is lost all its locks are lost, each is told so once, and calls about them fail.
 * The next fl_acquire() opens a new session.
 *
 * Every function may be called from any thread. Two requests for one name are two requests, also
 * from one client: the second waits. After a fork() the child cannot use the parent's client or
 * locks: fl_lock_valid() is false there, calls fail with FL_E_FORKED; open a client of its own.
 * Sockets are close-on-exec.
 *
 * Functions that can fail return 0 or a negative FL_E_*, and fill a `struct fl_why` when given one.
 */
#ifndef FENCELOCK_FENCELOCK_H
#define FENCELOCK_FENCELOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_API __attribute__((visibility("default")))

#ifndef FL_BASE_ERROR_H /* Fencelock's own sources have these numbers from base/error.h */
enum fl_error {
    FL_OK = 0,
    FL_E_NOMEM = -1,         /* out of memory */
    FL_E_INVALID = -2,       /* an argument is out of range: fl_why.field tells which */
    FL_E_NOSPACE = -8,       /* the servers' disks are full: no new grants; releases go on */
    FL_E_NOT_FOUND = -10,    /* no such thing */
    FL_E_CLOSED = -14,       /* the client is being freed, or the request was cancelled */
    FL_E_TIMEOUT = -15,      /* not granted within wait_ms: fl_why.holder tells who has it */
    FL_E_UNREACHABLE = -16,  /* no endpoint answered in time */
    FL_E_DENIED = -17,       /* not allowed */
    FL_E_STALE = -19,        /* the token is not the name's current one: somebody else holds it */
    FL_E_LOST = -20,         /* the lock was lost before */
    FL_E_SESSION_GONE = -21, /* the session ended, and with it all that it held and waited for */
    FL_E_PROTOCOL = -22,     /* what answered is not a Fencelock gateway: wrong port? */
    FL_E_UNSUPPORTED = -23,  /* the server does not know this call: an older release? */
    FL_E_INTERNAL = -24,     /* the server failed */
    FL_E_HELD = -25,         /* a single try (wait_ms 0), and somebody holds it: fl_why.holder */
    FL_E_NO_LEADER = -26,    /* the cluster has no leader at present; repeating is safe */
    FL_E_LIMITED = -27,      /* over a rate limit or quota: fl_why.retry_after_ms */
    FL_E_CONFLICT = -28,     /* the name is in use in another mode or with another limit */
    FL_E_FORKED = -29,       /* the client belongs to the process that forked this one */
};
#endif

/* A sentence part for a code, never NULL. */
FL_API const char *fl_code_text(int code);

struct fl_holder {
    char client[129]; /* its name for itself; empty: unknown */
    char session_id[40];
    uint64_t token;
    uint64_t held_for_ms;
    uint64_t lease_left_ms; /* 0: unknown */
    int mode;               /* enum fl_lock_mode */
};

/* Why a call failed: for a program the code, reason and field, for a person the message. */
struct fl_why {
    int code;                /* what the function returned */
    uint32_t retry_after_ms; /* 0: no advice */
    char reason[48];         /* the server's stable word, e.g. "SESSION_NOT_FOUND"; or empty */
    char field[48];          /* FL_E_INVALID: the argument that is wrong */
    char message[384];       /* a sentence that says what is wrong and what to do */
    struct fl_holder holder; /* FL_E_HELD, FL_E_TIMEOUT; token 0: unknown */
};

/* ---- The client ---- */

struct fl_client;
struct fl_lock;

enum fl_lost_cause {
    FL_LOST_LEASE = 1,       /* no heartbeat was acknowledged in time: by our own clock */
    FL_LOST_EXPIRED = 2,     /* the servers had not heard from us for the session's ttl */
    FL_LOST_SESSION_END = 3, /* an operator ended the session: `by`, `reason` */
    FL_LOST_FORCED = 4,      /* an operator took this lock: `by`, `reason` */
    FL_LOST_GONE = 5,        /* after a reconnect the servers no longer knew it */
    FL_LOST_NO_PROGRESS = 6, /* no fl_lock_progress() within max_hold_ms: we gave it back */
};
FL_API const char *fl_lost_cause_text(enum fl_lost_cause cause);

/* A lock is lost. Comes exactly once for each lock that is lost, never for one that was released,
 * and before the lease can have ended, as long as this process runs; in one that was stopped,
 * fl_lock_valid() is false first. Runs on the client's callback thread, so that a slow callback
 * does not hold up heartbeats; it may call anything but fl_client_free(). `by` and `reason` may be
 * empty and are borrowed for the call. */
typedef void (*fl_lost_callback)(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause,
                                 const char *by, const char *reason);

/* Zero is the default everywhere. */
struct fl_client_options {
    const char *name;       /* shown to those who wait for us; default: HOST/PID */
    uint32_t ttl_ms;        /* 1,000 to 3,600,000; default 10,000 */
    uint32_t lock_delay_ms; /* after an expiry our names stay closed that long; at most 600,000 */
    uint32_t timeout_ms;    /* how long a call waits for an answer, beside wait_ms; 5,000 */
    bool release_on_disconnect; /* a broken connection ends the session at once */
    bool dispatch;              /* callbacks run in fl_client_dispatch(), not on a thread of ours */
    fl_lost_callback on_lost;   /* for all locks of this client */
    void *ctx;                  /* for on_lost */
    uint64_t reserved[8];       /* zero */
};

/* `endpoints` is HOST:PORT,HOST:PORT,...; a name is resolved again at each reconnect, and every
 * address of it is tried. NULL: the environment's FENCELOCK_ENDPOINTS, else 127.0.0.1:3362. Starts
 * a thread; sends nothing yet.
 *   FL_E_INVALID  endpoints or an option
 *   FL_E_NOMEM    memory, threads or descriptors */
FL_API int fl_client_new(const char *endpoints, const struct fl_client_options *options,
                         struct fl_client **ret_client, struct fl_why *why);
/* Closes the session, which releases all its locks, and waits for that at most timeout_ms. Locks
 * are still to be freed, before or after. No other thread may be in a call on it. */
FL_API void fl_client_free(struct fl_client *client);
/* The session's id, or "" when there is none now. `out` has at least 40 bytes. Returns `out`. */
FL_API const char *fl_client_session_id(struct fl_client *client, char *out);

/* ---- Locks ---- */

enum fl_lock_mode {
    FL_EXCLUSIVE = 1,
    FL_SHARED = 2,
    FL_COUNTED = 3,
};

struct fl_acquire_options {
    enum fl_lock_mode mode;   /* default: FL_EXCLUSIVE */
    uint32_t limit;           /* FL_COUNTED: permits, 1 to 1,000,000; the first holder sets it */
    uint32_t wait_ms;         /* 0: try once; at most a day */
    uint32_t max_hold_ms;     /* 0: no limit. Else the lock is given back, and lost, when neither
                               * fl_lock_progress() nor fl_release() came for so long: heartbeats
                               * say that the process lives, not that its work goes on */
    fl_lost_callback on_lost; /* for this lock, instead of the client's */
    void *ctx;
    uint64_t reserved[8];
};

/* Waits in the name's queue for up to wait_ms; first come, first served. `options` may be NULL: try
 * once, exclusive. On success the caller owns *ret_lock: fl_lock_free().
 *   FL_E_HELD, FL_E_TIMEOUT  not granted; `why->holder` tells who has it
 *   FL_E_SESSION_GONE        the session ended while waiting
 *   FL_E_UNREACHABLE, FL_E_NO_LEADER  nothing was heard within timeout_ms (after wait_ms); should
 *                            the request have been granted, it is given back
 *   FL_E_CONFLICT, FL_E_LIMITED, FL_E_NOSPACE, FL_E_DENIED, FL_E_INVALID, FL_E_NOMEM, FL_E_FORKED
 */
FL_API int fl_acquire(struct fl_client *client, const char *name,
                      const struct fl_acquire_options *options, struct fl_lock **ret_lock,
                      struct fl_why *why);
/* Gives the lock back. The handle stays, for fl_lock_free().
 *   0                 released, now or before
 *   FL_E_LOST, FL_E_STALE, FL_E_SESSION_GONE  it was not ours any more: writes since then were not
 *                     protected
 *   FL_E_UNREACHABLE, FL_E_NO_LEADER  not heard: it goes on being tried in the background while the
 *                     session lives; calling again is safe */
FL_API int fl_release(struct fl_lock *lock, struct fl_why *why);
/* Frees the handle; a lock that is still held is given back in the background. NULL is fine. */
FL_API void fl_lock_free(struct fl_lock *lock);

/* True only if the lease lasts `need_ms` more on our own clock. No input or output, no lock: call
 * it before each step. False for ever once the lock is lost or released. */
FL_API bool fl_lock_valid(const struct fl_lock *lock, uint32_t need_ms);
/* What is left of the lease without further news; 0: nothing. */
FL_API uint64_t fl_lock_remaining_ms(const struct fl_lock *lock);
/* The fencing token: higher than that of every grant before of this name. */
FL_API uint64_t fl_lock_token(const struct fl_lock *lock);
FL_API const char *fl_lock_name(const struct fl_lock *lock);
/* The work under the lock goes on: its max_hold_ms begins anew. Cheap; without one it does nothing.
 */
FL_API void fl_lock_progress(struct fl_lock *lock);

/* A key for services that know no tokens but ignore a request that they have seen: the same for
 * whoever does this piece of work, now or later, and another for every other piece.
 * "NAME#WORK_ITEM", with '#', '%', blanks and what is not printable ASCII as %XX. `size` bytes of
 * `out` are written with the final zero; 0, or FL_E_INVALID when it does not fit. */
FL_API int fl_idempotency_key(const char *name, const char *work_item, char *out, size_t size);

/* ---- The same without waiting ---- */

/* `lock` is NULL unless `code` is 0, and then the callee's. `why` is borrowed. Runs on the callback
 * thread. */
typedef void (*fl_acquired_callback)(void *ctx, int code, struct fl_lock *lock,
                                     const struct fl_why *why);
typedef void (*fl_released_callback)(void *ctx, struct fl_lock *lock, int code,
                                     const struct fl_why *why);
/* Returns as soon as the request is under way; `done` follows exactly once unless this fails. */
FL_API int fl_acquire_async(struct fl_client *client, const char *name,
                            const struct fl_acquire_options *options, fl_acquired_callback done,
                            void *ctx, struct fl_why *why);
/* Keep the handle until `done`. */
FL_API int fl_release_async(struct fl_lock *lock, fl_released_callback done, void *ctx);
/* With fl_client_options.dispatch: a descriptor to poll for POLLIN, owned by the client, and what
 * runs the callbacks that are due, on the calling thread. Without it -1, and nothing. */
FL_API int fl_client_fd(const struct fl_client *client);
FL_API void fl_client_dispatch(struct fl_client *client);
/* Ends every wait of this client: their calls return FL_E_CLOSED, unless they were granted first.
 * Safe in a signal-handling thread, not in a signal handler. */
FL_API void fl_client_cancel_waits(struct fl_client *client);

/* ---- Looking ---- */

struct fl_waiter {
    char client[129];
    uint64_t waiting_for_ms;
    int mode;
};
struct fl_description {
    bool is_held;
    int mode; /* enum fl_lock_mode; 0 when idle */
    uint32_t limit;
    uint64_t closed_for_ms; /* lock-delay left */
    uint64_t log_index;
    struct fl_holder *holders;
    size_t n_holders;
    struct fl_waiter *waiters; /* the first of `waiter_count` */
    size_t n_waiters;
    uint32_t waiter_count;
};
/* Holders and waiters of a name, as of now: linearizable, or with `stale_ok` what one node knows.
 * At most `waiters_max` waiters, 1,000. Free with fl_description_free(). */
FL_API int fl_describe(struct fl_client *client, const char *name, bool stale_ok,
                       uint32_t waiters_max, struct fl_description **ret, struct fl_why *why);
FL_API void fl_description_free(struct fl_description *description);

struct fl_list_item {
    const char *name;
    int mode;
    uint32_t limit, holders, waiters;
    const char *client; /* of the oldest holder */
    uint64_t token, held_for_ms;
};
struct fl_listing {
    struct fl_list_item *items;
    size_t n_items;
    const char *next_page; /* empty: this was the last page */
    uint64_t log_index;
};
/* Names in use that begin with `prefix`, in order. `page` is NULL or "" for the first page, then
 * the last one's next_page. At most `page_size`, 1,000; 0: 100. */
FL_API int fl_list_names(struct fl_client *client, const char *prefix, const char *page,
                         uint32_t page_size, struct fl_listing **ret, struct fl_why *why);
FL_API void fl_listing_free(struct fl_listing *listing);

#ifdef __cplusplus
}
#endif

#endif
