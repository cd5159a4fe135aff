/* Snapshot files as the store keeps them. Writer and reader stand in raft/store.h. */
#ifndef FL_RAFT_STORE_SNAPSHOT_H
#define FL_RAFT_STORE_SNAPSHOT_H

#include "raft/store_files.h"

#define FL_SNAPSHOT_PREFIX  "snapshot-"
#define FL_SNAPSHOTS_KEPT   2
#define FL_SNAPSHOT_DAMAGED ".damaged" /* behind the name of one that was set aside */

/* Indexes of those in place, oldest first. */
struct fl_snapshot_shelf {
    uint64_t *indexes; /* owned */
    unsigned n, capacity;
};

void fl_snapshot_shelf__deinit(struct fl_snapshot_shelf *shelf);
/* Keeps the order; an index that is there stays there once. */
void fl_snapshot_shelf__add(struct fl_snapshot_shelf *shelf, uint64_t index);
/* The log must be kept from here on, so that each snapshot on the shelf can be gone on from; when
 * there are fewer than two, the older one is the empty beginning. */
uint64_t fl_snapshot_shelf__log_needed(const struct fl_snapshot_shelf *shelf);

/* "snapshot-00000000000000000100"; returns `out`, of 64 bytes. */
char *fl_snapshot__name(uint64_t index, char *out);

/* Reads and checks all of a file. Content of *ret_meta: struct fl_store_snapshot. */
int fl_snapshot__load(const struct fl_store_files *files, const char *name,
                      struct fl_snapshot **ret_meta, struct fl_store_fault *fault);

/* The newest that is whole, or NULL. How many newer ones are damaged, and what is wrong with the
 * newest of them, is told; they are still there. */
int fl_snapshot__load_newest(const struct fl_store_files *files, struct fl_snapshot_shelf *shelf,
                             struct fl_snapshot **ret_meta, unsigned *ret_n_damaged,
                             struct fl_store_fault *ret_damage);
/* Takes the newest `n_damaged` off the shelf; their files stay, under another name, until the next
 * start finds them no longer needed. */
void fl_snapshot__set_aside(const struct fl_store_files *files, struct fl_snapshot_shelf *shelf,
                            unsigned n_damaged);

#endif
