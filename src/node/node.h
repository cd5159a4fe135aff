/* A node's judgement: events in, effects out. It owns the lock state machine and decides what
 * consensus does not: which commands go into the next entry, who is told what, when a session has
 * been silent for too long, and when a read may be answered.
 *
 * Pure, like core: no clock, no I/O, no randomness, no threads. `now_ms` is the driver's monotonic
 * clock (CLOCK_BOOTTIME on a real machine); every call carries it, and it never goes back. The
 * driver is raft/member.c in the daemon, the simulator in the tests: both feed the same object.
 *
 * Rules, each named where it is kept in the source:
 *
 *   N1  A heartbeat is acknowledged only after leadership was confirmed by a quorum after the
 *       heartbeat arrived (T2).
 *   N2  A new leader gives every session a full TTL, or the rest of it when the log knows that the
 *       session is silent. What it heard in an earlier term does not count (T3).
 *   N3  An expiry carries its term, and only the leader that decided it proposes it (T4).
 *   N4  No acknowledgement between the proposal of a session's expiry and its outcome (T5), nor
 *       while the log says that the session is silent: the next leader would give the rest only.
 *   N5  Own silence is added to every deadline before anyone is judged, and leadership is confirmed
 *       before an expiry is proposed (T9).
 *   N6  Reads are answered only after a confirmation that began after they arrived (R6).
 *   N7  One batch in flight: what arrives meanwhile goes into the next entry (group commit).
 *   N8  Heartbeats wait for nothing but their confirmation, and N4 (C06). */
#ifndef FL_NODE_NODE_H
#define FL_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/machine.h"
#include "node/message.h"

struct fl_node;

/* Effects. Bytes are borrowed during the call. None of these may call back into the node. */
struct fl_node_ops {
    /* Submit one entry. Its fate comes back through fl_node_applied() (it carries our term and the
     * index returned here) or through fl_node_role(). Returns the entry's index, or 0 when
     * consensus refused (not the leader, transferring): the node answers NOT_LEADER. */
    uint64_t (*propose)(void *ctx, const void *data, size_t len);
    /* Begin a confirmation of leadership; its end comes back through fl_node_confirmed(). A later
     * round also ends earlier ones. */
    void (*confirm)(void *ctx, uint64_t round);
    /* One frame (enum fl_link_frame, then the message) to a gateway. */
    void (*send)(void *ctx, uint64_t link, const void *data, size_t len);
    /* May be NULL. Begin to hand leadership to `node_id` (0: whoever is furthest); the new role
     * tells how it ended. 0, or FL_E_NOT_LEADER, FL_E_BUSY, FL_E_NOT_FOUND, FL_E_INVALID. */
    int (*transfer)(void *ctx, uint64_t node_id);
    /* May be NULL. Begin a change of members: `type` is ADD_NODE (the only one with an address),
     * PROMOTE_NODE or REMOVE_NODE; the status tells when it is done. 0, or FL_E_NOT_LEADER (also:
     * the leader is to be removed and hands over), FL_E_BUSY, FL_E_EXISTS, FL_E_NOT_FOUND,
     * FL_E_INVALID. */
    int (*change_members)(void *ctx, enum fl_request_type type, uint64_t node_id,
                          struct fl_str address);
    /* May be NULL. Every effect of the machine, in log order, for recorders and tests. */
    void (*observe)(void *ctx, const struct fl_effect *effect);
};

struct fl_node_config {
    uint64_t node_id;
    uint64_t hash_key[2]; /* random per process */
    uint32_t
        election_timeout_ms; /* a gap between ticks above half of it counts as own silence (N5) */
    uint32_t batch_commands_max; /* 0: default 4096 */
    size_t batch_bytes_max;      /* 0: default 1 MiB */
    uint32_t pending_max;        /* requests held at a time before BUSY; 0: default 1,000,000 */
};

struct fl_node *fl_node_new(const struct fl_node_config *config, const struct fl_node_ops *ops,
                            void *ctx);
void fl_node_free(struct fl_node *node);

/* --- Events --- */

/* At least every 50 ms. Flushes, too. */
void fl_node_tick(struct fl_node *node, uint64_t now_ms);

/* The role changed, or the leader did. `leader_id` 0: unknown. When `is_leader`, entries of `term`
 * may be proposed, and reads are good only after the first entry of this term is committed (the
 * engine's confirmations see to that). */
void fl_node_role(struct fl_node *node, uint64_t now_ms, uint64_t term, bool is_leader,
                  uint64_t leader_id);

/* A committed entry, in order. Barriers and changes of membership come with len 0.
 * FL_E_VERSION: written by a later release; the driver must stop the process and say so. */
int fl_node_applied(struct fl_node *node, uint64_t now_ms, uint64_t index, uint64_t term,
                    const void *data, size_t len);

/* A quorum confirmed our leadership after round `round` and all before it began; reads may be
 * answered once `read_index` is applied. */
void fl_node_confirmed(struct fl_node *node, uint64_t now_ms, uint64_t round, uint64_t read_index);

/* A link to a gateway appeared or is gone. Link ids are never reused. */
void fl_node_link_up(struct fl_node *node, uint64_t now_ms, uint64_t link);
void fl_node_link_down(struct fl_node *node, uint64_t now_ms, uint64_t link);

/* One message of a link, without the frame's type byte. FL_E_MALFORMED or FL_E_VERSION: the driver
 * closes the link. */
int fl_node_request(struct fl_node *node, uint64_t now_ms, uint64_t link, const void *data,
                    size_t len);

/* All that has arrived in this turn of the loop is in: propose and confirm what is due. */
void fl_node_flush(struct fl_node *node, uint64_t now_ms);

/* When to call fl_node_tick() at the latest (monotonic ms). */
uint64_t fl_node_deadline(const struct fl_node *node);

/* --- State --- */

/* For snapshots: read only. */
const struct fl_machine *fl_node_machine(const struct fl_node *node);
/* Replaces the machine after a snapshot was installed or loaded; takes it. */
void fl_node_take_machine(struct fl_node *node, uint64_t now_ms, struct fl_machine *machine);

/* What STATUS replies tell beside the machine's figures; called by the driver when it changes.
 * Copied. */
void fl_node_set_status(struct fl_node *node, const struct fl_status_info *info);
/* Who the members are as of the change at entry `index`, "ID=ADDRESS,...": gateways are told.
 * Copied. */
void fl_node_set_members(struct fl_node *node, uint64_t index, struct fl_str members);
/* The newest formats that all members know: only these are written. */
void fl_node_set_level(struct fl_node *node, uint16_t level);
/* With it, requests that would grant are answered DISK_FULL; releases and expiries go on. */
void fl_node_set_disk_full(struct fl_node *node, bool is_full);

#endif
