#include "raft/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

static int result_of(int r)
{
    return r < 0 ? fl_error_from_errno(errno) : r;
}

static int real_open(struct fl_disk *disk, const char *path, unsigned flags)
{
    int mode = O_CLOEXEC;

    (void)disk;
    if ((flags & FL_DISK_WRITE) != 0)
        mode |= (flags & FL_DISK_READ) != 0 ? O_RDWR : O_WRONLY;
    if ((flags & FL_DISK_CREATE) != 0)
        mode |= O_CREAT | O_TRUNC;
    return result_of(open(path, mode, 0600));
}

static void real_close(struct fl_disk *disk, int file)
{
    (void)disk;
    close(file);
}

static long real_read(struct fl_disk *disk, int file, void *data, size_t size, uint64_t offset)
{
    ssize_t n;

    (void)disk;
    do
        n = pread(file, data, size, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n < 0 ? fl_error_from_errno(errno) : n;
}

static long real_write(struct fl_disk *disk, int file, const void *data, size_t size,
                       uint64_t offset)
{
    ssize_t n;

    (void)disk;
    do
        n = pwrite(file, data, size, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n < 0 ? fl_error_from_errno(errno) : n;
}

static int real_allocate(struct fl_disk *disk, int file, uint64_t size)
{
    int errnum;

    (void)disk;
    do
        errnum = posix_fallocate(file, 0, (off_t)size);
    while (errnum == EINTR);
    return fl_error_from_errno(errnum);
}

static int real_truncate(struct fl_disk *disk, int file, uint64_t size)
{
    (void)disk;
    return result_of(ftruncate(file, (off_t)size));
}

static int64_t real_size(struct fl_disk *disk, int file)
{
    struct stat st;

    (void)disk;
    return fstat(file, &st) < 0 ? fl_error_from_errno(errno) : st.st_size;
}

static int real_sync(struct fl_disk *disk, int file)
{
    (void)disk;
    return result_of(fdatasync(file));
}

static int real_rename(struct fl_disk *disk, const char *from, const char *to)
{
    (void)disk;
    return result_of(rename(from, to));
}

static int real_unlink(struct fl_disk *disk, const char *path)
{
    (void)disk;
    return result_of(unlink(path));
}

static int real_make_directory(struct fl_disk *disk, const char *path)
{
    (void)disk;
    return result_of(mkdir(path, 0700));
}

static int real_sync_directory(struct fl_disk *disk, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    (void)disk;
    if (fd < 0)
        return fl_error_from_errno(errno);
    r = result_of(fsync(fd));
    close(fd);
    return r;
}

static int real_list(struct fl_disk *disk, const char *path,
                     void (*each)(void *ctx, const char *name), void *ctx)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int errnum;

    (void)disk;
    if (dir == NULL)
        return fl_error_from_errno(errno);
    while (errno = 0, (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(ctx, entry->d_name);
    errnum = errno;
    closedir(dir);
    return fl_error_from_errno(errnum);
}

static int real_lock(struct fl_disk *disk, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int r;

    (void)disk;
    if (fd < 0)
        return fl_error_from_errno(errno);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    r = errno == EWOULDBLOCK ? FL_E_BUSY : fl_error_from_errno(errno);
    close(fd);
    return r;
}

__attribute__((noreturn)) static void real_fail(struct fl_disk *disk, const char *why)
{
    (void)disk;
    fl_error("store", "%s; the process ends, since what the disk holds now is not known", why);
    abort();
}

struct fl_disk *fl_disk_real(void)
{
    static struct fl_disk disk = {
        .open = real_open,
        .close = real_close,
        .read = real_read,
        .write = real_write,
        .allocate = real_allocate,
        .truncate = real_truncate,
        .size = real_size,
        .sync = real_sync,
        .rename = real_rename,
        .unlink = real_unlink,
        .make_directory = real_make_directory,
        .sync_directory = real_sync_directory,
        .list = real_list,
        .lock = real_lock,
        .fail = real_fail,
    };

    return &disk;
}

int fl_disk_read_all(struct fl_disk *disk, int file, void *data, size_t size, uint64_t offset)
{
    uint8_t *p = data;

    while (size != 0) {
        long n = disk->read(disk, file, p, size, offset);

        if (n < 0)
            return (int)n;
        if (n == 0)
            return FL_E_CORRUPT;
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int fl_disk_write_all(struct fl_disk *disk, int file, const void *data, size_t size,
                      uint64_t offset)
{
    const uint8_t *p = data;

    while (size != 0) {
        long n = disk->write(disk, file, p, size, offset);

        if (n < 0)
            return (int)n;
        if (n == 0)
            return FL_E_IO;
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}
