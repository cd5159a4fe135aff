/* Scale, on a real cluster: scenarios with very many sessions, waiters and locks. scripts/scale
 * starts a cluster and runs them; this program is the clients.
 *
 *     scale_load sessions|queue|session|crowd --endpoints HOST:PORT,... [OPTIONS]
 *
 * Exit code 1 when a session was lost that beat, or somebody waited in vain; 75 when a stream broke
 * for want of a leader, so that the question is open. How long things took is printed, and judged
 * by nobody. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/list.h"
#include "load.h"

/* Whatever happens, a run ends. */
#define PATIENCE_S   1800
#define EXIT_UNKNOWN 75

void load_say(struct load *load, const char *format, ...)
{
    va_list args;

    printf("%8.2f s  ", (double)(swarm_now_ns() - load->began_ns) / 1e9);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void load_end(struct load *load, const char *why)
{
    if (why != NULL) {
        load_say(load, "FAILED: %s", why);
        exit(1);
    }
    fl_loop_stop(load->loop);
}

void load_lost(void *ctx, bool is_stream, const char *why)
{
    struct load *load = ctx;

    if (!is_stream)
        load_end(load, why);
    load_say(load, "a stream broke, and nothing can be said: %s", why);
    exit(EXIT_UNKNOWN);
}

void load_open(struct load *load, uint64_t n, const struct swarm_config *callbacks)
{
    struct swarm_config config = *callbacks;

    config.endpoints = load->endpoints;
    config.client = "scale";
    config.n_connections = load->connections < n ? load->connections : (unsigned)n;
    config.n_members = n;
    config.ttl_ms = load->ttl_ms;
    config.opening_max = 256;
    config.ctx = load;
    config.on_lost = load_lost;
    swarm_init(&load->swarm, load->loop, &config);
    swarm_open(&load->swarm);
}

void load_tell_swarm(struct load *load)
{
    const struct swarm *swarm = &load->swarm;

    load_say(load,
             "%llu sessions on %u connections: %llu heartbeats acknowledged, p50 %.2f ms, p99 %.2f "
             "ms, longest %.2f ms; lost: %llu",
             (unsigned long long)swarm->n_open, swarm->config.n_connections,
             (unsigned long long)swarm->n_beats, (double)fl_histogram_at(&swarm->beats, 0.5) / 1e6,
             (double)fl_histogram_at(&swarm->beats, 0.99) / 1e6, (double)swarm->beats.max / 1e6,
             (unsigned long long)swarm->n_lost);
    if (swarm->n_lost != 0) {
        load_say(load, "the first loss: %s", swarm->first_loss);
        load->has_failed = true;
    }
}

/* --- sessions: many that do nothing but live, and waiters that wait --- */

static void on_seconds_over(struct fl_timer *timer, uint64_t now_ms)
{
    struct load *load = FL_CONTAINER_OF(timer, struct load, timer);

    (void)now_ms;
    load_tell_swarm(load);
    load_end(load, NULL);
}

static void on_sessions_open(void *ctx)
{
    struct load *load = ctx;

    load_say(load, "%llu sessions are open", (unsigned long long)load->sessions);
    if (load->waiters != 0)
        swarm_acquire(&load->swarm.members[0], 1, "scale/idle", 0);
    for (uint64_t i = 0; i < load->waiters; i++)
        swarm_acquire(&load->swarm.members[1 + i % (load->sessions - 1)], 2 + i, "scale/idle",
                      86400000);
    load_say(load, "steady");
    fl_timer_set(load->loop, &load->timer, fl_loop_now_ms(load->loop) + load->seconds * 1000);
}

void load_sessions(struct load *load)
{
    struct swarm_config callbacks = {.on_all_open = on_sessions_open};

    load_open(load, load->sessions, &callbacks);
    load->timer.fire = on_seconds_over;
}

/* --- The program --- */

static const struct {
    const char *name;
    void (*begin)(struct load *load);
} scenarios[] = {
    {"sessions", load_sessions},
    {"queue", load_queue},
    {"session", load_session},
    {"crowd", load_crowd},
};

static void on_patience_over(struct fl_timer *timer, uint64_t now_ms)
{
    (void)timer, (void)now_ms;
    fprintf(stderr, "scale_load: it has not ended in %d s\n", PATIENCE_S);
    exit(1);
}

static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void take_options(struct load *load, int argc, char **argv)
{
    static const struct option options[] = {{"endpoints", required_argument, NULL, 'e'},
                                            {"probe-endpoints", required_argument, NULL, 'p'},
                                            {"sessions", required_argument, NULL, 's'},
                                            {"waiters", required_argument, NULL, 'w'},
                                            {"locks", required_argument, NULL, 'l'},
                                            {"healthy", required_argument, NULL, 'h'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"ttl-ms", required_argument, NULL, 'm'},
                                            {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long long number = optarg != NULL ? strtoull(optarg, NULL, 10) : 0;

        switch (option) {
        case 'e':
            load->endpoints = optarg;
            break;
        case 'p':
            load->probe_endpoints = optarg;
            break;
        case 's':
            load->sessions = number;
            break;
        case 'w':
            load->waiters = number;
            break;
        case 'l':
            load->locks = number;
            break;
        case 'h':
            load->healthy = number;
            break;
        case 'c':
            load->connections = (unsigned)number;
            break;
        case 't':
            load->seconds = (unsigned)number;
            break;
        case 'r':
            load->rate = (unsigned)number;
            break;
        case 'm':
            load->ttl_ms = (uint32_t)number;
            break;
        default:
            exit(64);
        }
    }
}

int main(int argc, char **argv)
{
    static struct load load = {.sessions = 1000,
                               .healthy = 100,
                               .connections = 100,
                               .seconds = 20,
                               .rate = 200,
                               .ttl_ms = 10000};
    struct fl_timer patience = FL_TIMER_INIT(on_patience_over);
    size_t i = 0;

    take_options(&load, argc, argv);
    while (i < FL_ARRAY_LEN(scenarios) &&
           (optind >= argc || strcmp(argv[optind], scenarios[i].name) != 0))
        i++;
    if (i == FL_ARRAY_LEN(scenarios) || load.endpoints == NULL || load.rate == 0 ||
        load.sessions < 2 || load.connections == 0) {
        fprintf(stderr, "usage: scale_load sessions|queue|session|crowd --endpoints LIST ...\n");
        return 64;
    }
    if (load.probe_endpoints == NULL)
        load.probe_endpoints = load.endpoints;
    raise_descriptors();
    load.loop = fl_loop_new();
    load.began_ns = swarm_now_ns();
    fl_timer_set(load.loop, &patience, fl_loop_now_ms(load.loop) + PATIENCE_S * 1000);
    scenarios[i].begin(&load);
    fl_loop_run(load.loop);
    fl_timer_clear(load.loop, &patience);
    fl_timer_clear(load.loop, &load.timer);
    swarm_deinit(&load.swarm);
    fl_loop_free(load.loop);
    return load.has_failed ? 1 : 0;
}
