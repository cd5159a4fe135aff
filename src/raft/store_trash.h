/* Files that are no longer needed, removed a little at a time: to unlink 300 MiB at once takes the
 * kernel 50 ms, and appends would wait for it. A file is renamed first, so that a start never meets
 * one that is cut short. */
#ifndef FL_RAFT_STORE_TRASH_H
#define FL_RAFT_STORE_TRASH_H

#include "raft/store_files.h"

struct fl_trash {
    char (*names)[64]; /* owned; the first is being removed */
    unsigned n, capacity;
    int file; /* of the first; -1: not begun */
    uint64_t size;
};

#define FL_TRASH_EMPTY ((struct fl_trash){NULL, 0, 0, -1, 0})

void fl_trash__deinit(const struct fl_store_files *files, struct fl_trash *trash);
/* Renames it; the directory is not synced. */
int fl_trash__add(const struct fl_store_files *files, struct fl_trash *trash, const char *name);
/* Removes a little; true while there is more. What fails is left to the next start. */
bool fl_trash__step(const struct fl_store_files *files, struct fl_trash *trash);

#endif
