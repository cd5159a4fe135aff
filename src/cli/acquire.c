/* `fencelock acquire`: a lock that outlives the command that took it, for scripts and
 * for systemd's ExecStartPre and ExecStopPost.
 *
 * Somebody must send heartbeats, so `acquire` leaves a keeper process behind: it holds the session,
 * and a lock (fcntl) on the file that tells about it. So whoever reads the file can tell a live
 * keeper from a dead one, and find it without trusting a process number in a file. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/keeper.h"

#define TTL_MS_DEFAULT 10000u

struct keeper {
    struct cli_common *common;
    const char *name, *path;
    struct fl_acquire_options acquire;
    struct fl_client_options client_options;
    int file, report, news, signals;
    struct fl_client *client;
    struct fl_lock *lock;
    bool is_answered, is_lost;
    int acquire_code;
    struct fl_why why;
    enum fl_lost_cause cause;
};

/* What the keeper tells the command that started it. */
struct report {
    int exit_code; /* 0: granted */
    pid_t keeper;
    uint64_t token;
    char session[40];
    struct fl_why why;
};

/* ---- The file ---- */

/* For a shell and for systemd's EnvironmentFile. */
static void print_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else
            fputc(*text, to);
    }
    fputs("'\n", to);
}

static bool write_file(const struct keeper *k)
{
    int copy = fcntl(k->file, F_DUPFD_CLOEXEC, 0);
    char session[40];
    FILE *to;

    /* Closing any descriptor of the file would drop our lock on it: the stream stays open. */
    if (copy < 0 || ftruncate(k->file, 0) < 0 || (to = fdopen(copy, "w")) == NULL)
        return false;
    fl_client_session_id(k->client, session);
    fprintf(to, "FENCELOCK_TOKEN=%" PRIu64 "\nFENCELOCK_SESSION=%s\nFENCELOCK_KEEPER=%ld\n",
            fl_lock_token(k->lock), session, (long)getpid());
    fputs("FENCELOCK_NAME=", to);
    print_quoted(to, k->name);
    return fflush(to) == 0;
}

/* ---- The keeper ---- */

static void signal_news(struct keeper *k)
{
    uint64_t one = 1;

    if (write(k->news, &one, sizeof one) != sizeof one)
        abort(); /* an eventfd takes 2^64 - 2 of these */
}

static void heard_answer(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct keeper *k = ctx;

    k->acquire_code = code;
    k->lock = lock;
    k->why = *why;
    __atomic_store_n(&k->is_answered, true, __ATOMIC_RELEASE);
    signal_news(k);
}

static void heard_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                       const char *reason)
{
    struct keeper *k = ctx;

    (void)lock, (void)by, (void)reason;
    k->cause = cause;
    __atomic_store_n(&k->is_lost, true, __ATOMIC_RELEASE);
    signal_news(k);
}

static void tell(const struct keeper *k, int exit_code)
{
    struct report report = {.exit_code = exit_code, .keeper = getpid(), .why = k->why};

    if (exit_code == 0) {
        report.token = fl_lock_token(k->lock);
        fl_client_session_id(k->client, report.session);
    }
    if (write(k->report, &report, sizeof report) != sizeof report)
        return; /* who asked is gone, and await_lock() sees that */
}

/* Whether the lock is ours; false also when whoever asked for it is gone. */
static bool await_lock(struct keeper *k)
{
    struct pollfd polled[] = {
        {.fd = k->news, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}, {.fd = k->report}};

    if (fl_acquire_async(k->client, k->name, &k->acquire, heard_answer, k, &k->why) < 0) {
        k->acquire_code = k->why.code;
        return false;
    }
    while (!__atomic_load_n(&k->is_answered, __ATOMIC_ACQUIRE)) {
        poll(polled, 3, -1);
        if (polled[1].revents != 0 || polled[2].revents != 0)
            _exit(CLI_EXIT_FAILED); /* the queue forgets us with our session */
    }
    return k->acquire_code == 0;
}

static void detach(struct keeper *k)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    close(null);
    close(k->report);
    if (chdir("/") < 0)
        return;
}

/* Until we are told to end, or the lock is lost. */
static void keep(struct keeper *k)
{
    struct pollfd polled[] = {{.fd = k->signals, .events = POLLIN},
                              {.fd = k->news, .events = POLLIN}};

    while (polled[0].revents == 0 && !__atomic_load_n(&k->is_lost, __ATOMIC_ACQUIRE)) {
        uint64_t count;

        poll(polled, 2, -1);
        if (polled[1].revents != 0 && read(k->news, &count, sizeof count) < 0)
            continue;
    }
}

static void conclude(struct keeper *k)
{
    bool is_released = fl_release(k->lock, &k->why) == 0;

    if (is_released)
        unlink(k->path);
    else
        dprintf(k->file, KEEPER_LOST_KEY "'%s'\n",
                __atomic_load_n(&k->is_lost, __ATOMIC_ACQUIRE) ? fl_lost_cause_text(k->cause)
                                                               : fl_code_text(k->why.code));
    fl_lock_free(k->lock);
    fl_client_free(k->client);
}

static void take_signals(struct keeper *k)
{
    sigset_t ending;

    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGHUP);
    sigprocmask(SIG_BLOCK, &ending, NULL);
    k->signals = signalfd(-1, &ending, SFD_CLOEXEC);
    k->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void be_keeper(struct keeper *k)
{
    struct flock lock = keeper_file_lock();

    setsid();
    take_signals(k);
    signal(SIGPIPE, SIG_IGN);
    if (fcntl(k->file, F_SETLK, &lock) < 0) {
        k->why.code = FL_E_CLOSED;
        snprintf(k->why.message, sizeof k->why.message,
                 "%s belongs to a keeper that is alive (process %ld): release it first", k->path,
                 (long)keeper_of(k->file));
        tell(k, CLI_EXIT_FAILED);
        _exit(0);
    }
    k->client_options.on_lost = heard_loss;
    k->client_options.ctx = k;
    k->client_options.timeout_ms = k->common->timeout_ms;
    if (fl_client_new(k->common->endpoints, &k->client_options, &k->client, &k->why) < 0 ||
        !await_lock(k) || !write_file(k)) {
        if (k->why.code == 0)
            snprintf(k->why.message, sizeof k->why.message, "cannot write %s: %s", k->path,
                     strerror(errno));
        unlink(k->path);
        tell(k, CLI_EXIT_FAILED);
        fl_lock_free(k->lock);
        fl_client_free(k->client);
        _exit(0);
    }
    tell(k, 0);
    detach(k);
    keep(k);
    conclude(k);
    _exit(0);
}

/* ---- The command ---- */

static int print_report(const struct keeper *k, const struct report *report)
{
    if (report->exit_code != 0) {
        int exit_code = cli_fail(k->common, &report->why);

        return exit_code != 0 ? exit_code : report->exit_code;
    }
    if (k->common->json)
        cli_print_json(json_pack("{s:s, s:I, s:s, s:I, s:s}", "name", k->name, "token",
                                 (json_int_t)report->token, "session", report->session, "keeper",
                                 (json_int_t)report->keeper, "file", k->path));
    else
        printf("token %" PRIu64 "\n", report->token);
    return 0;
}

static int start_keeper(struct keeper *k)
{
    struct report report;
    int pipe_ends[2];
    pid_t pid;

    k->file = open(k->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (k->file < 0 || pipe2(pipe_ends, O_CLOEXEC) < 0) {
        fprintf(stderr, "fencelock acquire: %s: %s\n", k->path, strerror(errno));
        return CLI_EXIT_FAILED;
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(pipe_ends[0]);
        k->report = pipe_ends[1];
        be_keeper(k);
    }
    close(pipe_ends[1]);
    if (pid < 0 || read(pipe_ends[0], &report, sizeof report) != sizeof report) {
        fputs("fencelock acquire: the keeper process failed\n", stderr);
        return CLI_EXIT_FAILED;
    }
    return print_report(k, &report);
}

enum { OPT_WAIT = 1, OPT_SHARED, OPT_LIMIT, OPT_TTL, OPT_FILE, OPT_NAME };

static void take_option(struct keeper *k, int option)
{
    switch (option) {
    case OPT_WAIT:
        k->acquire.wait_ms = cli_duration(k->common, "--wait", optarg);
        break;
    case OPT_SHARED:
        k->acquire.mode = FL_SHARED;
        break;
    case OPT_LIMIT:
        k->acquire.mode = FL_COUNTED;
        k->acquire.limit = (uint32_t)cli_number(k->common, "--limit", optarg, 1, 1000000);
        break;
    case OPT_TTL:
        k->client_options.ttl_ms = cli_duration(k->common, "--ttl", optarg);
        break;
    case OPT_NAME:
        k->client_options.name = optarg;
        break;
    default:
        k->path = optarg;
    }
}

static int acquire(int argc, char **argv)
{
    static const struct option options[] = {{"wait", required_argument, NULL, OPT_WAIT},
                                            {"shared", no_argument, NULL, OPT_SHARED},
                                            {"limit", required_argument, NULL, OPT_LIMIT},
                                            {"ttl", required_argument, NULL, OPT_TTL},
                                            {"hold-session", required_argument, NULL, OPT_FILE},
                                            {"client-name", required_argument, NULL, OPT_NAME},
                                            CLI_COMMON_OPTIONS};
    struct cli_common common;
    struct keeper keeper = {.common = &common, .client_options = {.ttl_ms = TTL_MS_DEFAULT}};
    char absolute[4096];
    int option;

    cli_common_init(&common, &cli_acquire);
    while ((option = cli_next_option(&common, argc, argv, options)) != -1)
        take_option(&keeper, option);
    if (!cli_want_operands(&common, argc, 1, "NAME"))
        return common.exit_code;
    if (keeper.path == NULL)
        return cli_usage(&common, "--hold-session FILE is missing: a process must stay behind that "
                                  "keeps the lock, and FILE tells where. To hold a lock while a "
                                  "command runs: fencelock run");
    if (keeper.path[0] != '/') { /* the keeper changes its directory */
        if (getcwd(absolute, sizeof absolute - strlen(keeper.path) - 2) == NULL)
            return cli_usage(&common, "%s is too long a path", keeper.path);
        strcat(strcat(absolute, "/"), keeper.path);
        keeper.path = absolute;
    }
    keeper.name = argv[optind];
    return start_keeper(&keeper);
}

const struct cli_command cli_acquire = {
    .name = "acquire",
    .summary = "take a lock and leave a process behind that keeps it",
    .help =
        "fencelock acquire NAME --hold-session FILE [OPTIONS]\n"
        "\n"
        "Takes NAME, prints its token, and returns. A small process stays behind that keeps the\n"
        "lock with heartbeats until fencelock release FILE. FILE holds what a script needs, in a\n"
        "form that a shell and systemd's EnvironmentFile read: FENCELOCK_TOKEN, "
        "FENCELOCK_SESSION,\n"
        "FENCELOCK_NAME, FENCELOCK_KEEPER (the process). When the lock is lost, FENCELOCK_LOST is\n"
        "added and that process ends; nothing stops the work that it was for, so prefer\n"
        "fencelock run where you can.\n"
        "\n"
        "  --hold-session FILE        required\n"
        "  --wait TIME                wait in the queue so long; without it, try once\n"
        "  --shared                   hold it together with other --shared\n"
        "  --limit N                  hold one of N permits\n"
        "  --ttl TIME                 a crashed keeper's lock is free after this (10s)\n"
        "  --client-name TEXT         shown to those who wait (HOST/PID)\n" CLI_COMMON_HELP "\n"
        "Examples:\n"
        "  fencelock acquire db-primary --wait 1m --hold-session /run/db.lock\n"
        "  . /run/db.lock; psql -v token=$FENCELOCK_TOKEN -f promote.sql\n"
        "  fencelock release /run/db.lock\n"
        "In a systemd unit:\n"
        "  ExecStartPre=fencelock acquire db-primary --wait 1m --hold-session /run/db.lock\n"
        "  ExecStopPost=fencelock release /run/db.lock\n",
    .run = acquire,
};
