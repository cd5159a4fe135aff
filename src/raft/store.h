/* A node's directory: term and vote, log segments, snapshots. Formats: docs/storage-format.md.
 *
 * Writes go through one thread of the store's own (a hung disk must not stop messages from being
 * received); completions come back in order through the wake-up that the owner gave. Everything
 * that was queued when the thread looks is one write and one fdatasync.
 *
 * The rules of the disk: a torn tail is cut; damage before the tail, or in what was acknowledged,
 * refuses to open and says which file, where, and what to do; an fsync error ends the process (the
 * kernel may have dropped the pages: retrying lies); a full disk is not an error but a state. Every
 * record binds its position and the identity of the node, so that a misplaced one is seen.
 *
 * All file access goes through struct fl_disk (raft/disk.h), so that tests can lose power at any
 * byte. */
#ifndef FL_RAFT_STORE_H
#define FL_RAFT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/timing.h"
#include "raft/entry.h"

struct fl_store;
struct fl_disk;
struct fl_append; /* raft/engine.h */

struct fl_store_identity {
    uint8_t cluster_id[16];
    uint32_t group_id;
    uint64_t node_id;
    /* Drawn when a directory is made, and kept in it: an empty directory under a known id is seen
     * to be another one. Not part of what the checksums bind. */
    uint64_t life;
};

/* Why opening failed, for a person: the file, the offset, what is wrong and what to do. */
struct fl_store_fault {
    char text[512];
};

/* What was found. Freed with fl_store_recovered_deinit(). */
struct fl_store_recovered {
    bool is_new; /* no entry, no snapshot, no vote beyond term 1: bootstrap (again) or join */
    uint64_t term, voted_for;
    struct fl_snapshot *snapshot; /* NULL: none; content: struct fl_store_snapshot */
    uint64_t start_index;         /* of the first entry */
    struct fl_entry **entries;
    unsigned n;
};
void fl_store_recovered_deinit(struct fl_store_recovered *recovered);

/* Content of a stored snapshot. */
struct fl_store_snapshot {
    char path[512];
    uint64_t size; /* bytes of machine state in the file */
};

struct fl_store_config {
    const char *directory; /* made when it is not there */
    struct fl_store_identity identity;
    struct fl_disk *disk;   /* NULL: the real one */
    uint64_t segment_bytes; /* 0: 64 MiB */
    uint64_t reserve_bytes; /* held back for releases and expiries on a full disk; 0: 64 MiB */
    bool synchronous;       /* no thread: fl_store_run() does the work (tests, simulator) */
    /* Called from the store's thread: completions wait for fl_store_complete(). */
    void (*wake)(void *ctx);
    void *ctx;
};

/* FL_E_CORRUPT (with the fault), FL_E_WRONG_PEER: the directory belongs to another cluster or node;
 * FL_E_VERSION; FL_E_BUSY: another process has it open; FL_E_IO, FL_E_NOSPACE. */
int fl_store_open(const struct fl_store_config *config, struct fl_store_recovered *ret_recovered,
                  struct fl_store **ret_store, struct fl_store_fault *ret_fault);
/* Waits for what is queued, unless it waits for space: that was never told done, and is dropped. */
void fl_store_close(struct fl_store *store);

/* Durable when it returns. An I/O error ends the process. The term never falls, and within a term
 * only "nobody" may become somebody. */
void fl_store_set_vote(struct fl_store *store, uint64_t term, uint64_t voted_for);

/* Takes `append`, queues truncation and writing. */
void fl_store_append(struct fl_store *store, struct fl_append *append);
/* The next append that is durable, in the order queued, or NULL. The caller frees it or hands it
 * on. */
struct fl_append *fl_store_complete(struct fl_store *store);
/* Does what is queued now: only for a synchronous store. */
void fl_store_run(struct fl_store *store);

/* Segments wholly below `first` may go, as far as the older of the two snapshots does not need
 * them (with less than two: none). */
void fl_store_compact(struct fl_store *store, uint64_t first);
/* An installed snapshot replaces the log: everything is dropped and the log goes on at index + 1.
 * The snapshot must be in place (fl_snapshot_file_commit). Durable when it returns. Appends that
 * are queued are told done, written or not: what they wrote would be dropped. It waits for space
 * when there is none at all. */
void fl_store_reset(struct fl_store *store, uint64_t next_index);

/* Whether grants must be refused: less than the reserve is left, or a write hit a full disk and
 * waits. It heals by itself when space returns. */
bool fl_store_is_full(const struct fl_store *store);
/* How long writing a group of entries took until it was durable, and their bytes, since the start.
 */
void fl_store_written(const struct fl_store *store, struct fl_timing *ret_time,
                      uint64_t *ret_bytes);

/* --- Whom this node knows (store_peers.c): the life of each other node's directory as first heard
 * of, and which ids are used up. Kept, so that a node that lost its data is not taken for itself.
 * --- */

enum fl_peer_verdict {
    FL_PEER_WELCOME = 0,
    FL_PEER_STRANGER = 1, /* known with another life: it lost its data, and must not vote */
    FL_PEER_REMOVED = 2,  /* was a member, and is none any more */
};
struct fl_known_peer {
    uint64_t id, life; /* 0: not heard of */
    bool is_removed;
};
uint64_t fl_store_life(const struct fl_store *store);
/* Remembers it when its life was not known. Durable when it returns, unless the disk is full. */
enum fl_peer_verdict fl_store_meet_peer(struct fl_store *store, uint64_t id, uint64_t life);
/* Its id is used up. */
void fl_store_remove_peer(struct fl_store *store, uint64_t id);
bool fl_store_is_removed(const struct fl_store *store, uint64_t id);
/* Borrowed until the next of these calls. */
const struct fl_known_peer *fl_store_known_peers(const struct fl_store *store, size_t *ret_n);

/* --- Snapshot files: written beside, then renamed, then the directory synced. The last two are
 * kept. --- */

struct fl_snapshot_writer;
/* For own snapshots (in a forked child) and for received ones. */
int fl_snapshot_writer_new(struct fl_store *store, const struct fl_snapshot *meta,
                           struct fl_snapshot_writer **ret_writer);
int fl_snapshot_writer_write(struct fl_snapshot_writer *writer, const void *data, size_t len);
/* Checksum, fsync; the file is still temporary. Frees the writer in any case. `ret_path` of 512
 * bytes. */
int fl_snapshot_writer_finish(struct fl_snapshot_writer *writer, char *ret_path);
void fl_snapshot_writer_abort(struct fl_snapshot_writer *writer); /* frees, removes the file */
/* Renames it into place and removes those older than the one before it; sets meta's content. */
int fl_snapshot_file_commit(struct fl_store *store, const char *temporary_path,
                            struct fl_snapshot *meta);

struct fl_snapshot_reader;
/* Opens and checks the whole file's checksum first. When two newer snapshots are in place the file
 * is discarded, also under a reader, which then fails with FL_E_CORRUPT: begin with a newer one. */
int fl_snapshot_reader_new(struct fl_store *store, const char *path,
                           struct fl_snapshot_reader **ret_reader,
                           struct fl_store_fault *ret_fault);
/* The same, without reading all of it first, for what is sent on and checked at the other side: a
 * long file would hold the loop up. Each chunk is checked when it is handed out. */
int fl_snapshot_reader_new_unchecked(struct fl_store *store, const char *path,
                                     struct fl_snapshot_reader **ret_reader,
                                     struct fl_store_fault *ret_fault);
/* Bytes read, 0 at the end, or a negative code. Fits fl_machine_source. */
long fl_snapshot_reader_read(void *reader, void *data, size_t size);
void fl_snapshot_reader_free(struct fl_snapshot_reader *reader);

#endif
