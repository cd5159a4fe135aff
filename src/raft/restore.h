/* From a backup to the directory of a new cluster's first node.
 *
 * The new cluster has one node; the others are started with --join and added, and are sent the
 * state. So nobody has to copy the file around, and no two nodes can be restored differently.
 *
 * Tokens jump: what was handed out after the backup was taken, by the old cluster or by one that
 * was restored from it before, stays below what comes. All sessions of the backup end: their
 * clients were told nothing for so long that none believes in its lease. */
#ifndef FL_RAFT_RESTORE_H
#define FL_RAFT_RESTORE_H

#include <stdint.h>

struct fl_restore {
    const char *backup, *directory, *cluster;
    uint64_t node_id;
    const char *address;  /* of its peer port, as others dial it */
    uint64_t token_floor; /* tokens begin above it, too; 0: as the backup demands */
    uint64_t now_ms;      /* wall clock */
};

/* How far tokens jump for a backup that was made so long ago. */
uint64_t fl_restore_jump(uint64_t age_ms);

/* The directory must not be there, or be empty; it is there whole, or not at all. *ret_token: the
 * next token is above it. On failure nothing is changed, and `why` (512 bytes) says what and what
 * to do. */
int fl_restore_run(const struct fl_restore *restore, uint64_t *ret_token, char *why);

#endif
