/* What engines say to each other, and its bytes (docs/peer-protocol.md). Who sent a message is
 * known from the connection's handshake and is not among the bytes. */
#ifndef FL_RAFT_MESSAGE_H
#define FL_RAFT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "raft/entry.h"

#define FL_RAFT_MESSAGE_VERSION 1

/* An append's entries, unless a single one is bigger: a peer that lags by much more gets several
 * messages, and heartbeats find a gap between them. */
#define FL_RAFT_APPEND_BYTES_MAX (1024 * 1024)
/* What a decoder accepts as one entry. */
#define FL_RAFT_ENTRY_BYTES_MAX (16 * 1024 * 1024)
/* Servers of a configuration, and bytes of its encoding. */
#define FL_RAFT_SERVERS_MAX             32
#define FL_RAFT_CONFIGURATION_BYTES_MAX (64 * 1024)

/* Numbers are part of the protocol. */
enum fl_raft_message_type {
    FL_RAFT_APPEND = 1,           /* log_index, log_term: before the entries; commit; entries */
    FL_RAFT_APPEND_RESULT = 2,    /* log_index: last; rejected: 0 or which; is_old */
    FL_RAFT_VOTE = 3,             /* log_index, log_term: last; is_pre_vote, disrupts */
    FL_RAFT_VOTE_RESULT = 4,      /* is_granted, is_pre_vote */
    FL_RAFT_INSTALL_SNAPSHOT = 5, /* snapshot, without its content */
    FL_RAFT_TIMEOUT_NOW = 6,      /* log_index, log_term: last */
    FL_RAFT_PING = 7,             /* seq */
    FL_RAFT_PONG = 8,             /* term and seq of the ping */
};

struct fl_raft_message {
    uint8_t type;
    uint64_t from, to; /* not among the bytes */
    uint64_t term;
    uint64_t log_index, log_term;
    uint64_t commit, rejected, seq;
    bool is_old;      /* answers a request of an older term: good for its term only */
    bool is_pre_vote; /* asks, or is asked, whether an election could be won */
    bool disrupts;    /* the leader itself asked for this election */
    bool is_granted;
    uint16_t features, capacity;
    unsigned n;
    struct fl_entry **entries;    /* n references; borrowed in what the engine sends */
    struct fl_snapshot *snapshot; /* a reference, likewise */
};

/* Appends the message to `buf`. */
void fl_raft_message_encode(struct fl_buf *buf, const struct fl_raft_message *message);
/* FL_E_MALFORMED, FL_E_VERSION, FL_E_CORRUPT (checksum), FL_E_TOO_BIG. What it gives passed
 * fl_raft_message_check(). */
int fl_raft_message_decode(const void *data, size_t len, struct fl_raft_message **ret_message);
/* A copy with references of its own. */
struct fl_raft_message *fl_raft_message_copy(const struct fl_raft_message *message);
void fl_raft_message_free(struct fl_raft_message *message);

/* Whether the parts fit together: terms that never fall along the log nor pass the message's,
 * index 0 exactly with term 0, configurations that parse. 0 or FL_E_MALFORMED. */
int fl_raft_message_check(const struct fl_raft_message *message);
/* Whether bytes are a configuration that libraft decodes: distinct ids, known roles. */
int fl_raft_configuration_check(const void *data, size_t len);

#endif
