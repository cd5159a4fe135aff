/* queue: one holder and very many waiters for one name. Each releases as soon as it is granted: the
 * rate and the time from a release to the next one's notice, as the queue gets shorter. */
#include <stdio.h>
#include <string.h>

#include "load.h"

#define NAME  "scale/queue"
#define PARTS 5

static struct {
    uint64_t n_queued, n_granted, released_ns, part_ns;
    struct fl_histogram hand_overs;
} queue;

/* A grant of this request says that all the session's waits before it are in the queue: a stream is
 * answered in the order in which it asks. */
static void ask_for_mark(struct member *member)
{
    char name[64];

    snprintf(name, sizeof name, "scale/mark/%llu", (unsigned long long)member->number);
    swarm_acquire(member, UINT32_MAX, name, 60000);
}

static void on_open(void *ctx)
{
    struct load *load = ctx;

    load_say(load, "%llu sessions are open", (unsigned long long)load->sessions);
    swarm_acquire(&load->swarm.members[0], 1, NAME, 0);
}

static void begin_to_wait(struct load *load)
{
    uint64_t n = load->sessions - 1;

    for (uint64_t i = 0; i < load->waiters; i++)
        swarm_acquire(&load->swarm.members[1 + i % n], 2 + i, NAME, 86400000);
    for (uint64_t i = 0; i < n; i++)
        ask_for_mark(&load->swarm.members[1 + i]);
}

static void release(struct load *load, struct member *member, uint64_t request_id, uint64_t token)
{
    (void)load;
    queue.released_ns = swarm_now_ns();
    swarm_release(member, request_id, NAME, token);
}

static void tell_part(struct load *load)
{
    uint64_t now_ns = swarm_now_ns();

    load_say(load,
             "to %llu waiters: %.0f hand-overs a second, p50 %.2f ms, p99 %.2f ms, longest %.2f ms",
             (unsigned long long)(load->waiters - queue.n_granted),
             (double)queue.hand_overs.n / ((double)(now_ns - queue.part_ns) / 1e9),
             (double)fl_histogram_at(&queue.hand_overs, 0.5) / 1e6,
             (double)fl_histogram_at(&queue.hand_overs, 0.99) / 1e6,
             (double)queue.hand_overs.max / 1e6);
    fl_histogram_deinit(&queue.hand_overs);
    fl_histogram_init(&queue.hand_overs);
    queue.part_ns = now_ns;
}

static void on_acquired(void *ctx, struct member *member, uint64_t request_id, bool granted,
                        uint64_t token)
{
    static uint64_t first_token;
    struct load *load = ctx;

    if (!granted) {
        load_end(load, "somebody was refused");
    } else if (request_id == UINT32_MAX) {
        if (++queue.n_queued < load->sessions - 1)
            return;
        load_say(load, "%llu wait", (unsigned long long)load->waiters);
        queue.part_ns = swarm_now_ns();
        release(load, &load->swarm.members[0], 1, first_token);
    } else if (member->number == 0) {
        first_token = token;
        begin_to_wait(load);
    } else {
        fl_histogram_record(&queue.hand_overs, swarm_now_ns() - queue.released_ns);
        queue.n_granted++;
        release(load, member, request_id, token);
        if (queue.n_granted % (load->waiters / PARTS) == 0)
            tell_part(load);
        if (queue.n_granted < load->waiters)
            return;
        load_tell_swarm(load);
        load_end(load, NULL);
    }
}

void load_queue(struct load *load)
{
    struct swarm_config callbacks = {.on_all_open = on_open, .on_acquired = on_acquired};

    if (load->waiters < PARTS)
        load->waiters = PARTS;
    fl_histogram_init(&queue.hand_overs);
    load_open(load, load->sessions, &callbacks);
}
