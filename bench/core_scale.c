/* What the lock state machine does when much comes together: no entry may hold up the others for
 * long. Each scenario prints how long its entries took to apply, and how many it needed.
 *
 *     core_scale [SCENARIO [N]]     without: all of them
 *
 *     queue    N waiters for one name (50000): release after release, as the queue gets shorter
 *     dead     N waits for one name (50000) of ten sessions that died before its release, and one
 * of a session that lives readers  N readers (50000) that a writer's release lets in, and their own
 * releases session  one session with N locks (200000) expires, among as many of others crowd    N
 * sessions (50000) expire together */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "core_rig.h"

/* As the node puts into one entry. */
#define EXPIRIES 512

static const char name[] = "tenant/one/orders/checkout/the-name-that-everybody-wants/000";

static void acquire(struct rig *rig, uint64_t session, struct fl_str what, enum fl_mode mode)
{
    struct fl_command c = {.type = FL_CMD_ACQUIRE,
                           .session = rig_session(session),
                           .request_id = rig->index * 10000 + session + 1,
                           .name = what,
                           .mode = mode,
                           .wait_ms = FL_WAIT_MS_MAX};

    rig_add(rig, &c);
}

static void release(struct rig *rig, uint64_t session, fl_token token)
{
    struct fl_command c = {.type = FL_CMD_RELEASE,
                           .session = rig_session(session),
                           .name = fl_str_from(name),
                           .token = token};

    rig_add(rig, &c);
}

static void expire(struct rig *rig, uint64_t session)
{
    struct fl_command c = {
        .type = FL_CMD_EXPIRE_SESSION, .session = rig_session(session), .term = 1};

    rig_add(rig, &c);
}

static void begin(struct rig *rig, uint64_t n_sessions)
{
    rig_init(rig);
    rig_open_sessions(rig, n_sessions);
}

/* Empty entries, as the leader writes them, until nothing is left to be done. */
static uint64_t work_off(struct rig *rig)
{
    uint64_t n = 0;

    for (; fl_machine_has_backlog(rig->m); n++)
        rig_submit(rig);
    return n;
}

static void tell(const char *what, const struct rig *rig)
{
    printf("  %-44s %6llu entries, p50 %.3f ms, p99 %.3f ms, longest %.3f ms\n", what,
           (unsigned long long)rig->entries.n, (double)fl_histogram_at(&rig->entries, 0.5) / 1e6,
           (double)fl_histogram_at(&rig->entries, 0.99) / 1e6, rig->longest * 1e3);
}

/* Session 0 holds the name, and 1 to n wait for it. */
static void make_queue(struct rig *rig, uint64_t n, enum fl_mode mode)
{
    acquire(rig, 0, fl_str_from(name), FL_MODE_EXCLUSIVE);
    rig_submit(rig);
    for (uint64_t i = 1; i <= n; i++) {
        acquire(rig, i, fl_str_from(name), mode);
        if (i % 1000 == 0)
            rig_submit(rig);
    }
    rig_submit(rig);
}

static void run_queue(uint64_t n)
{
    struct rig rig;
    char what[64];

    printf("queue: %llu waiters for one name\n", (unsigned long long)n);
    begin(&rig, n + 1);
    make_queue(&rig, n, FL_MODE_EXCLUSIVE);
    rig_restart(&rig);
    for (uint64_t i = 0; i <= n; i++) {
        release(&rig, i, i + 1);
        rig_submit(&rig);
        if ((i + 1) % (n / 5) != 0)
            continue;
        snprintf(what, sizeof what, "releases, to %llu waiters", (unsigned long long)(n - i - 1));
        tell(what, &rig);
        rig_restart(&rig);
    }
    FL_REQUIRE(fl_machine_token(rig.m) == n + 1);
    rig_deinit(&rig);
}

static void run_dead(uint64_t n)
{
    struct rig rig;

    printf("dead: %llu waits of ten sessions that died, then one of a living one\n",
           (unsigned long long)n);
    begin(&rig, 12);
    acquire(&rig, 0, fl_str_from(name), FL_MODE_EXCLUSIVE);
    for (uint64_t i = 0; i < n; i++) {
        rig_submit(&rig);
        acquire(&rig, 1 + i % 10, fl_str_from(name), FL_MODE_EXCLUSIVE);
    }
    rig_submit(&rig);
    acquire(&rig, 11, fl_str_from(name), FL_MODE_EXCLUSIVE);
    rig_submit(&rig);
    rig_restart(&rig);
    for (uint64_t i = 1; i <= 10; i++)
        expire(&rig, i);
    release(&rig, 0, 1);
    rig_submit(&rig);
    work_off(&rig);
    tell("their end, and the release", &rig);
    FL_REQUIRE(fl_machine_token(rig.m) == 2);
    rig_deinit(&rig);
}

static void run_readers(uint64_t n)
{
    struct rig rig;

    printf("readers: %llu behind a writer\n", (unsigned long long)n);
    begin(&rig, n + 1);
    make_queue(&rig, n, FL_MODE_SHARED);
    rig_restart(&rig);
    release(&rig, 0, 1);
    rig_submit(&rig);
    work_off(&rig);
    tell("the writer's release lets them in", &rig);
    FL_REQUIRE(fl_machine_token(rig.m) == n + 1);
    rig_restart(&rig);
    for (uint64_t i = n; i > 0; i--) { /* the newest first */
        release(&rig, i, i + 1);
        if (i % 100 == 0)
            rig_submit(&rig);
    }
    rig_submit(&rig);
    tell("their releases, 100 in an entry", &rig);
    rig_deinit(&rig);
}

static void run_session(uint64_t n)
{
    struct rig rig;
    char text[64];

    printf("session: one with %llu locks expires, among as many\n", (unsigned long long)n);
    begin(&rig, 1001);
    for (uint64_t i = 0; i < 2 * n; i++) {
        acquire(&rig, i % 2 == 0 ? 0 : 1 + i % 1000, rig_name(i, text), FL_MODE_EXCLUSIVE);
        rig_submit(&rig);
    }
    rig_restart(&rig);
    expire(&rig, 0);
    rig_submit(&rig);
    work_off(&rig);
    tell("its end", &rig);
    rig_deinit(&rig);
}

/* Each holds one lock, and waits for the next one's. */
static void run_crowd(uint64_t n)
{
    struct rig rig;
    char text[64];

    printf("crowd: %llu sessions expire together\n", (unsigned long long)n);
    begin(&rig, n);
    for (uint64_t i = 0; i < 2 * n; i++) {
        acquire(&rig, i % n, rig_name(i < n ? i : (i + 1) % n, text), FL_MODE_EXCLUSIVE);
        rig_submit(&rig);
    }
    rig_restart(&rig);
    for (uint64_t i = 0; i < n; i++) {
        expire(&rig, i);
        if (i % EXPIRIES == EXPIRIES - 1)
            rig_submit(&rig);
    }
    rig_submit(&rig);
    work_off(&rig);
    tell("their end", &rig);
    rig_deinit(&rig);
}

static const struct {
    const char *name;
    void (*run)(uint64_t n);
    uint64_t n;
} scenarios[] = {
    {"queue", run_queue, 50000},      {"dead", run_dead, 50000},   {"readers", run_readers, 50000},
    {"session", run_session, 200000}, {"crowd", run_crowd, 50000},
};

int main(int argc, char **argv)
{
    bool is_known = argc == 1;

    for (size_t i = 0; i < FL_ARRAY_LEN(scenarios); i++) {
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) != 0)
            continue;
        is_known = true;
        scenarios[i].run(argc > 2 ? strtoull(argv[2], NULL, 10) : scenarios[i].n);
    }
    if (!is_known)
        fprintf(stderr, "core_scale: no scenario %s\n", argv[1]);
    return is_known ? 0 : 64;
}
