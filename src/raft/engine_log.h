/* The log's entries in memory, from some index on: a ring, so that dropping at either end costs
 * what is dropped. */
#ifndef FL_RAFT_ENGINE_LOG_H
#define FL_RAFT_ENGINE_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "raft/entry.h"

struct fl_engine_log {
    struct fl_entry **ring; /* owned, with a reference per entry */
    size_t capacity;        /* a power of two, or 0 */
    size_t head, n;
    uint64_t first; /* index of the first entry, or of the next when there is none */
};

void fl_engine_log_init(struct fl_engine_log *log);
void fl_engine_log_deinit(struct fl_engine_log *log);
/* Drops everything and goes on at `first`. */
void fl_engine_log_reset(struct fl_engine_log *log, uint64_t first);
void fl_engine_log_push(struct fl_engine_log *log, struct fl_entry *entry); /* takes no reference */
void fl_engine_log_truncate(struct fl_engine_log *log, uint64_t from);
void fl_engine_log_drop_below(struct fl_engine_log *log, uint64_t first);
/* Borrowed; NULL when it is not there. */
struct fl_entry *fl_engine_log_get(const struct fl_engine_log *log, uint64_t index);
static inline uint64_t fl_engine_log_last(const struct fl_engine_log *log)
{
    return log->first + log->n - 1;
}

#endif
