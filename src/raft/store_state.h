/* The store as its own files see it. */
#ifndef FL_RAFT_STORE_STATE_H
#define FL_RAFT_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/timing.h"
#include "raft/store_log.h"
#include "raft/store_peers.h"
#include "raft/store_reserve.h"
#include "raft/store_snapshot.h"
#include "raft/store_vote.h"

enum job_type { JOB_APPEND, JOB_COMPACT, JOB_RESET, JOB_DISCARD };

struct job {
    enum job_type type;
    struct fl_append *append; /* owned */
    size_t len;               /* of its records, which follow those of the job before */
    uint64_t index;           /* of a compaction, a reset, a snapshot to discard */
};

/* What waits for the disk: jobs, and the records of all appends in one piece. */
struct batch {
    struct job *jobs; /* owned */
    size_t n, capacity;
    struct fl_buf records;
};

/* Appends that are durable and not fetched yet. */
struct completions {
    struct fl_append **appends; /* owned, from head on */
    size_t head, n, capacity;
};

struct fl_store {
    struct fl_store_files files;
    pid_t owner;
    int lock;
    bool synchronous;
    void (*wake)(void *ctx);
    void *wake_ctx;

    /* The owner's. */
    struct fl_vote_file vote;
    struct fl_snapshot_shelf shelf;
    struct fl_peers_file peers;
    uint64_t queued_next; /* index after the last entry queued */

    /* Between owner and thread. */
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t thread;
    struct batch queued;
    struct completions completions;
    bool is_stopping, is_resetting;
    atomic_bool is_full;

    /* The thread's (the owner's in a synchronous store). */
    struct batch batch;  /* being written */
    size_t batch_at;     /* jobs done */
    size_t records_from; /* where the records of the next job begin */
    size_t records_at;   /* how far they are durable */
    struct fl_log log;
    struct fl_reserve reserve;
    uint64_t segment_bytes;
    struct fl_timing write_time; /* read by the owner */
    _Atomic uint64_t written_bytes;
    bool is_untidy; /* there is more to prepare or to remove */
};

/* Frees all of it without touching the disk further: what is queued is lost. */
void fl_store__free(struct fl_store *store);

#endif
