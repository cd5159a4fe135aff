/* The inside of a node, shared by the files of this folder and their tests.
 *
 * Who is owed an answer is a `pending`: one tag of one link. It is in exactly one place at a time:
 *   a slot of a draft   its command is not applied yet                       (draft.c)
 *   the waiters         its acquire was answered QUEUED                      (waiters.c)
 *   a queue             it waits for a confirmation, then for its index      (rounds.c)
 *   a session's `held`  a heartbeat that must not be acknowledged yet        (liveness.c)
 * and always in the list of its link, so that a link that breaks is forgotten in one walk. */
#ifndef FL_NODE_INTERNAL_H
#define FL_NODE_INTERNAL_H

#include "base/buf.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "node/node.h"
#include "node/watch.h"

/* --- Links and those who wait for an answer (links.c) --- */

struct link {
    uint64_t id;
    struct fl_list pendings; /* pending.in_link */
    struct fl_list carried;  /* live.in_carrier */
    struct fl_list watches;  /* watch.in_link */
};

struct pending {
    struct fl_list in_link, in_place;
    struct link *link;
    uint64_t tag;
    enum fl_request_type type;
    struct fl_session_id session;
    uint64_t request_id;

    struct draft *draft; /* with `slot`, or NULL */
    uint32_t slot;
    bool is_waiter;

    uint64_t round;       /* answered after this round of confirmation ... */
    uint64_t read_index;  /* ... once this is applied */
    uint64_t received_ms; /* judged time; heartbeats */

    uint8_t *message; /* owned copy: a read's request, or the name that a wait timed out on */
    size_t message_len;
};

struct link *fl_node__link(const struct fl_node *node, uint64_t id); /* or NULL */
struct pending *fl_node__pending_new(struct fl_node *node, struct link *link,
                                     const struct fl_request *request);
/* Out of its place, its link and memory. */
void fl_node__pending_free(struct fl_node *node, struct pending *p);
/* Out of its place only. */
void fl_node__pending_lift(struct fl_node *node, struct pending *p);
void fl_node__links_deinit(struct fl_node *node);

/* --- Waits that were answered QUEUED (waiters.c) --- */

void fl_node__waiters_add(struct fl_node *node, struct pending *p);
void fl_node__waiters_remove(struct fl_node *node, struct pending *p);
/* One of those who wait for this request, or NULL. */
struct pending *fl_node__waiters_find(const struct fl_node *node, struct fl_session_id session,
                                      uint64_t request_id);

/* --- Drafts: batches that are being written (draft.c) --- */

struct draft {
    struct fl_list in_node;
    struct fl_command *commands; /* owned, their strings too (texts) */
    struct pending **owners;     /* NULL: nobody asked, or nobody waits any more */
    size_t n, capacity, bytes;
    uint64_t index; /* 0: not submitted */
    struct text_chunk *texts;
};

/* The command must be in range; strings are copied. `owner` may be NULL. */
void fl_node__draft_add(struct fl_node *node, const struct fl_command *command,
                        struct pending *owner);
/* Submits the oldest draft when none is in flight; with `even_empty`, an empty one if need be. */
void fl_node__draft_propose(struct fl_node *node, bool even_empty);
/* The draft in flight was applied, or is void. */
void fl_node__draft_done(struct fl_node *node);
void fl_node__drafts_clear(struct fl_node *node);
void fl_node__drafts_deinit(struct fl_node *node);

/* --- Confirmations (rounds.c) --- */

struct rounds {
    uint64_t begun, confirmed; /* numbers; they rise over all terms */
    uint64_t begun_at_ms;
    struct fl_list beats, reads;             /* wait for pending.round */
    struct fl_list ready_beats, ready_reads; /* wait for pending.read_index */
};

void fl_node__rounds_init(struct fl_node *node);
void fl_node__rounds_void(struct fl_node *node);
/* The round that begins after now. */
uint64_t fl_node__rounds_next(const struct fl_node *node);
void fl_node__rounds_ask(struct fl_node *node, struct pending *p);
void fl_node__rounds_flush(struct fl_node *node);
void fl_node__rounds_confirmed(struct fl_node *node, uint64_t round, uint64_t read_index);
/* Answers what is confirmed and applied. */
void fl_node__rounds_serve(struct fl_node *node);

/* --- Sessions' liveness, on the leader only (liveness.c) --- */

struct live {
    struct fl_session_id id;
    uint32_t ttl_ms;
    uint32_t noted_ms;         /* silence in the log, or on its way there; 0: none */
    bool clearing;             /* a NOTE_SILENCE of 0 is on its way */
    bool expiring;             /* an EXPIRE_SESSION is on its way */
    uint64_t deadline;         /* judged time */
    uint64_t due_round;        /* while in `due` */
    struct fl_heap_node timer; /* next note, or the deadline */
    struct fl_list in_due;     /* `due` or `doomed` */
    struct fl_list held;       /* pending.in_place */
    struct link *carrier;      /* pushes go there; or NULL */
    struct fl_list in_carrier;
};

struct liveness {
    struct fl_map sessions;
    struct fl_heap timers;
    struct fl_list due;    /* silent for their TTL; wait for a confirmation that began after that */
    struct fl_list doomed; /* confirmed; go into the next entry */
    uint64_t stalled_ms;   /* own silence so far: judged time is the clock less this */
};

uint64_t fl_node__judged_now(const struct fl_node *node);
struct live *fl_node__live(const struct fl_node *node, struct fl_session_id id); /* or NULL */
void fl_node__live_open(struct fl_node *node, struct fl_session_id id, uint32_t ttl_ms);
void fl_node__live_end(struct fl_node *node, struct fl_session_id id);
/* A heartbeat of `received_ms` (judged time) is known. */
void fl_node__live_heard(struct fl_node *node, struct live *live, uint64_t received_ms);
/* A confirmed heartbeat: acknowledges it, or holds it. */
void fl_node__live_beat(struct fl_node *node, struct pending *p);
void fl_node__live_carry(struct live *live, struct link *link); /* NULL: by nobody */
uint32_t fl_node__live_silence_ms(const struct fl_node *node, const struct live *live);
/* The answers to commands that liveness submitted. */
void fl_node__live_cleared(struct fl_node *node, struct fl_session_id id);
void fl_node__live_not_expired(struct fl_node *node, struct fl_session_id id);
void fl_node__live_note_refused(struct fl_node *node, struct fl_session_id id);

void fl_node__liveness_init(struct fl_node *node);
/* Every session of the machine gets its grace: the first entry of our term is applied. */
void fl_node__liveness_begin(struct fl_node *node);
void fl_node__liveness_clear(struct fl_node *node);
void fl_node__liveness_deinit(struct fl_node *node);
void fl_node__liveness_stalled(struct fl_node *node, uint64_t gap_ms);
void fl_node__liveness_flush(struct fl_node *node);
/* The latest round that an expiry waits for, or 0. */
uint64_t fl_node__liveness_round(const struct fl_node *node);
void fl_node__liveness_confirmed(struct fl_node *node, uint64_t round);
/* Puts what is doomed into the next entry. */
void fl_node__liveness_condemn(struct fl_node *node);

/* --- What goes out (replies.c, push.c) --- */

void fl_node__send_reply(struct fl_node *node, struct link *link, const struct fl_reply *reply);
/* An answer to `p`, ready to be filled. */
struct fl_reply fl_node__reply_to(const struct fl_node *node, const struct pending *p,
                                  enum fl_answer answer);
/* These three send, and free `p`. */
void fl_node__answer(struct fl_node *node, struct pending *p, const struct fl_reply *reply);
void fl_node__answer_plain(struct fl_node *node, struct pending *p, enum fl_answer answer);
void fl_node__answer_not_leader(struct fl_node *node, struct pending *p);
/* NOT_LEADER, BUSY or DISK_FULL, for what never became a pending. */
void fl_node__refuse(struct fl_node *node, struct link *link, const struct fl_request *request,
                     enum fl_reply_status status);
void fl_node__refuse_invalid(struct fl_node *node, struct link *link,
                             const struct fl_request *request, const char *field, const char *why);

void fl_node__send_push(struct fl_node *node, struct link *link, const struct fl_push *push);
void fl_node__push_leader(struct fl_node *node, struct link *link);
void fl_node__push_members(struct fl_node *node, struct link *link);
/* To the link that carries the effect's session, if there is one. */
void fl_node__push_effect(struct fl_node *node, const struct fl_effect *effect,
                          enum fl_push_type type);
/* To those who hold `name`: somebody began to wait for it. */
void fl_node__push_contended(struct fl_node *node, struct fl_str name);

/* --- Requests and effects (requests.c, outcome.c, reads.c, status.c) --- */

void fl_node__request(struct fl_node *node, struct link *link, const struct fl_request *request,
                      const void *data, size_t len);
/* An fl_machine_sink. */
void fl_node__outcome(void *ctx, const struct fl_effect *effect);
/* What an entry's effects left to do that needs the machine at rest. */
void fl_node__outcome_finish(struct fl_node *node);
/* How long ago an instant of log time is. */
uint32_t fl_node__since_ms(const struct fl_node *node, uint64_t log_ms);
/* As fl_command_fault(), for reads. */
const char *fl_node__read_fault(const struct fl_request *request, const char **ret_why);
void fl_node__read_answer(struct fl_node *node, struct link *link,
                          const struct fl_request *request);
void fl_node__status_answer(struct fl_node *node, struct link *link,
                            const struct fl_request *request);

/* --- The node --- */

struct status_copy {
    struct fl_status_info info; /* its strings are in `texts` */
    struct fl_buf texts;
};

struct fl_node {
    struct fl_node_config config;
    struct fl_node_ops ops;
    void *ctx;

    struct fl_machine *machine; /* owned */
    uint64_t now_ms, tick_ms;   /* of the last event, of the last tick */
    uint64_t term, leader_id;
    bool is_leader;
    bool is_settled; /* leader, and everything before our term is applied */
    bool is_disk_full;
    uint16_t level;         /* of all members */
    bool has_marked_level;  /* in this term */
    uint64_t applied_index; /* of any entry, those without commands too */
    /* Log time is log_base_ms plus what passed since clock_base_ms. */
    uint64_t log_base_ms, clock_base_ms;

    struct fl_map links;
    struct fl_map waiters;
    struct fl_list drafts; /* oldest first; the last is open */
    struct draft *in_flight;
    struct draft *applying; /* ours, while its effects come; else NULL */
    struct draft *spare;
    struct rounds rounds;
    struct liveness liveness;
    struct watches watches;
    struct fl_list timed_out; /* pendings whose wait ended in the entry being applied */
    struct fl_buf contended;  /* names that got their first waiter in it */
    struct fl_list spare_pendings;
    size_t n_pendings, n_spare_pendings;

    struct fl_buf entry, frame; /* scratch */
    struct status_copy status;
    struct fl_buf members; /* as gateways are told, and as of which entry; 0: not known */
    uint64_t members_index;
};

uint64_t fl_node__log_now(const struct fl_node *node);
uint64_t fl_node__session_hash(const struct fl_node *node, struct fl_session_id id);

#endif
