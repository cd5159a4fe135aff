/* fence_sqlite.h and fence_postgresql.h as an application uses them.
 *
 *     helpers sqlite FENCE.SQL | helpers postgresql CONNINFO     (where the fence is loaded) */
#include <stdio.h>
#include <stdlib.h>

#include <fencelock/fence_postgresql.h>
#include <fencelock/fence_sqlite.h>

static int failures;

static void expect(const char *what, int got, int wanted, const struct fl_why *why)
{
    bool ok = got == wanted && why->code == got && (got == 0) == (why->message[0] == '\0');

    printf("%s  %s: %d %s\n", ok ? "ok    " : "FAILED", what, got, why->message);
    failures += !ok;
}

static void exec_or_die(sqlite3 *db, const char *sql)
{
    char *why = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &why) == SQLITE_OK)
        return;
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static char *read_file(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        perror(path);
        exit(1);
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void try_sqlite(const char *fence)
{
    struct fl_why why;
    sqlite3 *db, *other;

    sqlite3_open("file:helpers?mode=memory&cache=shared", &db);
    sqlite3_close(db);
    sqlite3_open_v2("file:helpers?mode=memory&cache=shared", &db,
                    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL);
    sqlite3_open_v2("file:helpers?mode=memory&cache=shared", &other,
                    SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, NULL);
    expect("no fence", fl_sqlite_claim(db, "r", 1, &why), FL_E_INTERNAL, &why);
    exec_or_die(db, read_file(fence));
    expect("unclaimed", fl_sqlite_check(db, "r", 5, &why), FL_E_NOT_FOUND, &why);
    expect("claim", fl_sqlite_claim(db, "r", 5, &why), 0, &why);
    expect("check", fl_sqlite_check(db, "r", 5, &why), 0, &why);
    expect("equal", fl_sqlite_claim(db, "r", 5, &why), 0, &why);
    expect("stale claim", fl_sqlite_claim(db, "r", 4, &why), FL_E_STALE, &why);
    expect("stale check", fl_sqlite_check(db, "r", 4, &why), FL_E_STALE, &why);
    expect("nonsense", fl_sqlite_claim(db, "r", 0, &why), FL_E_INVALID, &why);
    expect("no resource", fl_sqlite_claim(db, NULL, 9, &why), FL_E_INVALID, &why);
    exec_or_die(db, "BEGIN IMMEDIATE");
    expect("beside a writer", fl_sqlite_claim(other, "r", 6, &why), FL_E_CONFLICT, &why);
    exec_or_die(db, "ROLLBACK");
    fl_sqlite_claim(other, "r", 6, NULL);
    expect("the older one then", fl_sqlite_check(db, "r", 5, &why), FL_E_STALE, &why);
    sqlite3_close(other);
    sqlite3_close(db);
}

static void try_postgresql(const char *conninfo)
{
    PGconn *db = PQconnectdb(conninfo), *other = PQconnectdb(conninfo);
    struct fl_why why;

    if (PQstatus(db) != CONNECTION_OK) {
        fprintf(stderr, "%s", PQerrorMessage(db));
        exit(1);
    }
    PQclear(PQexec(db, "DELETE FROM fencelock.fence"));
    expect("unclaimed", fl_pq_check(db, "r", 5, &why), FL_E_NOT_FOUND, &why);
    expect("claim", fl_pq_claim(db, "r", 5, &why), 0, &why);
    expect("check", fl_pq_check(db, "r", 5, &why), 0, &why);
    expect("equal", fl_pq_claim(db, "r", 5, &why), 0, &why);
    expect("stale claim", fl_pq_claim(db, "r", 4, &why), FL_E_STALE, &why);
    expect("stale check", fl_pq_check(db, "r", 4, &why), FL_E_STALE, &why);
    expect("stale reader", fl_pq_check_shared(db, "r", 4, &why), FL_E_STALE, &why);
    expect("reader", fl_pq_check_shared(db, "r", 6, &why), 0, &why);
    expect("nonsense", fl_pq_claim(db, "r", 0, &why), FL_E_INVALID, &why);
    expect("no resource", fl_pq_claim(db, NULL, 9, &why), FL_E_INVALID, &why);
    PQclear(PQexec(other, "BEGIN ISOLATION LEVEL SERIALIZABLE"));
    PQclear(PQexec(other, "SELECT count(*) FROM fencelock.fence"));
    fl_pq_claim(db, "r", 7, NULL);
    expect("an older snapshot", fl_pq_claim(other, "r", 8, &why), FL_E_CONFLICT, &why);
    PQclear(PQexec(other, "ROLLBACK"));
    PQclear(PQexec(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                          "pg_backend_pid() AND backend_type = 'client backend'"));
    expect("a broken connection", fl_pq_claim(db, "r", 9, &why), FL_E_UNREACHABLE, &why);
    PQfinish(db);
    PQfinish(other);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "sqlite") == 0)
        try_sqlite(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "postgresql") == 0)
        try_postgresql(argv[2]);
    else
        return 64;
    return failures != 0;
}
