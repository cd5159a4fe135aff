/* What the lock state machine costs: bytes per held lock, commands per second, the longest entry,
 * snapshots. Prints one figure a line.
 *
 *     core_bench [LOCKS]            2000000 held locks of 60-byte names by 1200 sessions
 *     core_bench churn [ROUNDS] [STANDING]
 *                                   names that come and go for good (50000000), while so many
 * others are held (100000): memory must stay flat */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "core_rig.h"

#define SESSIONS 1200u
#define BATCH    100u

static void add(struct rig *b, uint64_t i, enum fl_command_type type, fl_token token)
{
    char name[64];
    struct fl_command c = {.type = type,
                           .session = rig_session(i % SESSIONS),
                           .name = rig_name(i, name),
                           .token = token};

    if (type == FL_CMD_ACQUIRE) {
        c.request_id = i + 1;
        c.mode = FL_MODE_EXCLUSIVE;
    }
    rig_add(b, &c);
}

static const uint64_t hash_key[2] = {3, 4};

static int discard(void *ctx, const void *data, size_t len)
{
    fl_buf_put(ctx, data, len);
    return 0;
}

struct source {
    const struct fl_buf *buf;
    size_t at;
};

static long take(void *ctx, void *data, size_t size)
{
    struct source *s = ctx;
    size_t left = s->buf->len - s->at;

    if (size > left)
        size = left;
    memcpy(data, s->buf->data + s->at, size);
    s->at += size;
    return (long)size;
}

static void measure_snapshot(const struct rig *b)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct source source = {&buf, 0};
    struct fl_machine *loaded;
    double began = rig_cpu_seconds();

    FL_REQUIRE(fl_machine_save(b->m, discard, &buf) == 0);
    printf("snapshot save        %.2f s, %zu MB\n", rig_cpu_seconds() - began, buf.len >> 20);
    began = rig_cpu_seconds();
    FL_REQUIRE(fl_machine_load(hash_key, take, &source, &loaded) == 0);
    printf("snapshot load        %.2f s\n", rig_cpu_seconds() - began);
    fl_machine_free(loaded);
    fl_buf_deinit(&buf);
}

static void grow(uint64_t n)
{
    struct rig b;
    struct fl_machine_stats stats;
    size_t before;

    rig_init(&b);
    before = rig_allocated();
    rig_open_sessions(&b, SESSIONS);
    rig_restart(&b);
    for (uint64_t i = 0; i < n; i++) {
        add(&b, i, FL_CMD_ACQUIRE, 0);
        if (i % BATCH == BATCH - 1)
            rig_submit(&b);
    }
    rig_submit(&b);
    printf("acquire              %.0f commands/s\n", (double)n / b.applying);
    printf("longest entry        %.2f ms, of %u acquires\n", b.longest * 1e3, BATCH);
    fl_machine_stats(b.m, &stats);
    FL_REQUIRE(stats.holds == n);
    printf("bytes per held lock  %.1f by stats, %.1f by malloc\n", (double)stats.memory / (double)n,
           (double)(rig_allocated() - before - b.batch.capacity) / (double)n);
    measure_snapshot(&b);
    rig_restart(&b);
    for (uint64_t i = 0; i < n; i++) {
        add(&b, i, FL_CMD_RELEASE, i + 1);
        if (i % BATCH == BATCH - 1)
            rig_submit(&b);
    }
    rig_submit(&b);
    printf("release              %.0f commands/s, longest entry %.2f ms\n", (double)n / b.applying,
           b.longest * 1e3);
    rig_deinit(&b);
}

static size_t resident(void)
{
    FILE *from = fopen("/proc/self/statm", "re");
    unsigned long total, pages = 0;

    if (from != NULL) {
        if (fscanf(from, "%lu %lu", &total, &pages) != 2)
            pages = 0;
        fclose(from);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Each name is held while `standing` others come after it. */
static void churn(uint64_t rounds, uint64_t standing)
{
    struct rig b;

    rig_init(&b);
    rig_open_sessions(&b, SESSIONS);
    rig_restart(&b);
    for (uint64_t i = 0; i < rounds + standing; i++) {
        if (i < rounds)
            add(&b, i, FL_CMD_ACQUIRE, 0);
        if (i >= standing)
            add(&b, i - standing, FL_CMD_RELEASE, i - standing + 1);
        if (i % BATCH == BATCH - 1)
            rig_submit(&b);
        if (i % (rounds / 20) == rounds / 20 - 1) {
            struct fl_machine_stats stats;

            fl_machine_stats(b.m, &stats);
            printf("%10llu names came, %llu are held: %zu kB by stats, %zu kB by malloc, %zu kB "
                   "resident\n",
                   (unsigned long long)i + 1, (unsigned long long)stats.holds, stats.memory >> 10,
                   rig_allocated() >> 10, resident() >> 10);
            fflush(stdout);
        }
    }
    rig_submit(&b);
    printf("acquire and release  %.0f commands/s\n", 2 * (double)rounds / b.applying);
    rig_deinit(&b);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "churn") == 0)
        churn(argc > 2 ? strtoull(argv[2], NULL, 10) : 50000000,
              argc > 3 ? strtoull(argv[3], NULL, 10) : 100000);
    else
        grow(argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000);
    return 0;
}
