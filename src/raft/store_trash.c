#include "raft/store_trash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#define STEP_BYTES (UINT64_C(8) << 20)

void fl_trash__deinit(const struct fl_store_files *files, struct fl_trash *trash)
{
    if (trash->file >= 0)
        files->disk->close(files->disk, trash->file);
    free(trash->names);
    *trash = FL_TRASH_EMPTY;
}

int fl_trash__add(const struct fl_store_files *files, struct fl_trash *trash, const char *name)
{
    char aside[64];
    int r;

    snprintf(aside, sizeof aside, "%s.tmp", name);
    r = fl_store__rename(files, name, aside);
    if (r == FL_E_NOT_FOUND)
        return 0;
    if (r < 0)
        return r;
    if (trash->n == trash->capacity) {
        trash->capacity =
            (unsigned)fl_grow_capacity(trash->capacity, (size_t)trash->n + 1, sizeof *trash->names);
        trash->names = fl_xrealloc(trash->names, trash->capacity * sizeof *trash->names);
    }
    memcpy(trash->names[trash->n++], aside, sizeof aside);
    return 0;
}

static int begin(const struct fl_store_files *files, struct fl_trash *trash)
{
    int file = fl_store__open_file(files, trash->names[0], FL_DISK_READ | FL_DISK_WRITE);
    int64_t size;

    if (file < 0)
        return file;
    trash->file = file;
    size = files->disk->size(files->disk, file);
    if (size < 0)
        return (int)size;
    trash->size = (uint64_t)size;
    return 0;
}

/* 1 when the file is gone. */
static int remove_some(const struct fl_store_files *files, struct fl_trash *trash)
{
    int r = trash->file < 0 ? begin(files, trash) : 0;

    if (r < 0)
        return r;
    if (trash->size > STEP_BYTES) {
        trash->size -= STEP_BYTES;
        return files->disk->truncate(files->disk, trash->file, trash->size);
    }
    r = fl_store__unlink(files, trash->names[0]);
    return r < 0 ? r : 1;
}

bool fl_trash__step(const struct fl_store_files *files, struct fl_trash *trash)
{
    int r;

    if (trash->n == 0)
        return false;
    r = remove_some(files, trash);
    if (r == 0)
        return true;
    if (r < 0)
        fl_warn("store", "%s/%s: could not be removed (%s); the next start does it",
                files->directory, trash->names[0], fl_error_text(r));
    if (trash->file >= 0)
        files->disk->close(files->disk, trash->file);
    trash->file = -1;
    memmove(trash->names, trash->names + 1, --trash->n * sizeof *trash->names);
    return trash->n != 0;
}
