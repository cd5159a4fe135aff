#include "raft/store_recover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/log.h"

/* A segment as it is read. */
struct image {
    struct fl_segment_header header;
    char name[64];
    uint8_t *data; /* owned; header.size bytes */
    size_t size, capacity;
    uint32_t seed;
};

struct recovery {
    struct fl_log *log;
    const struct fl_vote *vote;
    struct fl_log_content *content;
    struct fl_store_fault *fault;
    struct image image;
    uint64_t next_index;
    bool is_marked;
};

static int refuse(struct recovery *rec, size_t offset, const char *what)
{
    return fl_store__refuse(rec->fault, FL_E_CORRUPT, "%s/%s, offset %zu: %s; %s",
                            rec->log->files->directory, rec->image.name, offset, what,
                            FL_STORE_REMEDY);
}

static void content_push(struct fl_log_content *content, struct fl_entry *entry)
{
    if (content->n == content->capacity) {
        content->capacity = (unsigned)fl_grow_capacity(content->capacity, (size_t)content->n + 1,
                                                       sizeof(struct fl_entry *));
        content->entries =
            fl_xrealloc(content->entries, content->capacity * sizeof(struct fl_entry *));
    }
    content->entries[content->n++] = entry;
}

static void content_truncate(struct fl_log_content *content, uint64_t index)
{
    uint64_t keep = index > content->start_index ? index - content->start_index : 0;

    while (content->n > keep)
        fl_entry_unref(content->entries[--content->n]);
    if (index < content->start_index)
        content->start_index = index;
}

void fl_log_content__clear(struct fl_log_content *content)
{
    for (unsigned i = 0; i < content->n; i++)
        fl_entry_unref(content->entries[i]);
    free(content->entries);
    *content = (struct fl_log_content){0, NULL, 0, 0};
}

static int read_file(struct image *image, struct fl_disk *disk, int file, size_t size_max)
{
    int64_t size = disk->size(disk, file);

    if (size < 0)
        return (int)size;
    if (size < FL_SEGMENT_HEADER_SIZE || (uint64_t)size > FL_SEGMENT_SIZE_MAX)
        return FL_E_CORRUPT;
    image->size = (size_t)size;
    if (image->size > image->capacity) {
        free(image->data);
        image->data = fl_xalloc(image->size);
        image->capacity = image->size;
    }
    return fl_disk_read_all(disk, file, image->data,
                            image->size < size_max ? image->size : size_max, 0);
}

/* Reads the first `size_max` bytes of a segment and checks its header. */
static int read_segment(struct recovery *rec, uint64_t number, size_t size_max)
{
    const struct fl_store_files *files = rec->log->files;
    struct image *image = &rec->image;
    const char *fault;
    int file, r;

    fl_segment__name(number, image->name);
    file = fl_store__open_file(files, image->name, FL_DISK_READ);
    if (file < 0)
        return fl_store__refuse_io(files, rec->fault, file, "opening", image->name);
    r = read_file(image, files->disk, file, size_max);
    files->disk->close(files->disk, file);
    if (r == FL_E_CORRUPT)
        return refuse(rec, 0, "has an impossible size");
    if (r < 0)
        return fl_store__refuse_io(files, rec->fault, r, "reading", image->name);
    fault = fl_format_segment_decode(&files->identity, image->data, &image->header);
    if (fault == NULL && image->header.number != number)
        fault = "is a copy of another segment";
    if (fault == NULL && image->header.size != image->size)
        fault = "is not as long as its header says: it was cut or extended";
    if (fault != NULL)
        return refuse(rec, 0, fault);
    image->seed = fl_format_record_seed(files->seed, number);
    return 0;
}

/* Where the last byte that is not zero ends. */
static size_t used_size(const struct image *image)
{
    size_t size = image->size;

    while (size >= 8 && fl_format_load_u64(image->data + size - 8) == 0)
        size -= 8;
    while (size > 0 && image->data[size - 1] == 0)
        size--;
    return size;
}

/* Whether a record behind `from` says that what is at `from` was durable. */
static bool was_durable(const struct image *image, size_t from, size_t *ret_offset)
{
    size_t used = used_size(image);
    struct fl_record record;

    for (size_t at = from; at < used && at + FL_RECORD_HEADER_SIZE <= image->size; at += 8) {
        if (fl_format_load_u32(image->data + at + 24) <= from)
            continue; /* most of what is not a record fails here */
        if (fl_format_record_decode(image->data, image->size, at, image->seed, &record)) {
            *ret_offset = at;
            return true;
        }
    }
    return false;
}

static int replay(struct recovery *rec, size_t offset, const struct fl_record *record,
                  struct fl_segment *segment)
{
    switch (record->type) {
    case FL_RECORD_MARK:
        if (record->index + 1 != rec->next_index)
            return refuse(rec, offset, "a mark that does not follow what is before it");
        rec->is_marked = true;
        return 0;
    case FL_RECORD_TRUNCATE:
        if (record->index == 0 || record->index > rec->next_index)
            return refuse(rec, offset, "a truncation beyond the end of the log");
        if (FL_BUG(STORE_TRUNCATION_NOT_REPLAYED))
            return 0;
        content_truncate(rec->content, record->index);
        rec->next_index = record->index;
        break;
    default:
        if (record->index != rec->next_index)
            return refuse(rec, offset, "an entry that does not follow the one before it");
        content_push(rec->content,
                     fl_entry_new(record->type, record->term, record->data, record->len));
        rec->next_index++;
        if (record->index > segment->index_max)
            segment->index_max = record->index;
    }
    rec->is_marked = false;
    return 0;
}

/* Replays the records until `end` or the first that is not whole; tells where that is. */
static int replay_segment(struct recovery *rec, struct fl_segment *segment, size_t end,
                          size_t *ret_end)
{
    const struct image *image = &rec->image;
    size_t at = FL_SEGMENT_HEADER_SIZE, group_start = 0;
    struct fl_record record;

    while (at < end && fl_format_record_decode(image->data, end, at, image->seed, &record)) {
        int r;

        if (record.group_start != at && record.group_start != group_start)
            break; /* left from a write that was cut */
        group_start = record.group_start;
        r = replay(rec, at, &record, segment);
        if (r < 0)
            return r;
        at += record.size;
    }
    *ret_end = at;
    return 0;
}

/* Zeros what lies behind the end, and makes all of the segment durable: the rest of a torn write
 * could become valid again behind a shorter one, and after a crash of the process alone nothing
 * has been synced yet. */
static int clean_tail(struct recovery *rec, int file, size_t end)
{
    struct fl_disk *disk = rec->log->files->disk;
    struct image *image = &rec->image;
    size_t last = used_size(image);
    int r = 0;

    if (last > end && !FL_BUG(STORE_TORN_TAIL_NOT_WIPED)) {
        fl_info("store", "%s/%s: cutting %zu bytes of an unfinished write at offset %zu",
                rec->log->files->directory, image->name, last - end, end);
        memset(image->data + end, 0, last - end);
        r = fl_disk_write_all(disk, file, image->data + end, last - end, end);
    }
    return r < 0 || FL_BUG(STORE_RECOVERY_NOT_SYNCED) ? r : disk->sync(disk, file);
}

static int finish_last(struct recovery *rec, size_t end)
{
    struct fl_log *log = rec->log;
    size_t proof;
    int r;

    if (rec->image.header.number < rec->vote->log_segment)
        return refuse(rec, end, "the segment behind this one is missing");
    if (rec->image.header.number == rec->vote->log_segment && end < rec->vote->log_end)
        return refuse(rec, end, "a damaged record (checksum) that was durable, as the vote tells");
    if (!FL_BUG(STORE_DAMAGE_TAKEN_FOR_TORN) && was_durable(&rec->image, end, &proof)) {
        char what[160];

        snprintf(what, sizeof what,
                 "a damaged record (checksum) that was durable, as the record at offset %zu tells",
                 proof);
        return refuse(rec, end, what);
    }
    log->file = fl_store__open_file(log->files, rec->image.name, FL_DISK_READ | FL_DISK_WRITE);
    if (log->file < 0)
        return fl_store__refuse_io(log->files, rec->fault, log->file, "opening", rec->image.name);
    r = clean_tail(rec, log->file, end);
    if (r < 0)
        return fl_store__refuse_io(log->files, rec->fault, r, "writing", rec->image.name);
    log->seed = rec->image.seed;
    log->tail = (uint32_t)end;
    log->next_index = rec->next_index;
    log->is_marked = rec->is_marked;
    return 0;
}

/* Whether a segment may stand where it does. */
static int check_place(struct recovery *rec, unsigned place, size_t previous_end)
{
    const struct fl_segment_header *header = &rec->image.header;

    if (place == 0 || (header->flags & FL_SEGMENT_RESET) != 0)
        return 0;
    if (header->number != rec->log->segments[place - 1].number + 1)
        return refuse(rec, 0, "the segment before this one is missing");
    if (header->previous_end != previous_end)
        return fl_store__refuse(rec->fault, FL_E_CORRUPT,
                                "%s/" FL_SEGMENT_PREFIX "%020" PRIu64 ", offset %zu: a damaged "
                                "record (checksum) that was durable, as the next segment tells; %s",
                                rec->log->files->directory, header->number - 1, previous_end,
                                FL_STORE_REMEDY);
    if (header->next_index != rec->next_index)
        return refuse(rec, 0, "does not follow the segment before it");
    return 0;
}

/* The last segment before which nothing counts. */
static int find_first(struct recovery *rec, const uint64_t *numbers, unsigned n,
                      unsigned *ret_first)
{
    for (unsigned i = n; i-- > 0;) {
        int r = read_segment(rec, numbers[i], FL_SEGMENT_HEADER_SIZE);

        if (r < 0)
            return r;
        if ((rec->image.header.flags & FL_SEGMENT_RESET) != 0) {
            *ret_first = i;
            return 0;
        }
    }
    *ret_first = 0;
    return 0;
}

static int recover_all(struct recovery *rec, const uint64_t *numbers, unsigned n)
{
    size_t end = 0;

    for (unsigned i = 0; i < n; i++) {
        struct fl_segment *segment;
        int r = read_segment(rec, numbers[i], SIZE_MAX);

        if (r == 0)
            r = check_place(rec, i, end);
        if (r < 0)
            return r;
        if (i == 0) {
            rec->content->start_index = rec->image.header.next_index;
            rec->next_index = rec->image.header.next_index;
        }
        segment = fl_log__push(rec->log, numbers[i], rec->image.size);
        rec->is_marked = true;
        r = replay_segment(rec, segment, rec->image.size, &end);
        if (r < 0)
            return r;
    }
    return finish_last(rec, end);
}

int fl_log__recover(struct fl_log *log, const struct fl_vote *vote, const uint64_t *numbers,
                    unsigned n, struct fl_log_content *ret_content, struct fl_store_fault *fault)
{
    struct fl_log_content content = {0, NULL, 0, 0};
    struct recovery rec = {.log = log, .vote = vote, .content = &content, .fault = fault};
    unsigned first;
    int r = find_first(&rec, numbers, n, &first);

    if (r == 0)
        r = recover_all(&rec, numbers + first, n - first);
    for (unsigned i = 0; r == 0 && i < first; i++) {
        char name[64];

        r = fl_store__unlink(log->files, fl_segment__name(numbers[i], name));
        if (r < 0)
            fl_store__refuse_io(log->files, fault, r, "removing", name);
    }
    free(rec.image.data);
    if (r < 0)
        fl_log_content__clear(&content);
    else
        *ret_content = content;
    return r;
}
