/* What the lock state machine costs: bytes per held lock, commands per second, the longest entry,
 * snapshots. Prints one figure a line.
 *
 *     core_bench [LOCKS]            2000000 held locks of 60-byte names by 1200 sessions
 *     core_bench churn [ROUNDS]     names that come and go for good: memory must stay flat */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "core/machine.h"

#define SESSIONS 1200u
#define BATCH    100u

static const uint64_t key[2] = {1, 2};

struct bench {
    struct fl_machine *m;
    uint64_t index;
    double longest, applying; /* apply, in seconds; the bench's own encoding is not in it */
    struct fl_buf batch;
};

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void submit(struct bench *b)
{
    double began = seconds_now(), took;

    FL_REQUIRE(fl_machine_apply(b->m, ++b->index, 1, b->batch.data, b->batch.len, NULL, NULL) == 0);
    took = seconds_now() - began;
    b->applying += took;
    if (took > b->longest)
        b->longest = took;
    fl_buf_clear(&b->batch);
    fl_batch_begin(&b->batch, 0);
}

static struct fl_session_id session_of(uint64_t i)
{
    return (struct fl_session_id){1, i % SESSIONS};
}

static void open_sessions(struct bench *b)
{
    for (uint64_t i = 0; i < SESSIONS; i++) {
        struct fl_command c = {.type = FL_CMD_OPEN_SESSION,
                               .session = session_of(i),
                               .client = FL_STR("bench"),
                               .ttl_ms = FL_TTL_MS_DEFAULT};

        fl_batch_add(&b->batch, &c);
    }
    submit(b);
}

static struct fl_str name_of(uint64_t i, char *out)
{
    /* In an order that is not the names': the worse case for the ordered index. */
    uint64_t mixed = i * UINT64_C(0x9e3779b97f4a7c15);

    snprintf(out, 64, "tenant/%016llx/orders/checkout/line-item-%010u", (unsigned long long)mixed,
             (uint32_t)i);
    return (struct fl_str){out, 60};
}

static void add(struct bench *b, uint64_t i, enum fl_command_type type, fl_token token)
{
    char name[64];
    struct fl_command c = {
        .type = type, .session = session_of(i), .name = name_of(i, name), .token = token};

    if (type == FL_CMD_ACQUIRE) {
        c.request_id = i + 1;
        c.mode = FL_MODE_EXCLUSIVE;
    }
    fl_batch_add(&b->batch, &c);
}

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

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

static void measure_snapshot(const struct bench *b)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct source source = {&buf, 0};
    struct fl_machine *loaded;
    double began = seconds_now();

    FL_REQUIRE(fl_machine_save(b->m, discard, &buf) == 0);
    printf("snapshot save        %.2f s, %zu MB\n", seconds_now() - began, buf.len >> 20);
    began = seconds_now();
    FL_REQUIRE(fl_machine_load(key, take, &source, &loaded) == 0);
    printf("snapshot load        %.2f s\n", seconds_now() - began);
    fl_machine_free(loaded);
    fl_buf_deinit(&buf);
}

static void grow(uint64_t n)
{
    size_t before = allocated();
    struct bench b = {.m = fl_machine_new(key)};
    struct fl_machine_stats stats;

    fl_batch_begin(&b.batch, 0);
    open_sessions(&b);
    b.longest = b.applying = 0;
    for (uint64_t i = 0; i < n; i++) {
        add(&b, i, FL_CMD_ACQUIRE, 0);
        if (i % BATCH == BATCH - 1)
            submit(&b);
    }
    submit(&b);
    printf("acquire              %.0f commands/s\n", (double)n / b.applying);
    printf("longest entry        %.2f ms, of %u acquires\n", b.longest * 1e3, BATCH);
    fl_machine_stats(b.m, &stats);
    FL_REQUIRE(stats.holds == n);
    printf("bytes per held lock  %.1f by stats, %.1f by malloc\n", (double)stats.memory / (double)n,
           (double)(allocated() - before - b.batch.capacity) / (double)n);
    measure_snapshot(&b);
    b.longest = b.applying = 0;
    for (uint64_t i = 0; i < n; i++) {
        add(&b, i, FL_CMD_RELEASE, i + 1);
        if (i % BATCH == BATCH - 1)
            submit(&b);
    }
    submit(&b);
    printf("release              %.0f commands/s, longest entry %.2f ms\n", (double)n / b.applying,
           b.longest * 1e3);
    fl_machine_free(b.m);
    fl_buf_deinit(&b.batch);
}

static void churn(uint64_t rounds)
{
    struct bench b = {.m = fl_machine_new(key)};

    fl_batch_begin(&b.batch, 0);
    open_sessions(&b);
    for (uint64_t i = 0; i < rounds; i++) {
        add(&b, i, FL_CMD_ACQUIRE, 0);
        add(&b, i, FL_CMD_RELEASE, i + 1);
        if (i % BATCH == BATCH - 1)
            submit(&b);
        if (i % (rounds / 10) == rounds / 10 - 1) {
            struct fl_machine_stats stats;

            fl_machine_stats(b.m, &stats);
            printf("%10llu names came and went: %zu kB by stats, %zu kB by malloc\n",
                   (unsigned long long)i + 1, stats.memory >> 10, allocated() >> 10);
        }
    }
    printf("acquire and release  %.0f commands/s\n", 2 * (double)rounds / b.applying);
    fl_machine_free(b.m);
    fl_buf_deinit(&b.batch);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "churn") == 0)
        churn(argc > 2 ? strtoull(argv[2], NULL, 10) : 50000000);
    else
        grow(argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000);
    return 0;
}
