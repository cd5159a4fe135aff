/* Space that is held back, as a file of that size, for what must go through on a full disk:
 * releases and expiries. It is given up piece by piece, and taken again when there is space. */
#ifndef FL_RAFT_STORE_RESERVE_H
#define FL_RAFT_STORE_RESERVE_H

#include <stdbool.h>

#include "raft/store_files.h"

struct fl_reserve {
    int file;
    uint64_t size, held;
};

/* FL_E_NOSPACE leaves it with what it could hold: that is not a failure to open. */
int fl_reserve__open(const struct fl_store_files *files, struct fl_reserve *ret_reserve,
                     uint64_t size);
void fl_reserve__close(const struct fl_store_files *files, struct fl_reserve *reserve);
/* Gives up to `size` bytes back to the file system; false when none are left. */
bool fl_reserve__give(const struct fl_store_files *files, struct fl_reserve *reserve,
                      uint64_t size);
/* Takes all of it again; false when there is no space. */
bool fl_reserve__take(const struct fl_store_files *files, struct fl_reserve *reserve);

#endif
