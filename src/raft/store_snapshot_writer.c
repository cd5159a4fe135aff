/* Writing a snapshot file: a header with the configuration, chunks that each bind their place, an
 * end mark with the total. May run in a forked child: nothing here takes a lock. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/store_state.h"

#define CHUNK_HEADER_SIZE 8u

struct fl_snapshot_writer {
    const struct fl_store_files *files; /* borrowed */
    char name[96];
    int file;
    uint32_t seed;
    uint64_t offset, size;
    size_t used;
    uint8_t chunk[CHUNK_HEADER_SIZE + FL_SNAPSHOT_CHUNK_SIZE];
};

/* A child must not keep the directory locked when its parent is gone. */
static void unlock_in_child(struct fl_store *store)
{
    if (store->lock >= 0 && getpid() != store->owner) {
        store->files.disk->close(store->files.disk, store->lock);
        store->lock = -1;
    }
}

static int write_header(struct fl_snapshot_writer *writer, const struct fl_snapshot *meta)
{
    struct fl_buf buf = FL_BUF_INIT;
    int r;

    fl_format_snapshot_encode(&writer->files->identity, meta, &buf);
    r = fl_disk_write_all(writer->files->disk, writer->file, buf.data, buf.len, 0);
    writer->offset = buf.len;
    fl_buf_deinit(&buf);
    return r;
}

int fl_snapshot_writer_new(struct fl_store *store, const struct fl_snapshot *meta,
                           struct fl_snapshot_writer **ret_writer)
{
    struct fl_snapshot_writer *writer;
    int r;

    unlock_in_child(store);
    if (meta->configuration_len > FL_SNAPSHOT_CONFIGURATION_MAX)
        return FL_E_TOO_BIG;
    writer = fl_xalloc(sizeof *writer);
    writer->files = &store->files;
    writer->seed = fl_format_snapshot_seed(store->files.seed, meta->index, meta->term);
    writer->size = writer->used = 0;
    /* One's own and a received one may be written at once, for the same index. */
    snprintf(writer->name, sizeof writer->name, FL_SNAPSHOT_PREFIX "%020" PRIu64 ".%ld.tmp",
             meta->index, (long)getpid());
    writer->file = fl_store__open_file(writer->files, writer->name, FL_DISK_WRITE | FL_DISK_CREATE);
    if (writer->file < 0) {
        r = writer->file;
        free(writer);
        return r;
    }
    r = write_header(writer, meta);
    if (r < 0) {
        fl_snapshot_writer_abort(writer);
        return r;
    }
    *ret_writer = writer;
    return 0;
}

static int flush(struct fl_snapshot_writer *writer)
{
    uint32_t len = (uint32_t)writer->used;
    size_t size = CHUNK_HEADER_SIZE + writer->used;
    uint8_t *data = writer->chunk + CHUNK_HEADER_SIZE;
    int r;

    if (len == 0)
        return 0;
    fl_format_store_u32(writer->chunk, len);
    fl_format_store_u32(writer->chunk + 4, fl_format_chunk_checksum(writer->seed, writer->offset,
                                                                    len, data, writer->used));
    r = fl_disk_write_all(writer->files->disk, writer->file, writer->chunk, size, writer->offset);
    if (r < 0)
        return r;
    writer->offset += size;
    writer->size += writer->used;
    writer->used = 0;
    return 0;
}

int fl_snapshot_writer_write(struct fl_snapshot_writer *writer, const void *data, size_t len)
{
    const uint8_t *p = data;

    while (len != 0) {
        size_t room = FL_SNAPSHOT_CHUNK_SIZE - writer->used;
        size_t take = len < room ? len : room;

        memcpy(writer->chunk + CHUNK_HEADER_SIZE + writer->used, p, take);
        writer->used += take;
        p += take;
        len -= take;
        if (writer->used == FL_SNAPSHOT_CHUNK_SIZE) {
            int r = flush(writer);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int write_end(struct fl_snapshot_writer *writer)
{
    uint8_t end[CHUNK_HEADER_SIZE + 8];

    fl_format_store_u32(end, 0);
    fl_format_store_u64(end + CHUNK_HEADER_SIZE, writer->size);
    fl_format_store_u32(end + 4, fl_format_chunk_checksum(writer->seed, writer->offset, 0,
                                                          end + CHUNK_HEADER_SIZE, 8));
    return fl_disk_write_all(writer->files->disk, writer->file, end, sizeof end, writer->offset);
}

int fl_snapshot_writer_finish(struct fl_snapshot_writer *writer, char *ret_path)
{
    int r = flush(writer);

    if (r == 0)
        r = write_end(writer);
    if (r == 0 && !FL_BUG(STORE_SNAPSHOT_NOT_SYNCED))
        r = writer->files->disk->sync(writer->files->disk, writer->file);
    if (r < 0) {
        fl_snapshot_writer_abort(writer);
        return r;
    }
    writer->files->disk->close(writer->files->disk, writer->file);
    fl_store__path(writer->files, writer->name, ret_path);
    free(writer);
    return 0;
}

void fl_snapshot_writer_abort(struct fl_snapshot_writer *writer)
{
    int r;

    if (writer == NULL)
        return;
    writer->files->disk->close(writer->files->disk, writer->file);
    r = fl_store__unlink(writer->files, writer->name);
    if (r < 0)
        fl_warn("store", "%s/%s: could not be removed (%s); the next start does it",
                writer->files->directory, writer->name, fl_error_text(r));
    free(writer);
}
