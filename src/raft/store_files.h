/* What the parts of the store share: the directory, the identity, and how they say no. */
#ifndef FL_RAFT_STORE_FILES_H
#define FL_RAFT_STORE_FILES_H

#include <stdbool.h>

#include "raft/disk.h"
#include "raft/store_format.h"

#define FL_STORE_PATH_MAX 512

/* What a person can do about a directory that is refused. */
#define FL_STORE_REMEDY                                                                            \
    "keep this directory aside, remove the node from the cluster and add it again, with an empty " \
    "directory and a new id"

struct fl_store_files {
    struct fl_disk *disk; /* borrowed */
    char directory[FL_STORE_PATH_MAX - 80];
    struct fl_store_identity identity;
    uint32_t seed;
};

/* The path of a file in the directory; `out` of FL_STORE_PATH_MAX bytes is returned. */
char *fl_store__path(const struct fl_store_files *files, const char *name, char *out);

/* Fills the fault (which may be NULL) and returns `code`. */
int fl_store__refuse(struct fl_store_fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a disk operation on `name` that returned `code`. */
int fl_store__refuse_io(const struct fl_store_files *files, struct fl_store_fault *fault, int code,
                        const char *operation, const char *name);

/* `operation` on `name` failed with `code` after opening: ends the process. */
__attribute__((noreturn)) void fl_store__fail(const struct fl_store_files *files,
                                              const char *operation, const char *name, int code);

/* What fl_disk does, on a name in the directory. */
int fl_store__open_file(const struct fl_store_files *files, const char *name, unsigned flags);
int fl_store__rename(const struct fl_store_files *files, const char *from, const char *to);
/* Not being there is fine. */
int fl_store__unlink(const struct fl_store_files *files, const char *name);
int fl_store__sync_directory(const struct fl_store_files *files);

/* Writes a small file whole: beside, synced, renamed. The directory is not synced. */
int fl_store__replace_file(const struct fl_store_files *files, const char *name, const void *data,
                           size_t size);

/* The number that ends a name such as "log-00000000000000000007"; false when it is not of that
 * form. */
bool fl_store__parse_name(const char *name, const char *prefix, uint64_t *ret_number);

#endif
