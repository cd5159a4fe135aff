#include "raft/store_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"

/* Room for a mark is always left. */
#define MARK_SIZE FL_RECORD_HEADER_SIZE
/* Of the spare, between two groups: an append must not wait for long. */
#define PREPARE_BYTES (UINT64_C(2) << 20)

char *fl_segment__name(uint64_t number, char *out)
{
    snprintf(out, 64, FL_SEGMENT_PREFIX "%020" PRIu64, number);
    return out;
}

void fl_log__init(struct fl_log *log, const struct fl_store_files *files, uint64_t segment_bytes)
{
    *log = (struct fl_log){
        .files = files,
        .segment_bytes = segment_bytes,
        .file = -1,
        .next_index = 1,
        .spare = FL_SPARE_NONE,
        .trash = FL_TRASH_EMPTY,
    };
}

void fl_log__deinit(struct fl_log *log)
{
    fl_spare__close(log->files, &log->spare);
    fl_trash__deinit(log->files, &log->trash);
    if (log->file >= 0)
        log->files->disk->close(log->files->disk, log->file);
    log->file = -1;
    free(log->segments);
    log->segments = NULL;
}

struct fl_segment *fl_log__push(struct fl_log *log, uint64_t number, uint64_t size)
{
    if (log->n == log->capacity) {
        log->capacity =
            (unsigned)fl_grow_capacity(log->capacity, log->n + 1, sizeof *log->segments);
        log->segments = fl_xrealloc(log->segments, log->capacity * sizeof *log->segments);
    }
    log->segments[log->n] = (struct fl_segment){number, size, 0};
    return &log->segments[log->n++];
}

static struct fl_segment *last_segment(struct fl_log *log)
{
    return &log->segments[log->n - 1];
}

__attribute__((noreturn)) static void fail(const struct fl_log *log, const char *operation,
                                           uint64_t number, int code)
{
    char name[64];

    fl_store__fail(log->files, operation, fl_segment__name(number, name), code);
}

uint64_t fl_log__number(const struct fl_log *log)
{
    return log->segments[log->n - 1].number;
}

/* How many bytes of `records` fit into `room`, whole records only. */
static size_t fitting(const uint8_t *records, size_t len, size_t room)
{
    size_t at = 0;

    while (at < len) {
        size_t size = fl_format_record_peek_size(records + at);

        if (size > room - at)
            break;
        at += size;
    }
    return at;
}

/* What the records do to the log, once they are durable. */
static void account(struct fl_log *log, const uint8_t *records, size_t len)
{
    struct fl_segment *segment = last_segment(log);

    for (size_t at = 0; at < len; at += fl_format_record_peek_size(records + at)) {
        uint64_t index = fl_format_record_peek_index(records + at);
        uint8_t type = fl_format_record_peek_type(records + at);

        log->is_marked = type == FL_RECORD_MARK;
        if (log->is_marked)
            continue;
        log->next_index = type == FL_RECORD_TRUNCATE ? index : index + 1;
        if (type != FL_RECORD_TRUNCATE && index > segment->index_max)
            segment->index_max = index;
    }
}

/* One write, at `offset` of `file`. */
static int write_group(struct fl_log *log, int file, uint32_t seed, uint32_t offset,
                       uint8_t *records, size_t len)
{
    for (size_t at = 0; at < len; at += fl_format_record_peek_size(records + at))
        fl_format_record_place(records + at, seed, offset + (uint32_t)at, offset);
    return fl_disk_write_all(log->files->disk, file, records, len, offset);
}

/* A spare that is ready and has room for the first record. */
static int spare_for(struct fl_log *log, const uint8_t *records, size_t len)
{
    uint64_t need = FL_SEGMENT_HEADER_SIZE + MARK_SIZE;
    int r;

    if (len != 0)
        need += fl_format_record_peek_size(records);
    FL_REQUIRE(need <= FL_SEGMENT_SIZE_MAX);
    r = fl_spare__begin(log->files, &log->spare,
                        need > log->segment_bytes ? need : log->segment_bytes);
    return r < 0 ? r : fl_spare__advance(log->files, &log->spare, log->spare.size);
}

/* Gives the written spare its name: from here on it is part of the log. */
static int adopt_spare(struct fl_log *log, uint64_t number)
{
    char name[64];
    int r = log->files->disk->sync(log->files->disk, log->spare.file);

    if (r < 0)
        fail(log, "fdatasync", number, r);
    r = fl_store__rename(log->files, FL_SPARE_NAME, fl_segment__name(number, name));
    if (r == FL_E_NOSPACE)
        return r;
    if (r < 0)
        fail(log, "rename", number, r);
    if (!FL_BUG(STORE_SEGMENT_NAME_NOT_SYNCED))
        r = fl_store__sync_directory(log->files);
    if (r < 0)
        fail(log, "fsync of the directory", number, r);
    if (log->file >= 0)
        log->files->disk->close(log->files->disk, log->file);
    log->file = log->spare.file;
    fl_log__push(log, number, log->spare.size);
    log->spare = FL_SPARE_NONE;
    return 0;
}

/* Makes the spare the last segment, with as many of the records as fit in its first write.
 * Negative: FL_E_NOSPACE, and nothing has changed. */
static int64_t rotate(struct fl_log *log, uint8_t *records, size_t len, uint32_t flags,
                      uint64_t next_index)
{
    struct fl_segment_header header = {.next_index = next_index, .flags = flags, .number = 1};
    uint8_t head[FL_SEGMENT_HEADER_SIZE];
    uint32_t seed;
    size_t take;
    int r = spare_for(log, records, len);

    if (r < 0)
        return r;
    if (log->n != 0) {
        header.number = last_segment(log)->number + 1;
        header.previous_end = log->tail;
    }
    header.size = log->spare.size;
    take = fitting(records, len, (size_t)(header.size - FL_SEGMENT_HEADER_SIZE - MARK_SIZE));
    seed = fl_format_record_seed(log->files->seed, header.number);
    fl_format_segment_encode(&log->files->identity, &header, head);
    r = fl_disk_write_all(log->files->disk, log->spare.file, head, sizeof head, 0);
    if (r == 0)
        r = write_group(log, log->spare.file, seed, FL_SEGMENT_HEADER_SIZE, records, take);
    if (r < 0 && r != FL_E_NOSPACE)
        fail(log, "writing", header.number, r);
    if (r == 0)
        r = adopt_spare(log, header.number);
    if (r < 0) {
        /* What was written of it must not come back behind something shorter. */
        fl_spare__drop(log->files, &log->spare);
        return r;
    }
    log->seed = seed;
    log->tail = FL_SEGMENT_HEADER_SIZE + (uint32_t)take;
    log->next_index = next_index;
    log->is_marked = true;
    log->is_dirty = false;
    account(log, records, take);
    return (int64_t)take;
}

/* Appends to the last segment. Negative: FL_E_NOSPACE. */
static int64_t extend(struct fl_log *log, uint8_t *records, size_t len)
{
    struct fl_disk *disk = log->files->disk;
    uint64_t number = last_segment(log)->number;
    int r = write_group(log, log->file, log->seed, log->tail, records, len);

    log->is_dirty = r == FL_E_NOSPACE;
    if (log->is_dirty)
        return r;
    if (r < 0)
        fail(log, "writing", number, r);
    if (!FL_BUG(STORE_ACK_BEFORE_SYNC))
        r = disk->sync(disk, log->file);
    if (r < 0)
        fail(log, "fdatasync", number, r);
    log->tail += (uint32_t)len;
    account(log, records, len);
    return (int64_t)len;
}

/* For records other than a mark. */
static size_t room(struct fl_log *log)
{
    uint64_t size = last_segment(log)->size;

    return size > (uint64_t)log->tail + MARK_SIZE ? (size_t)(size - log->tail - MARK_SIZE) : 0;
}

size_t fl_log__write(struct fl_log *log, uint8_t *records, size_t len)
{
    size_t done = 0;

    while (done < len) {
        size_t take = fitting(records + done, len - done, room(log));
        int64_t n = take != 0 ? extend(log, records + done, take)
                              : rotate(log, records + done, len - done, 0, log->next_index);

        if (n < 0)
            break;
        done += (size_t)n;
    }
    return done;
}

void fl_log__mark(struct fl_log *log)
{
    struct fl_buf buf = FL_BUF_INIT;

    if (log->is_marked || log->is_dirty || log->tail + MARK_SIZE > last_segment(log)->size)
        return;
    fl_format_record_put(&buf, FL_RECORD_MARK, log->next_index - 1, 0, NULL, 0);
    extend(log, buf.data, buf.len); /* no space: then without */
    fl_buf_deinit(&buf);
}

void fl_log__compact(struct fl_log *log, uint64_t first)
{
    unsigned gone = 0;
    char name[64];
    int r = 0;

    while (gone + 1 < log->n && log->segments[gone].index_max < first) {
        uint64_t number = log->segments[gone].number;

        r = fl_trash__add(log->files, &log->trash, fl_segment__name(number, name));
        /* One at a time, so that a power cut cannot leave a gap. */
        if (r == 0)
            r = fl_store__sync_directory(log->files);
        if (r < 0)
            fail(log, "removing", number, r);
        gone++;
    }
    log->n -= gone;
    for (unsigned i = 0; i < log->n; i++)
        log->segments[i] = log->segments[i + gone];
}

int fl_log__reset(struct fl_log *log, uint64_t next_index)
{
    int64_t r =
        rotate(log, NULL, 0, FL_BUG(STORE_RESET_KEEPS_OLD_LOG) ? 0 : FL_SEGMENT_RESET, next_index);

    if (r < 0)
        return (int)r;
    fl_log__compact(log, UINT64_MAX);
    return 0;
}

int fl_log__prepare(struct fl_log *log)
{
    int r = fl_spare__begin(log->files, &log->spare, log->segment_bytes);
    uint64_t want = log->spare.ready + PREPARE_BYTES;

    if (r < 0)
        return r;
    r = fl_spare__advance(log->files, &log->spare, want < log->tail ? want : log->tail);
    return r < 0 ? r : log->spare.ready < log->tail && log->spare.ready < log->spare.size;
}
