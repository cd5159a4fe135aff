/* Reading snapshot files: all of a file is checked before any of it is given out, and each chunk
 * again when it is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "raft/store_state.h"

#define CHUNK_HEADER_SIZE 8u

struct fl_snapshot_reader {
    const struct fl_store_files *files; /* borrowed */
    char path[FL_STORE_PATH_MAX];
    int file;
    struct fl_snapshot_header header;
    uint8_t *configuration; /* owned */
    uint32_t seed;
    uint64_t first;    /* offset of the first chunk */
    uint64_t offset;   /* of the next chunk */
    uint64_t size;     /* bytes of state up to there */
    uint32_t used, at; /* of the chunk in hand */
    bool is_done;
    uint8_t chunk[FL_SNAPSHOT_CHUNK_SIZE];
};

static int damaged(const struct fl_snapshot_reader *reader, struct fl_store_fault *fault,
                   const char *what)
{
    return fl_store__refuse(fault, FL_E_CORRUPT, "%s, offset %" PRIu64 ": %s", reader->path,
                            reader->offset, what);
}

/* FL_E_CORRUPT with a fault when the file ends before. */
static int read_at(struct fl_snapshot_reader *reader, void *data, size_t size, uint64_t offset,
                   struct fl_store_fault *fault)
{
    int r = fl_disk_read_all(reader->files->disk, reader->file, data, size, offset);

    if (r == FL_E_CORRUPT)
        return damaged(reader, fault, "the file ends too early");
    if (r < 0)
        return fl_store__refuse(fault, r, "%s: reading failed: %s", reader->path, fl_error_text(r));
    return 0;
}

static int read_header(struct fl_snapshot_reader *reader, struct fl_store_fault *fault)
{
    uint8_t head[FL_SNAPSHOT_HEADER_SIZE], checksum[4];
    const char *what;
    uint32_t len;
    int r = read_at(reader, head, sizeof head, 0, fault);

    if (r < 0)
        return r;
    what = fl_format_snapshot_decode(&reader->files->identity, head, &reader->header);
    if (what != NULL)
        return damaged(reader, fault, what);
    len = reader->header.configuration_len;
    reader->configuration = fl_xalloc(len);
    r = read_at(reader, reader->configuration, len, sizeof head, fault);
    if (r == 0)
        r = read_at(reader, checksum, sizeof checksum, sizeof head + len, fault);
    if (r < 0)
        return r;
    if (fl_format_load_u32(checksum) !=
        fl_crc32c(fl_crc32c(0, head, sizeof head), reader->configuration, len))
        return damaged(reader, fault, "a damaged configuration (checksum)");
    reader->seed =
        fl_format_snapshot_seed(reader->files->seed, reader->header.index, reader->header.term);
    reader->first = reader->offset = sizeof head + len + sizeof checksum;
    return 0;
}

static int read_end(struct fl_snapshot_reader *reader, uint32_t checksum,
                    struct fl_store_fault *fault)
{
    uint64_t end = reader->offset + CHUNK_HEADER_SIZE + 8;
    uint8_t data[8];
    int64_t size;
    int r = read_at(reader, data, sizeof data, reader->offset + CHUNK_HEADER_SIZE, fault);

    if (r < 0)
        return r;
    if (fl_format_chunk_checksum(reader->seed, reader->offset, 0, data, sizeof data) != checksum ||
        fl_format_load_u64(data) != reader->size)
        return damaged(reader, fault, "a damaged end mark (checksum)");
    size = reader->files->disk->size(reader->files->disk, reader->file);
    if (size < 0)
        return fl_store__refuse(fault, (int)size, "%s: its size cannot be told: %s", reader->path,
                                fl_error_text((int)size));
    if ((uint64_t)size != end)
        return damaged(reader, fault, "the file goes on behind its end mark");
    reader->is_done = true;
    return 0;
}

/* Loads the next chunk, or sees the end. */
static int next_chunk(struct fl_snapshot_reader *reader, struct fl_store_fault *fault)
{
    uint8_t head[CHUNK_HEADER_SIZE];
    uint32_t len, checksum;
    int r = read_at(reader, head, sizeof head, reader->offset, fault);

    if (r < 0)
        return r;
    len = fl_format_load_u32(head);
    checksum = fl_format_load_u32(head + 4);
    reader->used = reader->at = 0;
    if (len == 0)
        return read_end(reader, checksum, fault);
    if (len > FL_SNAPSHOT_CHUNK_SIZE)
        return damaged(reader, fault, "a chunk of impossible size");
    r = read_at(reader, reader->chunk, len, reader->offset + sizeof head, fault);
    if (r < 0)
        return r;
    if (fl_format_chunk_checksum(reader->seed, reader->offset, len, reader->chunk, len) != checksum)
        return damaged(reader, fault, "a damaged chunk (checksum)");
    reader->used = len;
    reader->offset += sizeof head + len;
    reader->size += len;
    return 0;
}

static int check_all(struct fl_snapshot_reader *reader, struct fl_store_fault *fault)
{
    int r = read_header(reader, fault);

    while (r == 0 && !reader->is_done)
        r = next_chunk(reader, fault);
    return r;
}

static int reader_open(const struct fl_store_files *files, const char *path, bool check,
                       struct fl_snapshot_reader **ret_reader, struct fl_store_fault *fault)
{
    struct fl_snapshot_reader *reader;
    int r;

    if (strlen(path) >= sizeof reader->path)
        return fl_store__refuse(fault, FL_E_INVALID, "%.200s...: the path is too long", path);
    reader = fl_xalloc(sizeof *reader); /* not the chunk: that would be zeroed for nothing */
    memset(reader, 0, offsetof(struct fl_snapshot_reader, chunk));
    reader->files = files;
    strcpy(reader->path, path);
    reader->file = files->disk->open(files->disk, path, FL_DISK_READ);
    if (reader->file < 0) {
        r = fl_store__refuse(fault, reader->file, "%s: opening failed: %s", path,
                             fl_error_text(reader->file));
        free(reader);
        return r;
    }
    r = check ? check_all(reader, fault) : read_header(reader, fault);
    if (r < 0) {
        fl_snapshot_reader_free(reader);
        return r;
    }
    *ret_reader = reader;
    return 0;
}

int fl_snapshot_reader_new(struct fl_store *store, const char *path,
                           struct fl_snapshot_reader **ret_reader, struct fl_store_fault *ret_fault)
{
    struct fl_snapshot_reader *reader;
    int r = reader_open(&store->files, path, true, &reader, ret_fault);

    if (r < 0)
        return r;
    reader->offset = reader->first;
    reader->size = 0;
    reader->is_done = false;
    *ret_reader = reader;
    return 0;
}

int fl_snapshot_reader_new_unchecked(struct fl_store *store, const char *path,
                                     struct fl_snapshot_reader **ret_reader,
                                     struct fl_store_fault *ret_fault)
{
    return reader_open(&store->files, path, false, ret_reader, ret_fault);
}

long fl_snapshot_reader_read(void *ctx, void *data, size_t size)
{
    struct fl_snapshot_reader *reader = ctx;
    size_t take;

    if (reader->at == reader->used && !reader->is_done) {
        int r = next_chunk(reader, NULL);

        if (r < 0)
            return r;
    }
    take = reader->used - reader->at;
    if (take > size)
        take = size;
    memcpy(data, reader->chunk + reader->at, take);
    reader->at += (uint32_t)take;
    return (long)take;
}

void fl_snapshot_reader_free(struct fl_snapshot_reader *reader)
{
    if (reader == NULL)
        return;
    reader->files->disk->close(reader->files->disk, reader->file);
    free(reader->configuration);
    free(reader);
}

int fl_snapshot__load(const struct fl_store_files *files, const char *name,
                      struct fl_snapshot **ret_meta, struct fl_store_fault *fault)
{
    struct fl_snapshot_reader *reader;
    struct fl_store_snapshot *content;
    char path[FL_STORE_PATH_MAX];
    int r = reader_open(files, fl_store__path(files, name, path), true, &reader, fault);

    if (r < 0)
        return r;
    content = fl_xcalloc(1, sizeof *content);
    strcpy(content->path, path);
    content->size = reader->size;
    *ret_meta = fl_snapshot_new(reader->header.index, reader->header.term,
                                reader->header.configuration_index, reader->configuration,
                                reader->header.configuration_len);
    (*ret_meta)->content = content;
    (*ret_meta)->free_content = free;
    fl_snapshot_reader_free(reader);
    return 0;
}
