/* A few engines in one process, moved by hand: time passes, messages arrive and disks write when
 * the story says so. Nothing here is random, and nothing waits. */
#ifndef FL_TESTS_UNIT_ENGINE_RIG_H
#define FL_TESTS_UNIT_ENGINE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "raft/engine.h"
#include "raft/message.h"
#include "raft/rules.h"

#define RIG_NODES_MAX   7
#define RIG_INDEX_MAX   256
#define RIG_TERM_MAX    256
#define RIG_ELECTION_MS 500
#define RIG_TICK_MS     50
#define RIG_TRAILING    1 /* a snapshot leaves one entry below it */

struct rig_op;

struct rig_node {
    struct rig *rig;
    struct fl_engine *engine; /* NULL: down */
    uint64_t id;
    bool is_slow; /* its disk does nothing by itself */
    struct rig_op *ops, **ops_end;
    /* What is durable. */
    uint64_t term, vote, first, n;
    struct fl_entry *log[RIG_INDEX_MAX];
    struct fl_snapshot *snapshot;
    /* What it said and did. */
    unsigned refusals, snapshots_sent;
    uint64_t applied_terms[RIG_INDEX_MAX]; /* by index; 0: not applied here */
};

struct rig {
    uint64_t now_ms;
    unsigned n;
    uint32_t rules_off;
    struct rig_node nodes[RIG_NODES_MAX + 1];
    bool cut[RIG_NODES_MAX + 1][RIG_NODES_MAX + 1];
    struct fl_raft_message *mail[1024]; /* in flight, oldest first */
    unsigned n_mail;
    uint64_t leader_of[RIG_TERM_MAX];
    bool had_two_leaders; /* in one term */
};

/* `voters` of a new cluster in term 1, and `others` that are in no configuration yet; ids from 1.
 * All are up, nobody leads. */
void rig_start(struct rig *rig, unsigned voters, unsigned others, uint32_t rules_off);
/* The same; node 1 leads, and all know that everything is committed. */
void rig_start_led(struct rig *rig, unsigned voters, unsigned others, uint32_t rules_off);
void rig_stop(struct rig *rig);

/* Delivers and writes, until there is nothing to deliver and to write. */
void rig_run(struct rig *rig);
/* A tick's time passes: whoever leads ticks, and everything runs. */
void rig_beat(struct rig *rig);
void rig_beats(struct rig *rig, unsigned n);
/* Time passes for all, each tick at its deadline, and everything runs. */
void rig_pass(struct rig *rig, uint64_t ms);
void rig_tick(struct rig *rig, uint64_t id);
/* Lets `id` win an election: everybody it reaches has forgotten the old leader. Ends at the moment
 * when it leads: what it sent then is in flight. */
void rig_elect(struct rig *rig, uint64_t id);

/* Submits `n` commands; the last one's index. They are in flight. */
uint64_t rig_submit(struct rig *rig, uint64_t id, unsigned n);
/* Takes the oldest message of the kind out of what is in flight; there must be one. */
struct fl_raft_message *rig_take(struct rig *rig, uint64_t from, uint64_t to, uint8_t type);
void rig_deliver(struct rig *rig, struct fl_raft_message *message); /* takes */
void rig_lose_mail(struct rig *rig);
/* The oldest thing that this disk was asked for. */
void rig_write(struct rig *rig, uint64_t id);

void rig_cut(struct rig *rig, uint64_t from, uint64_t to);
void rig_isolate(struct rig *rig, uint64_t id);
void rig_heal(struct rig *rig);
void rig_crash(struct rig *rig, uint64_t id);
void rig_restart(struct rig *rig, uint64_t id);
/* A snapshot of its own, at once. */
void rig_snapshot(struct rig *rig, uint64_t id);

const char *rig_address(uint64_t id);
struct fl_engine *rig_engine(struct rig *rig, uint64_t id);
uint64_t rig_leader(const struct rig *rig); /* of the highest term; 0: nobody leads */
bool rig_is_member(struct rig *rig, uint64_t at, uint64_t id);
bool rig_is_voter(struct rig *rig, uint64_t at, uint64_t id);
/* Whether no two nodes applied different entries at one index. */
bool rig_agrees(const struct rig *rig);

#endif
