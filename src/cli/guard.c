#include "cli/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

/* How long the guard goes on looking for processes to kill: one that forks faster than we kill, or
 * hangs in the kernel, must not hold the tool for ever. */
#define KILL_ROUNDS   200
#define KILL_ROUND_US 10000

struct guard {
    struct guard_config config;
    int socket, timer, signals;
    pid_t child;
    bool is_ending;
    uint64_t kill_at_ms;
    char session[sizeof((struct guard_message *)0)->session];
};

bool guard_send(int socket, const struct guard_message *message)
{
    return send(socket, message, sizeof *message, MSG_NOSIGNAL) == sizeof *message;
}

bool guard_receive(int socket, struct guard_message *ret_message)
{
    ssize_t n;

    /* A guard that ends with words of ours unread resets the socket; what it said is behind that.
     */
    do
        n = recv(socket, ret_message, sizeof *ret_message, 0);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    return n == sizeof *ret_message;
}

static void tell(const struct guard *g, enum guard_word word, uint64_t value)
{
    struct guard_message message = {.word = word, .value = value};

    guard_send(g->socket, &message);
}

/* ---- Killing ---- */

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512], *after_name;
    ssize_t n;
    int fd, parent = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    after_name = strrchr(line, ')'); /* the name may hold anything, also a parenthesis */
    if (after_name != NULL)
        sscanf(after_name + 1, " %*c %d", &parent);
    return parent;
}

static void kill_children(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    if (proc == NULL)
        return;
    while ((entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 1 && parent_of(pid) == getpid())
            kill(pid, SIGKILL);
    }
    closedir(proc);
}

/* The group, then whatever is left of its descendants: as their parents die they become our
 * children, since we are the reaper. Keeps the command's own status for the caller. */
static void kill_descendants(pid_t command, int *ret_status)
{
    int status;
    pid_t pid;

    if (command > 0)
        kill(-command, SIGKILL);
    for (int round = 0; round < KILL_ROUNDS; round++) {
        kill_children();
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == command)
                *ret_status = status;
        if (pid < 0 && errno == ECHILD)
            break;
        usleep(KILL_ROUND_US);
    }
}

/* Unless we had children of another's before, as a shell has that became us: orphans could not be
 * told from them. */
static void become_reaper(void)
{
    siginfo_t info;

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void guard_take_over(pid_t command)
{
    int is_reaper = 0, status;

    if (prctl(PR_GET_CHILD_SUBREAPER, &is_reaper) == 0 && is_reaper != 0)
        kill_descendants(command, &status);
    else if (command > 0)
        kill(-command, SIGKILL);
}

static void begin_ending(struct guard *g)
{
    if (g->is_ending)
        return;
    g->is_ending = true;
    kill(-g->child, SIGTERM);
    kill(-g->child, SIGCONT); /* a stopped process acts on TERM only when it runs */
    tell(g, GUARD_ENDING, 0);
}

/* ---- Time ---- */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t term_at_ms(const struct guard *g)
{
    return g->kill_at_ms > g->config.grace_ms ? g->kill_at_ms - g->config.grace_ms : 0;
}

static void arm(struct guard *g)
{
    uint64_t at_ms = g->is_ending ? g->kill_at_ms : term_at_ms(g);
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at_ms / 1000),
                                           .tv_nsec = (long)(at_ms % 1000) * 1000000 + 1}};

    timerfd_settime(g->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void set_deadline(struct guard *g, uint64_t kill_at_ms)
{
    if (g->is_ending)
        return; /* what was told to stop is not told to go on */
    g->kill_at_ms = kill_at_ms;
    arm(g);
}

/* ---- The command ---- */

static void set_number(const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    setenv(key, text, 1);
}

static void set_environment(const struct guard *g, const struct guard_message *start)
{
    setenv("FENCELOCK_NAME", g->config.name, 1);
    setenv("FENCELOCK_SESSION", start->session, 1);
    set_number("FENCELOCK_TOKEN", start->token);
    set_number("FENCELOCK_LEASE_MS", start->lease_ms);
}

/* In the child; never returns. */
static void become_command(const struct guard *g, const struct guard_message *start, pid_t guard,
                           int failure)
{
    int error;

    setpgid(0, 0);
    if (g->config.terminal >= 0)
        tcsetpgrp(g->config.terminal, getpid()); /* SIGTTOU is blocked still */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(CLI_EXIT_SIGNAL + SIGKILL); /* the guard died before it was watched */
    set_environment(g, start);
    sigprocmask(SIG_SETMASK, g->config.command_mask, NULL);
    execvp(g->config.command[0], g->config.command);
    error = errno;
    if (write(failure, &error, sizeof error) != sizeof error)
        _exit(CLI_EXIT_NO_COMMAND);
    _exit(error == ENOENT ? CLI_EXIT_NO_COMMAND : CLI_EXIT_NOT_EXECUTABLE);
}

/* Whether the command runs; else `*ret_error` is why not. */
static bool start_command(struct guard *g, const struct guard_message *start, int *ret_error)
{
    pid_t guard = getpid();
    int failure[2];
    ssize_t n;

    if (pipe2(failure, O_CLOEXEC) < 0) {
        *ret_error = errno;
        return false;
    }
    g->child = fork();
    if (g->child == 0)
        become_command(g, start, guard, failure[1]);
    *ret_error = errno;
    close(failure[1]);
    if (g->child < 0) {
        close(failure[0]);
        return false;
    }
    setpgid(g->child, g->child);                        /* also here: whoever comes first */
    n = read(failure[0], ret_error, sizeof *ret_error); /* end of file: it became the command */
    close(failure[0]);
    if (n == sizeof *ret_error)
        waitpid(g->child, NULL, 0);
    return n == 0;
}

/* ---- The guard's loop ---- */

/* The tool was killed: its session is of no more use, and its lock can go to the next one now that
 * the command is dead. */
static void close_session(struct guard *g)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd); /* who reads the command's output must see its end */
    sigprocmask(SIG_SETMASK, g->config.command_mask, NULL);
    g->config.obituary[g->config.obituary_session] = g->session;
    execv("/proc/self/exe", g->config.obituary);
    _exit(0);
}

static void conclude(struct guard *g, int status)
{
    tell(g, GUARD_EXITED, (uint64_t)(unsigned)status);
    _exit(0);
}

/* The command itself has ended: in an ending what it leaves behind ends with it. */
static void command_ended(struct guard *g)
{
    int status = 0;

    if (g->is_ending) {
        kill_descendants(g->child, &status);
        conclude(g, status);
    }
    waitpid(g->child, &status, 0);
    conclude(g, status);
}

static void hear_children(struct guard *g)
{
    struct signalfd_siginfo signal;
    siginfo_t info;

    while (read(g->signals, &signal, sizeof signal) == sizeof signal)
        ;
    for (;;) {
        info.si_pid = 0;
        /* Looked at, not reaped: the group's number stays taken while its leader is there. */
        if (waitid(P_PID, (id_t)g->child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0)
            command_ended(g);
        info.si_pid = 0;
        if (waitid(P_PID, (id_t)g->child, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0)
            tell(g, GUARD_STOPPED, (uint64_t)info.si_status);
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 ||
            info.si_pid == g->child)
            return;
        waitpid(info.si_pid, NULL, 0); /* an orphan that we inherited */
    }
}

static void hear_timer(struct guard *g)
{
    int status = 0;
    uint64_t ticks;

    if (read(g->timer, &ticks, sizeof ticks) != sizeof ticks)
        return;
    if (now_ms() >= g->kill_at_ms) {
        if (!g->is_ending)
            tell(g, GUARD_ENDING, 0);
        kill_descendants(g->child, &status);
        conclude(g, status);
    }
    begin_ending(g);
    arm(g);
}

static void hear_tool(struct guard *g)
{
    struct guard_message message;
    uint64_t soon_ms;
    int status = 0;

    if (!guard_receive(g->socket, &message)) {
        kill_descendants(g->child, &status); /* the tool is gone, and with it the heartbeats */
        if (g->config.obituary != NULL)
            close_session(g);
        _exit(0);
    }
    switch (message.word) {
    case GUARD_DEADLINE:
        set_deadline(g, message.value);
        break;
    case GUARD_SIGNAL:
        kill(-g->child, (int)message.value);
        break;
    case GUARD_END:
        soon_ms = now_ms() + g->config.grace_ms;
        if (!g->is_ending && soon_ms < g->kill_at_ms)
            g->kill_at_ms = soon_ms;
        begin_ending(g);
        arm(g);
        break;
    default:
        break;
    }
}

static void watch_over(struct guard *g)
{
    struct pollfd polled[] = {{.fd = g->socket, .events = POLLIN},
                              {.fd = g->timer, .events = POLLIN},
                              {.fd = g->signals, .events = POLLIN}};

    for (;;) {
        if (poll(polled, 3, -1) < 0)
            continue;
        if (polled[1].revents != 0)
            hear_timer(g);
        if (polled[2].revents != 0)
            hear_children(g);
        if (polled[0].revents != 0)
            hear_tool(g);
    }
}

static void be_guard(struct guard *g)
{
    struct guard_message start;
    sigset_t child_signal;
    int error;

    setpgid(0, 0); /* what the terminal or the shell sends to the tool's group is not for us */
    prctl(PR_SET_NAME, "fencelock-guard");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    g->signals = signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK);
    g->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (g->signals < 0 || g->timer < 0 || !guard_receive(g->socket, &start))
        _exit(0);
    memcpy(g->session, start.session, sizeof g->session);
    if (!start_command(g, &start, &error)) {
        tell(g, GUARD_FAILED, (uint64_t)error);
        _exit(0);
    }
    tell(g, GUARD_STARTED, (uint64_t)g->child);
    set_deadline(g, start.value);
    watch_over(g);
}

int guard_fork(const struct guard_config *config, pid_t *ret_pid)
{
    struct guard guard = {.config = *config};
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    become_reaper(); /* for guard_take_over() */
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        guard.socket = pair[1];
        be_guard(&guard);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return -1;
    }
    *ret_pid = pid;
    return pair[0];
}
