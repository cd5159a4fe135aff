/* A payout worker with a real store: acquires the invoice's lock, reads, and pays. The store checks
 * the fencing token in the same transaction as the payment (fence/), so that a worker that was
 * stopped for longer than its lease cannot pay what another has paid already. `make demo` stops one
 * on purpose.
 *
 *     settle INVOICE --store 'sqlite3 -bail FILE' [--sqlite | --postgres] [--pause] [--no-fence]
 *
 * The store is a command that reads SQL. With --pause it waits for a line on standard input between
 * reading and paying. Exit codes: 0 paid, or paid already; 3 the store refused; 1 anything else. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <fencelock/fencelock.h>

struct worker {
    const char *invoice, *store;
    bool is_postgres, pauses, is_unfenced;
    uint64_t token;
};

/* One transaction, through the store's own client. What it prints goes to `out`; true when it
 * committed. */
static bool run_sql(const struct worker *w, const char *sql, char *out, size_t size)
{
    char path[] = "/tmp/settle-XXXXXX", command[2048];
    int fd = mkstemp(path);
    FILE *script = fd >= 0 ? fdopen(fd, "w") : NULL, *output;
    size_t n;
    int status;

    if (script == NULL)
        return false;
    fputs(sql, script);
    fclose(script);
    snprintf(command, sizeof command, "%s < %s 2>&1", w->store, path);
    output = popen(command, "r");
    n = output != NULL ? fread(out, 1, size - 1, output) : 0;
    out[n] = '\0';
    status = output != NULL ? pclose(output) : -1;
    remove(path);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void format_fence(const struct worker *w, const char *what, char *out, size_t size)
{
    out[0] = '\0';
    if (w->is_unfenced)
        return;
    if (w->is_postgres)
        snprintf(out, size, "SELECT fencelock.\"%s\"('invoice/%s', %" PRIu64 ");\n", what,
                 w->invoice, w->token);
    else
        snprintf(out, size, "INSERT INTO fencelock_%s VALUES ('invoice/%s', %" PRIu64 ");\n", what,
                 w->invoice, w->token);
}

static const char *begin(const struct worker *w)
{
    return w->is_postgres ? "BEGIN;\n" : "BEGIN IMMEDIATE;\n";
}

/* Claims before the first read: from here on a lower token is refused. */
static bool is_open(const struct worker *w)
{
    char fence[256], sql[1024], out[1024];

    format_fence(w, "claim", fence, sizeof fence);
    snprintf(
        sql, sizeof sql,
        "%s%sSELECT 'payments so far: ' || count(*) FROM payment WHERE invoice = '%s';\nCOMMIT;\n",
        begin(w), fence, w->invoice);
    return run_sql(w, sql, out, sizeof out) && strstr(out, "payments so far: 0") != NULL;
}

static int pay(const struct worker *w)
{
    char fence[256], sql[1024], out[1024];

    format_fence(w, "check", fence, sizeof fence);
    snprintf(sql, sizeof sql,
             "%s%sINSERT INTO payment (invoice, cents, token) VALUES ('%s', 12000, %" PRIu64
             ");\nCOMMIT;\n",
             begin(w), fence, w->invoice, w->token);
    if (run_sql(w, sql, out, sizeof out)) {
        printf("paid 120.00 for %s with token %" PRIu64 "\n", w->invoice, w->token);
        return 0;
    }
    out[strcspn(out, "\n")] = '\0';
    printf("the store refused the payment: %s\n", out);
    return strstr(out, "stale") != NULL ? 3 : 1;
}

static void on_lost(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                    const char *reason)
{
    (void)ctx;
    (void)lock;
    (void)by;
    (void)reason;
    printf("the lock is lost: %s\n", fl_lost_cause_text(cause));
}

static int settle(struct worker *w, struct fl_lock *lock)
{
    char line[16];

    w->token = fl_lock_token(lock);
    printf("has the lock, with token %" PRIu64 "\n", w->token);
    if (!is_open(w)) {
        printf("the invoice is paid already: nothing to do\n");
        return 0;
    }
    printf("the invoice is open: about to pay\n");
    if (w->pauses && fgets(line, sizeof line, stdin) == NULL)
        return 1;
    return pay(w);
}

static bool parse(struct worker *w, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--store") == 0 && i + 1 < argc)
            w->store = argv[++i];
        else if (strcmp(argv[i], "--postgres") == 0)
            w->is_postgres = true;
        else if (strcmp(argv[i], "--sqlite") == 0)
            w->is_postgres = false;
        else if (strcmp(argv[i], "--pause") == 0)
            w->pauses = true;
        else if (strcmp(argv[i], "--no-fence") == 0)
            w->is_unfenced = true;
        else
            w->invoice = argv[i];
    }
    return w->invoice != NULL && w->store != NULL &&
           strspn(w->invoice, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789") == strlen(w->invoice);
}

int main(int argc, char **argv)
{
    const struct fl_client_options options = {.ttl_ms = 2000, .on_lost = on_lost};
    const struct fl_acquire_options patient = {.wait_ms = 60000};
    struct worker w = {0};
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    struct fl_why why = {0};
    char name[128];
    int code = 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!parse(&w, argc, argv)) {
        fprintf(stderr,
                "usage: settle INVOICE --store COMMAND [--postgres] [--pause] [--no-fence]\n");
        return 64;
    }
    snprintf(name, sizeof name, "invoice/%s", w.invoice);
    if (fl_client_new(NULL, &options, &client, &why) == 0 &&
        fl_acquire(client, name, &patient, &lock, &why) == 0) {
        code = settle(&w, lock);
        fl_release(lock, NULL);
    } else {
        fprintf(stderr, "%s\n", why.message);
    }
    fl_lock_free(lock);
    fl_client_free(client);
    return code;
}
