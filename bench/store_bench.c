/* What the disk costs: the latency of one append at a time, throughput with many queued, and how
 * long reading a log takes.
 *
 *     store_bench DIRECTORY [ENTRY_BYTES [LOG_MIB]]
 *
 * DIRECTORY is made, must not be in use, and is left behind for a look; remove it afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "raft/engine.h"
#include "raft/store.h"

#define LATENCY_APPENDS 4000
#define WARM_UP_APPENDS 200
#define STREAM_INFLIGHT 64
#define STREAM_ENTRY    (64u * 1024)

struct bench {
    struct fl_store *store;
    uint64_t next_index;
    uint8_t *data;
    sem_t woken;
};

static void on_wake(void *ctx)
{
    sem_post(&((struct bench *)ctx)->woken);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void append(struct bench *bench, uint32_t len)
{
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    append->index = bench->next_index++;
    append->n = 1;
    append->entries = fl_xcalloc(1, sizeof(struct fl_entry *));
    append->entries[0] = fl_entry_new(FL_ENTRY_COMMAND, 1, bench->data, len);
    fl_store_append(bench->store, append);
}

static void wait_for_one(struct bench *bench)
{
    struct fl_append *append;

    while ((append = fl_store_complete(bench->store)) == NULL)
        while (sem_wait(&bench->woken) != 0 && errno == EINTR)
            continue;
    fl_append_free(append);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure_latency(struct bench *bench, uint32_t len)
{
    static double took[LATENCY_APPENDS];

    for (unsigned i = 0; i < WARM_UP_APPENDS + LATENCY_APPENDS; i++) {
        double start = now();

        append(bench, len);
        wait_for_one(bench);
        if (i >= WARM_UP_APPENDS)
            took[i - WARM_UP_APPENDS] = (now() - start) * 1e3;
    }
    qsort(took, LATENCY_APPENDS, sizeof *took, compare_doubles);
    printf("append of %" PRIu32 " bytes, one at a time: p50 %.3f ms, p99 %.3f ms, max %.3f ms\n",
           len, took[LATENCY_APPENDS / 2], took[LATENCY_APPENDS / 100 * 99],
           took[LATENCY_APPENDS - 1]);
}

static void measure_stream(struct bench *bench, uint64_t bytes)
{
    uint64_t n = bytes / STREAM_ENTRY, done = 0, sent = 0;
    double start = now(), took;

    while (done < n) {
        for (; sent < n && sent - done < STREAM_INFLIGHT; sent++)
            append(bench, STREAM_ENTRY);
        wait_for_one(bench);
        done++;
    }
    took = now() - start;
    printf("%" PRIu64 " MiB in entries of %u KiB, %d queued: %.0f MB/s\n", bytes >> 20,
           STREAM_ENTRY >> 10, STREAM_INFLIGHT, (double)bytes / took / 1e6);
}

static void open_store(struct bench *bench, const char *directory)
{
    struct fl_store_config config = {
        .directory = directory,
        .identity = {.cluster_id = "bench", .group_id = 1, .node_id = 1},
        .wake = on_wake,
        .ctx = bench,
    };
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    double start = now();
    uint64_t bytes = 0;

    if (fl_store_open(&config, &found, &bench->store, &fault) < 0) {
        fprintf(stderr, "%s\n", fault.text);
        exit(1);
    }
    for (unsigned i = 0; i < found.n; i++)
        bytes += found.entries[i]->len;
    printf("opened %u entries, %" PRIu64 " MiB, in %.3f s\n", found.n, bytes >> 20, now() - start);
    bench->next_index = found.start_index + found.n;
    fl_store_recovered_deinit(&found);
}

int main(int argc, char **argv)
{
    uint32_t len = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 4096;
    uint64_t log_bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 1024) << 20;
    struct bench bench = {.next_index = 1};

    if (argc < 2) {
        fprintf(stderr, "usage: store_bench DIRECTORY [ENTRY_BYTES [LOG_MIB]]\n");
        return 2;
    }
    bench.data = fl_xalloc(len > STREAM_ENTRY ? len : STREAM_ENTRY);
    memset(bench.data, 0x5a, len > STREAM_ENTRY ? len : STREAM_ENTRY);
    sem_init(&bench.woken, 0, 0);
    open_store(&bench, argv[1]);
    measure_latency(&bench, len);
    measure_stream(&bench, log_bytes);
    fl_store_close(bench.store);
    open_store(&bench, argv[1]);
    fl_store_close(bench.store);
    sem_destroy(&bench.woken);
    free(bench.data);
    return 0;
}
