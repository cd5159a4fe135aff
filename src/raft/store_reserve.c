#include "raft/store_reserve.h"

#include "base/error.h"

#define RESERVE_NAME "reserve"

static void truncate_to(const struct fl_store_files *files, struct fl_reserve *reserve,
                        uint64_t size)
{
    int r = files->disk->truncate(files->disk, reserve->file, size);

    if (r < 0)
        fl_store__fail(files, "ftruncate", RESERVE_NAME, r);
    reserve->held = size;
}

/* Keeps what is there: on a full disk it could not be had again. */
static int open_file(const struct fl_store_files *files, struct fl_reserve *reserve)
{
    int64_t size;

    reserve->file = fl_store__open_file(files, RESERVE_NAME, FL_DISK_READ | FL_DISK_WRITE);
    if (reserve->file == FL_E_NOT_FOUND)
        reserve->file =
            fl_store__open_file(files, RESERVE_NAME, FL_DISK_READ | FL_DISK_WRITE | FL_DISK_CREATE);
    if (reserve->file < 0)
        return reserve->file;
    size = files->disk->size(files->disk, reserve->file);
    if (size < 0)
        return (int)size;
    reserve->held = (uint64_t)size;
    if (reserve->held > reserve->size)
        truncate_to(files, reserve, reserve->size);
    return 0;
}

int fl_reserve__open(const struct fl_store_files *files, struct fl_reserve *ret_reserve,
                     uint64_t size)
{
    int r;

    *ret_reserve = (struct fl_reserve){.file = -1, .size = size};
    r = open_file(files, ret_reserve);
    if (r == 0 && !fl_reserve__take(files, ret_reserve))
        r = FL_E_NOSPACE;
    return r;
}

void fl_reserve__close(const struct fl_store_files *files, struct fl_reserve *reserve)
{
    if (reserve->file >= 0)
        files->disk->close(files->disk, reserve->file);
}

bool fl_reserve__give(const struct fl_store_files *files, struct fl_reserve *reserve, uint64_t size)
{
    if (reserve->held == 0)
        return false;
    truncate_to(files, reserve, size < reserve->held ? reserve->held - size : 0);
    return true;
}

bool fl_reserve__take(const struct fl_store_files *files, struct fl_reserve *reserve)
{
    uint64_t held;
    int r;

    if (reserve->file < 0 && open_file(files, reserve) < 0)
        return false;
    held = reserve->held;
    if (held == reserve->size)
        return true;
    r = files->disk->allocate(files->disk, reserve->file, reserve->size);
    if (r == 0) {
        reserve->held = reserve->size;
        return true;
    }
    if (r != FL_E_NOSPACE)
        fl_store__fail(files, "fallocate", RESERVE_NAME, r);
    truncate_to(files, reserve, held); /* what it got on the way is somebody else's */
    return false;
}
