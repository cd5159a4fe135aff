#include "raft/store_spare.h"

#include "base/error.h"

#define STEP_BYTES (UINT64_C(1) << 20)
#define ZERO_BYTES (UINT64_C(64) * 1024)

static const uint8_t zeros[ZERO_BYTES];

int fl_spare__begin(const struct fl_store_files *files, struct fl_spare *spare, uint64_t size)
{
    int r;

    if (spare->file >= 0 && spare->size >= size)
        return 0;
    fl_spare__drop(files, spare);
    spare->file =
        fl_store__open_file(files, FL_SPARE_NAME, FL_DISK_READ | FL_DISK_WRITE | FL_DISK_CREATE);
    if (spare->file < 0) {
        r = spare->file;
        spare->file = -1;
    } else {
        spare->size = size;
        spare->ready = 0;
        r = files->disk->allocate(files->disk, spare->file, size);
    }
    if (r == FL_E_NOSPACE)
        fl_spare__drop(files, spare);
    else if (r < 0)
        fl_store__fail(files, "making", FL_SPARE_NAME, r);
    return r < 0 ? r : 0;
}

static int step(const struct fl_store_files *files, struct fl_spare *spare)
{
    uint64_t end =
        spare->size - spare->ready < STEP_BYTES ? spare->size : spare->ready + STEP_BYTES;
    int r;

    while (spare->ready < end) {
        size_t size = end - spare->ready < ZERO_BYTES ? (size_t)(end - spare->ready) : ZERO_BYTES;

        r = fl_disk_write_all(files->disk, spare->file, zeros, size, spare->ready);
        if (r < 0)
            return r;
        spare->ready += size;
    }
    r = files->disk->sync(files->disk, spare->file);
    if (r < 0)
        fl_store__fail(files, "fdatasync", FL_SPARE_NAME, r);
    return 0;
}

int fl_spare__advance(const struct fl_store_files *files, struct fl_spare *spare, uint64_t want)
{
    int r;

    while (spare->ready < want && spare->ready < spare->size) {
        r = step(files, spare);
        if (r == FL_E_NOSPACE) {
            fl_spare__drop(files, spare);
            return r;
        }
        if (r < 0)
            fl_store__fail(files, "writing", FL_SPARE_NAME, r);
    }
    return 0;
}

void fl_spare__drop(const struct fl_store_files *files, struct fl_spare *spare)
{
    int r;

    if (spare->file < 0)
        return;
    fl_spare__close(files, spare);
    r = fl_store__unlink(files, FL_SPARE_NAME);
    if (r < 0)
        fl_store__fail(files, "removing", FL_SPARE_NAME, r);
}

void fl_spare__close(const struct fl_store_files *files, struct fl_spare *spare)
{
    if (spare->file >= 0)
        files->disk->close(files->disk, spare->file);
    *spare = FL_SPARE_NONE;
}
