/* Commands: what the log carries. One log entry is one batch (group commit).
 *
 * The encoding is little-endian, versioned, described in docs/log-format.md and pinned by golden
 * files, so that nodes of two releases can run together. Decoding never trusts a byte: it checks
 * every range of core/types.h, and a batch is taken whole or not at all. */
#ifndef FL_CORE_COMMAND_H
#define FL_CORE_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "core/types.h"

/* Numbers are part of the log format: never reuse one. */
enum fl_command_type {
    FL_CMD_OPEN_SESSION = 1,
    FL_CMD_CLOSE_SESSION = 2,  /* by its client */
    FL_CMD_EXPIRE_SESSION = 3, /* by the leader's judgement */
    FL_CMD_END_SESSION = 4,    /* by an operator */
    FL_CMD_NOTE_SILENCE = 5,
    FL_CMD_ACQUIRE = 6,
    FL_CMD_RELEASE = 7,
    FL_CMD_CANCEL = 8,
    FL_CMD_FORCE_RELEASE = 9,
    FL_CMD_RAISE_TOKEN = 10,
    /* Level 2, changes nothing: what a later release's kind looks like to this one, so that an
     * upgrade can be rehearsed with two builds. */
    FL_CMD_MARK_LEVEL = 11,
};

/* The newest formats that this program knows. What a level brings is written only when all members
 * have reported that they know it (fl_node_set_level()). A test links another value. */
extern const uint16_t fl_format_level;
#define FL_CMD_LAST (fl_format_level >= 2 ? FL_CMD_MARK_LEVEL : FL_CMD_RAISE_TOKEN)

/* Fields that a type does not list are 0. Strings are borrowed: from the caller when encoding, from
 * the batch's bytes when decoding. */
struct fl_command {
    enum fl_command_type type;
    struct fl_session_id session; /* all but FORCE_RELEASE, RAISE_TOKEN and MARK_LEVEL */

    uint64_t request_id; /* ACQUIRE, CANCEL */
    struct fl_str name;  /* ACQUIRE, RELEASE, FORCE_RELEASE */
    fl_token token;      /* RELEASE, FORCE_RELEASE; RAISE_TOKEN: the next grant's is above it */

    enum fl_mode mode; /* ACQUIRE */
    uint32_t limit;    /* ACQUIRE of a counted name: 1 to FL_LIMIT_MAX */
    uint32_t wait_ms;  /* ACQUIRE: 0 tries once */

    /* CANCEL: the caller is gone, so a grant that came first is given back at once. Without it a
     * grant that came first stays, and the answer says so. */
    bool abandon;
    /* Which call asked, 0: untold. A client that gives one call up may have asked again through
     * another gateway: an abandoning CANCEL of one asker leaves alone what another ACQUIRE of the
     * same request asked for since. */
    uint16_t asker; /* ACQUIRE, CANCEL with abandon */

    struct fl_str client;   /* OPEN_SESSION */
    uint32_t ttl_ms;        /* OPEN_SESSION */
    uint32_t lock_delay_ms; /* OPEN_SESSION: 0 is none */

    uint64_t term;       /* EXPIRE_SESSION: the term in which the leader decided it */
    uint32_t silence_ms; /* NOTE_SILENCE: how long it had been silent; 0: heard from again */

    struct fl_str actor, reason; /* END_SESSION, FORCE_RELEASE: who, why */
};

struct fl_batch {
    uint64_t now_ms; /* the leader's log time: never goes back, in no relation to any wall clock */
    struct fl_command *commands;
    size_t n;
};

/* Writing: begin, add each, and the bytes in `buf` are the entry. */
void fl_batch_begin(struct fl_buf *buf, uint64_t now_ms);
/* The command must be in range: the caller checked its input (fl_command_fault()). */
void fl_batch_add(struct fl_buf *buf, const struct fl_command *command);

/* The field of the first value that is out of range ("name", "ttl_ms", ...), and in `ret_why` a
 * sentence part; NULL when all are in range. */
const char *fl_command_fault(const struct fl_command *command, const char **ret_why);

/* FL_E_MALFORMED, or FL_E_VERSION for a version or command type of a later release. On success the
 * commands' array is owned by the batch, their strings borrow from `data`. */
int fl_batch_decode(const void *data, size_t len, struct fl_batch *ret_batch);
void fl_batch_deinit(struct fl_batch *batch);

#endif
