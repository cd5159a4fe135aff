/* The fence in PostgreSQL (fence/postgresql.sql) for users of libpq: three functions in a header,
 * so that libfencelock needs no database. Compile with libpq's flags, link with -lpq.
 *
 *     PQclear(PQexec(db, "BEGIN"));
 *     if (fl_pq_claim(db, "invoice/INV-55102", fl_lock_token(lock), &why) != 0)
 *         ... PQclear(PQexec(db, "ROLLBACK")), and report why.message
 *
 * Each belongs into the transaction of what it protects. Returns 0, or fills `why` (NULL is fine)
 * and returns FL_E_STALE        a higher token has been seen: roll back, acquire the lock again
 *   FL_E_NOT_FOUND    the token was not claimed: a program error
 *   FL_E_INVALID      no resource, or a token of 0
 *   FL_E_CONFLICT     the transaction must be repeated (serialization, deadlock)
 *   FL_E_UNREACHABLE  the connection is broken: what became of the transaction is unknown
 *   FL_E_INTERNAL     anything else that the server says; is the fence loaded?
 * After any failure the transaction can only be rolled back. */
#ifndef FENCELOCK_FENCE_POSTGRESQL_H
#define FENCELOCK_FENCE_POSTGRESQL_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <fencelock/fencelock.h>
#include <libpq-fe.h>

static inline int fl_pq__code(const PGconn *db, const char *state)
{
    static const struct {
        const char *state;
        int code;
    } codes[] = {
        {"FL001", FL_E_STALE},    {"FL002", FL_E_NOT_FOUND}, {"22023", FL_E_INVALID},
        {"40001", FL_E_CONFLICT}, {"40P01", FL_E_CONFLICT},
    };

    for (size_t i = 0; state != NULL && i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(state, codes[i].state) == 0)
            return codes[i].code;
    return PQstatus(db) == CONNECTION_OK ? FL_E_INTERNAL : FL_E_UNREACHABLE;
}

static inline int fl_pq__call(PGconn *db, const char *sql, const char *resource, uint64_t token,
                              struct fl_why *why)
{
    const char *values[2] = {resource, NULL};
    struct fl_why ignored;
    char number[24];
    PGresult *result;

    if (why == NULL)
        why = &ignored;
    memset(why, 0, sizeof *why);
    snprintf(number, sizeof number, "%" PRIu64, token);
    values[1] = number;
    result = PQexecParams(db, sql, 2, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        const char *said = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

        why->code = fl_pq__code(db, state);
        snprintf(why->reason, sizeof why->reason, "%s", state != NULL ? state : "");
        snprintf(why->message, sizeof why->message, "%s", said != NULL ? said : PQerrorMessage(db));
    }
    PQclear(result);
    return why->code;
}

/* Before the first read. */
static inline int fl_pq_claim(PGconn *db, const char *resource, uint64_t token, struct fl_why *why)
{
    return fl_pq__call(db, "SELECT fencelock.claim($1, $2::bigint)", resource, token, why);
}

/* In later transactions of the same holder. */
static inline int fl_pq_check(PGconn *db, const char *resource, uint64_t token, struct fl_why *why)
{
    return fl_pq__call(db, "SELECT fencelock.\"check\"($1, $2::bigint)", resource, token, why);
}

/* By shared holders: refuses what a writer has claimed since, and claims nothing. */
static inline int fl_pq_check_shared(PGconn *db, const char *resource, uint64_t token,
                                     struct fl_why *why)
{
    return fl_pq__call(db, "SELECT fencelock.check_shared($1, $2::bigint)", resource, token, why);
}

#endif
