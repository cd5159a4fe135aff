#include "raft/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"

enum { FLAG_OLD = 1, FLAG_PRE_VOTE = 2, FLAG_DISRUPTS = 4, FLAG_GRANTED = 8, FLAGS = 15 };

/* Type, term and length: the least that an entry takes. */
#define ENTRY_HEAD_BYTES 13
#define CHECKSUM_BYTES   4

static uint8_t flags_of(const struct fl_raft_message *m)
{
    return (uint8_t)((m->is_old ? FLAG_OLD : 0) | (m->is_pre_vote ? FLAG_PRE_VOTE : 0) |
                     (m->disrupts ? FLAG_DISRUPTS : 0) | (m->is_granted ? FLAG_GRANTED : 0));
}

static void put_entries(struct fl_buf *buf, const struct fl_raft_message *m)
{
    fl_buf_put_u32(buf, m->n);
    for (unsigned i = 0; i < m->n; i++) {
        const struct fl_entry *entry = m->entries[i];

        fl_buf_put_u8(buf, entry->type);
        fl_buf_put_u64(buf, entry->term);
        fl_buf_put_u32(buf, entry->len);
        fl_buf_put(buf, entry->data, entry->len);
    }
}

static void put_snapshot(struct fl_buf *buf, const struct fl_snapshot *s)
{
    fl_buf_put_u64(buf, s->index);
    fl_buf_put_u64(buf, s->term);
    fl_buf_put_u64(buf, s->configuration_index);
    fl_buf_put_u32(buf, s->configuration_len);
    fl_buf_put(buf, s->configuration, s->configuration_len);
}

void fl_raft_message_encode(struct fl_buf *buf, const struct fl_raft_message *m)
{
    size_t start = buf->len;

    fl_buf_put_u8(buf, FL_RAFT_MESSAGE_VERSION);
    fl_buf_put_u8(buf, m->type);
    fl_buf_put_u8(buf, flags_of(m));
    fl_buf_put_u64(buf, m->term);
    switch (m->type) {
    case FL_RAFT_APPEND:
        fl_buf_put_u64(buf, m->log_index);
        fl_buf_put_u64(buf, m->log_term);
        fl_buf_put_u64(buf, m->commit);
        put_entries(buf, m);
        break;
    case FL_RAFT_APPEND_RESULT:
        fl_buf_put_u64(buf, m->log_index);
        fl_buf_put_u64(buf, m->rejected);
        fl_buf_put_u16(buf, m->features);
        fl_buf_put_u16(buf, m->capacity);
        break;
    case FL_RAFT_VOTE:
    case FL_RAFT_TIMEOUT_NOW:
        fl_buf_put_u64(buf, m->log_index);
        fl_buf_put_u64(buf, m->log_term);
        break;
    case FL_RAFT_VOTE_RESULT:
        fl_buf_put_u16(buf, m->features);
        fl_buf_put_u16(buf, m->capacity);
        break;
    case FL_RAFT_INSTALL_SNAPSHOT:
        put_snapshot(buf, m->snapshot);
        break;
    case FL_RAFT_PING:
    case FL_RAFT_PONG:
        fl_buf_put_u64(buf, m->seq);
        break;
    default:
        FL_UNREACHABLE();
    }
    fl_buf_put_u32(buf, fl_crc32c(0, buf->data + start, buf->len - start));
}

static int read_entries(struct fl_reader *r, struct fl_raft_message *m)
{
    uint32_t n = fl_reader_u32(r);

    /* Each entry has a head: a count cannot ask for more memory than its bytes came with. */
    if (n > fl_reader_left(r) / ENTRY_HEAD_BYTES)
        return FL_E_MALFORMED;
    if (n == 0)
        return FL_OK;
    m->entries = fl_xcalloc(n, sizeof(struct fl_entry *));
    for (; m->n < n; m->n++) {
        uint8_t type = fl_reader_u8(r);
        uint64_t term = fl_reader_u64(r);
        uint32_t len = fl_reader_u32(r);
        const uint8_t *data = fl_reader_bytes(r, len);

        if (fl_reader_failed(r))
            return FL_E_MALFORMED;
        if (len > FL_RAFT_ENTRY_BYTES_MAX)
            return FL_E_TOO_BIG;
        m->entries[m->n] = fl_entry_new(type, term, data, len);
    }
    return FL_OK;
}

static int read_snapshot(struct fl_reader *r, struct fl_raft_message *m)
{
    uint64_t index = fl_reader_u64(r);
    uint64_t term = fl_reader_u64(r);
    uint64_t configuration_index = fl_reader_u64(r);
    uint32_t len = fl_reader_u32(r);
    const uint8_t *configuration = fl_reader_bytes(r, len);

    if (fl_reader_failed(r))
        return FL_E_MALFORMED;
    m->snapshot = fl_snapshot_new(index, term, configuration_index, configuration, len);
    return FL_OK;
}

static int read_body(struct fl_reader *r, struct fl_raft_message *m)
{
    switch (m->type) {
    case FL_RAFT_APPEND:
        m->log_index = fl_reader_u64(r);
        m->log_term = fl_reader_u64(r);
        m->commit = fl_reader_u64(r);
        return read_entries(r, m);
    case FL_RAFT_APPEND_RESULT:
        m->log_index = fl_reader_u64(r);
        m->rejected = fl_reader_u64(r);
        m->features = fl_reader_u16(r);
        m->capacity = fl_reader_u16(r);
        return FL_OK;
    case FL_RAFT_VOTE:
    case FL_RAFT_TIMEOUT_NOW:
        m->log_index = fl_reader_u64(r);
        m->log_term = fl_reader_u64(r);
        return FL_OK;
    case FL_RAFT_VOTE_RESULT:
        m->features = fl_reader_u16(r);
        m->capacity = fl_reader_u16(r);
        return FL_OK;
    case FL_RAFT_INSTALL_SNAPSHOT:
        return read_snapshot(r, m);
    case FL_RAFT_PING:
    case FL_RAFT_PONG:
        m->seq = fl_reader_u64(r);
        return FL_OK;
    default:
        return FL_E_MALFORMED;
    }
}

int fl_raft_message_decode(const void *data, size_t len, struct fl_raft_message **ret_message)
{
    struct fl_raft_message *m;
    struct fl_reader r, tail;
    uint8_t flags;
    int rv;

    if (len < CHECKSUM_BYTES)
        return FL_E_MALFORMED;
    len -= CHECKSUM_BYTES;
    tail = fl_reader_from((const uint8_t *)data + len, CHECKSUM_BYTES);
    if (fl_reader_u32(&tail) != fl_crc32c(0, data, len))
        return FL_E_CORRUPT;
    r = fl_reader_from(data, len);
    if (fl_reader_u8(&r) != FL_RAFT_MESSAGE_VERSION)
        return FL_E_VERSION;
    m = fl_xcalloc(1, sizeof *m);
    m->type = fl_reader_u8(&r);
    flags = fl_reader_u8(&r);
    m->is_old = (flags & FLAG_OLD) != 0;
    m->is_pre_vote = (flags & FLAG_PRE_VOTE) != 0;
    m->disrupts = (flags & FLAG_DISRUPTS) != 0;
    m->is_granted = (flags & FLAG_GRANTED) != 0;
    m->term = fl_reader_u64(&r);
    rv = (flags & ~FLAGS) != 0 ? FL_E_MALFORMED : read_body(&r, m);
    if (rv == FL_OK)
        rv = fl_reader_end(&r);
    if (rv == FL_OK)
        rv = fl_raft_message_check(m);
    if (rv < 0) {
        fl_raft_message_free(m);
        return rv;
    }
    *ret_message = m;
    return FL_OK;
}

struct fl_raft_message *fl_raft_message_copy(const struct fl_raft_message *message)
{
    struct fl_raft_message *copy = fl_xmemdup(message, sizeof *message);

    copy->entries = NULL;
    if (message->n != 0)
        copy->entries = fl_xcalloc(message->n, sizeof(struct fl_entry *));
    for (unsigned i = 0; i < message->n; i++)
        copy->entries[i] = fl_entry_ref(message->entries[i]);
    if (message->snapshot != NULL)
        copy->snapshot = fl_snapshot_ref(message->snapshot);
    return copy;
}

void fl_raft_message_free(struct fl_raft_message *message)
{
    if (message == NULL)
        return;
    for (unsigned i = 0; i < message->n; i++)
        fl_entry_unref(message->entries[i]);
    free(message->entries);
    fl_snapshot_unref(message->snapshot);
    free(message);
}

static bool is_position(uint64_t index, uint64_t term, uint64_t term_max)
{
    return (index == 0) == (term == 0) && term <= term_max && index < INT64_MAX;
}

static int check_append(const struct fl_raft_message *m)
{
    uint64_t term = m->log_term;

    if (!is_position(m->log_index, m->log_term, m->term))
        return FL_E_MALFORMED;
    for (unsigned i = 0; i < m->n; i++) {
        const struct fl_entry *entry = m->entries[i];

        if (entry->term < term || entry->term == 0 || entry->term > m->term)
            return FL_E_MALFORMED;
        if (entry->type < FL_ENTRY_COMMAND || entry->type > FL_ENTRY_CHANGE)
            return FL_E_MALFORMED;
        if (entry->type == FL_ENTRY_CHANGE &&
            fl_raft_configuration_check(entry->data, entry->len) < 0)
            return FL_E_MALFORMED;
        term = entry->term;
    }
    return FL_OK;
}

static int check_snapshot(const struct fl_raft_message *m)
{
    const struct fl_snapshot *s = m->snapshot;

    if (s == NULL || s->index == 0 || !is_position(s->index, s->term, m->term) ||
        s->configuration_index == 0 || s->configuration_index > s->index)
        return FL_E_MALFORMED;
    return fl_raft_configuration_check(s->configuration, s->configuration_len);
}

int fl_raft_message_check(const struct fl_raft_message *m)
{
    switch (m->type) {
    case FL_RAFT_APPEND:
        return m->term == 0 ? FL_E_MALFORMED : check_append(m);
    case FL_RAFT_INSTALL_SNAPSHOT:
        return m->term == 0 ? FL_E_MALFORMED : check_snapshot(m);
    case FL_RAFT_VOTE:
    case FL_RAFT_TIMEOUT_NOW:
        return is_position(m->log_index, m->log_term, m->term) ? FL_OK : FL_E_MALFORMED;
    case FL_RAFT_APPEND_RESULT:
        return m->log_index < INT64_MAX && m->rejected < INT64_MAX ? FL_OK : FL_E_MALFORMED;
    case FL_RAFT_VOTE_RESULT:
    case FL_RAFT_PING:
    case FL_RAFT_PONG:
        return FL_OK;
    default:
        return FL_E_MALFORMED;
    }
}

/* libraft's format: version, count, then id, address with its 0, role; zeros up to a word. */
int fl_raft_configuration_check(const void *data, size_t len)
{
    struct fl_reader r = fl_reader_from(data, len);
    uint64_t ids[FL_RAFT_SERVERS_MAX];
    uint64_t n;

    if (len > FL_RAFT_CONFIGURATION_BYTES_MAX || fl_reader_u8(&r) != 1)
        return FL_E_MALFORMED;
    n = fl_reader_u64(&r);
    if (n > FL_RAFT_SERVERS_MAX)
        return FL_E_MALFORMED;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *end;

        ids[i] = fl_reader_u64(&r);
        end = memchr(r.data + r.at, 0, fl_reader_left(&r));
        if (fl_reader_failed(&r) || ids[i] == 0 || end == NULL)
            return FL_E_MALFORMED;
        (void)fl_reader_bytes(&r, (size_t)(end - (r.data + r.at)) + 1);
        if (fl_reader_u8(&r) > 2)
            return FL_E_MALFORMED;
        for (uint64_t k = 0; k < i; k++)
            if (ids[k] == ids[i])
                return FL_E_MALFORMED;
    }
    return fl_reader_failed(&r) || fl_reader_left(&r) >= 8 ? FL_E_MALFORMED : FL_OK;
}
