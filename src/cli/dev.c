/* `fencelock dev`: a cluster on this machine, for trying, developing and demonstrating. */
#include "cli/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"

#define CLUSTER_NAME    "dev"
#define READY_MS_MAX    30000
#define STOP_MS_MAX     10000
#define NODE_ARGS_FIXED 16
#define NODE_ARGS_MAX   (NODE_ARGS_FIXED + 2 * DEV_NODES_MAX)

struct dev_run {
    struct cli_common common;
    struct dev dev;
    const char *log_level;
    char daemon[PATH_MAX];
    int signals;
    bool is_stopping;
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Beside our own binary, else whatever PATH has. */
static void find_daemon(struct dev_run *run)
{
    ssize_t n = readlink("/proc/self/exe", run->daemon, sizeof run->daemon - 32);
    char *slash;

    run->daemon[n > 0 ? n : 0] = '\0';
    slash = strrchr(run->daemon, '/');
    if (slash != NULL) {
        strcpy(slash + 1, "fencelockd");
        if (access(run->daemon, X_OK) == 0)
            return;
    }
    strcpy(run->daemon, "fencelockd");
}

/* ---- Nodes ---- */

static char *printf_new(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *printf_new(const char *format, ...)
{
    char text[PATH_MAX + 64];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fl_xstrdup(text);
}

/* A node that has once served has data, and must never begin anew without it: it could vote twice.
 */
static void begun_path(const struct dev_node *node, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/begun", node->dir);
}

static bool has_begun(const struct dev_node *node)
{
    char path[PATH_MAX];

    begun_path(node, path);
    return access(path, F_OK) == 0;
}

static void mark_begun(const struct dev_node *node)
{
    char path[PATH_MAX];
    int fd;

    begun_path(node, path);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

/* In the child; never returns. */
static void become_node(const struct dev_run *run, unsigned index, int ready)
{
    const struct dev_node *node = &run->dev.nodes[index];
    char *argv[NODE_ARGS_MAX + 1];
    int n = 0, log;
    sigset_t none;

    argv[n++] = "fencelockd";
    argv[n++] = "--node-id";
    argv[n++] = printf_new("%u", index + 1);
    argv[n++] = "--dir";
    argv[n++] = printf_new("%s/data", node->dir);
    argv[n++] = "--cluster";
    argv[n++] = CLUSTER_NAME;
    argv[n++] = "--peer-listen";
    argv[n++] = printf_new("127.0.0.1:%u", node->peer_port);
    argv[n++] = "--listen";
    argv[n++] = printf_new("127.0.0.1:%u", node->grpc_port);
    argv[n++] = "--http-listen";
    argv[n++] = printf_new("127.0.0.1:%u", node->http_port);
    for (unsigned i = 0; i < run->dev.n_nodes; i++) {
        argv[n++] = "--peer";
        argv[n++] = printf_new("%u=127.0.0.1:%u", i + 1, run->dev.nodes[i].peer_port);
    }
    argv[n++] = "--log-level";
    argv[n++] = (char *)run->log_level;
    if (!has_begun(node))
        argv[n++] = "--bootstrap";
    argv[n] = NULL;
    log = open(printf_new("%s/log", node->dir), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    setpgid(0, 0); /* ^C is for us: we stop them in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(ready, STDOUT_FILENO);
    if (log >= 0)
        dup2(log, STDERR_FILENO);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(run->daemon, argv);
    fprintf(stderr, "cannot run %s: %s\n", run->daemon, strerror(errno));
    _exit(CLI_EXIT_NO_COMMAND);
}

static bool write_pid(const struct dev_node *node)
{
    char path[PATH_MAX];
    FILE *to;

    snprintf(path, sizeof path, "%s/pid", node->dir);
    to = fopen(path, "we");
    if (to == NULL)
        return false;
    fprintf(to, "%ld\n", (long)node->pid);
    return fclose(to) == 0;
}

static bool start_node(struct dev_run *run, unsigned index)
{
    struct dev_node *node = &run->dev.nodes[index];
    int pipe_ends[2];

    if (pipe2(pipe_ends, O_CLOEXEC) < 0)
        return false;
    fflush(NULL);
    node->pid = fork();
    if (node->pid == 0)
        become_node(run, index, pipe_ends[1]);
    close(pipe_ends[1]);
    node->ready = pipe_ends[0];
    return node->pid > 0 && write_pid(node);
}

static void tell_end(const struct dev_run *run, unsigned index, int status)
{
    const struct dev_node *node = &run->dev.nodes[index];

    if (run->is_stopping)
        return;
    if (WIFSIGNALED(status))
        fprintf(stderr, "node %u (process %ld) was killed by signal %d (%s)", index + 1,
                (long)node->pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        fprintf(stderr, "node %u (process %ld) ended with code %d", index + 1, (long)node->pid,
                WEXITSTATUS(status));
    fprintf(stderr, "; it is not restarted. Its log: %s/log\n", node->dir);
}

static void reap(struct dev_run *run)
{
    char path[PATH_MAX];
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (unsigned i = 0; i < run->dev.n_nodes; i++) {
            if (run->dev.nodes[i].pid != pid)
                continue;
            tell_end(run, i, status);
            run->dev.nodes[i].pid = 0;
            snprintf(path, sizeof path, "%s/pid", run->dev.nodes[i].dir);
            unlink(path);
        }
    }
}

static unsigned count_running(const struct dev_run *run)
{
    unsigned n = 0;

    for (unsigned i = 0; i < run->dev.n_nodes; i++)
        n += run->dev.nodes[i].pid != 0;
    return n;
}

/* ---- Waiting ---- */

/* Waits for a signal; takes note of nodes that end. Returns whether we are to stop. */
static bool should_stop(struct dev_run *run, int timeout_ms)
{
    struct pollfd polled = {.fd = run->signals, .events = POLLIN};
    struct signalfd_siginfo info;
    bool stops = false;

    if (poll(&polled, 1, timeout_ms) <= 0)
        return false;
    while (read(run->signals, &info, sizeof info) == sizeof info)
        stops |= info.ssi_signo != SIGCHLD;
    reap(run);
    return stops;
}

/* A node's first line says that it serves; what it prints later, nobody needs. */
static bool is_ready(struct dev_node *node)
{
    struct pollfd polled = {.fd = node->ready, .events = POLLIN};
    char line[512];

    if (node->ready < 0)
        return true;
    if (poll(&polled, 1, 0) <= 0 || read(node->ready, line, sizeof line) <= 0)
        return false;
    mark_begun(node);
    node->ready = -1; /* left open: the node may print more, and must not die of it */
    return true;
}

static bool all_ready(struct dev_run *run)
{
    for (unsigned i = 0; i < run->dev.n_nodes; i++)
        if (!is_ready(&run->dev.nodes[i]))
            return false;
    return true;
}

static bool leader_serves(struct fl_client *client)
{
    struct fl_description *description;

    if (fl_describe(client, CLUSTER_NAME, false, 0, &description, NULL) < 0)
        return false;
    fl_description_free(description);
    return true;
}

static void show_last_lines(const struct dev_node *node)
{
    char path[PATH_MAX], text[1500];
    FILE *from;
    size_t n;

    snprintf(path, sizeof path, "%s/log", node->dir);
    from = fopen(path, "re");
    if (from == NULL)
        return;
    if (fseek(from, -(long)sizeof text, SEEK_END) < 0)
        rewind(from);
    n = fread(text, 1, sizeof text, from);
    fwrite(text, 1, n, stderr);
    fclose(from);
}

/* 0: a leader serves; else the exit code. */
static int await_leader(struct dev_run *run)
{
    uint64_t give_up_ms = now_ms() + READY_MS_MAX;
    struct fl_client_options options = {.name = "fencelock dev", .timeout_ms = 1000};
    struct fl_client *client = NULL;
    bool serves = false;

    while (!serves && now_ms() < give_up_ms) {
        if (should_stop(run, 20))
            break;
        if (count_running(run) <= run->dev.n_nodes / 2)
            break;
        if (!all_ready(run))
            continue;
        if (client == NULL && fl_client_new(run->dev.endpoints, &options, &client, NULL) < 0)
            break;
        serves = leader_serves(client);
    }
    fl_client_free(client);
    if (serves)
        return 0;
    fputs("fencelock dev: the cluster did not come up. The end of node 1's log:\n", stderr);
    show_last_lines(&run->dev.nodes[0]);
    return CLI_EXIT_FAILED;
}

static void stop_all(struct dev_run *run)
{
    uint64_t give_up_ms = now_ms() + STOP_MS_MAX;

    run->is_stopping = true;
    for (unsigned i = 0; i < run->dev.n_nodes; i++)
        if (run->dev.nodes[i].pid != 0)
            kill(run->dev.nodes[i].pid, SIGTERM);
    while (count_running(run) > 0 && now_ms() < give_up_ms)
        should_stop(run, 100);
    for (unsigned i = 0; i < run->dev.n_nodes; i++) {
        if (run->dev.nodes[i].pid == 0)
            continue;
        fprintf(stderr, "node %u does not end: killing it\n", i + 1);
        kill(run->dev.nodes[i].pid, SIGKILL);
    }
    while (count_running(run) > 0)
        should_stop(run, 100);
}

/* ---- Telling ---- */

static void print_json(const struct dev_run *run)
{
    const struct dev *dev = &run->dev;
    json_t *nodes = json_array();
    char grpc[32], peer[32], http[32];

    for (unsigned i = 0; i < dev->n_nodes; i++) {
        snprintf(grpc, sizeof grpc, "127.0.0.1:%u", dev->nodes[i].grpc_port);
        snprintf(peer, sizeof peer, "127.0.0.1:%u", dev->nodes[i].peer_port);
        snprintf(http, sizeof http, "127.0.0.1:%u", dev->nodes[i].http_port);
        json_array_append_new(nodes,
                              json_pack("{s:i, s:I, s:s, s:s, s:s, s:s}", "id", (int)i + 1, "pid",
                                        (json_int_t)dev->nodes[i].pid, "grpc", grpc, "peer", peer,
                                        "http", http, "dir", dev->nodes[i].dir));
    }
    cli_print_json(
        json_pack("{s:s, s:s, s:o}", "endpoints", dev->endpoints, "dir", dev->dir, "nodes", nodes));
}

static void print_text(const struct dev_run *run)
{
    const struct dev *dev = &run->dev;

    for (unsigned i = 0; i < dev->n_nodes; i++)
        printf("node %u  127.0.0.1:%u  http://127.0.0.1:%u/  process %ld\n", i + 1,
               dev->nodes[i].grpc_port, dev->nodes[i].http_port, (long)dev->nodes[i].pid);
    printf("\nState and logs: %s%s\n\n"
           "  export FENCELOCK_ENDPOINTS=%s\n"
           "  fencelock run my-lock -- sh -c 'echo my token is $FENCELOCK_TOKEN'\n\n"
           "Serving until ^C.\n",
           dev->dir, dev->is_temporary ? " (removed at the end; --dir keeps it)" : "",
           dev->endpoints);
    fflush(stdout);
}

static void take_signals(struct dev_run *run)
{
    static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < FL_ARRAY_LEN(taken); i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int serve(struct dev_run *run)
{
    int exit_code = 0;

    find_daemon(run);
    take_signals(run);
    for (unsigned i = 0; i < run->dev.n_nodes; i++) {
        if (start_node(run, i))
            continue;
        fprintf(stderr, "fencelock dev: cannot start node %u: %s\n", i + 1, strerror(errno));
        exit_code = CLI_EXIT_FAILED;
    }
    if (exit_code == 0)
        exit_code = await_leader(run);
    if (exit_code == 0) {
        if (run->common.json)
            print_json(run);
        else
            print_text(run);
        while (!should_stop(run, -1))
            ;
    }
    stop_all(run);
    dev_clean_up(&run->dev);
    return exit_code;
}

enum { OPT_NODES = 1, OPT_DIR, OPT_PORT, OPT_LOG_LEVEL };

static int dev(int argc, char **argv)
{
    static const struct option options[] = {{"nodes", required_argument, NULL, OPT_NODES},
                                            {"dir", required_argument, NULL, OPT_DIR},
                                            {"port", required_argument, NULL, OPT_PORT},
                                            {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
                                            CLI_COMMON_OPTIONS};
    struct dev_run run = {.log_level = "info"};
    const char *dir = NULL;
    unsigned n_nodes = 0;
    int port = -1, option;

    cli_common_init(&run.common, &cli_dev);
    while ((option = cli_next_option(&run.common, argc, argv, options)) != -1) {
        if (option == OPT_NODES)
            n_nodes = (unsigned)cli_number(&run.common, "--nodes", optarg, 1, DEV_NODES_MAX);
        else if (option == OPT_DIR)
            dir = optarg;
        else if (option == OPT_PORT)
            port = (int)cli_number(&run.common, "--port", optarg, 0, 65000);
        else
            run.log_level = optarg;
    }
    if (!cli_want_operands(&run.common, argc, 0, "no operand"))
        return run.common.exit_code;
    if (!dev_prepare(&run.dev, dir, n_nodes, port)) {
        dev_clean_up(&run.dev);
        return CLI_EXIT_FAILED;
    }
    return serve(&run);
}

const struct cli_command cli_dev = {
    .name = "dev",
    .summary = "a cluster on this machine, to try and develop with",
    .help =
        "fencelock dev [OPTIONS]\n"
        "\n"
        "Starts a cluster on the loopback address, prints its endpoints when a leader serves,\n"
        "and stops it with ^C. With --dir a later start finds the same ports and state; without,\n"
        "everything is in a temporary directory that is removed at the end. A node that dies is\n"
        "told and not restarted: kill some and see what happens.\n"
        "\n"
        "  --nodes N                  1 to 9 (5)\n"
        "  --dir DIR                  state, logs and process numbers: DIR/nodes/N\n"
        "  --port PORT                of node 1; the others' are 10 apart (3362). 0: free ones\n"
        "  --log-level LEVEL          debug, info, warn, error (info)\n"
        "  --json                     one line when it is ready: endpoints, dir, and for each\n"
        "                             node id, pid, grpc, peer, http, dir\n"
        "  --help                     this text\n"
        "\n"
        "Examples:\n"
        "  fencelock dev\n"
        "  fencelock dev --nodes 3 --dir ./cluster --port 4000\n"
        "  fencelock dev --port 0 --json\n",
    .run = dev,
};
