/* The work of the store's thread: takes what is queued, writes it as one group, tells what is
 * durable; between groups it prepares the next segment and looks after a full disk. */
#ifndef FL_RAFT_STORE_WORK_H
#define FL_RAFT_STORE_WORK_H

#include "raft/store_state.h"

/* Adds a job; `append` is NULL for those that are none. The mutex is held. */
void fl_batch__push(struct batch *batch, enum job_type type, struct fl_append *append, size_t len,
                    uint64_t index);
void fl_batch__deinit(struct batch *batch);

/* Queues a job other than an append. */
void fl_store_work__push(struct fl_store *store, enum job_type type, uint64_t index);
/* The reserve could not be had. */
void fl_store_work__set_full(struct fl_store *store);
/* Does all that is queued, as far as there is space. */
void fl_store_work__run(struct fl_store *store);
/* The thread. */
void *fl_store_work__main(void *store);

#endif
