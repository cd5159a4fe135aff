#include "raft/store_work.h"

#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "raft/engine.h"

/* How long to wait before a full disk is tried again. */
#define FULL_RETRY_MS 200
/* A log that was quiet for so long gets a mark, which makes damage to its end provable. */
#define IDLE_MARK_MS 1000
/* The reserve is given up in this many pieces. */
#define RESERVE_PIECES 16
/* Smallest segment made of reserved space. */
#define SEGMENT_BYTES_FULL_MIN 4096u

void fl_batch__push(struct batch *batch, enum job_type type, struct fl_append *append, size_t len,
                    uint64_t index)
{
    if (batch->n == batch->capacity) {
        batch->capacity = fl_grow_capacity(batch->capacity, batch->n + 1, sizeof *batch->jobs);
        batch->jobs = fl_xrealloc(batch->jobs, batch->capacity * sizeof *batch->jobs);
    }
    batch->jobs[batch->n++] = (struct job){type, append, len, index};
}

void fl_batch__deinit(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        fl_append_free(batch->jobs[i].append);
    free(batch->jobs);
    fl_buf_deinit(&batch->records);
    *batch = (struct batch){NULL, 0, 0, FL_BUF_INIT};
}

static void completions_push(struct completions *completions, struct fl_append *append)
{
    if (completions->n == completions->capacity) {
        completions->capacity =
            fl_grow_capacity(completions->capacity, completions->n + 1, sizeof append);
        completions->appends =
            fl_xrealloc(completions->appends, completions->capacity * sizeof append);
    }
    completions->appends[completions->n++] = append;
}

void fl_store_work__push(struct fl_store *store, enum job_type type, uint64_t index)
{
    pthread_mutex_lock(&store->mutex);
    fl_batch__push(&store->queued, type, NULL, 0, index);
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
}

/* --- a full disk --- */

static void note_full(struct fl_store *store, bool is_full)
{
    uint64_t piece = store->reserve.size / RESERVE_PIECES;

    if (atomic_exchange(&store->is_full, is_full) == is_full)
        return;
    if (is_full)
        fl_warn("store", "%s: the disk is full; grants are refused until there is space",
                store->files.directory);
    else
        fl_info("store", "%s: there is space again", store->files.directory);
    if (piece < SEGMENT_BYTES_FULL_MIN)
        piece = SEGMENT_BYTES_FULL_MIN;
    store->log.segment_bytes =
        is_full && piece < store->segment_bytes ? piece : store->segment_bytes;
}

void fl_store_work__set_full(struct fl_store *store)
{
    note_full(store, true);
}

/* Takes the reserve back and begins a whole segment: with both, there is space again. */
static void try_to_heal(struct fl_store *store)
{
    if (atomic_load(&store->is_full) && fl_reserve__take(&store->files, &store->reserve) &&
        fl_spare__begin(&store->files, &store->log.spare, store->segment_bytes) == 0)
        note_full(store, false);
}

/* Gives up part of the reserve; false when there is none left. */
static bool give_way(struct fl_store *store)
{
    note_full(store, true);
    return fl_reserve__give(&store->files, &store->reserve, store->log.segment_bytes);
}

/* Some of what can be done between two groups. */
static void tidy(struct fl_store *store)
{
    int r = 0;

    try_to_heal(store);
    if (!atomic_load(&store->is_full))
        r = fl_log__prepare(&store->log);
    if (r < 0)
        note_full(store, true);
    store->is_untidy = fl_trash__step(&store->files, &store->log.trash) || r > 0;
}

/* --- the batch --- */

/* Writes the records of the batch up to `end`; false when space ran out. */
static bool write_records(struct fl_store *store, size_t end)
{
    uint8_t *records = store->batch.records.data;

    for (;;) {
        if (store->records_at < end)
            store->records_at +=
                fl_log__write(&store->log, records + store->records_at, end - store->records_at);
        if (store->records_at == end)
            return true;
        if (!give_way(store))
            return false;
    }
}

/* Whether a reset waits behind the appends and voids them: then they need not be written. */
static bool is_overtaken(struct fl_store *store)
{
    bool is_resetting;

    pthread_mutex_lock(&store->mutex);
    is_resetting = store->is_resetting;
    pthread_mutex_unlock(&store->mutex);
    return is_resetting;
}

static void complete(struct fl_store *store, size_t n)
{
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < n; i++) {
        struct job *job = &store->batch.jobs[store->batch_at++];

        completions_push(&store->completions, job->append);
        job->append = NULL;
    }
    pthread_mutex_unlock(&store->mutex);
    if (store->wake != NULL)
        store->wake(store->wake_ctx);
}

/* The appends that stand in a row are one write. False when space ran out. */
static bool run_appends(struct fl_store *store)
{
    const struct batch *batch = &store->batch;
    size_t end = store->records_from, n = 0;

    for (; store->batch_at + n < batch->n; n++) {
        const struct job *job = &batch->jobs[store->batch_at + n];

        if (job->type != JOB_APPEND)
            break;
        end += job->len;
    }
    if (!is_overtaken(store)) {
        uint64_t begun_us = fl_monotonic_us();

        if (!write_records(store, end))
            return false;
        fl_timing_record(&store->write_time, fl_monotonic_us() - begun_us);
        store->written_bytes += end - store->records_from;
    }
    store->records_from = store->records_at = end;
    complete(store, n);
    return true;
}

static bool run_reset(struct fl_store *store, uint64_t next_index)
{
    while (fl_log__reset(&store->log, next_index) == FL_E_NOSPACE)
        if (!give_way(store))
            return false;
    pthread_mutex_lock(&store->mutex);
    store->is_resetting = false;
    pthread_cond_signal(&store->done);
    pthread_mutex_unlock(&store->mutex);
    store->batch_at++;
    return true;
}

/* An old snapshot. */
static void discard(struct fl_store *store, uint64_t index)
{
    char name[64];
    int r = fl_trash__add(&store->files, &store->log.trash, fl_snapshot__name(index, name));

    if (r < 0)
        fl_warn("store", "%s/%s: could not be removed (%s); it stays", store->files.directory, name,
                fl_error_text(r));
}

static bool run_job(struct fl_store *store)
{
    const struct job *job = &store->batch.jobs[store->batch_at];

    switch (job->type) {
    case JOB_APPEND:
        return run_appends(store);
    case JOB_RESET:
        return run_reset(store, job->index);
    case JOB_DISCARD:
        discard(store, job->index);
        store->batch_at++;
        return true;
    case JOB_COMPACT:
        fl_log__compact(&store->log, job->index);
        store->batch_at++;
        return true;
    }
    FL_UNREACHABLE();
}

/* False when it waits for space. */
static bool run_batch(struct fl_store *store)
{
    while (store->batch_at < store->batch.n)
        if (!run_job(store))
            return false;
    store->batch.n = store->batch_at = 0;
    store->records_from = store->records_at = 0;
    fl_buf_clear(&store->batch.records);
    return true;
}

/* The mutex is held; the batch is done. */
static void take_queued(struct fl_store *store)
{
    struct batch empty = store->batch;

    store->batch = store->queued;
    store->queued = empty;
}

void fl_store_work__run(struct fl_store *store)
{
    try_to_heal(store);
    while (run_batch(store)) {
        do
            tidy(store);
        while (store->is_untidy);
        if (store->queued.n == 0)
            return;
        take_queued(store);
    }
}

/* --- the thread --- */

/* Waits at most `ms` for work; false when the time is up. The mutex is held. */
static bool wait_for_work(struct fl_store *store, unsigned ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(&store->work, &store->mutex, &until) == 0;
}

/* Nothing is queued: waits until something is, and meanwhile does what can wait. The mutex is
 * held. */
static void idle(struct fl_store *store)
{
    bool is_full = atomic_load(&store->is_full);

    if (store->is_untidy) {
        pthread_mutex_unlock(&store->mutex);
        tidy(store);
        pthread_mutex_lock(&store->mutex);
        return;
    }
    if (!is_full && store->log.is_marked) {
        pthread_cond_wait(&store->work, &store->mutex);
        return;
    }
    if (wait_for_work(store, is_full ? FULL_RETRY_MS : IDLE_MARK_MS) || store->queued.n != 0)
        return;
    pthread_mutex_unlock(&store->mutex);
    if (is_full)
        try_to_heal(store);
    else
        fl_log__mark(&store->log);
    pthread_mutex_lock(&store->mutex);
}

/* Writes what was taken; tries again while there is no space. The mutex is held. */
static void work(struct fl_store *store)
{
    bool is_done;

    do {
        pthread_mutex_unlock(&store->mutex);
        is_done = run_batch(store);
        if (is_done)
            tidy(store);
        pthread_mutex_lock(&store->mutex);
        if (!is_done && !store->is_stopping)
            wait_for_work(store, FULL_RETRY_MS);
    } while (!is_done && !store->is_stopping);
}

void *fl_store_work__main(void *ctx)
{
    struct fl_store *store = ctx;

    pthread_mutex_lock(&store->mutex);
    for (;;) {
        while (store->queued.n == 0 && !store->is_stopping)
            idle(store);
        if (store->queued.n == 0 || store->batch.n != 0)
            break;
        take_queued(store);
        work(store);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}
