/* Reading the log back: replays the segments, tells a torn tail (cut, and wiped) from damage
 * (refused). */
#ifndef FL_RAFT_STORE_RECOVER_H
#define FL_RAFT_STORE_RECOVER_H

#include "raft/store_log.h"

struct fl_log_content {
    uint64_t start_index;
    struct fl_entry **entries; /* owned */
    unsigned n, capacity;
};

void fl_log_content__clear(struct fl_log_content *content); /* drops the entries */

/* `numbers`: of the segments that are there, rising; at least one. `vote` says how far the log was
 * durable. Afterwards the log can be written to, and what was read is durable. */
int fl_log__recover(struct fl_log *log, const struct fl_vote *vote, const uint64_t *numbers,
                    unsigned n, struct fl_log_content *ret_content, struct fl_store_fault *fault);

#endif
