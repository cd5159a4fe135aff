/* Consensus: libraft 0.22.1 driven through raft_step(), with every rule that keeps clear of its
 * corners (raft/rules.h; docs/consensus.md tells each story). Sans-I/O: inputs are (now, message,
 * write done, tick, submit), outputs go through an ops table. The simulator and the daemon drive
 * the same object.
 *
 * One thread per engine. `now_ms` is monotonic and never goes back. No op may call back into the
 * engine; a driver queues what it learns inside an op and feeds it after the call has returned. */
#ifndef FL_RAFT_ENGINE_H
#define FL_RAFT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/entry.h"

struct fl_engine;

enum fl_engine_role { FL_ROLE_FOLLOWER = 0, FL_ROLE_CANDIDATE = 1, FL_ROLE_LEADER = 2 };
enum fl_member_role { FL_MEMBER_VOTER = 0, FL_MEMBER_STANDBY = 1, FL_MEMBER_SPARE = 2 };

struct fl_member_info {
    uint64_t id;
    const char *address; /* borrowed */
    enum fl_member_role role;
};

/* What goes over the wire between engines; raft/message.h encodes and decodes it. */
struct fl_raft_message;

/* A run of entries to be written. Truncate the log at `index` first, then append. */
struct fl_append {
    uint64_t index;
    unsigned n;
    struct fl_entry **entries; /* owned, n references */
    uint64_t epoch;            /* the engine's own business */
};
void fl_append_free(struct fl_append *append);

struct fl_engine_ops {
    /* Make both durable before returning; nothing leaves this node before. */
    void (*set_vote)(void *ctx, uint64_t term, uint64_t voted_for);
    /* Start writing; takes `append`. When it is durable: fl_engine_appended() with the same object,
     * in the order of the calls. */
    void (*append)(void *ctx, struct fl_append *append);
    /* Start replacing everything by the snapshot (a reference is given). When its content is in
     * place and durable and the state machine was restored from it: fl_engine_installed(). */
    void (*install)(void *ctx, struct fl_snapshot *snapshot);
    /* Entries below `first` are not needed any more. */
    void (*compact)(void *ctx, uint64_t first);
    /* Borrowed: valid during the call. May drop it. */
    void (*send)(void *ctx, const struct fl_raft_message *message);
    /* See to it that a transfer of this snapshot to `to` runs (one at a time; rule 9). Its arrival
     * is fed at the other side as the message of raft/message.h. */
    void (*send_snapshot)(void *ctx, uint64_t to, const struct fl_raft_message *message);
    /* A committed entry, in order, with none left out; again from the snapshot's index after a
     * start. */
    void (*apply)(void *ctx, uint64_t index, struct fl_entry *entry);
    void (*role)(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader_id);
    /* Leadership was confirmed by a majority after `round` began (and all rounds before it). */
    void (*confirmed)(void *ctx, uint64_t round, uint64_t read_index);
};

struct fl_engine_config {
    uint64_t id;
    const char *address;
    unsigned election_timeout_ms;  /* 0: 500 */
    unsigned tick_ms;              /* the leader's own tick, 0: 50 */
    unsigned max_inflight_entries; /* 0: 256 */
    uint64_t trailing;             /* entries kept below a snapshot, 0: 4096 */
    unsigned seed;
    uint32_t rules_off; /* tests only: a mask of enum fl_rule to switch off */
};

struct fl_engine *fl_engine_new(const struct fl_engine_config *config,
                                const struct fl_engine_ops *ops, void *ctx);
void fl_engine_free(struct fl_engine *engine);

/* The entry that begins a cluster's log: write it, as entry 1 of term 1, and term 1, to every
 * voter. */
struct fl_entry *fl_engine_bootstrap_entry(const struct fl_member_info *members, unsigned n);

/* Once, first. `entries` are those stored from `start_index` on; references are taken. `snapshot`
 * may be NULL. FL_E_CORRUPT when they do not fit together (the caller names the files). */
int fl_engine_start(struct fl_engine *engine, uint64_t now_ms, uint64_t term, uint64_t voted_for,
                    struct fl_snapshot *snapshot, uint64_t start_index, struct fl_entry **entries,
                    unsigned n);

/* When to call fl_engine_tick() at the latest. */
uint64_t fl_engine_deadline(const struct fl_engine *engine);
void fl_engine_tick(struct fl_engine *engine, uint64_t now_ms);

/* A message of the peer `from` (its handshake's identity). Malformed content is dropped and
 * counted. Borrowed. For a snapshot it is fed once the content is there, in message->snapshot. */
void fl_engine_receive(struct fl_engine *engine, uint64_t now_ms, uint64_t from,
                       const struct fl_raft_message *message);
void fl_engine_appended(struct fl_engine *engine, uint64_t now_ms,
                        struct fl_append *append); /* takes */
void fl_engine_installed(struct fl_engine *engine, uint64_t now_ms);

/* Submits one entry (a reference is taken, its term is set). Returns its index, or FL_E_NOT_LEADER,
 * FL_E_BUSY (a transfer of leadership is on). */
int64_t fl_engine_submit(struct fl_engine *engine, uint64_t now_ms, struct fl_entry *entry);

/* Begins round `round` (rising numbers) of confirmation; ops->confirmed tells when it succeeded.
 * Nothing is told when leadership is lost: ops->role does. */
void fl_engine_confirm(struct fl_engine *engine, uint64_t now_ms, uint64_t round);

/* Membership, one server at a time; leader only. FL_E_NOT_LEADER; FL_E_BUSY while another change, a
 * catch-up or a transfer runs, or not every voter has the last change (rules 4, 12); FL_E_EXISTS;
 * FL_E_NOT_FOUND; FL_E_INVALID where it would leave fewer than three voters. */
int fl_engine_add(struct fl_engine *engine, uint64_t now_ms, uint64_t id, const char *address);
/* Standby to voter, after it has caught up: begins catching up and submits the change by itself. */
int fl_engine_promote(struct fl_engine *engine, uint64_t now_ms, uint64_t id);
int fl_engine_remove(struct fl_engine *engine, uint64_t now_ms, uint64_t id);
/* `id` 0: the voter that is furthest. Waits until it has everything, then hands over. */
int fl_engine_transfer(struct fl_engine *engine, uint64_t now_ms, uint64_t id);

/* Own snapshots: false when none can be taken now (installing, nothing new, applied is not durable
 * here: rules 10). On true, *ret_snapshot is an object without content that stands for the state as
 * applied now, with a reference for the driver; the driver attaches the content, makes it durable,
 * and feeds it to finish, which takes a reference of its own. */
bool fl_engine_snapshot_begin(struct fl_engine *engine, struct fl_snapshot **ret_snapshot);
void fl_engine_snapshot_finish(struct fl_engine *engine, uint64_t now_ms,
                               struct fl_snapshot *snapshot);
/* It could not be written: forget it. */
void fl_engine_snapshot_abort(struct fl_engine *engine);

enum fl_engine_role fl_engine_role(const struct fl_engine *engine);
uint64_t fl_engine_term(const struct fl_engine *engine);
uint64_t fl_engine_leader(const struct fl_engine *engine); /* 0: unknown */
uint64_t fl_engine_commit_index(const struct fl_engine *engine);
uint64_t fl_engine_applied_index(const struct fl_engine *engine);
uint64_t fl_engine_last_index(const struct fl_engine *engine);
uint64_t fl_engine_match_index(const struct fl_engine *engine, uint64_t id); /* leader; else 0 */
/* The configuration in force. Returns how many there are; writes at most `max`. */
unsigned fl_engine_members(const struct fl_engine *engine, struct fl_member_info *out,
                           unsigned max);
/* The index of the change that made them what they are; 0 while it is not committed. */
uint64_t fl_engine_members_index(const struct fl_engine *engine);
/* How often a rule had to act, by enum fl_rule: for metrics and tests. */
uint64_t fl_engine_rule_count(const struct fl_engine *engine, unsigned rule);

#endif
