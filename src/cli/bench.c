/* `fencelock bench`: how fast, and how late at a given rate.
 *
 * Closed loop: --clients workers, each acquires and releases as fast as it is answered. Open loop
 * (--rate): operations begin at fixed instants, whether earlier ones were answered or not, and a
 * latency counts from the instant at which its operation was due. So a stall is seen by everything
 * that was due in it (no coordinated omission). */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/histogram.h"
#include "cli/cli.h"

#define CONNECTIONS_MAX 256
#define WARMUP_NS       UINT64_C(1000000000)
/* An open loop that the cluster cannot follow must not eat all memory. */
#define OUTSTANDING_MAX 1000000

struct connection;

/* One acquire and its release at a time. */
struct worker {
    struct connection *connection;
    uint64_t due_ns; /* the operation's instant */
    bool is_open_loop;
    char name[80];
};

/* One client: its own connection, session and threads. The histograms belong to its callback
 * thread until the run is over. */
struct connection {
    struct bench *bench;
    struct fl_client *client;
    struct fl_histogram acquires, releases;
    uint64_t errors, not_granted;
    struct fl_why first_error;
};

struct bench {
    struct cli_common common;
    unsigned n_clients, n_connections, seconds;
    uint64_t rate, names;
    uint32_t ttl_ms;
    struct connection connections[CONNECTIONS_MAX];
    uint64_t measure_from_ns, stop_ns;
    atomic_uint_fast64_t next_name, outstanding;
    uint64_t skipped; /* due while too much was outstanding */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- An operation: acquire, then release ---- */

static void begin(struct worker *worker, uint64_t due_ns);

static void finish(struct worker *worker)
{
    struct bench *bench = worker->connection->bench;

    if (!worker->is_open_loop && now_ns() < bench->stop_ns) {
        begin(worker, now_ns());
        return;
    }
    atomic_fetch_sub(&bench->outstanding, 1);
    free(worker);
}

static bool is_measured(const struct bench *bench, uint64_t at_ns)
{
    return at_ns >= bench->measure_from_ns && at_ns < bench->stop_ns;
}

static void note_error(struct connection *connection, const struct fl_why *why)
{
    if (connection->errors++ == 0)
        connection->first_error = *why;
}

static void heard_released(void *ctx, struct fl_lock *lock, int code, const struct fl_why *why)
{
    struct worker *worker = ctx;
    struct connection *connection = worker->connection;

    fl_lock_free(lock);
    if (code < 0)
        note_error(connection, why);
    else if (is_measured(connection->bench, worker->due_ns))
        fl_histogram_record(&connection->releases, now_ns() - worker->due_ns);
    finish(worker);
}

static void heard_acquired(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct worker *worker = ctx;
    struct connection *connection = worker->connection;
    uint64_t now = now_ns();

    if (code == FL_E_TIMEOUT || code == FL_E_HELD)
        connection->not_granted++;
    else if (code < 0)
        note_error(connection, why);
    if (code < 0) {
        finish(worker);
        return;
    }
    if (is_measured(connection->bench, worker->due_ns))
        fl_histogram_record(&connection->acquires, now - worker->due_ns);
    worker->due_ns = now; /* a release is due when its acquire is answered */
    if (fl_release_async(lock, heard_released, worker) == 0)
        return;
    fl_lock_free(lock);
    finish(worker);
}

static void begin(struct worker *worker, uint64_t due_ns)
{
    struct bench *bench = worker->connection->bench;
    uint64_t number = atomic_fetch_add(&bench->next_name, 1);
    struct fl_acquire_options options = {.wait_ms = 10000};
    struct fl_why why;

    if (bench->names != 0)
        number %= bench->names;
    snprintf(worker->name, sizeof worker->name, "bench/%ld/%020" PRIu64 "/settle-an-invoice",
             (long)getpid(), number);
    worker->due_ns = due_ns;
    if (fl_acquire_async(worker->connection->client, worker->name, &options, heard_acquired, worker,
                         &why) == 0)
        return;
    note_error(worker->connection, &why);
    atomic_fetch_sub(&bench->outstanding, 1);
    free(worker);
}

static void start_worker(struct bench *bench, uint64_t number, uint64_t due_ns, bool is_open_loop)
{
    struct worker *worker = fl_xcalloc(1, sizeof *worker);

    worker->connection = &bench->connections[number % bench->n_connections];
    worker->is_open_loop = is_open_loop;
    atomic_fetch_add(&bench->outstanding, 1);
    begin(worker, due_ns);
}

/* ---- The two loops ---- */

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000),
                          .tv_nsec = (long)(at_ns % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* Half of the operations are acquires; each release follows its acquire. */
static void run_open_loop(struct bench *bench, uint64_t start_ns)
{
    uint64_t n = 0, due_ns;

    while ((due_ns = start_ns + n * 2000000000 / bench->rate) < bench->stop_ns) {
        if (due_ns > now_ns())
            sleep_until(due_ns);
        if (atomic_load(&bench->outstanding) < OUTSTANDING_MAX)
            start_worker(bench, n, due_ns, true);
        else
            bench->skipped++;
        n++;
    }
}

static void run_closed_loop(struct bench *bench)
{
    for (unsigned i = 0; i < bench->n_clients; i++)
        start_worker(bench, i, now_ns(), false);
    sleep_until(bench->stop_ns);
}

static void run_load(struct bench *bench)
{
    uint64_t start_ns = now_ns();
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};

    bench->measure_from_ns = start_ns + WARMUP_NS;
    bench->stop_ns = bench->measure_from_ns + (uint64_t)bench->seconds * 1000000000;
    if (bench->rate != 0)
        run_open_loop(bench, start_ns);
    else
        run_closed_loop(bench);
    while (atomic_load(&bench->outstanding) > 0) /* each ends by its own timeout at the latest */
        nanosleep(&pause, NULL);
}

/* ---- Clients ---- */

static void no_callback(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                        const char *reason)
{
    (void)ctx, (void)lock, (void)cause, (void)by, (void)reason;
}

static bool connect_all(struct bench *bench)
{
    struct fl_client_options options = {
        .name = "fencelock bench", .ttl_ms = bench->ttl_ms, .on_lost = no_callback};

    for (unsigned i = 0; i < bench->n_connections; i++) {
        struct connection *connection = &bench->connections[i];

        connection->bench = bench;
        fl_histogram_init(&connection->acquires);
        fl_histogram_init(&connection->releases);
        connection->client = cli_connect(&bench->common, &options);
        if (connection->client == NULL)
            return false;
    }
    return true;
}

static void disconnect_all(struct bench *bench)
{
    for (unsigned i = 0; i < bench->n_connections; i++) {
        fl_client_free(bench->connections[i].client);
        fl_histogram_deinit(&bench->connections[i].acquires);
        fl_histogram_deinit(&bench->connections[i].releases);
    }
}

/* ---- Telling ---- */

static void read_cpu_model(char *out, size_t size)
{
    FILE *from = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(out, size, "unknown");
    while (from != NULL && fgets(line, sizeof line, from) != NULL) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 2);
        break;
    }
    if (from != NULL)
        fclose(from);
}

static const struct {
    const char *key;
    double part;
} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};

static json_t *histogram_json(const struct fl_histogram *histogram)
{
    json_t *json = json_pack("{s:I, s:f}", "n", (json_int_t)histogram->n, "mean_us",
                             fl_histogram_mean(histogram) / 1000);
    char key[16];

    for (size_t i = 0; i < FL_ARRAY_LEN(percentiles); i++) {
        snprintf(key, sizeof key, "%s_us", percentiles[i].key);
        json_object_set_new(
            json, key, json_real((double)fl_histogram_at(histogram, percentiles[i].part) / 1000));
    }
    return json;
}

static void print_histogram(const char *what, const struct fl_histogram *histogram)
{
    printf("%-8s", what);
    for (size_t i = 0; i < FL_ARRAY_LEN(percentiles); i++)
        printf("  %s %.3f ms", percentiles[i].key,
               (double)fl_histogram_at(histogram, percentiles[i].part) / 1e6);
    putchar('\n');
}

struct totals {
    struct fl_histogram acquires, releases;
    uint64_t errors, not_granted;
    const struct fl_why *first_error; /* NULL: none */
    double per_second;
};

static void add_up(const struct bench *bench, struct totals *ret)
{
    *ret = (struct totals){0};
    fl_histogram_init(&ret->acquires);
    fl_histogram_init(&ret->releases);
    for (unsigned i = 0; i < bench->n_connections; i++) {
        const struct connection *connection = &bench->connections[i];

        fl_histogram_add(&ret->acquires, &connection->acquires);
        fl_histogram_add(&ret->releases, &connection->releases);
        ret->errors += connection->errors;
        ret->not_granted += connection->not_granted;
        if (connection->errors > 0 && ret->first_error == NULL)
            ret->first_error = &connection->first_error;
    }
    ret->per_second = (double)(ret->acquires.n + ret->releases.n) / bench->seconds;
}

static void print_json(const struct bench *bench, const struct totals *totals, const char *cpu)
{
    json_t *json = json_pack(
        "{s:{s:s, s:i}, s:{s:s, s:i, s:i, s:i, s:I, s:I}, s:f, s:I, s:I, s:I, s:o, s:o}", "machine",
        "cpu", cpu, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "parameters", "loop",
        bench->rate != 0 ? "open" : "closed", "clients", (int)bench->n_clients, "connections",
        (int)bench->n_connections, "seconds", (int)bench->seconds, "rate", (json_int_t)bench->rate,
        "names", (json_int_t)bench->names, "operations_per_second", totals->per_second, "errors",
        (json_int_t)totals->errors, "not_granted", (json_int_t)totals->not_granted, "skipped",
        (json_int_t)bench->skipped, "acquire", histogram_json(&totals->acquires), "release",
        histogram_json(&totals->releases));

    if (totals->first_error != NULL)
        json_object_set_new(json, "first_error", json_string(totals->first_error->message));
    cli_print_json(json);
}

static void print_text(const struct bench *bench, const struct totals *totals, const char *cpu)
{
    printf("machine  %s, %ld cores\n", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    if (bench->rate != 0)
        printf("load     open loop, %" PRIu64 " operations/s", bench->rate);
    else
        printf("load     closed loop, %u in flight", bench->n_clients);
    printf(" over %u connections for %u s, ", bench->n_connections, bench->seconds);
    if (bench->names != 0)
        printf("%" PRIu64 " names\n", bench->names);
    else
        puts("every name new");
    printf("rate     %.0f operations/s (acquires and releases)\n", totals->per_second);
    print_histogram("acquire", &totals->acquires);
    print_histogram("release", &totals->releases);
    if (totals->not_granted > 0)
        printf("not granted within 10 s: %" PRIu64 "\n", totals->not_granted);
    if (bench->skipped > 0)
        printf("not even sent, %d were unanswered: %" PRIu64 "\n", OUTSTANDING_MAX, bench->skipped);
    if (totals->errors > 0)
        printf("errors   %" PRIu64 ", the first: %s\n", totals->errors,
               totals->first_error->message);
}

static int report(const struct bench *bench)
{
    struct totals totals;
    char cpu[200];

    add_up(bench, &totals);
    read_cpu_model(cpu, sizeof cpu);
    if (bench->common.json)
        print_json(bench, &totals, cpu);
    else
        print_text(bench, &totals, cpu);
    fl_histogram_deinit(&totals.acquires);
    fl_histogram_deinit(&totals.releases);
    return totals.errors > 0 ? CLI_EXIT_FAILED : 0;
}

enum { OPT_CLIENTS = 1, OPT_CONNECTIONS, OPT_SECONDS, OPT_RATE, OPT_NAMES, OPT_TTL };

static void take_option(struct bench *bench, int option)
{
    struct cli_common *common = &bench->common;

    switch (option) {
    case OPT_CLIENTS:
        bench->n_clients = (unsigned)cli_number(common, "--clients", optarg, 1, OUTSTANDING_MAX);
        break;
    case OPT_CONNECTIONS:
        bench->n_connections =
            (unsigned)cli_number(common, "--connections", optarg, 1, CONNECTIONS_MAX);
        break;
    case OPT_SECONDS:
        bench->seconds = (unsigned)cli_number(common, "--seconds", optarg, 1, 86400);
        break;
    case OPT_RATE:
        bench->rate = cli_number(common, "--rate", optarg, 1, 100000000);
        break;
    case OPT_NAMES:
        bench->names = cli_number(common, "--names", optarg, 0, UINT64_C(1) << 40);
        break;
    default:
        bench->ttl_ms = cli_duration(common, "--ttl", optarg);
    }
}

static int run_bench(int argc, char **argv)
{
    static const struct option options[] = {
        {"clients", required_argument, NULL, OPT_CLIENTS},
        {"connections", required_argument, NULL, OPT_CONNECTIONS},
        {"seconds", required_argument, NULL, OPT_SECONDS},
        {"rate", required_argument, NULL, OPT_RATE},
        {"names", required_argument, NULL, OPT_NAMES},
        {"ttl", required_argument, NULL, OPT_TTL},
        CLI_COMMON_OPTIONS};
    struct bench *bench = fl_xcalloc(1, sizeof *bench);
    int option, exit_code;

    *bench = (struct bench){.n_clients = 64, .n_connections = 4, .seconds = 10, .ttl_ms = 10000};
    cli_common_init(&bench->common, &cli_bench);
    while ((option = cli_next_option(&bench->common, argc, argv, options)) != -1)
        take_option(bench, option);
    if (cli_want_operands(&bench->common, argc, 0, "no operand") && connect_all(bench)) {
        run_load(bench);
        bench->common.exit_code = report(bench);
        disconnect_all(bench);
    }
    exit_code = bench->common.exit_code;
    free(bench);
    return exit_code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "measure throughput and latency",
    .help =
        "fencelock bench [OPTIONS]\n"
        "\n"
        "Acquires and releases strict locks, and prints the rate and the latencies after a second\n"
        "of warming up. Without --rate, as fast as the answers come (closed loop). With --rate at\n"
        "fixed instants (open loop), and a latency counts from the instant an operation was due,\n"
        "so that a stall is not hidden.\n"
        "\n"
        "  --clients N                closed loop: operations in flight (64)\n"
        "  --rate N                   open loop: operations a second, half of them acquires\n"
        "  --connections N            sessions and connections that share the load (4)\n"
        "  --seconds N                how long to measure (10)\n"
        "  --names N                  take turns on N names; 0: every name is new (0)\n"
        "  --ttl TIME                 of the sessions (10s)\n" CLI_COMMON_HELP "\n"
        "Examples:\n"
        "  fencelock bench --clients 256\n"
        "  fencelock bench --rate 5400 --seconds 30 --json\n",
    .run = run_bench,
};
