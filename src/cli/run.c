/* `fencelock run`: a command under a lock. The guard (guard.h) is between us and the command. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/guard.h"

#define TTL_MS_DEFAULT 10000u
#define GRACE_MS_MAX   2000u /* by default a fifth of the ttl, up to this */

struct run {
    struct cli_common common;
    const char *name;
    char **command;
    struct fl_acquire_options acquire;
    struct fl_client_options client_options;
    uint32_t grace_ms;
    bool has_grace;
    int not_granted_exit, lost_exit, unreachable_exit;

    sigset_t old_mask;
    int terminal; /* -1: none, or not ours to hand on */
    int socket, signals, news;
    pid_t guard, child;

    struct fl_client *client;
    struct fl_lock *lock;

    /* Written by the callback thread, read after `news` was signalled. */
    bool is_answered, is_lost;
    int acquire_code;
    struct fl_why why;
    char lost_text[700];

    bool is_ending;
};

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    va_list args;

    fputs("fencelock run: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- Callbacks of the library: on a thread of its own ---- */

static void signal_news(struct run *run)
{
    uint64_t one = 1;

    if (write(run->news, &one, sizeof one) != sizeof one)
        abort(); /* an eventfd takes 2^64 - 2 of these */
}

static void heard_answer(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct run *run = ctx;

    run->acquire_code = code;
    run->lock = lock;
    run->why = *why;
    __atomic_store_n(&run->is_answered, true, __ATOMIC_RELEASE);
    signal_news(run);
}

static void heard_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                       const char *reason)
{
    struct run *run = ctx;

    (void)lock;
    snprintf(run->lost_text, sizeof run->lost_text, "%s%s%s%s%s", fl_lost_cause_text(cause),
             by[0] != '\0' ? ", by " : "", by, reason[0] != '\0' ? ": " : "", reason);
    __atomic_store_n(&run->is_lost, true, __ATOMIC_RELEASE);
    signal_news(run);
}

static void drain_news(struct run *run)
{
    uint64_t count;

    if (read(run->news, &count, sizeof count) != sizeof count)
        return;
}

/* ---- Signals and the terminal ---- */

/* What we take to pass on: all but those that are about ourselves. */
static void passed_signals(sigset_t *ret_set)
{
    static const int ours[] = {SIGCHLD, SIGTTOU, SIGTTIN, SIGPIPE, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};

    sigfillset(ret_set);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        sigdelset(ret_set, ours[i]);
}

static void take_signals(struct run *run)
{
    sigset_t all, passed;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &run->old_mask);
    passed_signals(&passed);
    run->signals = signalfd(-1, &passed, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The next signal, or 0. */
static int next_signal(struct run *run)
{
    struct signalfd_siginfo info;

    return read(run->signals, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

static void find_terminal(struct run *run)
{
    run->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (run->terminal >= 0 && tcgetpgrp(run->terminal) != getpgrp()) {
        close(run->terminal);
        run->terminal = -1; /* we run in the background: the terminal is somebody else's */
    }
}

static void take_terminal(const struct run *run)
{
    if (run->terminal >= 0)
        tcsetpgrp(run->terminal, getpgrp()); /* SIGTTOU is blocked */
}

/* Signals that would end or say nothing to a process that does not handle them. */
static bool ends_us(int signal)
{
    return signal != SIGCONT && signal != SIGWINCH && signal != SIGURG && signal != SIGTSTP;
}

/* ---- Waiting for the lock ---- */

/* Leaves the queue, and the answer that crosses with that is given back by the library. */
static int leave_queue(struct run *run, int signal)
{
    struct pollfd news = {.fd = run->news, .events = POLLIN};

    fl_client_cancel_waits(run->client);
    while (!__atomic_load_n(&run->is_answered, __ATOMIC_ACQUIRE)) {
        poll(&news, 1, -1);
        drain_news(run);
    }
    fl_lock_free(run->lock);
    run->lock = NULL;
    return CLI_EXIT_SIGNAL + signal;
}

static int fail(struct run *run)
{
    int exit_code = cli_fail(&run->common, &run->why);

    return exit_code == CLI_EXIT_UNREACHABLE ? run->unreachable_exit : exit_code;
}

/* -1: granted; else the exit code. */
static int await_lock(struct run *run)
{
    struct pollfd polled[] = {{.fd = run->news, .events = POLLIN},
                              {.fd = run->signals, .events = POLLIN}};
    int signal;

    while (!__atomic_load_n(&run->is_answered, __ATOMIC_ACQUIRE)) {
        poll(polled, 2, -1);
        while ((signal = next_signal(run)) != 0) {
            if (ends_us(signal))
                return leave_queue(run, signal);
            if (signal == SIGTSTP)
                kill(getpid(), SIGSTOP);
        }
    }
    drain_news(run);
    if (run->acquire_code == 0)
        return -1;
    if (run->acquire_code == FL_E_HELD || run->acquire_code == FL_E_TIMEOUT) {
        cli_fail(&run->common, &run->why);
        return run->not_granted_exit;
    }
    return fail(run);
}

static int acquire(struct run *run)
{
    run->client = cli_connect(&run->common, &run->client_options);
    if (run->client == NULL)
        return run->common.exit_code;
    if (fl_acquire_async(run->client, run->name, &run->acquire, heard_answer, run, &run->why) < 0)
        return fail(run);
    return await_lock(run);
}

/* ---- Running ---- */

static void send_word(const struct run *run, enum guard_word word, uint64_t value)
{
    struct guard_message message = {.word = word, .value = value};

    guard_send(run->socket, &message);
}

/* When the command must be dead: a little before the end of our belief, which itself lies before
 * the end of the lease. */
static uint64_t deadline_ms(const struct run *run)
{
    uint64_t margin_ms = run->client_options.ttl_ms / 50;
    uint64_t left_ms = fl_lock_remaining_ms(run->lock);

    return left_ms > margin_ms ? now_ms() + left_ms - margin_ms : 0;
}

static void start(struct run *run)
{
    struct guard_message message = {.word = GUARD_START,
                                    .value = deadline_ms(run),
                                    .token = fl_lock_token(run->lock),
                                    .lease_ms = (uint32_t)fl_lock_remaining_ms(run->lock)};

    fl_client_session_id(run->client, message.session);
    guard_send(run->socket, &message);
}

static void pass_signal(struct run *run, int signal)
{
    if (signal == SIGCONT && run->terminal >= 0 && tcgetpgrp(run->terminal) == getpgrp())
        tcsetpgrp(run->terminal, run->child); /* brought back to the foreground */
    send_word(run, GUARD_SIGNAL, (uint64_t)signal);
}

/* Job control: the command was stopped at the terminal, so we stop too, and the shell takes over.
 * The lease goes on running meanwhile. */
static void stop_too(struct run *run)
{
    if (run->terminal < 0)
        return;
    take_terminal(run);
    kill(getpid(), SIGSTOP);
}

static void announce_ending(struct run *run)
{
    if (run->is_ending)
        return;
    run->is_ending = true;
    if (__atomic_load_n(&run->is_lost, __ATOMIC_ACQUIRE))
        complain("%s is lost (%s): stopping the command", run->name, run->lost_text);
    else
        complain("the lease on %s is about to end, no heartbeat was acknowledged in time: "
                 "stopping the command",
                 run->name);
}

static int exit_code_of(int status)
{
    return WIFSIGNALED(status) ? CLI_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int command_failed(struct run *run, int error)
{
    complain("%s: %s", run->command[0], strerror(error));
    return error == ENOENT ? CLI_EXIT_NO_COMMAND : CLI_EXIT_NOT_EXECUTABLE;
}

/* The guard is gone without a word: the kernel kills the command, and we what it has started. */
static int guard_died(struct run *run)
{
    guard_take_over(run->child);
    complain("the guard process was killed, so the command was killed too");
    return CLI_EXIT_FAILED;
}

/* -1: go on; else the exit code. */
static int hear_guard(struct run *run)
{
    struct guard_message message;

    if (!guard_receive(run->socket, &message))
        return guard_died(run);
    switch (message.word) {
    case GUARD_STARTED:
        run->child = (pid_t)message.value;
        return -1;
    case GUARD_STOPPED:
        stop_too(run);
        return -1;
    case GUARD_ENDING:
        announce_ending(run);
        return -1;
    case GUARD_FAILED:
        return command_failed(run, (int)message.value);
    default: /* GUARD_EXITED */
        return run->is_ending ? run->lost_exit : exit_code_of((int)message.value);
    }
}

/* Tells the guard how long the lease lasts. Should the guard hang, we kill in its place. */
static void extend(struct run *run, uint64_t *deadline)
{
    uint64_t next = deadline_ms(run);

    if (next != 0) {
        *deadline = next;
        send_word(run, GUARD_DEADLINE, next);
    } else if (run->child > 0 && now_ms() >= *deadline) {
        kill(-run->child, SIGKILL);
    }
}

static int watch_command(struct run *run)
{
    struct pollfd polled[] = {{.fd = run->socket, .events = POLLIN},
                              {.fd = run->signals, .events = POLLIN},
                              {.fd = run->news, .events = POLLIN}};
    int every_ms = (int)(run->client_options.ttl_ms / 12);
    uint64_t deadline = deadline_ms(run);
    int exit_code = -1, signal;

    while (exit_code == -1) {
        int n = poll(polled, 3, every_ms);

        if (n > 0 && polled[2].revents != 0) {
            drain_news(run);
            announce_ending(run);
            send_word(run, GUARD_END, 0);
        }
        while ((signal = next_signal(run)) != 0)
            pass_signal(run, signal);
        if (n > 0 && polled[0].revents != 0)
            exit_code = hear_guard(run);
        extend(run, &deadline);
    }
    take_terminal(run);
    return exit_code;
}

static int give_back(struct run *run, int exit_code)
{
    struct fl_why why;
    int r = fl_release(run->lock, &why);

    if (r == FL_E_LOST || r == FL_E_STALE || r == FL_E_SESSION_GONE) {
        if (!run->is_ending)
            complain("the command ended, but %s had been lost before", run->name);
        return run->lost_exit;
    }
    if (r < 0)
        complain("%s was not released (%s); it is free within %u ms", run->name, why.message,
                 (unsigned)run->client_options.ttl_ms);
    return exit_code;
}

static int execute(struct run *run)
{
    char *obituary[] = {"fencelock",
                        "release",
                        "--timeout",
                        "2s",
                        "--session",
                        NULL,
                        run->common.endpoints != NULL ? "--endpoints" : NULL,
                        (char *)run->common.endpoints,
                        NULL};
    int exit_code;

    take_signals(run);
    find_terminal(run);
    run->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    run->socket = guard_fork(&(struct guard_config){.command = run->command,
                                                    .name = run->name,
                                                    .grace_ms = run->grace_ms,
                                                    .command_mask = &run->old_mask,
                                                    .terminal = run->terminal,
                                                    .obituary = obituary,
                                                    .obituary_session = 5},
                             &run->guard);
    if (run->socket < 0 || run->signals < 0 || run->news < 0) {
        complain("cannot start: %s", strerror(errno));
        return CLI_EXIT_FAILED;
    }
    exit_code = acquire(run);
    if (exit_code == -1) {
        start(run);
        exit_code = give_back(run, watch_command(run));
    }
    fl_lock_free(run->lock);
    fl_client_free(run->client);
    return exit_code;
}

/* ---- Options ---- */

enum {
    OPT_WAIT = 1,
    OPT_SHARED,
    OPT_LIMIT,
    OPT_TTL,
    OPT_GRACE,
    OPT_NAME,
    OPT_LOST_EXIT,
    OPT_NOT_GRANTED_EXIT,
    OPT_UNREACHABLE_EXIT,
};

static void take_option(struct run *run, int option)
{
    struct cli_common *common = &run->common;

    switch (option) {
    case OPT_WAIT:
        run->acquire.wait_ms = cli_duration(common, "--wait", optarg);
        break;
    case OPT_SHARED:
        run->acquire.mode = FL_SHARED;
        break;
    case OPT_LIMIT:
        run->acquire.mode = FL_COUNTED;
        run->acquire.limit = (uint32_t)cli_number(common, "--limit", optarg, 1, 1000000);
        break;
    case OPT_TTL:
        run->client_options.ttl_ms = cli_duration(common, "--ttl", optarg);
        break;
    case OPT_GRACE:
        run->grace_ms = cli_duration(common, "--grace", optarg);
        run->has_grace = true;
        break;
    case OPT_NAME:
        run->client_options.name = optarg;
        break;
    case OPT_LOST_EXIT:
        run->lost_exit = (int)cli_number(common, "--lost-exit-code", optarg, 0, 255);
        break;
    case OPT_UNREACHABLE_EXIT:
        run->unreachable_exit = (int)cli_number(common, "--unreachable-exit-code", optarg, 0, 255);
        break;
    default:
        run->not_granted_exit = (int)cli_number(common, "--conflict-exit-code", optarg, 0, 255);
    }
}

/* What stands before "--"; the command is what stands behind it. */
static int split_command(struct run *run, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            run->command = &argv[i + 1];
            return i;
        }
    }
    return argc;
}

static int check(struct run *run)
{
    uint32_t ttl_ms = run->client_options.ttl_ms;

    if (run->command == NULL || run->command[0] == NULL)
        return cli_usage(&run->common, "the command is missing: write it behind --");
    if (!run->has_grace)
        run->grace_ms = ttl_ms / 5 < GRACE_MS_MAX ? ttl_ms / 5 : GRACE_MS_MAX;
    /* A healthy lease goes down to about 0.6 ttl between two heartbeats. */
    if (run->grace_ms > ttl_ms / 2)
        return cli_usage(&run->common, "--grace must not be more than half of --ttl");
    return -1;
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {
        {"wait", required_argument, NULL, OPT_WAIT},
        {"shared", no_argument, NULL, OPT_SHARED},
        {"limit", required_argument, NULL, OPT_LIMIT},
        {"ttl", required_argument, NULL, OPT_TTL},
        {"grace", required_argument, NULL, OPT_GRACE},
        {"client-name", required_argument, NULL, OPT_NAME},
        {"lost-exit-code", required_argument, NULL, OPT_LOST_EXIT},
        {"unreachable-exit-code", required_argument, NULL, OPT_UNREACHABLE_EXIT},
        {"conflict-exit-code", required_argument, NULL, OPT_NOT_GRANTED_EXIT},
        CLI_COMMON_OPTIONS};
    struct run run = {.not_granted_exit = CLI_EXIT_NOT_GRANTED,
                      .lost_exit = CLI_EXIT_LOST,
                      .unreachable_exit = CLI_EXIT_UNREACHABLE,
                      .client_options = {.ttl_ms = TTL_MS_DEFAULT, .on_lost = heard_loss}};
    int option;

    run.client_options.ctx = &run;
    argc = split_command(&run, argc, argv);
    cli_common_init(&run.common, &cli_run);
    while ((option = cli_next_option(&run.common, argc, argv, options)) != -1)
        take_option(&run, option);
    if (!cli_want_operands(&run.common, argc, 1, "NAME"))
        return run.common.exit_code;
    run.name = argv[optind];
    if (check(&run) != -1)
        return run.common.exit_code;
    return execute(&run);
}

const struct cli_command cli_run = {
    .name = "run",
    .summary = "run a command under a lock",
    .help =
        "fencelock run NAME [OPTIONS] -- COMMAND [ARGUMENT...]\n"
        "\n"
        "Acquires NAME, runs COMMAND, releases NAME when it has ended, and exits with its code\n"
        "(128+n when signal n ended it). Input, output and terminal are the command's; signals "
        "are\n"
        "passed on. In its environment:\n"
        "  FENCELOCK_TOKEN     the fencing token: give it to every write that the lock protects\n"
        "  FENCELOCK_NAME, FENCELOCK_SESSION\n"
        "  FENCELOCK_LEASE_MS  what was left of the lease when it started\n"
        "\n"
        "If the lease is about to end, the command's process group gets TERM, and KILL before the\n"
        "lease can end: also when this tool is stopped or killed. A command suspended at the\n"
        "terminal (^Z) keeps its lock no longer than the ttl.\n"
        "\n"
        "  --wait TIME                wait in the queue so long; without it, try once\n"
        "  --shared                   hold it together with other --shared\n"
        "  --limit N                  hold one of N permits\n"
        "  --ttl TIME                 a crashed holder's lock is free after this (10s)\n"
        "  --grace TIME               between TERM and KILL when the lease ends (ttl/5, at most "
        "2s)\n"
        "  --client-name TEXT         shown to those who wait (HOST/PID)\n"
        "  --conflict-exit-code N     when not granted (75)\n"
        "  --lost-exit-code N         when lost while running (76)\n"
        "  --unreachable-exit-code N  when no node answers (69)\n" CLI_COMMON_HELP "\n"
        "Exit codes of its own: 64 usage, 69 unreachable, 70 failed, 75 not granted in time,\n"
        "76 lost while running, 126 not executable, 127 no such command.\n"
        "\n"
        "Examples:\n"
        "  fencelock run nightly-report --wait 5m -- ./report.sh\n"
        "  fencelock run gpu --limit 4 --wait 1h -- python3 train.py\n"
        "  fencelock run payout/INV-55102 -- sh -c 'psql -v token=$FENCELOCK_TOKEN -f pay.sql'\n",
    .run = run,
};
