/* The segment that comes next, made ready a step at a time so that no append waits for it: its
 * space is allocated and written with zeros, since the first write to allocated space costs a
 * journal commit that every append's fdatasync would have to wait for. */
#ifndef FL_RAFT_STORE_SPARE_H
#define FL_RAFT_STORE_SPARE_H

#include "raft/store_files.h"

#define FL_SPARE_NAME "spare.tmp"

struct fl_spare {
    int file; /* -1: none is begun */
    uint64_t size, ready;
};

#define FL_SPARE_NONE ((struct fl_spare){-1, 0, 0})

/* Allocates one of `size` bytes, unless there is one of at least that. FL_E_NOSPACE: nothing is
 * left of it. */
int fl_spare__begin(const struct fl_store_files *files, struct fl_spare *spare, uint64_t size);
/* Makes at least `want` bytes of it ready, in small synced steps. Any error but FL_E_NOSPACE ends
 * the process. */
int fl_spare__advance(const struct fl_store_files *files, struct fl_spare *spare, uint64_t want);
/* Gives it up, and its space. */
void fl_spare__drop(const struct fl_store_files *files, struct fl_spare *spare);
/* Forgets it: for the end of the process, and for when it became a segment. */
void fl_spare__close(const struct fl_store_files *files, struct fl_spare *spare);

#endif
