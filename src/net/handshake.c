#include "net/handshake.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"

#define MAGIC 0x50724c46u /* "FLrP" */

void fl_handshake_cluster_id(const char *cluster_name, uint8_t ret_id[16])
{
    /* Any two different keys do; they are part of the protocol. */
    struct fl_hash_key keys[2] = {{1, 2}, {3, 4}};

    for (int i = 0; i < 2; i++) {
        uint64_t half = fl_hash_siphash(keys[i], cluster_name, strlen(cluster_name));

        for (int byte = 0; byte < 8; byte++)
            ret_id[8 * i + byte] = (uint8_t)(half >> (8 * byte));
    }
}

void fl_handshake_encode(struct fl_buf *buf, const struct fl_handshake *handshake)
{
    fl_buf_put_u32(buf, MAGIC);
    fl_buf_put_u16(buf, handshake->version);
    fl_buf_put_u8(buf, (uint8_t)handshake->role);
    fl_buf_put(buf, handshake->cluster_id, sizeof handshake->cluster_id);
    fl_buf_put_u32(buf, handshake->group_id);
    fl_buf_put_u64(buf, handshake->from);
    fl_buf_put_u64(buf, handshake->to);
    fl_buf_put_u64(buf, handshake->life);
    fl_buf_put_u16(buf, handshake->level);
    fl_buf_put_u8(buf, handshake->verdict);
    fl_buf_put_str(buf, fl_str_from(handshake->address));
    fl_buf_put_u8(buf, handshake->n_known);
    for (unsigned i = 0; i < handshake->n_known; i++) {
        fl_buf_put_u64(buf, handshake->known[i].id);
        fl_buf_put_u64(buf, handshake->known[i].life);
    }
}

static void read_node_part(struct fl_reader *r, struct fl_handshake *handshake)
{
    struct fl_str address;

    handshake->life = fl_reader_u64(r);
    handshake->level = fl_reader_u16(r);
    handshake->verdict = fl_reader_u8(r);
    address = fl_reader_str(r, FL_HANDSHAKE_ADDRESS_MAX);
    if (!fl_reader_failed(r) && !fl_str_has_control(address))
        memcpy(handshake->address, address.data, address.len);
    handshake->n_known = fl_reader_u8(r);
    if (handshake->n_known > FL_HANDSHAKE_KNOWN_MAX)
        r->failed = true;
    for (unsigned i = 0; i < handshake->n_known && !fl_reader_failed(r); i++) {
        handshake->known[i].id = fl_reader_u64(r);
        handshake->known[i].life = fl_reader_u64(r);
    }
}

int fl_handshake_decode(const void *data, size_t len, struct fl_handshake *ret_handshake)
{
    struct fl_reader r = fl_reader_from(data, len);
    struct fl_handshake handshake = {0};
    const uint8_t *id;

    if (fl_reader_u32(&r) != MAGIC)
        return FL_E_PROTOCOL;
    handshake.version = fl_reader_u16(&r);
    if (!fl_reader_failed(&r) && handshake.version != FL_HANDSHAKE_VERSION)
        return FL_E_VERSION;
    handshake.role = (enum fl_handshake_role)fl_reader_u8(&r);
    id = fl_reader_bytes(&r, sizeof handshake.cluster_id);
    if (id != NULL)
        memcpy(handshake.cluster_id, id, sizeof handshake.cluster_id);
    handshake.group_id = fl_reader_u32(&r);
    handshake.from = fl_reader_u64(&r);
    handshake.to = fl_reader_u64(&r);
    read_node_part(&r, &handshake);
    if (fl_reader_end(&r) < 0 || handshake.role < FL_SPEAKS_RAFT ||
        handshake.role > FL_SPEAKS_SNAPSHOT)
        return FL_E_PROTOCOL;
    *ret_handshake = handshake;
    return FL_OK;
}

const char *fl_handshake_fault(const struct fl_handshake *theirs, const uint8_t cluster_id[16],
                               uint64_t self, uint64_t expected)
{
    if (memcmp(theirs->cluster_id, cluster_id, sizeof theirs->cluster_id) != 0)
        return "it belongs to another cluster (its cluster name differs)";
    if (expected != 0 && theirs->from != expected)
        return "it is another node than its address promises";
    if (theirs->to != 0 && theirs->to != self)
        return "it wants another node than this one";
    return NULL;
}
