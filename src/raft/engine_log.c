#include "raft/engine_log.h"

#include <stdlib.h>

#include "base/alloc.h"

#define CAPACITY_MIN 64

static size_t slot(const struct fl_engine_log *log, size_t i)
{
    return (log->head + i) & (log->capacity - 1);
}

void fl_engine_log_init(struct fl_engine_log *log)
{
    *log = (struct fl_engine_log){.first = 1};
}

void fl_engine_log_deinit(struct fl_engine_log *log)
{
    fl_engine_log_reset(log, 1);
    free(log->ring);
    fl_engine_log_init(log);
}

void fl_engine_log_reset(struct fl_engine_log *log, uint64_t first)
{
    for (size_t i = 0; i < log->n; i++)
        fl_entry_unref(log->ring[slot(log, i)]);
    log->head = 0;
    log->n = 0;
    log->first = first;
}

static void grow(struct fl_engine_log *log)
{
    size_t capacity = log->capacity == 0 ? CAPACITY_MIN : log->capacity * 2;
    struct fl_entry **ring = fl_xcalloc(capacity, sizeof(struct fl_entry *));

    for (size_t i = 0; i < log->n; i++)
        ring[i] = log->ring[slot(log, i)];
    free(log->ring);
    log->ring = ring;
    log->capacity = capacity;
    log->head = 0;
}

void fl_engine_log_push(struct fl_engine_log *log, struct fl_entry *entry)
{
    if (log->n == log->capacity)
        grow(log);
    log->ring[slot(log, log->n++)] = fl_entry_ref(entry);
}

void fl_engine_log_truncate(struct fl_engine_log *log, uint64_t from)
{
    while (log->n != 0 && fl_engine_log_last(log) >= from)
        fl_entry_unref(log->ring[slot(log, --log->n)]);
}

void fl_engine_log_drop_below(struct fl_engine_log *log, uint64_t first)
{
    while (log->n != 0 && log->first < first) {
        fl_entry_unref(log->ring[log->head]);
        log->head = slot(log, 1);
        log->n--;
        log->first++;
    }
}

struct fl_entry *fl_engine_log_get(const struct fl_engine_log *log, uint64_t index)
{
    if (index < log->first || index - log->first >= log->n)
        return NULL;
    return log->ring[slot(log, (size_t)(index - log->first))];
}
