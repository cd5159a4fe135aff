/* A node as raft/member.c puts it together: the real engine, the real store and the real node,
 * driven in virtual time, on a disk in memory that loses what was not synced. What only an observer
 * inside can see is checked here: T2, T3, T4, T5, R3, R4. */
#ifndef FL_TESTS_SIM_REPLICA_H
#define FL_TESTS_SIM_REPLICA_H

#include <setjmp.h>

#include "../../crash/mem_disk.h"
#include "net.h"
#include "node/node.h"
#include "raft/engine.h"
#include "raft/message.h"
#include "raft/store.h"
#include "truth.h"

#define REPLICAS_MAX      7
#define REPLICA_BEATS     1024
#define REPLICA_ROUNDS    64
#define REPLICA_SESSIONS  JUDGE_SESSIONS_MAX
#define REPLICA_LINKS_MAX 64

struct replica_config {
    unsigned election_ms, tick_ms, voters;
    uint64_t trailing, snapshot_every, segment_bytes, reserve_bytes;
    uint32_t pending_max;
    uint32_t rules_off; /* of raft/rules.h: to see their absence */
};

struct replica_counts {
    uint64_t starts, crashes, gave_up, appends, snapshots, installs, leaders, acks, expiries;
};

/* What it told others to be durable: it must be there after every crash. */
struct replica_promise {
    uint64_t term, voted_for;
    uint64_t last;   /* of the log */
    uint64_t *terms; /* by index */
    uint64_t capacity;
    uint64_t floor;     /* what lies at or above may have been truncated */
    uint64_t installed; /* the newest snapshot in place */
    unsigned queued;    /* appends that are not told done yet */
    unsigned voided;    /* of these, the first so many were overtaken by an installed snapshot */
};

struct replica {
    struct place place;
    unsigned id;
    struct net *net;
    struct truth *truth;
    struct replica *peers; /* all of them, [0] is not used */
    unsigned n_peers;
    const struct replica_config *config;
    bool is_joiner; /* not among the first members */
    bool is_ruined; /* its disk is beyond repair: it stays down */

    struct mem_disk *disk; /* owned; also when it is down */
    uint64_t disk_factor;  /* how slow it is */
    bool disk_is_busy;
    unsigned disk_fault_in; /* the next but so many call fails; 0: none */
    enum mem_fault disk_fault;
    jmp_buf gave_up;

    struct fl_store *store; /* these four NULL: down */
    struct fl_engine *engine;
    struct fl_node *node;
    struct replica_event *events;
    size_t events_at, n_events, events_capacity;
    struct alarm alarm;
    uint64_t busy_until_us; /* what it sends leaves it then */

    struct fl_snapshot *newest; /* a reference, or NULL */
    uint64_t snapshot_index;
    struct fl_snapshot *taking; /* a reference, or NULL */
    struct fl_buf taken;        /* the state as it was */
    uint64_t sending_until_us[REPLICAS_MAX + 1];

    struct replica_link {
        struct replica *replica;
        uint64_t id;
        struct conn *conn; /* NULL: free */
    } links[REPLICA_LINKS_MAX];
    uint64_t last_link;

    struct replica_promise promise;
    uint64_t effects; /* hash over all effects up to what is applied */
    uint64_t term;    /* of the latest role */
    bool leads;
    uint64_t settled_ms; /* its own clock when the first entry of its term was applied; or 0 */
    uint64_t confirmed_begun_us, round_begun_us[REPLICA_ROUNDS], last_round;
    struct replica_heard {
        uint64_t term, at_ms; /* by its own clock */
        uint64_t expiring_term, expiring_index;
    } * heard; /* by session */
    struct replica_beat {
        uint64_t link, tag, received_us, session;
    } beats[REPLICA_BEATS]; /* where heartbeats came in, by tag */
    struct replica_counts counts;
};

void replica_init(struct replica *r, struct net *net, struct truth *truth, unsigned id,
                  const struct replica_config *config);
void replica_deinit(struct replica *r);
void replica_start(struct replica *r);
/* The process is killed, or (`loses_power`) all that was not synced may be lost, also in the middle
 * of a write. */
void replica_crash(struct replica *r, bool loses_power);
/* For others' connections to it. `ctx` is the replica. */
void replica_hear_newcomer(void *ctx, struct conn *conn, const void *data, size_t len);

/* From outside, as an operator would. */
int replica_add(struct replica *r, unsigned id);
int replica_promote(struct replica *r, unsigned id);
int replica_remove(struct replica *r, unsigned id);
int replica_transfer(struct replica *r, unsigned id);
void replica_pause(struct replica *r, uint64_t until_us);

static inline bool replica_is_up(const struct replica *r)
{
    return r->engine != NULL;
}

/* replica_checks.c */
void replica__promise_vote(struct replica *r, uint64_t term, uint64_t voted_for);
void replica__promise_append(struct replica *r, const struct fl_append *append);
void replica__note_append(struct replica *r, const struct fl_append *append);
void replica__promise_snapshot(struct replica *r, uint64_t index, bool replaces_log);
bool replica__promised(const struct replica *r, uint64_t index, uint64_t term);
/* Against what was found at a start. */
void replica__check_recovered(struct replica *r, const struct fl_store_recovered *found);
void replica__check_proposal(struct replica *r, const void *data, size_t len, uint64_t index);
void replica__note_request(struct replica *r, uint64_t link, const void *data, size_t len);
void replica__check_frame(struct replica *r, uint64_t link, const uint8_t *data, size_t len);
void replica__note_role(struct replica *r, uint64_t term, bool is_leader);
void replica__note_applied(struct replica *r, uint64_t index, uint64_t term);

#endif
