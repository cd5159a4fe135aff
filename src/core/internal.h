/* The inside of the lock state machine, shared by the files of this folder and their tests.
 *
 * Records are named by 32-bit handles (core/slab.h). A name that one session holds exclusively, the
 * usual case by far, costs a lock record, its text and a claim; what only contended, shared,
 * counted or closed names need stands in an extra record. */
#ifndef FL_CORE_INTERNAL_H
#define FL_CORE_INTERNAL_H

#include "base/alloc.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "core/handle_set.h"
#include "core/machine.h"
#include "core/order.h"
#include "core/slab.h"

typedef uint32_t fl_handle; /* 0: none */

/* Of a claim's log time: a thousand years. */
#define SINCE_MS_MAX (UINT64_MAX >> 19)

/* One request that holds or waits. */
struct claim {
    uint64_t request_id;
    union {
        fl_token token;  /* hold */
        struct due *due; /* wait: its deadline; owned */
    };
    uint64_t since_ms : 45; /* log time */
    uint64_t asker : 16;    /* of the last ACQUIRE for it */
    uint64_t mode : 2;
    uint64_t is_wait : 1;
    fl_handle lock;
    uint32_t session; /* index in machine.sessions */
    /* Rings: the head's `prev` is the last. Holds and waits of a session are rings of their own,
     * and so are holders and waiters of a name; each is in the order of tokens, or of `seq`. */
    fl_handle session_prev, session_next;
    fl_handle lock_prev, lock_next;
};

/* Something that happens by itself: a wait's deadline, or the end of a lock-delay. */
struct due {
    struct fl_heap_node node; /* by log time */
    fl_handle owner;          /* the waiting claim, or the closed lock */
    bool is_closing;
    uint64_t seq; /* order of arrival over all names */
};

struct lock {
    fl_handle holders; /* ring of claims */
    fl_handle text;    /* in the slab of its length */
    uint32_t leaf;     /* order.c */
    fl_handle extra;
    uint16_t name_len;
};

/* For names that are contended, shared, counted, or closed. */
struct extra {
    fl_handle waiters; /* ring of claims */
    uint32_t n_holders, n_waiters;
    uint32_t limit;      /* counted; 0: exclusive and shared */
    struct due *closing; /* lock-delay; owned; NULL: open */
};

/* A finished request, remembered for late retries. */
struct finished {
    uint64_t request_id;
    uint64_t name_hash; /* 0: cancelled before it came */
    fl_token token;     /* of the grant it had; 0: none */
    uint32_t limit;
    uint8_t mode, answer; /* enum fl_answer that a repeat gets */
    bool was_released;    /* ENDED by its own session's release */
};

struct session {
    struct fl_session_id id;
    uint32_t place; /* index in machine.sessions */
    char *client;   /* owned, not terminated */
    uint8_t client_len;
    bool is_dead;
    uint8_t cause; /* of its death */
    uint32_t ttl_ms, lock_delay_ms, silence_ms;
    uint64_t opened_ms;
    fl_handle holds, waits; /* rings */
    uint32_t n_holds, n_waits;
    struct fl_list in_dead;
    /* A ring of the last FL_REQUESTS_REMEMBERED; grows as it fills. */
    struct finished *finished; /* owned */
    uint32_t finished_capacity, n_finished,
        finished_at; /* `at`: where the oldest stands when full */
};

#define TEXT_CLASSES (FL_NAME_MAX / 4)

struct fl_machine {
    uint64_t index, now_ms, history_hash, grants;
    fl_token token;
    uint64_t next_seq;

    struct fl_slab locks, claims, extras;
    struct fl_slab texts[TEXT_CLASSES]; /* by (length + 3) / 4 - 1 */
    struct fl_handle_set by_name, by_request;
    struct fl_handle_set by_token; /* holds of names that many may hold: shared, counted */
    struct order order;
    struct fl_heap due; /* waits and closings */
    struct fl_hash_key hash_key;

    struct session **sessions; /* by place; NULL: free */
    uint32_t sessions_capacity, n_places, free_places;
    uint32_t *free_place;     /* stack */
    struct fl_map by_session; /* live ones */
    struct fl_list dead;      /* with holds or waits left, in order of death */
    uint64_t n_sessions, n_holds, n_waits;
    size_t loose_memory; /* sessions, waits and the like: beside the slabs */
    uint32_t work_per_entry, looks;

    /* During an apply. */
    fl_machine_sink sink;
    void *sink_ctx;
    uint32_t sub, work_left;
    int32_t command;
};

/* --- Access --- */

static inline struct lock *fl_lock_at(const struct fl_machine *m, fl_handle handle)
{
    return fl_slab_at(&m->locks, handle);
}

static inline struct claim *fl_claim_at(const struct fl_machine *m, fl_handle handle)
{
    return fl_slab_at(&m->claims, handle);
}

static inline struct extra *fl_extra_at(const struct fl_machine *m, fl_handle handle)
{
    return fl_slab_at(&m->extras, handle);
}

static inline struct extra *fl_lock_extra(const struct fl_machine *m, const struct lock *lock)
{
    return lock->extra != 0 ? fl_extra_at(m, lock->extra) : NULL;
}

static inline struct session *fl_claim_session(const struct fl_machine *m,
                                               const struct claim *claim)
{
    return m->sessions[claim->session];
}

/* The session's claim is none any more: it died, and its names are still to be handed on. */
static inline bool fl_claim_is_dead(const struct fl_machine *m, const struct claim *claim)
{
    return fl_claim_session(m, claim)->is_dead;
}

/* --- Rings of claims (ring.c) --- */

enum ring { IN_SESSION, IN_LOCK };
void fl_ring_append(const struct fl_machine *m, enum ring ring, fl_handle *head, fl_handle claim);
void fl_ring_remove(const struct fl_machine *m, enum ring ring, fl_handle *head, fl_handle claim);
/* The next one after `claim`, or 0 at the end. */
fl_handle fl_ring_next(const struct fl_machine *m, enum ring ring, fl_handle head, fl_handle claim);

/* --- Names (name.c) --- */

struct fl_str fl_lock_name(const struct fl_machine *m, const struct lock *lock);
fl_handle fl_name_find(const struct fl_machine *m, struct fl_str name);
fl_handle fl_name_add(struct fl_machine *m, struct fl_str name);
/* For loading: is found after fl_names_restored(), when it is known how many there are. */
fl_handle fl_name_restore(struct fl_machine *m, struct fl_str name);
void fl_names_restored(struct fl_machine *m);
/* Forgets the lock when nobody holds it or waits, and it is not closed (I5). */
void fl_name_drop_if_idle(struct fl_machine *m, fl_handle lock);
struct extra *fl_name_need_extra(struct fl_machine *m, fl_handle lock);
/* The same on every replica, unlike the table's. */
uint64_t fl_name_stable_hash(struct fl_str name);
void fl_names_init(struct fl_machine *m);
void fl_names_deinit(struct fl_machine *m);

/* --- Claims (claim.c) --- */

fl_handle fl_claim_find(const struct fl_machine *m, const struct session *session,
                        uint64_t request_id);
/* The shared or counted hold with that token, or 0. */
fl_handle fl_claim_by_token(const struct fl_machine *m, fl_token token);
fl_handle fl_claim_hold(struct fl_machine *m, struct session *session, uint64_t request_id,
                        fl_handle lock, enum fl_mode mode);
fl_handle fl_claim_wait(struct fl_machine *m, struct session *session, uint64_t request_id,
                        fl_handle lock, enum fl_mode mode, uint64_t deadline_ms);
/* A wait becomes a hold. */
void fl_claim_promote(struct fl_machine *m, fl_handle claim);
/* Out of every list; the memory is gone. Remembers the request as finished with `answer`, unless
 * its session is dead. */
void fl_claim_end(struct fl_machine *m, fl_handle claim, enum fl_answer answer,
                  enum fl_cause cause);
struct due *fl_due_new(struct fl_machine *m, fl_handle owner, bool is_closing, uint64_t at_ms,
                       uint64_t seq);
void fl_due_free(struct fl_machine *m, struct due *due);
void fl_claims_init(struct fl_machine *m);
void fl_claims_deinit(struct fl_machine *m);
/* For loading: as they were, without effects. */
fl_handle fl_claim_restore(struct fl_machine *m, struct session *session, const struct claim *model,
                           uint64_t deadline_ms, uint64_t seq);

/* --- Who gets a name (grant.c) --- */

enum fl_mode fl_lock_mode(const struct fl_machine *m, const struct lock *lock);
/* Whether `mode` goes together with all who hold it, and it is open. */
bool fl_lock_admits(const struct fl_machine *m, const struct lock *lock, enum fl_mode mode);
/* Ends what the dead hold, then grants whoever can be granted, then drops an idle name: as much of
 * it as the entry's work allows. */
void fl_lock_hand_on(struct fl_machine *m, fl_handle lock);
/* Ends a dead session's hold. The name is still to be handed on. */
void fl_lock_end_dead(struct fl_machine *m, fl_handle claim);
/* Nobody gets it before `until_ms`; a later end wins. */
void fl_lock_close(struct fl_machine *m, fl_handle lock, uint64_t until_ms, uint64_t seq);
void fl_lock_open(struct fl_machine *m, fl_handle lock);

/* --- Sessions (session.c) --- */

struct session *fl_session_find(const struct fl_machine *m, struct fl_session_id id); /* live */
struct session *fl_session_add(struct fl_machine *m, struct fl_session_id id, struct fl_str client);
/* From here on none of its claims counts. Its names are handed on by fl_sessions_reap(). */
void fl_session_die(struct fl_machine *m, struct session *session, enum fl_cause cause);
/* The first half of it: among the dead, whether it has claims or not. */
void fl_session_bury(struct fl_machine *m, struct session *session, enum fl_cause cause);
/* By id; owned by the caller, the sessions borrowed. */
struct session **fl_sessions_sorted(const struct fl_machine *m, size_t *ret_n);
/* Hands on the names of the dead, within the entry's work. */
void fl_sessions_reap(struct fl_machine *m);
/* A dead session without claims goes. */
void fl_session_forget_if_done(struct fl_machine *m, struct session *session);
void fl_session_remember(struct fl_machine *m, struct session *session,
                         const struct finished *finished);
const struct finished *fl_session_finished(const struct session *session, uint64_t request_id);
const struct finished *fl_session_finished_at(const struct session *session,
                                              uint32_t i); /* oldest: 0 */
void fl_sessions_deinit(struct fl_machine *m);

/* --- Effects --- */

/* Sends it, with index, sub and command filled in. */
void fl_machine_emit(struct fl_machine *m, struct fl_effect *effect);
/* One about a claim. */
void fl_machine_emit_claim(struct fl_machine *m, enum fl_effect_type type, fl_handle claim,
                           enum fl_cause cause);
/* A grant to one that has waited. */
void fl_machine_emit_promoted(struct fl_machine *m, fl_handle claim, uint64_t waited_ms);

/* For tests: a smaller FL_MACHINE_WORK_PER_ENTRY and FL_MACHINE_LOOKS. */
void fl_machine__set_work(struct fl_machine *m, uint32_t work_per_entry, uint32_t looks);

#endif
