/* The fence in SQLite (fence/sqlite.sql) for users of its C interface: functions in a header, so
 * that libfencelock needs no database. Link with -lsqlite3.
 *
 *     sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
 *     if (fl_sqlite_claim(db, "invoice/INV-55102", fl_lock_token(lock), &why) != 0)
 *         ... "ROLLBACK", and report why.message
 *
 * Each belongs into the transaction of what it protects. Returns 0, or fills `why` (NULL is fine)
 * and returns FL_E_STALE      a higher token has been seen: roll back, acquire the lock again
 *   FL_E_NOT_FOUND  the token was not claimed: a program error
 *   FL_E_INVALID    no resource, or a token of 0
 *   FL_E_CONFLICT   another writer is at it (SQLITE_BUSY): repeat the transaction
 *   FL_E_INTERNAL   anything else that SQLite says; is the fence loaded?
 * SQLite undoes the failed statement alone: the transaction is yours to roll back. */
#ifndef FENCELOCK_FENCE_SQLITE_H
#define FENCELOCK_FENCE_SQLITE_H

#include <stdio.h>
#include <string.h>

#include <fencelock/fencelock.h>
#include <sqlite3.h>

static inline int fl_sqlite__code(int r, const char *said)
{
    if ((r & 0xff) == SQLITE_BUSY || (r & 0xff) == SQLITE_LOCKED)
        return FL_E_CONFLICT;
    if (strncmp(said, "fencelock: ", 11) != 0)
        return FL_E_INTERNAL;
    if (strstr(said, "stale token") != NULL)
        return FL_E_STALE;
    return strstr(said, "was not claimed") != NULL ? FL_E_NOT_FOUND : FL_E_INVALID;
}

static inline int fl_sqlite__insert(sqlite3 *db, const char *sql, const char *resource,
                                    uint64_t token, struct fl_why *why)
{
    sqlite3_stmt *statement = NULL;
    struct fl_why ignored;
    int r = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);

    if (why == NULL)
        why = &ignored;
    memset(why, 0, sizeof *why);
    if (r == SQLITE_OK)
        r = sqlite3_bind_text(statement, 1, resource, -1, SQLITE_TRANSIENT);
    if (r == SQLITE_OK)
        r = sqlite3_bind_int64(statement, 2, (sqlite3_int64)token);
    if (r == SQLITE_OK)
        r = sqlite3_step(statement);
    if (r != SQLITE_DONE) {
        why->code = fl_sqlite__code(r, sqlite3_errmsg(db));
        snprintf(why->message, sizeof why->message, "%s", sqlite3_errmsg(db));
    }
    sqlite3_finalize(statement);
    return why->code;
}

/* Before the first read. */
static inline int fl_sqlite_claim(sqlite3 *db, const char *resource, uint64_t token,
                                  struct fl_why *why)
{
    return fl_sqlite__insert(db, "INSERT INTO fencelock_claim VALUES (?, ?)", resource, token, why);
}

/* In later transactions of the same holder. */
static inline int fl_sqlite_check(sqlite3 *db, const char *resource, uint64_t token,
                                  struct fl_why *why)
{
    return fl_sqlite__insert(db, "INSERT INTO fencelock_check VALUES (?, ?)", resource, token, why);
}

#endif
