#include "raft/backup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "raft/store_format.h"

#define WHY_BYTES 512
#define REMEDY    "nothing was changed; take another backup"

static const char magic[8] = "FLBACKUP";

enum { AT_VERSION = 8, AT_GROUP = 12, AT_CLUSTER = 16, AT_NODE = 32, AT_NUMBERS = 40 };

/* --- The bytes --- */

uint64_t fl_backup_file_size(uint64_t state_size)
{
    uint64_t chunks = (state_size + FL_BACKUP_CHUNK_SIZE - 1) / FL_BACKUP_CHUNK_SIZE;

    return FL_BACKUP_HEAD_SIZE + state_size + (chunks + 1) * FL_BACKUP_CHUNK_EXTRA + 8;
}

void fl_backup_head_encode(const struct fl_backup_head *head, uint8_t out[FL_BACKUP_HEAD_SIZE])
{
    const uint64_t numbers[] = {head->index,    head->term,  head->made_at_ms, head->token,
                                head->sessions, head->names, head->holds,      head->size};

    memset(out, 0, FL_BACKUP_HEAD_SIZE);
    memcpy(out, magic, sizeof magic);
    fl_format_store_u32(out + AT_VERSION, FL_BACKUP_VERSION);
    fl_format_store_u32(out + AT_GROUP, head->group_id);
    memcpy(out + AT_CLUSTER, head->cluster_id, sizeof head->cluster_id);
    fl_format_store_u64(out + AT_NODE, head->node_id);
    for (size_t i = 0; i < FL_ARRAY_LEN(numbers); i++)
        fl_format_store_u64(out + AT_NUMBERS + 8 * i, numbers[i]);
    fl_format_store_u32(out + FL_BACKUP_HEAD_SIZE - 4, fl_crc32c(0, out, FL_BACKUP_HEAD_SIZE - 4));
}

uint32_t fl_backup_seed(const uint8_t head[FL_BACKUP_HEAD_SIZE])
{
    return fl_format_load_u32(head + FL_BACKUP_HEAD_SIZE - 4);
}

static void put(struct fl_buf *buf, uint32_t seed, uint64_t offset, uint32_t len, const void *data,
                size_t size)
{
    fl_buf_put_u32(buf, len);
    fl_buf_put_u32(buf, fl_format_chunk_checksum(seed, offset, len, data, size));
    fl_buf_put(buf, data, size);
}

void fl_backup_put_chunk(struct fl_buf *buf, uint32_t seed, uint64_t offset, const void *data,
                         uint32_t len)
{
    put(buf, seed, offset, len, data, len);
}

void fl_backup_put_end(struct fl_buf *buf, uint32_t seed, uint64_t offset, uint64_t state_size)
{
    uint8_t total[8];

    fl_format_store_u64(total, state_size);
    put(buf, seed, offset, 0, total, sizeof total);
}

/* --- Reading --- */

struct fl_backup {
    FILE *file;
    char path[300];
    struct fl_backup_head head;
    uint32_t seed;
    uint64_t offset, size; /* of the next chunk; bytes of state before it */
    uint32_t used, at;     /* of the chunk in hand */
    bool is_done;
    uint8_t chunk[FL_BACKUP_CHUNK_SIZE];
};

static int damaged(const struct fl_backup *b, char *why, const char *what)
{
    if (why != NULL)
        snprintf(why, WHY_BYTES, "%s, offset %" PRIu64 ": %s; " REMEDY, b->path, b->offset, what);
    return FL_E_CORRUPT;
}

static int read_exactly(struct fl_backup *b, void *data, size_t size, char *why)
{
    if (fread(data, 1, size, b->file) == size)
        return 0;
    if (!ferror(b->file))
        return damaged(b, why, "the file ends too early");
    if (why != NULL)
        snprintf(why, WHY_BYTES, "%s cannot be read: %s", b->path, strerror(errno));
    return FL_E_IO;
}

static int read_head(struct fl_backup *b, char *why)
{
    uint8_t data[FL_BACKUP_HEAD_SIZE];
    uint64_t numbers[8];
    int r = read_exactly(b, data, sizeof data, why);

    if (r < 0)
        return r;
    if (memcmp(data, magic, sizeof magic) != 0)
        return damaged(b, why, "this is no backup of Fencelock");
    if (fl_backup_seed(data) != fl_crc32c(0, data, sizeof data - 4))
        return damaged(b, why, "a damaged head (checksum)");
    if (fl_format_load_u32(data + AT_VERSION) != FL_BACKUP_VERSION) {
        snprintf(why, WHY_BYTES, "%s was made by a later release: restore it with that one",
                 b->path);
        return FL_E_VERSION;
    }
    for (size_t i = 0; i < FL_ARRAY_LEN(numbers); i++)
        numbers[i] = fl_format_load_u64(data + AT_NUMBERS + 8 * i);
    b->head = (struct fl_backup_head){
        .group_id = fl_format_load_u32(data + AT_GROUP),
        .node_id = fl_format_load_u64(data + AT_NODE),
        .index = numbers[0],
        .term = numbers[1],
        .made_at_ms = numbers[2],
        .token = numbers[3],
        .sessions = numbers[4],
        .names = numbers[5],
        .holds = numbers[6],
        .size = numbers[7],
    };
    memcpy(b->head.cluster_id, data + AT_CLUSTER, sizeof b->head.cluster_id);
    b->seed = fl_backup_seed(data);
    b->offset = FL_BACKUP_HEAD_SIZE;
    return 0;
}

static int read_end(struct fl_backup *b, uint32_t checksum, char *why)
{
    uint8_t total[8];
    int r = read_exactly(b, total, sizeof total, why);

    if (r < 0)
        return r;
    if (fl_format_chunk_checksum(b->seed, b->offset, 0, total, sizeof total) != checksum ||
        fl_format_load_u64(total) != b->size || b->size != b->head.size)
        return damaged(b, why, "a damaged end mark (checksum)");
    if (fgetc(b->file) != EOF)
        return damaged(b, why, "the file goes on behind its end mark");
    b->is_done = true;
    return 0;
}

static int next_chunk(struct fl_backup *b, char *why)
{
    uint8_t extra[FL_BACKUP_CHUNK_EXTRA];
    uint32_t len, checksum;
    int r = read_exactly(b, extra, sizeof extra, why);

    if (r < 0)
        return r;
    len = fl_format_load_u32(extra);
    checksum = fl_format_load_u32(extra + 4);
    b->used = b->at = 0;
    if (len == 0)
        return read_end(b, checksum, why);
    if (len > FL_BACKUP_CHUNK_SIZE)
        return damaged(b, why, "a chunk of impossible size");
    r = read_exactly(b, b->chunk, len, why);
    if (r < 0)
        return r;
    if (fl_format_chunk_checksum(b->seed, b->offset, len, b->chunk, len) != checksum)
        return damaged(b, why, "a damaged chunk (checksum)");
    b->used = len;
    b->offset += sizeof extra + len;
    b->size += len;
    return 0;
}

/* From the first chunk on. */
static int rewind_to_state(struct fl_backup *b)
{
    if (fseeko(b->file, FL_BACKUP_HEAD_SIZE, SEEK_SET) != 0)
        return fl_error_from_errno(errno);
    b->offset = FL_BACKUP_HEAD_SIZE;
    b->size = 0;
    b->used = b->at = 0;
    b->is_done = false;
    return 0;
}

int fl_backup_open(const char *path, struct fl_backup **ret_backup, char *why)
{
    struct fl_backup *b = fl_xcalloc(1, sizeof *b);
    int r;

    snprintf(b->path, sizeof b->path, "%s", path);
    b->file = fopen(path, "rbe");
    if (b->file == NULL) {
        r = fl_error_from_errno(errno);
        snprintf(why, WHY_BYTES, "%.300s cannot be opened: %s", path, strerror(errno));
        fl_backup_close(b);
        return r;
    }
    r = read_head(b, why);
    while (r == 0 && !b->is_done)
        r = next_chunk(b, why);
    if (r == 0)
        r = rewind_to_state(b);
    if (r < 0)
        fl_backup_close(b);
    else
        *ret_backup = b;
    return r;
}

void fl_backup_close(struct fl_backup *b)
{
    if (b == NULL)
        return;
    if (b->file != NULL)
        fclose(b->file);
    free(b);
}

const struct fl_backup_head *fl_backup_head(const struct fl_backup *b)
{
    return &b->head;
}

long fl_backup_read(void *ctx, void *data, size_t size)
{
    struct fl_backup *b = ctx;
    size_t take;

    if (b->at == b->used && !b->is_done) {
        int r = next_chunk(b, NULL);

        if (r < 0)
            return r;
    }
    take = b->used - b->at;
    if (take > size)
        take = size;
    memcpy(data, b->chunk + b->at, take);
    b->at += (uint32_t)take;
    return (long)take;
}
