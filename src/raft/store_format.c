#include "raft/store_format.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/hash.h"

/* Where things lie in the fixed blocks; the checksum of a block is its last four bytes. */
enum {
    AT_VERSION = 8,
    AT_GROUP = 12,
    AT_CLUSTER = 16,
    AT_NODE = 32,
    AT_REST = 40, /* what the file itself is about */
};

static const char identity_magic[8] = "FLIDENT";
static const char vote_magic[8] = "FLVOTE";
static const char segment_magic[8] = "FLSEGM";
static const char snapshot_magic[8] = "FLSNAP";
static const char peers_magic[8] = "FLPEERS";

static void head_encode(uint8_t *out, const char magic[8], const struct fl_store_identity *identity)
{
    memcpy(out, magic, 8);
    fl_format_store_u32(out + AT_VERSION, FL_STORE_VERSION);
    fl_format_store_u32(out + AT_GROUP, identity->group_id);
    memcpy(out + AT_CLUSTER, identity->cluster_id, sizeof identity->cluster_id);
    fl_format_store_u64(out + AT_NODE, identity->node_id);
}

static void seal(uint8_t *out, size_t size, uint32_t seed)
{
    fl_format_store_u32(out + size - 4, fl_crc32c(seed, out, size - 4));
}

static bool is_sealed(const uint8_t *data, size_t size, uint32_t seed)
{
    return fl_format_load_u32(data + size - 4) == fl_crc32c(seed, data, size - 4);
}

static bool is_identity_of(const uint8_t *data, const struct fl_store_identity *identity)
{
    return fl_format_load_u32(data + AT_GROUP) == identity->group_id &&
           fl_format_load_u64(data + AT_NODE) == identity->node_id &&
           memcmp(data + AT_CLUSTER, identity->cluster_id, sizeof identity->cluster_id) == 0;
}

/* NULL, or what is wrong with a block that head_encode() began. */
static const char *head_fault(const uint8_t *data, const char magic[8],
                              const struct fl_store_identity *identity)
{
    if (memcmp(data, magic, 8) != 0)
        return "is not a file of this kind";
    if (fl_format_load_u32(data + AT_VERSION) != FL_STORE_VERSION)
        return "has a version that this program does not know";
    if (!is_identity_of(data, identity))
        return "belongs to another node";
    return NULL;
}

uint32_t fl_format_seed(const struct fl_store_identity *identity)
{
    uint8_t bytes[28];

    memcpy(bytes, identity->cluster_id, 16);
    fl_format_store_u32(bytes + 16, identity->group_id);
    fl_format_store_u64(bytes + 20, identity->node_id);
    return fl_crc32c(0, bytes, sizeof bytes);
}

void fl_format_identity_encode(const struct fl_store_identity *identity,
                               uint8_t out[FL_IDENTITY_SIZE])
{
    memset(out, 0, FL_IDENTITY_SIZE);
    head_encode(out, identity_magic, identity);
    fl_format_store_u64(out + AT_REST, identity->life);
    seal(out, FL_IDENTITY_SIZE, 0);
}

int fl_format_identity_decode(const uint8_t data[FL_IDENTITY_SIZE],
                              struct fl_store_identity *ret_identity)
{
    if (memcmp(data, identity_magic, 8) != 0 || !is_sealed(data, FL_IDENTITY_SIZE, 0))
        return FL_E_CORRUPT;
    if (fl_format_load_u32(data + AT_VERSION) != FL_STORE_VERSION)
        return FL_E_VERSION;
    memcpy(ret_identity->cluster_id, data + AT_CLUSTER, 16);
    ret_identity->group_id = fl_format_load_u32(data + AT_GROUP);
    ret_identity->node_id = fl_format_load_u64(data + AT_NODE);
    ret_identity->life = fl_format_load_u64(data + AT_REST);
    return 0;
}

void fl_format_peers_encode(const struct fl_store_identity *identity,
                            const struct fl_known_peer *peers, size_t n, struct fl_buf *out)
{
    uint8_t head[FL_PEERS_HEADER_SIZE];

    head_encode(head, peers_magic, identity);
    fl_format_store_u32(head + AT_REST, (uint32_t)n);
    fl_buf_put(out, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        fl_buf_put_u64(out, peers[i].id);
        fl_buf_put_u64(out, peers[i].life);
        fl_buf_put_u8(out, peers[i].is_removed);
    }
    fl_buf_put_u32(out, fl_crc32c(fl_format_seed(identity), out->data, out->len));
}

int fl_format_peers_decode(const struct fl_store_identity *identity, const uint8_t *data,
                           size_t size, struct fl_known_peer **ret_peers, size_t *ret_n)
{
    size_t n;

    if (size < FL_PEERS_HEADER_SIZE + 4 || head_fault(data, peers_magic, identity) != NULL ||
        !is_sealed(data, size, fl_format_seed(identity)))
        return FL_E_CORRUPT;
    n = fl_format_load_u32(data + AT_REST);
    if (size != FL_PEERS_HEADER_SIZE + n * FL_PEERS_ENTRY_SIZE + 4)
        return FL_E_CORRUPT;
    *ret_peers = fl_xcalloc(n, sizeof **ret_peers);
    *ret_n = n;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *entry = data + FL_PEERS_HEADER_SIZE + i * FL_PEERS_ENTRY_SIZE;

        (*ret_peers)[i] = (struct fl_known_peer){.id = fl_format_load_u64(entry),
                                                 .life = fl_format_load_u64(entry + 8),
                                                 .is_removed = entry[16] != 0};
    }
    return 0;
}

void fl_format_vote_encode(uint32_t seed, unsigned slot, const struct fl_vote *vote,
                           uint8_t out[FL_VOTE_SLOT_SIZE])
{
    memset(out, 0, FL_VOTE_SLOT_SIZE);
    memcpy(out, vote_magic, 8);
    fl_format_store_u32(out + 8, FL_STORE_VERSION);
    fl_format_store_u32(out + 12, slot);
    fl_format_store_u64(out + 16, vote->serial);
    fl_format_store_u64(out + 24, vote->term);
    fl_format_store_u64(out + 32, vote->voted_for);
    fl_format_store_u64(out + 40, vote->log_segment);
    fl_format_store_u64(out + 48, vote->log_end);
    seal(out, FL_VOTE_SLOT_SIZE, seed);
}

bool fl_format_vote_decode(uint32_t seed, unsigned slot, const uint8_t data[FL_VOTE_SLOT_SIZE],
                           struct fl_vote *ret_vote)
{
    if (memcmp(data, vote_magic, 8) != 0 || !is_sealed(data, FL_VOTE_SLOT_SIZE, seed))
        return false;
    if (fl_format_load_u32(data + 8) != FL_STORE_VERSION || fl_format_load_u32(data + 12) != slot)
        return false;
    ret_vote->serial = fl_format_load_u64(data + 16);
    ret_vote->term = fl_format_load_u64(data + 24);
    ret_vote->voted_for = fl_format_load_u64(data + 32);
    ret_vote->log_segment = fl_format_load_u64(data + 40);
    ret_vote->log_end = fl_format_load_u64(data + 48);
    return true;
}

void fl_format_segment_encode(const struct fl_store_identity *identity,
                              const struct fl_segment_header *header,
                              uint8_t out[FL_SEGMENT_HEADER_SIZE])
{
    memset(out, 0, FL_SEGMENT_HEADER_SIZE);
    head_encode(out, segment_magic, identity);
    fl_format_store_u64(out + AT_REST, header->number);
    fl_format_store_u64(out + AT_REST + 8, header->next_index);
    fl_format_store_u64(out + AT_REST + 16, header->previous_end);
    fl_format_store_u64(out + AT_REST + 24, header->size);
    fl_format_store_u32(out + AT_REST + 32, header->flags);
    seal(out, FL_SEGMENT_HEADER_SIZE, 0);
}

const char *fl_format_segment_decode(const struct fl_store_identity *identity,
                                     const uint8_t data[FL_SEGMENT_HEADER_SIZE],
                                     struct fl_segment_header *ret_header)
{
    const char *fault;

    if (!is_sealed(data, FL_SEGMENT_HEADER_SIZE, 0))
        return "has a damaged header (checksum)";
    fault = head_fault(data, segment_magic, identity);
    if (fault != NULL)
        return fault;
    ret_header->number = fl_format_load_u64(data + AT_REST);
    ret_header->next_index = fl_format_load_u64(data + AT_REST + 8);
    ret_header->previous_end = fl_format_load_u64(data + AT_REST + 16);
    ret_header->size = fl_format_load_u64(data + AT_REST + 24);
    ret_header->flags = fl_format_load_u32(data + AT_REST + 32);
    return NULL;
}

uint32_t fl_format_record_seed(uint32_t seed, uint64_t segment)
{
    uint8_t bytes[8];

    if (FL_BUG(STORE_CHECKSUM_WITHOUT_POSITION))
        return seed;
    fl_format_store_u64(bytes, segment);
    return fl_crc32c(seed, bytes, sizeof bytes);
}

/* A record: checksum 4, len 4, index 8, term 8, group_start 4, type 1, zero 3, data, zeros to a
 * multiple of 8. The checksum covers all of it behind itself. */
void fl_format_record_put(struct fl_buf *buf, uint8_t type, uint64_t index, uint64_t term,
                          const void *data, uint32_t len)
{
    size_t size = fl_format_record_size(len);
    uint8_t *p = fl_buf_reserve(buf, size);

    memset(p, 0, FL_RECORD_HEADER_SIZE);
    fl_format_store_u32(p + 4, len);
    fl_format_store_u64(p + 8, index);
    fl_format_store_u64(p + 16, term);
    p[28] = type;
    if (len != 0)
        memcpy(p + FL_RECORD_HEADER_SIZE, data, len);
    memset(p + FL_RECORD_HEADER_SIZE + len, 0, size - FL_RECORD_HEADER_SIZE - len);
    fl_buf_commit(buf, size);
}

size_t fl_format_record_peek_size(const uint8_t *record)
{
    return fl_format_record_size(fl_format_load_u32(record + 4));
}

uint64_t fl_format_record_peek_index(const uint8_t *record)
{
    return fl_format_load_u64(record + 8);
}

uint8_t fl_format_record_peek_type(const uint8_t *record)
{
    return record[28];
}

static uint32_t record_checksum(const uint8_t *record, size_t size, uint32_t segment_seed,
                                uint32_t offset)
{
    uint8_t place[4];

    if (!FL_BUG(STORE_CHECKSUM_WITHOUT_POSITION)) {
        fl_format_store_u32(place, offset);
        segment_seed = fl_crc32c(segment_seed, place, sizeof place);
    }
    return fl_crc32c(segment_seed, record + 4, size - 4);
}

void fl_format_record_place(uint8_t *record, uint32_t segment_seed, uint32_t offset,
                            uint32_t group_start)
{
    fl_format_store_u32(record + 24, group_start);
    fl_format_store_u32(
        record, record_checksum(record, fl_format_record_peek_size(record), segment_seed, offset));
}

static bool is_record_type(uint8_t type)
{
    return type == FL_ENTRY_COMMAND || type == FL_ENTRY_BARRIER || type == FL_ENTRY_CHANGE ||
           type == FL_RECORD_TRUNCATE || type == FL_RECORD_MARK;
}

bool fl_format_record_decode(const uint8_t *segment, size_t size, size_t offset,
                             uint32_t segment_seed, struct fl_record *ret_record)
{
    const uint8_t *p = segment + offset;
    struct fl_record record;

    if (offset > size || size - offset < FL_RECORD_HEADER_SIZE)
        return false;
    record.len = fl_format_load_u32(p + 4);
    record.index = fl_format_load_u64(p + 8);
    record.term = fl_format_load_u64(p + 16);
    record.group_start = fl_format_load_u32(p + 24);
    record.type = p[28];
    record.data = p + FL_RECORD_HEADER_SIZE;
    if (!is_record_type(record.type) || record.group_start > offset ||
        fl_format_record_size(record.len) > size - offset)
        return false;
    record.size = (uint32_t)fl_format_record_size(record.len);
    if (fl_format_load_u32(p) != record_checksum(p, record.size, segment_seed, (uint32_t)offset))
        return false;
    *ret_record = record;
    return true;
}

void fl_format_snapshot_encode(const struct fl_store_identity *identity,
                               const struct fl_snapshot *meta, struct fl_buf *out)
{
    uint8_t head[FL_SNAPSHOT_HEADER_SIZE] = {0};
    size_t start = out->len;

    head_encode(head, snapshot_magic, identity);
    fl_format_store_u64(head + AT_REST, meta->index);
    fl_format_store_u64(head + AT_REST + 8, meta->term);
    fl_format_store_u64(head + AT_REST + 16, meta->configuration_index);
    fl_format_store_u32(head + AT_REST + 24, meta->configuration_len);
    seal(head, sizeof head, 0);
    fl_buf_put(out, head, sizeof head);
    fl_buf_put(out, meta->configuration, meta->configuration_len);
    fl_buf_put_u32(out, fl_crc32c(0, out->data + start, out->len - start));
}

const char *fl_format_snapshot_decode(const struct fl_store_identity *identity,
                                      const uint8_t data[FL_SNAPSHOT_HEADER_SIZE],
                                      struct fl_snapshot_header *ret_header)
{
    const char *fault;

    if (!is_sealed(data, FL_SNAPSHOT_HEADER_SIZE, 0))
        return "has a damaged header (checksum)";
    fault = head_fault(data, snapshot_magic, identity);
    if (fault != NULL)
        return fault;
    ret_header->index = fl_format_load_u64(data + AT_REST);
    ret_header->term = fl_format_load_u64(data + AT_REST + 8);
    ret_header->configuration_index = fl_format_load_u64(data + AT_REST + 16);
    ret_header->configuration_len = fl_format_load_u32(data + AT_REST + 24);
    if (ret_header->configuration_len > FL_SNAPSHOT_CONFIGURATION_MAX)
        return "claims a configuration of impossible size";
    return NULL;
}

uint32_t fl_format_snapshot_seed(uint32_t seed, uint64_t index, uint64_t term)
{
    uint8_t bytes[16];

    fl_format_store_u64(bytes, index);
    fl_format_store_u64(bytes + 8, term);
    return fl_crc32c(seed, bytes, sizeof bytes);
}

uint32_t fl_format_chunk_checksum(uint32_t snapshot_seed, uint64_t offset, uint32_t len,
                                  const void *data, size_t size)
{
    uint8_t place[12];

    fl_format_store_u64(place, offset);
    fl_format_store_u32(place + 8, len);
    return fl_crc32c(fl_crc32c(snapshot_seed, place, sizeof place), data, size);
}
