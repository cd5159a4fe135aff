/* The file operations that the store is built on, as a table, so that a test can put a disk of its
 * own underneath: one that loses power, tears writes, fills up and fails.
 *
 * What the store relies on, and no more: after sync() of a file its bytes and its size are durable;
 * after sync_directory() so are the names in it; a rename is seen whole or not at all. Bytes that
 * were not synced may be there or not after a power cut, each 512-byte sector by itself.
 *
 * Functions return 0, a count or a handle, or a negative FL_E_* code. read() and write() may do
 * less than asked. */
#ifndef FL_RAFT_DISK_H
#define FL_RAFT_DISK_H

#include <stddef.h>
#include <stdint.h>

enum {
    FL_DISK_READ = 1,
    FL_DISK_WRITE = 2,
    FL_DISK_CREATE = 4, /* a file that is there is emptied */
};

struct fl_disk {
    int (*open)(struct fl_disk *disk, const char *path, unsigned flags);
    void (*close)(struct fl_disk *disk, int file);
    long (*read)(struct fl_disk *disk, int file, void *data, size_t size, uint64_t offset);
    long (*write)(struct fl_disk *disk, int file, const void *data, size_t size, uint64_t offset);
    /* Sees to it that `size` bytes of space are the file's and it is that long; new bytes are 0. */
    int (*allocate)(struct fl_disk *disk, int file, uint64_t size);
    int (*truncate)(struct fl_disk *disk, int file, uint64_t size);
    int64_t (*size)(struct fl_disk *disk, int file);
    int (*sync)(struct fl_disk *disk, int file);
    int (*rename)(struct fl_disk *disk, const char *from, const char *to);
    int (*unlink)(struct fl_disk *disk, const char *path);
    int (*make_directory)(struct fl_disk *disk, const char *path); /* FL_E_EXISTS */
    int (*sync_directory)(struct fl_disk *disk, const char *path);
    /* Calls `each` for every name in the directory, in no promised order. */
    int (*list)(struct fl_disk *disk, const char *path, void (*each)(void *ctx, const char *name),
                void *ctx);
    /* A handle that keeps every other opener out until it is closed; FL_E_BUSY. */
    int (*lock)(struct fl_disk *disk, const char *path);
    /* The disk cannot be trusted any more: says why and ends the process. */
    void (*fail)(struct fl_disk *disk, const char *why) __attribute__((noreturn));
};

/* The machine's. Stateless: may be used from any thread. */
struct fl_disk *fl_disk_real(void);

/* All of it, however often the disk does less than asked. A read past the end is FL_E_CORRUPT. */
int fl_disk_read_all(struct fl_disk *disk, int file, void *data, size_t size, uint64_t offset);
int fl_disk_write_all(struct fl_disk *disk, int file, const void *data, size_t size,
                      uint64_t offset);

#endif
