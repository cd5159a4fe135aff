/* The parts of a member: shared by member.c, member_links.c and member_snapshot.c only. */
#ifndef FL_RAFT_MEMBER_PARTS_H
#define FL_RAFT_MEMBER_PARTS_H

#include "base/list.h"
#include "base/map.h"
#include "node/meter.h"
#include "node/node.h"
#include "raft/engine.h"
#include "raft/member.h"
#include "raft/store.h"
#include "raft/transfer.h"
#include "raft/transport.h"

/* What the engine told inside a call, to be acted on after the call has returned. */
struct fl_member_event {
    enum { MEMBER_APPLY, MEMBER_ROLE, MEMBER_CONFIRMED, MEMBER_INSTALL } type;
    uint64_t index, term, leader_id, round;
    bool is_leader;
    struct fl_entry *entry;       /* APPLY: a reference */
    struct fl_snapshot *snapshot; /* INSTALL: a reference */
};

/* What another member told last (member_gossip.c). */
struct fl_member_news {
    uint64_t id;
    uint16_t level;
    bool is_full;
    uint64_t heard_ms; /* 0: never */
};

struct fl_member {
    struct fl_loop *loop;
    uint64_t node_id;
    uint8_t cluster_id[16];
    char *version;
    uint64_t snapshot_every;

    struct fl_store *store;
    struct fl_engine *engine;
    struct fl_node *node;
    struct fl_transport *transport;

    struct fl_member_event *events; /* a queue: [events_at, n_events) */
    size_t events_at, n_events, events_capacity;
    struct fl_turn_hook work;
    struct fl_timer timer;
    uv_async_t store_wake;
    uint64_t status_due_ms;
    uint64_t members_index; /* of the change that gateways were told of */
    bool was_member, was_refused;
    bool is_new;          /* nothing of this cluster was in the directory when it was opened */
    uint64_t members[16]; /* as of that change */
    unsigned n_members;
    char *address; /* where others dial us */
    struct fl_buf scratch;

    struct fl_meter *meter;
    struct fl_timing commit_time;
    uint64_t proposed_index, proposed_us; /* the newest of ours that is not applied; 0: none */
    struct fl_figures *figures;           /* owned; atomic: the newest, until somebody takes them */

    struct fl_map links; /* struct link by id */
    struct fl_list link_list;
    uint64_t last_link;

    /* Snapshots: at most one being taken, one being sent to each peer, one being received. */
    struct fl_taking *taking;
    uint64_t snapshot_retry_ms; /* not before, after a failure */
    uint64_t snapshot_index;    /* of the newest that is durable here */
    struct fl_snapshot *newest; /* a reference; NULL: none */
    struct fl_list sending;
    struct fl_incoming *receiving;
    struct fl_raft_message *receiving_header; /* owned */
    struct fl_member_backup *backup;          /* NULL: none is being taken or read */
    uint64_t last_backup;

    struct fl_member_news news[32];
    uint64_t gossip_due_ms, hand_over_ms, leading_since_ms;
    bool was_full, is_refusing;
    uint16_t level; /* of all members, as we told the node last */

    bool is_stopping, is_closing;
    uint64_t stop_deadline_ms;
    void (*done)(void *ctx);
    void *done_ctx;
};

/* There is something to do at the end of this turn. */
void fl_member__wake(struct fl_member *m);

/* member_links.c */
void fl_member__accept_link(struct fl_member *m, struct fl_framed *c);
void fl_member__send_to_link(struct fl_member *m, uint64_t link, const void *data, size_t len);
void fl_member__close_links(struct fl_member *m);

/* member_snapshot.c */
/* The machine of a stored snapshot. FL_E_CORRUPT and the like, with `why` (512 bytes). */
int fl_member__load_machine(struct fl_member *m, const struct fl_snapshot *snapshot,
                            const uint64_t hash_key[2], struct fl_machine **ret_machine, char *why);
/* Begins one when enough was applied since the last. */
void fl_member__maybe_take_snapshot(struct fl_member *m);
void fl_member__send_snapshot(struct fl_member *m, uint64_t to,
                              const struct fl_raft_message *message);
void fl_member__accept_snapshot(struct fl_member *m, uint64_t from, struct fl_framed *c);
/* The engine wants it in place: ends the process when that fails, since there is no way on. */
void fl_member__install_snapshot(struct fl_member *m, struct fl_snapshot *snapshot);
void fl_member__stop_snapshots(struct fl_member *m);
bool fl_member__snapshots_are_idle(const struct fl_member *m);

/* member_figures.c */
void fl_member__publish_figures(struct fl_member *m, const struct fl_status_info *info,
                                uint64_t now_ms);
void fl_member__drop_figures(struct fl_member *m);

/* member_gossip.c */
bool fl_member__gossip_is(const uint8_t *data, size_t len);
/* FL_E_CORRUPT: close the connection. */
int fl_member__gossip_receive(struct fl_member *m, uint64_t from, const uint8_t *data, size_t len);
void fl_member__gossip_note_level(struct fl_member *m, uint64_t id, uint16_t level);
/* A few times a second: tells the others, and, while we lead, the node. */
void fl_member__gossip_step(struct fl_member *m, const struct fl_member_info *members, unsigned n,
                            uint64_t now_ms);

/* member_backup.c */
/* A request that is the member's own business; false: it is the node's. */
bool fl_member__backup_request(struct fl_member *m, uint64_t link, const uint8_t *data, size_t len);
/* Goes on with it, at the end of a turn. */
void fl_member__backup_step(struct fl_member *m);
bool fl_member__backup_wants_snapshot(const struct fl_member *m);
void fl_member__backup_drop(struct fl_member *m);
/* The link is gone: nobody waits for the answer. */
void fl_member__backup_link_down(struct fl_member *m, uint64_t link);

void fl_member__fresh_hash_key(uint64_t ret_key[2]);

#endif
