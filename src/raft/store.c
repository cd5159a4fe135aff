#include "raft/store.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "raft/engine.h"
#include "raft/store_work.h"

void fl_store_recovered_deinit(struct fl_store_recovered *recovered)
{
    fl_snapshot_unref(recovered->snapshot);
    for (unsigned i = 0; i < recovered->n; i++)
        fl_entry_unref(recovered->entries[i]);
    free(recovered->entries);
    *recovered = (struct fl_store_recovered){0};
}

void fl_store_set_vote(struct fl_store *store, uint64_t term, uint64_t voted_for)
{
    const struct fl_vote *old = &store->vote.vote;

    FL_REQUIRE(term >= old->term);
    FL_REQUIRE(term > old->term || old->voted_for == 0 || old->voted_for == voted_for); /* R3 */
    fl_vote_file__set(&store->files, &store->vote, term, voted_for);
}

/* Puts the records of an append behind those that wait; returns how many bytes they are. */
static size_t put_records(struct fl_store *store, const struct fl_append *append)
{
    struct fl_buf *records = &store->queued.records;
    size_t before = records->len;

    FL_REQUIRE(append->index > 0 && append->index <= store->queued_next);
    if (append->index < store->queued_next && !FL_BUG(STORE_TRUNCATION_NOT_WRITTEN))
        fl_format_record_put(records, FL_RECORD_TRUNCATE, append->index, 0, NULL, 0);
    for (unsigned i = 0; i < append->n; i++) {
        const struct fl_entry *entry = append->entries[i];

        fl_format_record_put(records, entry->type, append->index + i, entry->term, entry->data,
                             entry->len);
    }
    store->queued_next = append->index + append->n;
    return records->len - before;
}

void fl_store_append(struct fl_store *store, struct fl_append *append)
{
    pthread_mutex_lock(&store->mutex);
    fl_batch__push(&store->queued, JOB_APPEND, append, put_records(store, append), 0);
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->mutex);
}

struct fl_append *fl_store_complete(struct fl_store *store)
{
    struct completions *completions = &store->completions;
    struct fl_append *append = NULL;

    pthread_mutex_lock(&store->mutex);
    if (completions->head < completions->n)
        append = completions->appends[completions->head++];
    if (completions->head == completions->n)
        completions->head = completions->n = 0;
    pthread_mutex_unlock(&store->mutex);
    return append;
}

void fl_store_run(struct fl_store *store)
{
    FL_REQUIRE(store->synchronous);
    fl_store_work__run(store);
}

void fl_store_compact(struct fl_store *store, uint64_t first)
{
    uint64_t needed = fl_snapshot_shelf__log_needed(&store->shelf);

    fl_store_work__push(store, JOB_COMPACT, first < needed ? first : needed);
}

void fl_store_reset(struct fl_store *store, uint64_t next_index)
{
    pthread_mutex_lock(&store->mutex);
    fl_batch__push(&store->queued, JOB_RESET, NULL, 0, next_index);
    store->queued_next = next_index;
    store->is_resetting = true;
    pthread_cond_signal(&store->work);
    if (!store->synchronous)
        while (store->is_resetting)
            pthread_cond_wait(&store->done, &store->mutex);
    pthread_mutex_unlock(&store->mutex);
    if (!store->synchronous)
        return;
    fl_store_work__run(store);
    if (store->is_resetting)
        fl_store__fail(&store->files, "replacing", "the log", FL_E_NOSPACE);
}

bool fl_store_is_full(const struct fl_store *store)
{
    return atomic_load(&store->is_full);
}

void fl_store_written(const struct fl_store *store, struct fl_timing *ret_time, uint64_t *ret_bytes)
{
    fl_timing_copy(&store->write_time, ret_time);
    *ret_bytes = store->written_bytes;
}

void fl_store__free(struct fl_store *store)
{
    struct completions *completions = &store->completions;

    fl_log__deinit(&store->log);
    fl_reserve__close(&store->files, &store->reserve);
    fl_vote_file__close(&store->files, &store->vote);
    if (store->lock >= 0)
        store->files.disk->close(store->files.disk, store->lock);
    fl_snapshot_shelf__deinit(&store->shelf);
    fl_peers_file__close(&store->peers);
    fl_batch__deinit(&store->queued);
    fl_batch__deinit(&store->batch);
    while (completions->head < completions->n)
        fl_append_free(completions->appends[completions->head++]);
    free(completions->appends);
    pthread_mutex_destroy(&store->mutex);
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->done);
    free(store);
}

/* Says how far the log is durable, in it and apart from it. */
static void finish(struct fl_store *store)
{
    int r;

    while (fl_trash__step(&store->files, &store->log.trash))
        continue;
    fl_log__mark(&store->log);
    r = fl_vote_file__bind(&store->files, &store->vote, fl_log__number(&store->log),
                           store->log.tail);
    if (r < 0 && r != FL_E_NOSPACE)
        fl_store__fail(&store->files, "writing", "vote", r);
}

void fl_store_close(struct fl_store *store)
{
    if (store == NULL)
        return;
    if (store->synchronous) {
        fl_store_work__run(store);
    } else {
        pthread_mutex_lock(&store->mutex);
        store->is_stopping = true;
        pthread_cond_signal(&store->work);
        pthread_mutex_unlock(&store->mutex);
        pthread_join(store->thread, NULL);
    }
    finish(store);
    fl_store__free(store);
}
