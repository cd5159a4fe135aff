/* The words of the lock service (docs: DESIGN in ARCHITECTURE.md) as types, and its limits. */
#ifndef FL_CORE_TYPES_H
#define FL_CORE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* What is locked: UTF-8, no control characters, compared byte by byte. */
#define FL_NAME_MAX 512 /* bytes */
/* The name that a client gives itself, shown to others who wait: UTF-8, no control characters. */
#define FL_CLIENT_MAX 128 /* bytes */
/* Why an operator ended something; shown to the former holder. */
#define FL_REASON_MAX 256 /* bytes */

#define FL_TTL_MS_MIN        1000u
#define FL_TTL_MS_MAX        3600000u
#define FL_TTL_MS_DEFAULT    10000u
#define FL_WAIT_MS_MAX       86400000u /* a day: longer waits are somebody's mistake */
#define FL_LOCK_DELAY_MS_MAX 600000u
#define FL_LIMIT_MAX         1000000u /* permits of a counted name */

/* Tokens survive JavaScript's numbers and fit a SQL BIGINT. */
#define FL_TOKEN_MAX ((UINT64_C(1) << 53) - 1)
/* A restore from a backup raises the counter by this: what was handed out after the backup was
 * taken stays below what comes (L20). */
#define FL_TOKEN_RESTORE_JUMP (UINT64_C(1) << 40)

/* Finished requests of a session that are remembered, so that a late retry gets the first outcome.
 */
#define FL_REQUESTS_REMEMBERED 128

typedef uint64_t fl_token; /* 0: none */

/* 128 random bits, made by the gateway; written "s_" and 32 hexadecimal digits. */
struct fl_session_id {
    uint64_t high, low;
};

#define FL_SESSION_ID_TEXT_SIZE 35 /* with the final zero */

enum fl_mode {
    FL_MODE_NONE = 0, /* a name that nobody holds */
    FL_MODE_EXCLUSIVE = 1,
    FL_MODE_SHARED = 2,
    FL_MODE_COUNTED = 3,
};

static inline bool fl_session_id_equal(struct fl_session_id a, struct fl_session_id b)
{
    return a.high == b.high && a.low == b.low;
}

static inline bool fl_session_id_is_none(struct fl_session_id id)
{
    return (id.high | id.low) == 0;
}

/* Returns `out`, of at least FL_SESSION_ID_TEXT_SIZE bytes. */
const char *fl_session_id_format(struct fl_session_id id, char *out);
/* FL_E_INVALID when it is not of that form (upper-case digits are not). */
int fl_session_id_parse(struct fl_str text, struct fl_session_id *ret_id);

/* What is wrong with a name, as a sentence part ("is empty", "is longer than 512 bytes", ...), or
 * NULL when it is good. */
const char *fl_name_fault(struct fl_str name);
const char *fl_client_name_fault(struct fl_str client);

const char *fl_mode_text(enum fl_mode mode); /* "exclusive", ... */

#endif
