/* The bytes of the store's files (docs/storage-format.md), encoded and checked; no I/O here.
 *
 * Every checksum is seeded with the identity of the node and binds the place of what it covers, so
 * that a whole block in the wrong place, or of another node, is seen as damage. */
#ifndef FL_RAFT_STORE_FORMAT_H
#define FL_RAFT_STORE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "raft/entry.h"
#include "raft/store.h"

#define FL_STORE_VERSION 1u

#define FL_IDENTITY_SIZE       64u
#define FL_VOTE_SLOT_SIZE      64u
#define FL_VOTE_SLOT_SPACING   4096u /* no sector, page or flash block is shared */
#define FL_VOTE_FILE_SIZE      (2 * FL_VOTE_SLOT_SPACING)
#define FL_SEGMENT_HEADER_SIZE 128u
#define FL_RECORD_HEADER_SIZE  32u
/* Without the configuration and the checksum behind it. */
#define FL_SNAPSHOT_HEADER_SIZE 80u
#define FL_SNAPSHOT_CHUNK_SIZE  (256u * 1024)
/* A configuration lists members: nobody has this many. */
#define FL_SNAPSHOT_CONFIGURATION_MAX (1024u * 1024)
/* A segment's offsets are 32 bits wide. */
#define FL_SEGMENT_SIZE_MAX (UINT64_C(1) << 31)

/* Beside the entry types of raft/entry.h. */
enum {
    FL_RECORD_TRUNCATE = 0x80, /* entries at `index` and above are void */
    FL_RECORD_MARK = 0x81,     /* all before this was durable when it was written */
};

uint32_t fl_format_seed(const struct fl_store_identity *identity);

/* --- identity: FL_E_CORRUPT, FL_E_VERSION --- */
void fl_format_identity_encode(const struct fl_store_identity *identity,
                               uint8_t out[FL_IDENTITY_SIZE]);
int fl_format_identity_decode(const uint8_t data[FL_IDENTITY_SIZE],
                              struct fl_store_identity *ret_identity);

/* --- peers: whom the node knows; FL_E_CORRUPT --- */
#define FL_PEERS_HEADER_SIZE 44u
#define FL_PEERS_ENTRY_SIZE  17u
void fl_format_peers_encode(const struct fl_store_identity *identity,
                            const struct fl_known_peer *peers, size_t n, struct fl_buf *out);
/* *ret_peers is malloc'ed. */
int fl_format_peers_decode(const struct fl_store_identity *identity, const uint8_t *data,
                           size_t size, struct fl_known_peer **ret_peers, size_t *ret_n);

/* --- vote --- */
struct fl_vote {
    uint64_t serial, term, voted_for;
    /* The log was durable up to here when this was written: damage to its end is told from a torn
     * tail, and a last segment that is gone is missed. */
    uint64_t log_segment, log_end;
};
void fl_format_vote_encode(uint32_t seed, unsigned slot, const struct fl_vote *vote,
                           uint8_t out[FL_VOTE_SLOT_SIZE]);
bool fl_format_vote_decode(uint32_t seed, unsigned slot, const uint8_t data[FL_VOTE_SLOT_SIZE],
                           struct fl_vote *ret_vote);

/* --- segments --- */
enum { FL_SEGMENT_RESET = 1 }; /* segments before this one are void */

struct fl_segment_header {
    uint64_t number;       /* rising by one, never used again */
    uint64_t next_index;   /* of the first entry, unless a truncation comes first */
    uint64_t previous_end; /* how many bytes of the segment before were durable; 0: none */
    uint64_t size;         /* of the file */
    uint32_t flags;
};
void fl_format_segment_encode(const struct fl_store_identity *identity,
                              const struct fl_segment_header *header,
                              uint8_t out[FL_SEGMENT_HEADER_SIZE]);
/* NULL, or what is wrong. */
const char *fl_format_segment_decode(const struct fl_store_identity *identity,
                                     const uint8_t data[FL_SEGMENT_HEADER_SIZE],
                                     struct fl_segment_header *ret_header);

/* The seed of the records of a segment. */
uint32_t fl_format_record_seed(uint32_t seed, uint64_t segment);

struct fl_record {
    uint64_t index, term;
    uint32_t len;
    uint32_t group_start; /* offset of the write it was part of: all before was durable then */
    uint8_t type;
    const uint8_t *data; /* borrowed */
    uint32_t size;       /* in the file, with header and padding */
};
static inline size_t fl_format_record_size(uint32_t len)
{
    return FL_RECORD_HEADER_SIZE + (((size_t)len + 7) & ~(size_t)7);
}
/* Appends a record without its place, which fl_format_record_place() adds when it is known. */
void fl_format_record_put(struct fl_buf *buf, uint8_t type, uint64_t index, uint64_t term,
                          const void *data, uint32_t len);
/* How long the record at `record` is, which fl_format_record_put() wrote. */
size_t fl_format_record_peek_size(const uint8_t *record);
uint64_t fl_format_record_peek_index(const uint8_t *record);
uint8_t fl_format_record_peek_type(const uint8_t *record);
void fl_format_record_place(uint8_t *record, uint32_t segment_seed, uint32_t offset,
                            uint32_t group_start);
/* Whether a whole record lies at `offset` of a segment of which `size` bytes are at `segment`. */
bool fl_format_record_decode(const uint8_t *segment, size_t size, size_t offset,
                             uint32_t segment_seed, struct fl_record *ret_record);

/* --- snapshots --- */
struct fl_snapshot_header {
    uint64_t index, term, configuration_index;
    uint32_t configuration_len;
};
void fl_format_snapshot_encode(const struct fl_store_identity *identity,
                               const struct fl_snapshot *meta, struct fl_buf *out);
/* `data` is the fixed part; the configuration and its checksum follow in the file. */
const char *fl_format_snapshot_decode(const struct fl_store_identity *identity,
                                      const uint8_t data[FL_SNAPSHOT_HEADER_SIZE],
                                      struct fl_snapshot_header *ret_header);
uint32_t fl_format_snapshot_seed(uint32_t seed, uint64_t index, uint64_t term);
/* Of a chunk of `len` bytes at `offset` of the file; the end mark is one of length 0 whose data is
 * the number of bytes of machine state. */
uint32_t fl_format_chunk_checksum(uint32_t snapshot_seed, uint64_t offset, uint32_t len,
                                  const void *data, size_t size);

/* Little-endian loads and stores at fixed places. */
static inline void fl_format_store_u32(uint8_t *p, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}
static inline void fl_format_store_u64(uint8_t *p, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}
static inline uint32_t fl_format_load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t fl_format_load_u64(const uint8_t *p)
{
    return fl_format_load_u32(p) | (uint64_t)fl_format_load_u32(p + 4) << 32;
}

#endif
