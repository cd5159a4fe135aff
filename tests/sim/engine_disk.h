/* A disk that writes in the order it was asked, loses at a power cut what was not written, and may
 * tear what was being written. It knows no time: whoever owns it says when an operation ends. */
#ifndef FL_TESTS_SIM_ENGINE_DISK_H
#define FL_TESTS_SIM_ENGINE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "raft/engine.h"

enum disk_op_type { DISK_APPEND, DISK_INSTALL, DISK_SAVE, DISK_COMPACT };

struct disk_op {
    enum disk_op_type type;
    struct fl_append *append;     /* owned */
    struct fl_snapshot *snapshot; /* a reference */
    uint64_t first;
    struct disk_op *next;
};

struct disk {
    uint64_t term, vote;
    struct fl_snapshot *snapshot;
    uint64_t first; /* index of log[0] */
    struct fl_entry **log;
    size_t n, capacity;
    struct disk_op *ops, **ops_end; /* oldest first */
};

void disk_init(struct disk *disk);
void disk_deinit(struct disk *disk);
uint64_t disk_last(const struct disk *disk);
bool disk_has(const struct disk *disk, uint64_t index, uint64_t term);
/* What a cluster begins with. */
void disk_push(struct disk *disk, struct fl_entry *entry);

void disk_queue(struct disk *disk, struct disk_op op); /* takes what is in it */
/* Does the oldest operation and gives it; NULL when it would leave a hole in the log. */
struct disk_op *disk_do(struct disk *disk);
void disk_op_free(struct disk_op *op);
/* What was asked for is done up to some point, and lost from there on. False: as disk_do(). */
bool disk_power_cut(struct disk *disk, struct fl_random *random);
/* What a start finds: a log that ends below the snapshot is given up. */
void disk_recover(struct disk *disk);

#endif
