/* The log on disk as it is written: a row of segments, of which the last one grows.
 *
 * Nothing is ever overwritten: an entry that takes the place of another is written behind a record
 * that voids the other. A write to a segment begins where everything before it is durable, and each
 * of its records says so (group_start): that is how recovery tells a torn tail from damage.
 * A segment gets its name only when its header and first records are durable, and when the one
 * before is. */
#ifndef FL_RAFT_STORE_LOG_H
#define FL_RAFT_STORE_LOG_H

#include <stdbool.h>

#include "raft/store_files.h"
#include "raft/store_spare.h"
#include "raft/store_trash.h"

struct fl_segment {
    uint64_t number, size;
    uint64_t index_max; /* highest index that was ever in it; 0: none */
};

struct fl_log {
    const struct fl_store_files *files; /* borrowed */
    uint64_t segment_bytes;             /* of the segments to come */
    struct fl_segment *segments;        /* owned; oldest first, the last one grows */
    unsigned n, capacity;
    int file; /* the last one; -1: none */
    uint32_t seed, tail;
    uint64_t next_index;
    bool is_marked; /* the last record is a mark, or there is none */
    bool is_dirty;  /* space ran out inside a write: only the same records may be tried again */
    struct fl_spare spare;
    struct fl_trash trash; /* segments, and snapshots too */
};

#define FL_SEGMENT_PREFIX "log-"

/* "log-00000000000000000001"; returns `out`, of 64 bytes. */
char *fl_segment__name(uint64_t number, char *out);

void fl_log__init(struct fl_log *log, const struct fl_store_files *files, uint64_t segment_bytes);
void fl_log__deinit(struct fl_log *log);
struct fl_segment *fl_log__push(struct fl_log *log, uint64_t number, uint64_t size);

/* Of the last segment. */
uint64_t fl_log__number(const struct fl_log *log);
/* Writes records that fl_format_record_put() made and syncs; returns how many bytes of them are
 * durable: fewer than `len` when space ran out. Other errors end the process. */
size_t fl_log__write(struct fl_log *log, uint8_t *records, size_t len);
/* Writes a mark, so that damage to what is before it is told from a torn tail. */
void fl_log__mark(struct fl_log *log);
/* Removes the oldest segments, those with nothing at or above `first`. */
void fl_log__compact(struct fl_log *log, uint64_t first);
/* Drops everything and goes on at `next_index` in a new segment. FL_E_NOSPACE: nothing changed. */
int fl_log__reset(struct fl_log *log, uint64_t next_index);
/* Works towards a spare that is ready as far as the last segment is full, a little at a time.
 * Returns 1 when there is more to do; FL_E_NOSPACE. */
int fl_log__prepare(struct fl_log *log);

#endif
