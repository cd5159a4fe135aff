/* Which snapshots are in place: the last two, so that a damaged one does not end the node. */
#include "raft/store_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/store_work.h"

#define END_SIZE 16u

char *fl_snapshot__name(uint64_t index, char *out)
{
    snprintf(out, 64, FL_SNAPSHOT_PREFIX "%020" PRIu64, index);
    return out;
}

void fl_snapshot_shelf__deinit(struct fl_snapshot_shelf *shelf)
{
    free(shelf->indexes);
    *shelf = (struct fl_snapshot_shelf){NULL, 0, 0};
}

void fl_snapshot_shelf__add(struct fl_snapshot_shelf *shelf, uint64_t index)
{
    unsigned at = shelf->n;

    while (at > 0 && shelf->indexes[at - 1] > index)
        at--;
    if (at > 0 && shelf->indexes[at - 1] == index)
        return;
    if (shelf->n == shelf->capacity) {
        shelf->capacity = (unsigned)fl_grow_capacity(shelf->capacity, (size_t)shelf->n + 1,
                                                     sizeof *shelf->indexes);
        shelf->indexes = fl_xrealloc(shelf->indexes, shelf->capacity * sizeof *shelf->indexes);
    }
    memmove(shelf->indexes + at + 1, shelf->indexes + at, (shelf->n - at) * sizeof *shelf->indexes);
    shelf->indexes[at] = index;
    shelf->n++;
}

uint64_t fl_snapshot_shelf__log_needed(const struct fl_snapshot_shelf *shelf)
{
    if (FL_BUG(STORE_LOG_CUT_TO_NEWEST_SNAPSHOT))
        return UINT64_MAX;
    return shelf->n < FL_SNAPSHOTS_KEPT ? 1 : shelf->indexes[shelf->n - FL_SNAPSHOTS_KEPT] + 1;
}

int fl_snapshot__load_newest(const struct fl_store_files *files, struct fl_snapshot_shelf *shelf,
                             struct fl_snapshot **ret_meta, unsigned *ret_n_damaged,
                             struct fl_store_fault *ret_damage)
{
    unsigned n = shelf->n;
    char name[64];

    *ret_meta = NULL;
    *ret_n_damaged = 0;
    for (; n > 0; n--) {
        struct fl_store_fault fault;
        int r = fl_snapshot__load(files, fl_snapshot__name(shelf->indexes[n - 1], name), ret_meta,
                                  &fault);

        if (r == 0 && (*ret_meta)->index != shelf->indexes[n - 1]) {
            fl_snapshot_unref(*ret_meta);
            *ret_meta = NULL;
            r = fl_store__refuse(&fault, FL_E_CORRUPT, "%s/%s, offset 0: is a copy of another one",
                                 files->directory, name);
        }
        if (r == 0)
            return 0;
        if (*ret_n_damaged == 0 || r != FL_E_CORRUPT)
            *ret_damage = fault;
        if (r != FL_E_CORRUPT)
            return r;
        (*ret_n_damaged)++;
    }
    return 0;
}

void fl_snapshot__set_aside(const struct fl_store_files *files, struct fl_snapshot_shelf *shelf,
                            unsigned n_damaged)
{
    for (; n_damaged > 0; n_damaged--) {
        char name[64], aside[96];
        int r;

        fl_snapshot__name(shelf->indexes[--shelf->n], name);
        snprintf(aside, sizeof aside, "%s" FL_SNAPSHOT_DAMAGED, name);
        r = fl_store__rename(files, name, aside);
        if (r < 0)
            fl_store__fail(files, "rename", name, r);
    }
}

/* Those older than the two newest. */
static void remove_old(struct fl_store *store)
{
    struct fl_snapshot_shelf *shelf = &store->shelf;

    while (shelf->n > FL_SNAPSHOTS_KEPT) {
        fl_store_work__push(store, JOB_DISCARD, shelf->indexes[0]);
        shelf->n--;
        memmove(shelf->indexes, shelf->indexes + 1, shelf->n * sizeof *shelf->indexes);
    }
}

/* Reads the end mark: tells that the file was finished for `meta`, and how much state it holds. */
static int read_size(const struct fl_store_files *files, const char *path,
                     const struct fl_snapshot *meta, uint64_t *ret_size)
{
    struct fl_disk *disk = files->disk;
    uint32_t seed = fl_format_snapshot_seed(files->seed, meta->index, meta->term);
    uint8_t end[END_SIZE];
    int file = disk->open(disk, path, FL_DISK_READ);
    int64_t size;
    int r = FL_E_CORRUPT;

    if (file < 0)
        return file;
    size = disk->size(disk, file);
    if (size >= END_SIZE)
        r = fl_disk_read_all(disk, file, end, sizeof end, (uint64_t)size - END_SIZE);
    disk->close(disk, file);
    if (r < 0)
        return r;
    if (fl_format_load_u32(end) != 0 ||
        fl_format_load_u32(end + 4) !=
            fl_format_chunk_checksum(seed, (uint64_t)size - END_SIZE, 0, end + 8, 8))
        return FL_E_CORRUPT;
    *ret_size = fl_format_load_u64(end + 8);
    return 0;
}

static void set_content(struct fl_snapshot *meta, const char *path, uint64_t size)
{
    struct fl_store_snapshot *content = fl_xcalloc(1, sizeof *content);

    strcpy(content->path, path);
    content->size = size;
    if (meta->content != NULL && meta->free_content != NULL)
        meta->free_content(meta->content);
    meta->content = content;
    meta->free_content = free;
}

int fl_snapshot_file_commit(struct fl_store *store, const char *temporary_path,
                            struct fl_snapshot *meta)
{
    const struct fl_store_files *files = &store->files;
    char name[64], path[FL_STORE_PATH_MAX];
    uint64_t size;
    int r = read_size(files, temporary_path, meta, &size);

    fl_store__path(files, fl_snapshot__name(meta->index, name), path);
    if (r == 0)
        r = files->disk->rename(files->disk, temporary_path, path);
    if (r < 0) {
        files->disk->unlink(files->disk, temporary_path);
        return r;
    }
    if (!FL_BUG(STORE_SNAPSHOT_NAME_NOT_SYNCED))
        r = fl_store__sync_directory(files);
    if (r < 0)
        fl_store__fail(files, "fsync of the directory", name, r);
    fl_snapshot_shelf__add(&store->shelf, meta->index);
    remove_old(store);
    set_content(meta, path, size);
    return 0;
}
