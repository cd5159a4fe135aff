/* The lock state machine: batches of commands go in, in log order; effects come out.
 *
 * Pure: no clock, no I/O, no randomness, no threads. Every replica that applies the same log
 * computes the same effects and the same snapshot bytes. Time is log time: the leader's stamp on
 * each batch.
 *
 * Before a batch's commands are applied, everything that is due at its now_ms happens: waits whose
 * deadline has come end, names whose lock-delay is over open. So the leader only has to submit a
 * batch, an empty one if need be, when fl_machine_next_due() comes.
 *
 * Invariants, walked by fl_machine_check():
 *   I1  the holders of a name are one exclusive, or only shared, or at most `limit` counted
 *   I2  nobody waits on a name whose first waiter could be granted
 *   I3  tokens of holders are distinct, and at most the counter
 *   I4  each hold and wait is in its name's list and in its session's list, once
 *   I5  a name without holders, waiters and lock-delay is not kept
 *   I6  the indexes (by name, by order, by session, by deadline) name the same things
 *   I7  a dead session is kept only while it still has holds or waits to be ended (see backlog) */
#ifndef FL_CORE_MACHINE_H
#define FL_CORE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "core/command.h"
#include "core/types.h"

struct fl_machine;

/* How a command was answered. These are answers, not errors: every replica gives the same. */
enum fl_answer {
    FL_ANS_OK = 0,      /* done; also a repeated OPEN, CLOSE, RELEASE of what was done before */
    FL_ANS_GRANTED,     /* ACQUIRE: token; also the repeated request that holds already */
    FL_ANS_QUEUED,      /* ACQUIRE: waits, at `position`; also repeated */
    FL_ANS_HELD,        /* ACQUIRE with wait_ms 0: somebody else has it (`holder` fields) */
    FL_ANS_TIMED_OUT,   /* ACQUIRE: the wait's deadline came first */
    FL_ANS_CANCELLED,   /* CANCEL: it waited and waits no more; ACQUIRE: was cancelled */
    FL_ANS_NOT_WAITING, /* CANCEL: unknown or finished request, or asked for by another since */
    FL_ANS_ENDED,       /* ACQUIRE repeated: it was granted, and that grant has ended */
    FL_ANS_SESSION_NOT_FOUND, /* never opened, closed, expired or ended */
    FL_ANS_SESSION_EXISTS,    /* OPEN_SESSION: the id is taken by a session opened differently */
    FL_ANS_STALE_TOKEN,       /* RELEASE, FORCE_RELEASE: not the current token; `token` is, or 0 */
    FL_ANS_MODE_CONFLICT,     /* ACQUIRE: the name is in another mode or has another limit */
    FL_ANS_REQUEST_REUSED,    /* ACQUIRE: the request id belongs to a request of other arguments */
    FL_ANS_TERM_OVER,         /* EXPIRE_SESSION decided in an earlier term: ignored */
    FL_ANS_TOKENS_EXHAUSTED,  /* ACQUIRE: the counter is at FL_TOKEN_MAX */
};

/* Why a hold or a wait ended. */
enum fl_cause {
    FL_CAUSE_NONE = 0,
    FL_CAUSE_RELEASED,
    FL_CAUSE_ABANDONED, /* a grant that nobody waited for any more */
    FL_CAUSE_CANCELLED,
    FL_CAUSE_TIMED_OUT,
    FL_CAUSE_CLOSED,  /* the client closed its session */
    FL_CAUSE_EXPIRED, /* the session was silent for its TTL */
    FL_CAUSE_ENDED,   /* an operator ended the session */
    FL_CAUSE_FORCED,  /* an operator released the name */
};

enum fl_effect_type {
    FL_EFF_ANSWER,       /* to commands[command]; exactly one for each command */
    FL_EFF_GRANT,        /* a request got the name: at once, or after a wait */
    FL_EFF_ENQUEUE,      /* a request began to wait */
    FL_EFF_HOLD_END,     /* a hold ended, with its cause */
    FL_EFF_WAIT_END,     /* a wait ended without a grant, with its cause */
    FL_EFF_SESSION_OPEN, /* */
    FL_EFF_SESSION_END,  /* from here on none of its holds counts; cause */
};

/* Strings are borrowed: valid during the call of the sink only. */
struct fl_effect {
    enum fl_effect_type type;
    uint64_t index;  /* of the log entry */
    uint32_t sub;    /* 0, 1, 2, ... within the entry */
    int32_t command; /* the command that caused it, or -1: it was due, or backlog */

    enum fl_answer answer; /* ANSWER */
    enum fl_cause cause;   /* HOLD_END, WAIT_END, SESSION_END */

    struct fl_session_id session;
    uint64_t request_id;
    struct fl_str name;
    fl_token token; /* GRANT, HOLD_END; ANSWER as its fl_answer says */
    enum fl_mode mode;
    uint32_t limit;
    /* ANSWER QUEUED: waiters before it; far behind in a long queue, where counting would cost, an
     * upper bound: all the others */
    uint32_t position;
    /* GRANT, ENQUEUE, HOLD_END, WAIT_END: how many wait for the name now; those of dead sessions
     * are in it until the name is handed on */
    uint32_t waiters;
    uint64_t deadline_ms; /* ANSWER QUEUED, ENQUEUE: log time */
    /* HOLD_END: for how long it was held; GRANT and WAIT_END: waited for, 0 when at once */
    uint64_t for_ms;

    /* ANSWER HELD, TIMED_OUT, MODE_CONFLICT: one who holds the name (the oldest). `mode` and
     * `limit` are then the name's. */
    struct fl_str holder_client;
    fl_token holder_token;    /* 0: nobody, e.g. a name closed by lock-delay */
    uint64_t holder_since_ms; /* log time */

    struct fl_str actor, reason; /* HOLD_END by FORCED, SESSION_END by ENDED */
};

typedef void (*fl_machine_sink)(void *ctx, const struct fl_effect *effect);

/* `hash_key` should be random per process: it guards the name table against chosen collisions and
 * has no effect on outcomes or snapshots. */
struct fl_machine *fl_machine_new(const uint64_t hash_key[2]);
void fl_machine_free(struct fl_machine *m);

/* Applies one entry. `term` is the entry's term, from consensus. Indexes must rise.
 *   FL_E_MALFORMED  the bytes are not a batch: nothing changed (but the index); the same on every
 * node FL_E_VERSION    written by a later release: nothing changed; this node must not go on */
int fl_machine_apply(struct fl_machine *m, uint64_t index, uint64_t term, const void *data,
                     size_t len, fl_machine_sink sink, void *ctx);

/* Work that one entry may do for things that are due, for sessions that died and for long queues,
 * so that no entry holds up the others: a session with more holds and waits than this is ended at
 * one index (readers see none of it from there on), while its names are handed on over the next
 * entries; and so are the rest of fifty thousand readers that a writer's release lets in. A name
 * that is being handed on is closed meanwhile: nobody passes those who wait. */
#define FL_MACHINE_WORK_PER_ENTRY 500
/* Holders of one name that are looked at for those who died, by anything but their own end. */
#define FL_MACHINE_LOOKS 64

/* True while such work is left: the leader submits batches until it is done. */
bool fl_machine_has_backlog(const struct fl_machine *m);
/* The log time of the next wait's deadline or lock-delay's end; UINT64_MAX when there is none. */
uint64_t fl_machine_next_due(const struct fl_machine *m);

uint64_t fl_machine_index(const struct fl_machine *m);  /* of the last applied entry; 0 at first */
uint64_t fl_machine_now_ms(const struct fl_machine *m); /* log time of the last applied batch */
fl_token fl_machine_token(const struct fl_machine *m);  /* the last token granted, or the floor */

/* --- Queries. Borrowed pointers are valid until the next apply. --- */

struct fl_session_info {
    struct fl_session_id id;
    struct fl_str client;
    uint32_t ttl_ms, lock_delay_ms;
    uint64_t opened_ms;  /* log time */
    uint32_t silence_ms; /* of the last NOTE_SILENCE, 0 when none */
    uint32_t holds, waits;
};

/* False when it is not there, or dead. */
bool fl_machine_session(const struct fl_machine *m, struct fl_session_id id,
                        struct fl_session_info *ret_info);
/* Whether that request of a live session holds or waits. */
bool fl_machine_has_request(const struct fl_machine *m, struct fl_session_id id,
                            uint64_t request_id);
/* Every live session, in the order of their ids. */
typedef void (*fl_session_visitor)(void *ctx, const struct fl_session_info *info);
void fl_machine_each_session(const struct fl_machine *m, fl_session_visitor visit, void *ctx);

/* One hold or wait. */
struct fl_request_info {
    struct fl_session_id session;
    struct fl_str client;
    struct fl_str name;
    uint64_t request_id;
    enum fl_mode mode;
    fl_token token;       /* 0: it waits */
    uint64_t since_ms;    /* log time: granted, or queued */
    uint64_t deadline_ms; /* log time; waits only */
    uint32_t
        position;   /* waits only: waiters before it. Filled by describe, not by session visits */
    uint32_t limit; /* counted */
};
typedef void (*fl_request_visitor)(void *ctx, const struct fl_request_info *info);

/* All holds, then all waits of a live session, each in the order in which they came. */
void fl_machine_each_request(const struct fl_machine *m, struct fl_session_id id,
                             fl_request_visitor visit, void *ctx);

/* Waits of live sessions, at most `max`, in no promised order. */
void fl_machine_each_wait(const struct fl_machine *m, size_t max, fl_request_visitor visit,
                          void *ctx);

struct fl_name_info {
    struct fl_str name;
    enum fl_mode mode; /* NONE: nobody holds it */
    uint32_t limit;    /* counted */
    uint32_t holders, waiters;
    uint64_t closed_until_ms; /* log time; lock-delay, else 0 */
};

/* `visit` gets the holders, oldest first, then the first `waiters_max` waiters in order. False (and
 * a zero info) when nobody holds it or waits for it. */
bool fl_machine_describe(const struct fl_machine *m, struct fl_str name, uint32_t waiters_max,
                         struct fl_name_info *ret_info, fl_request_visitor visit, void *ctx);

/* The holders alone, oldest first, at most `max`: takes no longer than that, however many hold the
 * name or wait for it. */
void fl_machine_each_holder(const struct fl_machine *m, struct fl_str name, uint32_t max,
                            fl_request_visitor visit, void *ctx);

/* Names that begin with `prefix` and come after `after` (empty: from the start), in byte order, at
 * most `max`: visited with their info. Names held only by dead sessions count as free. Takes time
 * in proportion to what it visits. Return false from `visit` to stop. */
typedef bool (*fl_name_visitor)(void *ctx, const struct fl_name_info *info);
void fl_machine_list(const struct fl_machine *m, struct fl_str prefix, struct fl_str after,
                     size_t max, fl_name_visitor visit, void *ctx);

struct fl_machine_stats {
    uint64_t sessions, names, holds, waits;
    uint64_t grants; /* ever, since the first entry; in the snapshot */
    size_t
        memory; /* bytes held by locks, names, sessions and indexes, allocator overhead included */
};
void fl_machine_stats(const struct fl_machine *m, struct fl_machine_stats *ret_stats);

/* --- Snapshots --- */

/* A hash over every batch applied since the first entry; kept in the snapshot. Replicas at the same
 * index that differ in it differ in state. */
uint64_t fl_machine_history_hash(const struct fl_machine *m);

/* Writes the state in pieces. Equal states give equal bytes. `write` returns 0 or a negative code,
 * which ends it. Reads the machine only, so a forked child can call it. */
typedef int (*fl_machine_writer)(void *ctx, const void *data, size_t len);
int fl_machine_save(const struct fl_machine *m, fl_machine_writer write, void *ctx);

/* Reads what fl_machine_save() wrote. `read` fills up to `size` bytes and returns how many, 0 at
 * the end, or a negative code. On failure *ret_machine is untouched: FL_E_MALFORMED, FL_E_VERSION,
 * or read's. */
typedef long (*fl_machine_source)(void *ctx, void *data, size_t size);
int fl_machine_load(const uint64_t hash_key[2], fl_machine_source read, void *ctx,
                    struct fl_machine **ret_machine);

/* Walks everything: 0, or FL_E_INTERNAL with the broken invariant in `why` (I1 to I7). Slow: for
 * tests. */
int fl_machine_check(const struct fl_machine *m, char *why, size_t why_size);

#endif
