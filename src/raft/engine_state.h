/* The engine as its own files see it. libraft is used in engine*.c only. */
#ifndef FL_RAFT_ENGINE_STATE_H
#define FL_RAFT_ENGINE_STATE_H

#include <raft.h>

#include "raft/engine.h"
#include "raft/engine_log.h"
#include "raft/message.h"
#include "raft/rules.h"

_Static_assert(RAFT_VERSION_NUMBER == 2201, "public fields of struct raft are read");
_Static_assert((int)FL_ENTRY_COMMAND == (int)RAFT_COMMAND, "entry types are libraft's");
_Static_assert((int)FL_ENTRY_BARRIER == (int)RAFT_BARRIER, "entry types are libraft's");
_Static_assert((int)FL_ENTRY_CHANGE == (int)RAFT_CHANGE, "entry types are libraft's");
_Static_assert(FL_RULE_COUNT <= 32, "rules_off is a mask of 32 bits");

/* Rounds that wait; the newest takes in what comes on top, and is then confirmed a little later. */
#define FL_ENGINE_ROUNDS_MAX 64

struct fl_engine_round {
    uint64_t round; /* the caller's number */
    uint64_t seq;   /* of the ping that was sent after it began */
    uint64_t index; /* the commit index then */
};

/* What is known of another server while we lead. */
struct fl_engine_peer {
    uint64_t id;
    uint64_t pong_seq;       /* the newest ping that it answered in this term */
    uint64_t heard_ms;       /* when anything came from it */
    uint64_t transfer_index; /* of the snapshot that was last sent to it */
    uint64_t transfer_until; /* ask for no other before */
};

struct fl_engine {
    struct raft raft;
    uint64_t id;
    const struct fl_engine_ops *ops;
    void *ctx;
    uint64_t now_ms;
    unsigned tick_ms;
    uint64_t trailing;
#ifdef FL_BUGS
    uint32_t rules_off;
#endif
    uint64_t rule_counts[FL_RULE_COUNT];

    struct fl_engine_log log;
    struct fl_snapshot *snapshot;              /* the last that libraft knows of; durable */
    struct fl_snapshot *installing;            /* on its way into place */
    struct raft_configuration installing_conf; /* libraft wants it back */
    bool is_snapshotting;                      /* an own one is being written */
    bool needs_own_entry;                      /* just elected, nothing of this term in the log */
    uint64_t epoch;                            /* counts installations */
    uint64_t commit, applied;
    uint64_t term_start; /* our first entry of the term that we lead */
    uint64_t last_tick_ms;
    uint64_t leading_since_ms;
    uint64_t leader_heard_term; /* of the last that a leader wrote */
    uint64_t leader_heard_ms;   /* when a leader of our term, or of a newer one, last wrote */
    enum fl_engine_role role;   /* as last told */
    uint64_t leader, term;

    uint8_t *configuration; /* owned: the last that was applied */
    uint32_t configuration_len;
    uint64_t configuration_index;

    uint64_t promoting;      /* a server that catches up, or 0 */
    uint64_t transfer_to;    /* waits until this one has everything, or 0 */
    uint64_t transfer_until; /* and gives up then */

    uint64_t ping_seq;
    struct fl_engine_round rounds[FL_ENGINE_ROUNDS_MAX];
    unsigned n_rounds;
    struct fl_engine_peer peers[FL_RAFT_SERVERS_MAX];
    unsigned n_peers;
};

#ifdef FL_BUGS
#define FL_RULE_ON(engine, rule) (((engine)->rules_off & (1u << FL_RULE_##rule)) == 0)
#else
#define FL_RULE_ON(engine, rule) ((void)(engine), true)
#endif
#define FL_RULE_ACTED(engine, rule) ((engine)->rule_counts[FL_RULE_##rule]++)

/* --- engine_step.c --- */

/* Our own objects for what an event carries: libraft is given their heads only. */
struct fl_engine_source {
    struct fl_entry **entries; /* borrowed */
    uint64_t first;            /* the index of entries[0] */
    struct fl_snapshot *snapshot;
};
/* The one place that calls raft_step(), and does what it asks for. `source` may be NULL. */
int fl_engine__step(struct fl_engine *e, struct raft_event *event,
                    const struct fl_engine_source *source);
/* Applies what is committed, and whatever else follows from a step. */
void fl_engine__settle(struct fl_engine *e);
/* Tells libraft that the change at `index` is applied. */
void fl_engine__confirm_change(struct fl_engine *e, uint64_t index, const void *data, uint32_t len);
void fl_engine__set_configuration(struct fl_engine *e, const void *data, uint32_t len,
                                  uint64_t index);
/* Submits; the index, or a negative code. */
int64_t fl_engine__submit(struct fl_engine *e, struct fl_entry *entry);
/* Heads for libraft; all share `batch`. */
void fl_engine__fill_heads(struct raft_entry *heads, struct fl_entry **entries, unsigned n,
                           void *batch);
/* 0 when it is not known. */
uint64_t fl_engine__term_at(const struct fl_engine *e, uint64_t index);
static inline bool fl_engine__leads(const struct fl_engine *e)
{
    return e->raft.state == RAFT_LEADER;
}

/* --- engine_send.c --- */
void fl_engine__send(struct fl_engine *e, const struct raft_message *message);

/* --- engine_membership.c --- */
struct raft_server *fl_engine__server(const struct fl_engine *e, uint64_t id);
bool fl_engine__is_voter(const struct fl_engine *e, uint64_t id);
unsigned fl_engine__voters(const struct raft_configuration *configuration);
int fl_engine__configuration_decode(const void *data, uint32_t len,
                                    struct raft_configuration *ret_configuration);
/* Goes on with a promotion and a transfer. */
void fl_engine__membership_settle(struct fl_engine *e);
/* Known, or made; NULL when there are too many. */
struct fl_engine_peer *fl_engine__peer(struct fl_engine *e, uint64_t id);

/* --- engine_confirm.c --- */
void fl_engine__ping(struct fl_engine *e);
void fl_engine__receive_ping(struct fl_engine *e, const struct fl_raft_message *message);
void fl_engine__receive_pong(struct fl_engine *e, const struct fl_raft_message *message);
void fl_engine__confirm_settle(struct fl_engine *e);

#endif
