/* For operators' tools: the cluster, its sessions, and what must be ended by hand. Calls as in
 * fencelock.h: 0 or a negative FL_E_*, `why` may be NULL. */
#ifndef FENCELOCK_ADMIN_H
#define FENCELOCK_ADMIN_H

#include <fencelock/fencelock.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fl_member_status {
    uint64_t node_id;
    const char *address, *role; /* "voter", "standby", "spare" */
    bool is_reachable;
    uint64_t match_index;
};
struct fl_node_status {
    uint64_t node_id, leader_id, term;
    uint64_t commit_index, applied_index, last_index, snapshot_index, state_hash;
    uint64_t sessions, names, holds, waits, grants, memory_bytes, token;
    const char *role; /* "leader", "follower", "candidate" */
    const char *version;
    const char *error; /* empty, or why it could not be asked */
    struct fl_member_status *members;
    size_t n_members;
};
struct fl_cluster_status {
    struct fl_node_status *nodes;
    size_t n_nodes;
};
/* Of the node behind the endpoint, or of all that it is linked to. */
FL_API int fl_cluster_status(struct fl_client *client, bool all_nodes,
                             struct fl_cluster_status **ret, struct fl_why *why);
FL_API void fl_cluster_status_free(struct fl_cluster_status *status);

struct fl_session_item {
    const char *session_id, *client;
    uint32_t ttl_ms, holds, waits;
    uint64_t silent_ms; /* since its last heartbeat */
    uint64_t age_ms;
};
struct fl_session_listing {
    struct fl_session_item *items;
    size_t n_items;
    const char *next_page; /* empty: this was the last page */
};
FL_API int fl_list_sessions(struct fl_client *client, const char *page, uint32_t page_size,
                            struct fl_session_listing **ret, struct fl_why *why);
FL_API void fl_session_listing_free(struct fl_session_listing *listing);

/* Ends a session: all that it holds goes to those who wait. It is told `by` and `reason`. */
FL_API int fl_end_session(struct fl_client *client, const char *session_id, const char *by,
                          const char *reason, struct fl_why *why);
/* Takes a name from its holder. `token` is the one that fl_describe() showed, so that it never hits
 * a later holder: FL_E_STALE. `reason` is required. */
FL_API int fl_force_release(struct fl_client *client, const char *name, uint64_t token,
                            const char *by, const char *reason, struct fl_why *why);
/* Releases what another session of ours holds, for scripts that kept its id and token. */
FL_API int fl_release_by_token(struct fl_client *client, const char *session_id, const char *name,
                               uint64_t token, struct fl_why *why);
/* Ends a session of ours as its client would: releases all that it holds, leaves all queues. */
FL_API int fl_close_session(struct fl_client *client, const char *session_id, struct fl_why *why);
/* `node_id` 0: whoever is furthest. */
FL_API int fl_transfer_leader(struct fl_client *client, uint64_t node_id, struct fl_why *why);

/* Members come and go one at a time. Each of these begins a change and returns; the leader's
 * fl_cluster_status() shows when it is done. FL_E_INVALID (why.field "node_id" or "address") when
 * it cannot be. Repeating one that succeeded gives FL_E_INVALID, too: look first. */
/* As a standby, which receives everything and does not vote. `address` is HOST:PORT of its peer
 * port; the id was never used before. */
FL_API int fl_add_node(struct fl_client *client, uint64_t node_id, const char *address,
                       struct fl_why *why);
/* From standby to voter, once it has caught up. */
FL_API int fl_promote_node(struct fl_client *client, uint64_t node_id, struct fl_why *why);
/* For ever. A leader hands over first. */
FL_API int fl_remove_node(struct fl_client *client, uint64_t node_id, struct fl_why *why);

struct fl_backup_info {
    uint64_t size;  /* of the file, in bytes */
    uint64_t index; /* the state is that of this entry */
    uint64_t token; /* about the last one that was handed out */
};
/* Takes a backup of the running cluster. `write` gets the file from its beginning to its end, piece
 * by piece, on the calling thread, and ends it with anything but 0; `info` is filled before the
 * first. What it got is worth nothing unless this returns 0. */
FL_API int fl_backup(struct fl_client *client,
                     int (*write)(void *ctx, const void *data, size_t len), void *ctx,
                     struct fl_backup_info *info, struct fl_why *why);

enum fl_watch_kind {
    FL_WATCH_PRESENT = 1, /* held when the watch began */
    FL_WATCH_GRANTED = 2,
    FL_WATCH_ENDED = 3,     /* `cause` tells why */
    FL_WATCH_CAUGHT_UP = 4, /* all that was there has been told */
};
struct fl_watch_event {
    int kind; /* enum fl_watch_kind */
    const char *name, *client, *cause;
    uint64_t token, index;
    int mode;
};
/* Tells `on_event` of holder changes of a name, or of every name with a prefix, on the calling
 * thread, until it returns false (0), or the watch breaks for longer than timeout_ms; a reconnect
 * goes on where it was, without a gap. */
FL_API int fl_watch(struct fl_client *client, const char *name, bool is_prefix,
                    bool (*on_event)(void *ctx, const struct fl_watch_event *event), void *ctx,
                    struct fl_why *why);

#ifdef __cplusplus
}
#endif

#endif
