/* A backup: the state of the cluster at one entry, in one file that stands alone
 * (docs/storage-format.md). Its checksums bind each chunk to the head, and the head to the cluster,
 * the node and the entry, so that no piece of another backup, or from another place, is taken. */
#ifndef FL_RAFT_BACKUP_H
#define FL_RAFT_BACKUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define FL_BACKUP_VERSION     1u
#define FL_BACKUP_HEAD_SIZE   128u
#define FL_BACKUP_CHUNK_SIZE  (256u * 1024)
#define FL_BACKUP_CHUNK_EXTRA 8u /* length and checksum before the data */

struct fl_backup_head {
    uint8_t cluster_id[16];
    uint32_t group_id;
    uint64_t node_id; /* which took it */
    uint64_t index, term;
    uint64_t made_at_ms; /* wall clock: how long ago it was decides how far tokens jump */
    uint64_t token;      /* the counter */
    uint64_t sessions, names, holds;
    uint64_t size; /* bytes of state */
};

/* How long a whole file with so much state is. */
uint64_t fl_backup_file_size(uint64_t state_size);

void fl_backup_head_encode(const struct fl_backup_head *head, uint8_t out[FL_BACKUP_HEAD_SIZE]);
/* The seed of the chunks' checksums. */
uint32_t fl_backup_seed(const uint8_t head[FL_BACKUP_HEAD_SIZE]);
/* Appends the chunk that lies at `offset` of the file. */
void fl_backup_put_chunk(struct fl_buf *buf, uint32_t seed, uint64_t offset, const void *data,
                         uint32_t len);
void fl_backup_put_end(struct fl_buf *buf, uint32_t seed, uint64_t offset, uint64_t state_size);

/* --- Reading one: all of it is checked before any of it is used. --- */

struct fl_backup;

/* FL_E_CORRUPT, FL_E_VERSION, or what the disk says, with file, offset and what to do in `why` (512
 * bytes). */
int fl_backup_open(const char *path, struct fl_backup **ret_backup, char *why);
void fl_backup_close(struct fl_backup *backup);
const struct fl_backup_head *fl_backup_head(const struct fl_backup *backup);
/* Bytes of state, 0 at the end, or a negative code. Fits fl_machine_source. */
long fl_backup_read(void *backup, void *data, size_t size);

#endif
