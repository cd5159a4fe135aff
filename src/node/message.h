/* What a gateway and a node say to each other, in one process or across the network.
 *
 * A gateway sends requests, each with a tag of its own; the node answers each tag exactly once
 * while the link lives, and pushes what happens to sessions that the link carries. When a link
 * breaks, or a node answers NOT_LEADER, the gateway sends what is unanswered to the next leader
 * with the same session and request ids: every request here can be repeated.
 *
 * The encoding is versioned by the link's handshake, little-endian, and never trusted. */
#ifndef FL_NODE_MESSAGE_H
#define FL_NODE_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/machine.h"

#define FL_LINK_VERSION 1

/* A string of a message, whatever it is for: far above every limit of core/types.h, so that what is
 * too long is answered INVALID with its field and not by a closed link. */
#define FL_MESSAGE_STR_MAX 65535

enum fl_request_type {
    FL_REQ_OPEN_SESSION = 1, /* session, client, ttl_ms, lock_delay_ms, release_on_disconnect */
    FL_REQ_RESUME_SESSION =
        2,                 /* session: this link carries it now; the reply lists holds and waits */
    FL_REQ_KEEP_ALIVE = 3, /* session */
    FL_REQ_CLOSE_SESSION = 4, /* session */
    FL_REQ_DETACH = 5,    /* session: its stream ended here; with release_on_disconnect: closes */
    FL_REQ_ACQUIRE = 6,   /* session, request_id, name, mode, limit, wait_ms, asker */
    FL_REQ_RELEASE = 7,   /* session, name, token */
    FL_REQ_CANCEL = 8,    /* session, request_id, abandon, asker */
    FL_REQ_DESCRIBE = 9,  /* name, max (waiters), stale_ok */
    FL_REQ_LIST = 10,     /* name (prefix), after, max, stale_ok */
    FL_REQ_SESSIONS = 11, /* after (session), max, stale_ok */
    FL_REQ_FORCE_RELEASE = 12,   /* name, token, actor, reason */
    FL_REQ_END_SESSION = 13,     /* session, actor, reason */
    FL_REQ_STATUS = 14,          /* answered by any node, leader or not, from what it knows */
    FL_REQ_WATCH = 15,           /* name or prefix, from_index: see node/watch.h. Its tag stays in
                                    use for pushes until UNWATCH or FL_PUSH_WATCH_END */
    FL_REQ_UNWATCH = 16,         /* request_id: the tag of the WATCH */
    FL_REQ_TRANSFER_LEADER = 17, /* node_id, 0: any */
    FL_REQ_ADD_NODE = 18,        /* node_id, name: its address; it does not vote yet */
    FL_REQ_PROMOTE_NODE = 19,    /* node_id: to voter, once it has caught up */
    FL_REQ_REMOVE_NODE = 20,     /* node_id; a leader hands over first */
    FL_REQ_WAITS = 21,           /* max, stale_ok: what is waited for, and by whom */
    FL_REQ_BACKUP = 22,      /* begin one, at the leader; answered by the member, not the node */
    FL_REQ_BACKUP_READ = 23, /* request_id: which, from_index: offset in the file */
};
#define FL_REQ_LAST FL_REQ_BACKUP_READ
/* Of a backup's file, in one reply. */
#define FL_BACKUP_PIECE_MAX (512u * 1024)

struct fl_request {
    enum fl_request_type type;
    uint64_t tag; /* chosen by the gateway, unique on its link while unanswered */
    struct fl_session_id session;
    uint64_t request_id;
    struct fl_str name;  /* or prefix */
    struct fl_str after; /* LIST: a name */
    fl_token token;
    enum fl_mode mode;
    uint32_t limit, wait_ms, ttl_ms, lock_delay_ms, max;
    uint16_t asker; /* core/command.h */
    bool abandon, stale_ok, release_on_disconnect, is_prefix;
    uint64_t from_index, node_id;
    struct fl_str client, actor, reason;
};

void fl_request_encode(struct fl_buf *buf, const struct fl_request *request);
/* Strings borrow from `data`. FL_E_MALFORMED; FL_E_VERSION for a type of a later release. Ranges
 * are checked by the node, which answers INVALID with the field. */
int fl_request_decode(const void *data, size_t len, struct fl_request *ret_request);

enum fl_reply_status {
    FL_REPLY_ANSWER = 0, /* decided: see `answer` */
    FL_REPLY_NOT_LEADER, /* ask `leader_id` (0: unknown); nothing was decided, or it is unknown */
    FL_REPLY_INVALID,    /* `field` is wrong, `text` says why */
    FL_REPLY_BUSY,       /* over a limit of this node: repeat later, after `retry_ms` */
    FL_REPLY_DISK_FULL,  /* no grants now; releases go on */
    FL_REPLY_NOT_READY,  /* the node is starting */
    FL_REPLY_CHANGING,   /* another change of members or of the leader is under way */
};
#define FL_REPLY_LAST FL_REPLY_CHANGING

struct fl_status_info {
    uint64_t node_id, leader_id, term, commit_index, applied_index, last_index, snapshot_index;
    uint64_t history_hash;
    uint8_t role; /* 0 follower, 1 candidate, 2 leader */
    struct fl_machine_stats stats;
    fl_token token;
    uint32_t n_members;
    struct fl_status_member {
        uint64_t id;
        struct fl_str address;
        uint8_t role; /* 0 voter, 1 standby, 2 spare */
        bool reachable;
        uint64_t match_index; /* leader only */
    } members[16];
    struct fl_str version;
};

/* Everything a reply can carry; what does not belong to the request's type is zero. Lists are
 * arrays owned by whoever built or decoded the reply (fl_reply_deinit); strings borrow. */
struct fl_reply {
    uint64_t tag;
    enum fl_request_type request_type;
    enum fl_reply_status status;
    uint64_t leader_id, term;
    struct fl_str field, text;
    uint32_t retry_ms;

    enum fl_answer answer;
    uint64_t index; /* of the entry it was decided at, or that a read saw */
    struct fl_session_id session;
    uint64_t request_id;
    fl_token token;
    enum fl_mode mode;
    uint32_t limit, ttl_ms, position;
    struct fl_str holder_client;
    fl_token holder_token;
    uint32_t holder_for_ms;

    struct fl_name_info name_info; /* DESCRIBE */
    uint32_t closed_for_ms;        /* DESCRIBE: lock-delay left */
    struct fl_reply_request {      /* DESCRIBE: holders, then waiters; RESUME: holds, then
                                    waits; WAITS: name by name, each as DESCRIBE */
        struct fl_session_id session;
        struct fl_str client, name;
        uint64_t request_id;
        enum fl_mode mode;
        fl_token token;         /* 0: waits */
        uint32_t for_ms;        /* held or waiting so long */
        uint32_t lease_left_ms; /* DESCRIBE of a holder: until the leader would end its session */
    } * requests;
    size_t n_requests;
    struct fl_reply_name { /* LIST */
        struct fl_str name;
        enum fl_mode mode;
        uint32_t limit, holders, waiters;
        struct fl_str holder_client;
        fl_token token;
        uint32_t held_for_ms;
    } * names;
    size_t n_names;
    struct fl_reply_session { /* SESSIONS */
        struct fl_session_id id;
        struct fl_str client;
        uint32_t ttl_ms, holds, waits, silent_ms;
        uint64_t age_ms;
    } * sessions;
    size_t n_sessions;
    bool more; /* LIST, SESSIONS, WAITS: there is more */
    /* BACKUP: request_id is its id, node_id who has it, size that of its file, index, token.
     * BACKUP_READ: bytes of the file; none: that was all */
    uint64_t node_id, size;
    struct fl_str bytes;
    struct fl_status_info info; /* STATUS */
};

/* `name_info.name` and `name_info.closed_until_ms` do not travel: the asker knows the one, and log
 * time means nothing to it (see `closed_for_ms`). */
void fl_reply_encode(struct fl_buf *buf, const struct fl_reply *reply);
/* FL_E_MALFORMED; FL_E_VERSION for a type or status of a later release. On failure *ret_reply holds
 * nothing to free. */
int fl_reply_decode(const void *data, size_t len, struct fl_reply *ret_reply);
void fl_reply_deinit(struct fl_reply *reply);

/* What a node tells a gateway unasked. */
enum fl_push_type {
    FL_PUSH_LEADER = 1, /* leader_id (0: none known) of `term`: after hello and on each change */
    FL_PUSH_LOST = 2,   /* session, name, token, request_id, cause, actor, reason */
    FL_PUSH_SESSION_END = 3, /* session, cause, actor, reason: all its holds and waits are gone */
    FL_PUSH_CONTENDED = 4,   /* session, name, token: somebody waits for what it holds */
    FL_PUSH_WATCH = 5,       /* tag: one event of a watch */
    FL_PUSH_WATCH_END = 6,   /* tag: the watch cannot go on (why in `text`): begin again */
    FL_PUSH_CAUGHT_UP = 7,   /* tag, index: all that was there up to `index` has been told */
    FL_PUSH_MEMBERS = 8,     /* text: "ID=ADDRESS,..." as of entry `index`; after hello and on each
                                change */
};
#define FL_PUSH_LAST FL_PUSH_MEMBERS

struct fl_push {
    enum fl_push_type type;
    uint64_t leader_id, term, tag, index;
    struct fl_session_id session;
    uint64_t request_id;
    struct fl_str name, client;
    fl_token token;
    enum fl_mode mode;
    enum fl_cause cause;
    uint32_t waiters;
    bool granted; /* WATCH: somebody got it (else: lost it, for `cause`) */
    bool present; /* WATCH, with granted: held already when the watch began */
    struct fl_str actor, reason, text;
};

/* Everything is told by every type that has it; what does not belong to the type is zero. */
void fl_push_encode(struct fl_buf *buf, const struct fl_push *push);
int fl_push_decode(const void *data, size_t len, struct fl_push *ret_push);

/* A frame on a link begins with one of these. */
enum fl_link_frame { FL_LINK_REQUEST = 1, FL_LINK_REPLY = 2, FL_LINK_PUSH = 3 };

#endif
