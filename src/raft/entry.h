/* Log entries and snapshots as objects: immutable once shared, reference counted, never owned by
 * libraft. Counts are not atomic: an object belongs to one thread at a time; a store hands its own
 * thread bytes. */
#ifndef FL_RAFT_ENTRY_H
#define FL_RAFT_ENTRY_H

#include <stddef.h>
#include <stdint.h>

/* Numbers are part of the log format. */
enum fl_entry_type {
    FL_ENTRY_COMMAND = 1, /* a batch of core/command.h */
    FL_ENTRY_BARRIER = 2, /* first of a term, no content of ours */
    FL_ENTRY_CHANGE = 3,  /* a configuration */
};

struct fl_entry {
    unsigned refs;
    uint8_t type;
    uint64_t term;
    uint32_t len;
    uint8_t data[];
};

/* One reference, the caller's. `term` is set by the engine for what it submits. */
struct fl_entry *fl_entry_new(uint8_t type, uint64_t term, const void *data, uint32_t len);
struct fl_entry *fl_entry_ref(struct fl_entry *entry);
void fl_entry_unref(struct fl_entry *entry); /* NULL is fine */

/* What a snapshot stands for. Its content is the driver's: the engine never looks at it. */
struct fl_snapshot {
    unsigned refs;
    uint64_t index, term; /* of the last entry it covers */
    uint64_t configuration_index;
    uint8_t *configuration; /* owned: raft_configuration_encode() bytes */
    uint32_t configuration_len;
    void *content; /* owned through free_content */
    void (*free_content)(void *content);
};

struct fl_snapshot *fl_snapshot_new(uint64_t index, uint64_t term, uint64_t configuration_index,
                                    const void *configuration, uint32_t configuration_len);
struct fl_snapshot *fl_snapshot_ref(struct fl_snapshot *snapshot);
void fl_snapshot_unref(struct fl_snapshot *snapshot);

#endif
