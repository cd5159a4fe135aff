#include "node/message.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "node/codec.h"

/* What travels for each type, in the order of this list. */
enum field {
    F_SESSION = 1 << 0,
    F_REQUEST_ID = 1 << 1,
    F_NAME = 1 << 2,
    F_AFTER = 1 << 3,
    F_TOKEN = 1 << 4,
    F_MODE = 1 << 5, /* with limit */
    F_WAIT = 1 << 6,
    F_OPTIONS = 1 << 7, /* client, ttl_ms, lock_delay_ms */
    F_MAX = 1 << 8,
    F_FLAGS = 1 << 9,
    F_FROM_INDEX = 1 << 10,
    F_NODE_ID = 1 << 11,
    F_WHO = 1 << 12,   /* actor, reason */
    F_ASKER = 1 << 13, /* only if there is one: a bit of mode, or of the flags, says so */
};

static const uint32_t request_fields[] = {
    [FL_REQ_OPEN_SESSION] = F_SESSION | F_OPTIONS | F_FLAGS,
    [FL_REQ_RESUME_SESSION] = F_SESSION,
    [FL_REQ_KEEP_ALIVE] = F_SESSION,
    [FL_REQ_CLOSE_SESSION] = F_SESSION,
    [FL_REQ_DETACH] = F_SESSION | F_FLAGS,
    [FL_REQ_ACQUIRE] = F_SESSION | F_REQUEST_ID | F_NAME | F_MODE | F_WAIT | F_ASKER,
    [FL_REQ_RELEASE] = F_SESSION | F_NAME | F_TOKEN,
    [FL_REQ_CANCEL] = F_SESSION | F_REQUEST_ID | F_FLAGS | F_ASKER,
    [FL_REQ_DESCRIBE] = F_NAME | F_MAX | F_FLAGS,
    [FL_REQ_LIST] = F_NAME | F_AFTER | F_MAX | F_FLAGS,
    [FL_REQ_SESSIONS] = F_SESSION | F_MAX | F_FLAGS,
    [FL_REQ_WAITS] = F_MAX | F_FLAGS,
    [FL_REQ_FORCE_RELEASE] = F_NAME | F_TOKEN | F_WHO,
    [FL_REQ_END_SESSION] = F_SESSION | F_WHO,
    [FL_REQ_STATUS] = 0,
    [FL_REQ_WATCH] = F_NAME | F_FLAGS | F_FROM_INDEX,
    [FL_REQ_UNWATCH] = F_REQUEST_ID,
    [FL_REQ_TRANSFER_LEADER] = F_NODE_ID,
    [FL_REQ_ADD_NODE] = F_NAME | F_NODE_ID,
    [FL_REQ_PROMOTE_NODE] = F_NODE_ID,
    [FL_REQ_REMOVE_NODE] = F_NODE_ID,
    [FL_REQ_BACKUP] = 0,
    [FL_REQ_BACKUP_READ] = F_REQUEST_ID | F_NODE_ID | F_FROM_INDEX,
};

enum {
    FLAG_ABANDON = 1,
    FLAG_STALE_OK = 2,
    FLAG_RELEASE = 4,
    FLAG_PREFIX = 8,
    FLAG_ASKER = 16,
    FLAGS_ALL = 31
};
enum { MODE_ASKER = 0x80 };

static uint8_t flags_of(const struct fl_request *q)
{
    return (uint8_t)((q->abandon ? FLAG_ABANDON : 0) | (q->stale_ok ? FLAG_STALE_OK : 0) |
                     (q->release_on_disconnect ? FLAG_RELEASE : 0) |
                     (q->is_prefix ? FLAG_PREFIX : 0) | (q->asker != 0 ? FLAG_ASKER : 0));
}

void fl_request_encode(struct fl_buf *buf, const struct fl_request *q)
{
    uint32_t fields;

    FL_REQUIRE(q->type >= FL_REQ_OPEN_SESSION && q->type < FL_ARRAY_LEN(request_fields));
    fields = request_fields[q->type];
    fl_buf_put_u8(buf, (uint8_t)q->type);
    fl_buf_put_varint(buf, q->tag);
    if (fields & F_SESSION)
        fl_codec_put_session(buf, q->session);
    if (fields & F_REQUEST_ID)
        fl_buf_put_varint(buf, q->request_id);
    if (fields & F_NAME)
        fl_buf_put_str(buf, q->name);
    if (fields & F_AFTER)
        fl_buf_put_str(buf, q->after);
    if (fields & F_TOKEN)
        fl_buf_put_varint(buf, q->token);
    if (fields & F_MODE) {
        fl_buf_put_u8(buf, (uint8_t)(q->mode | (q->asker != 0 ? MODE_ASKER : 0)));
        fl_buf_put_varint(buf, q->limit);
    }
    if (fields & F_WAIT)
        fl_buf_put_varint(buf, q->wait_ms);
    if (fields & F_OPTIONS) {
        fl_buf_put_str(buf, q->client);
        fl_buf_put_varint(buf, q->ttl_ms);
        fl_buf_put_varint(buf, q->lock_delay_ms);
    }
    if (fields & F_MAX)
        fl_buf_put_varint(buf, q->max);
    if (fields & F_FLAGS)
        fl_buf_put_u8(buf, flags_of(q));
    if (fields & F_FROM_INDEX)
        fl_buf_put_varint(buf, q->from_index);
    if (fields & F_NODE_ID)
        fl_buf_put_varint(buf, q->node_id);
    if (fields & F_WHO) {
        fl_buf_put_str(buf, q->actor);
        fl_buf_put_str(buf, q->reason);
    }
    if ((fields & F_ASKER) && q->asker != 0)
        fl_buf_put_u16(buf, q->asker);
}

static void read_fields(struct fl_reader *r, uint32_t fields, struct fl_request *q)
{
    uint8_t flags = 0, mode = 0;

    if (fields & F_SESSION)
        q->session = fl_codec_session(r);
    if (fields & F_REQUEST_ID)
        q->request_id = fl_reader_varint(r);
    if (fields & F_NAME)
        q->name = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    if (fields & F_AFTER)
        q->after = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    if (fields & F_TOKEN)
        q->token = fl_reader_varint(r);
    if (fields & F_MODE) {
        mode = fl_reader_u8(r);
        q->mode = (enum fl_mode)(mode & ~MODE_ASKER);
        q->limit = fl_codec_u32(r);
    }
    if (fields & F_WAIT)
        q->wait_ms = fl_codec_u32(r);
    if (fields & F_OPTIONS) {
        q->client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        q->ttl_ms = fl_codec_u32(r);
        q->lock_delay_ms = fl_codec_u32(r);
    }
    if (fields & F_MAX)
        q->max = fl_codec_u32(r);
    if (fields & F_FLAGS)
        flags = fl_codec_u8(r, FLAGS_ALL);
    if (fields & F_FROM_INDEX)
        q->from_index = fl_reader_varint(r);
    if (fields & F_NODE_ID)
        q->node_id = fl_reader_varint(r);
    if (fields & F_WHO) {
        q->actor = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        q->reason = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    }
    if ((fields & F_ASKER) && ((mode & MODE_ASKER) || (flags & FLAG_ASKER)))
        q->asker = fl_reader_u16(r);
    q->abandon = flags & FLAG_ABANDON;
    q->stale_ok = flags & FLAG_STALE_OK;
    q->release_on_disconnect = flags & FLAG_RELEASE;
    q->is_prefix = flags & FLAG_PREFIX;
}

int fl_request_decode(const void *data, size_t len, struct fl_request *ret_request)
{
    struct fl_reader r = fl_reader_from(data, len);
    struct fl_request q = {0};
    uint8_t type = fl_reader_u8(&r);
    int result;

    if (fl_reader_failed(&r) || type == 0)
        return FL_E_MALFORMED;
    if (type >= FL_ARRAY_LEN(request_fields))
        return FL_E_VERSION;
    q.type = (enum fl_request_type)type;
    q.tag = fl_reader_varint(&r);
    read_fields(&r, request_fields[type], &q);
    result = fl_reader_end(&r);
    if (result == FL_OK)
        *ret_request = q;
    return result;
}

/* --- Pushes --- */

enum push_field {
    P_LEADER = 1 << 0, /* leader_id, term */
    P_TAG = 1 << 1,
    P_INDEX = 1 << 2,
    P_SESSION = 1 << 3,
    P_REQUEST_ID = 1 << 4,
    P_NAME = 1 << 5, /* with token */
    P_CAUSE = 1 << 6,
    P_WAITERS = 1 << 7,
    P_HOLDER = 1 << 8, /* client, mode, granted, present */
    P_WHO = 1 << 9,    /* actor, reason */
    P_TEXT = 1 << 10,
};

static const uint32_t push_fields[] = {
    [FL_PUSH_LEADER] = P_LEADER,
    [FL_PUSH_LOST] = P_INDEX | P_SESSION | P_REQUEST_ID | P_NAME | P_CAUSE | P_WHO,
    [FL_PUSH_SESSION_END] = P_INDEX | P_SESSION | P_CAUSE | P_WHO,
    [FL_PUSH_CONTENDED] = P_INDEX | P_SESSION | P_NAME | P_WAITERS,
    [FL_PUSH_WATCH] = P_TAG | P_INDEX | P_SESSION | P_NAME | P_CAUSE | P_HOLDER,
    [FL_PUSH_WATCH_END] = P_TAG | P_TEXT,
    [FL_PUSH_CAUGHT_UP] = P_TAG | P_INDEX,
    [FL_PUSH_MEMBERS] = P_INDEX | P_TEXT,
};

void fl_push_encode(struct fl_buf *buf, const struct fl_push *p)
{
    uint32_t fields;

    FL_REQUIRE(p->type >= FL_PUSH_LEADER && p->type < FL_ARRAY_LEN(push_fields));
    fields = push_fields[p->type];
    fl_buf_put_u8(buf, (uint8_t)p->type);
    if (fields & P_LEADER) {
        fl_buf_put_varint(buf, p->leader_id);
        fl_buf_put_varint(buf, p->term);
    }
    if (fields & P_TAG)
        fl_buf_put_varint(buf, p->tag);
    if (fields & P_INDEX)
        fl_buf_put_varint(buf, p->index);
    if (fields & P_SESSION)
        fl_codec_put_session(buf, p->session);
    if (fields & P_REQUEST_ID)
        fl_buf_put_varint(buf, p->request_id);
    if (fields & P_NAME) {
        fl_buf_put_str(buf, p->name);
        fl_buf_put_varint(buf, p->token);
    }
    if (fields & P_CAUSE)
        fl_buf_put_u8(buf, (uint8_t)p->cause);
    if (fields & P_WAITERS)
        fl_buf_put_varint(buf, p->waiters);
    if (fields & P_HOLDER) {
        fl_buf_put_str(buf, p->client);
        fl_buf_put_u8(buf, (uint8_t)p->mode);
        fl_buf_put_u8(buf, (uint8_t)((p->granted ? 1 : 0) | (p->present ? 2 : 0)));
    }
    if (fields & P_WHO) {
        fl_buf_put_str(buf, p->actor);
        fl_buf_put_str(buf, p->reason);
    }
    if (fields & P_TEXT)
        fl_buf_put_str(buf, p->text);
}

static void read_push_fields(struct fl_reader *r, uint32_t fields, struct fl_push *p)
{
    if (fields & P_LEADER) {
        p->leader_id = fl_reader_varint(r);
        p->term = fl_reader_varint(r);
    }
    if (fields & P_TAG)
        p->tag = fl_reader_varint(r);
    if (fields & P_INDEX)
        p->index = fl_reader_varint(r);
    if (fields & P_SESSION)
        p->session = fl_codec_session(r);
    if (fields & P_REQUEST_ID)
        p->request_id = fl_reader_varint(r);
    if (fields & P_NAME) {
        p->name = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        p->token = fl_reader_varint(r);
    }
    if (fields & P_CAUSE)
        p->cause = (enum fl_cause)fl_codec_u8(r, FL_CAUSE_FORCED);
    if (fields & P_WAITERS)
        p->waiters = fl_codec_u32(r);
    if (fields & P_HOLDER) {
        uint8_t flags;

        p->client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        p->mode = (enum fl_mode)fl_codec_u8(r, FL_MODE_COUNTED);
        flags = fl_codec_u8(r, 3);
        p->granted = flags & 1;
        p->present = flags & 2;
    }
    if (fields & P_WHO) {
        p->actor = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        p->reason = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    }
    if (fields & P_TEXT)
        p->text = fl_reader_str(r, FL_MESSAGE_STR_MAX);
}

int fl_push_decode(const void *data, size_t len, struct fl_push *ret_push)
{
    struct fl_reader r = fl_reader_from(data, len);
    struct fl_push p = {0};
    uint8_t type = fl_reader_u8(&r);
    int result;

    if (fl_reader_failed(&r) || type == 0)
        return FL_E_MALFORMED;
    if (type >= FL_ARRAY_LEN(push_fields))
        return FL_E_VERSION;
    p.type = (enum fl_push_type)type;
    read_push_fields(&r, push_fields[type], &p);
    result = fl_reader_end(&r);
    if (result == FL_OK)
        *ret_push = p;
    return result;
}
