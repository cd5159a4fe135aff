/* The codec of replies: a head, then by status why not, or the answer's fields by type. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "node/codec.h"
#include "node/message.h"

/* The least bytes of one element: with it a count that the rest of the message cannot hold is
 * refused before memory is taken for it. */
#define REQUEST_BYTES_MIN 23
#define NAME_BYTES_MIN    8
#define SESSION_BYTES_MIN 22

static void put_requests(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_varint(buf, reply->n_requests);
    for (size_t i = 0; i < reply->n_requests; i++) {
        const struct fl_reply_request *q = &reply->requests[i];

        fl_codec_put_session(buf, q->session);
        fl_buf_put_str(buf, q->client);
        fl_buf_put_str(buf, q->name);
        fl_buf_put_varint(buf, q->request_id);
        fl_buf_put_u8(buf, (uint8_t)q->mode);
        fl_buf_put_varint(buf, q->token);
        fl_buf_put_varint(buf, q->for_ms);
        fl_buf_put_varint(buf, q->lease_left_ms);
    }
}

static size_t read_count(struct fl_reader *r, size_t bytes_min)
{
    uint64_t n = fl_reader_varint(r);

    if (n > fl_reader_left(r) / bytes_min)
        r->failed = true;
    return r->failed ? 0 : (size_t)n;
}

static void read_requests(struct fl_reader *r, struct fl_reply *reply)
{
    size_t n = read_count(r, REQUEST_BYTES_MIN);

    if (n == 0)
        return;
    reply->requests = fl_xcalloc(n, sizeof *reply->requests);
    reply->n_requests = n;
    for (size_t i = 0; i < n; i++) {
        struct fl_reply_request *q = &reply->requests[i];

        q->session = fl_codec_session(r);
        q->client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        q->name = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        q->request_id = fl_reader_varint(r);
        q->mode = (enum fl_mode)fl_codec_u8(r, FL_MODE_COUNTED);
        q->token = fl_reader_varint(r);
        q->for_ms = fl_codec_u32(r);
        q->lease_left_ms = fl_codec_u32(r);
    }
}

static void put_names(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_varint(buf, reply->n_names);
    for (size_t i = 0; i < reply->n_names; i++) {
        const struct fl_reply_name *name = &reply->names[i];

        fl_buf_put_str(buf, name->name);
        fl_buf_put_u8(buf, (uint8_t)name->mode);
        fl_buf_put_varint(buf, name->limit);
        fl_buf_put_varint(buf, name->holders);
        fl_buf_put_varint(buf, name->waiters);
        fl_buf_put_str(buf, name->holder_client);
        fl_buf_put_varint(buf, name->token);
        fl_buf_put_varint(buf, name->held_for_ms);
    }
}

static void read_names(struct fl_reader *r, struct fl_reply *reply)
{
    size_t n = read_count(r, NAME_BYTES_MIN);

    if (n == 0)
        return;
    reply->names = fl_xcalloc(n, sizeof *reply->names);
    reply->n_names = n;
    for (size_t i = 0; i < n; i++) {
        struct fl_reply_name *name = &reply->names[i];

        name->name = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        name->mode = (enum fl_mode)fl_codec_u8(r, FL_MODE_COUNTED);
        name->limit = fl_codec_u32(r);
        name->holders = fl_codec_u32(r);
        name->waiters = fl_codec_u32(r);
        name->holder_client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        name->token = fl_reader_varint(r);
        name->held_for_ms = fl_codec_u32(r);
    }
}

static void put_sessions(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_varint(buf, reply->n_sessions);
    for (size_t i = 0; i < reply->n_sessions; i++) {
        const struct fl_reply_session *s = &reply->sessions[i];

        fl_codec_put_session(buf, s->id);
        fl_buf_put_str(buf, s->client);
        fl_buf_put_varint(buf, s->ttl_ms);
        fl_buf_put_varint(buf, s->holds);
        fl_buf_put_varint(buf, s->waits);
        fl_buf_put_varint(buf, s->silent_ms);
        fl_buf_put_varint(buf, s->age_ms);
    }
}

static void read_sessions(struct fl_reader *r, struct fl_reply *reply)
{
    size_t n = read_count(r, SESSION_BYTES_MIN);

    if (n == 0)
        return;
    reply->sessions = fl_xcalloc(n, sizeof *reply->sessions);
    reply->n_sessions = n;
    for (size_t i = 0; i < n; i++) {
        struct fl_reply_session *s = &reply->sessions[i];

        s->id = fl_codec_session(r);
        s->client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        s->ttl_ms = fl_codec_u32(r);
        s->holds = fl_codec_u32(r);
        s->waits = fl_codec_u32(r);
        s->silent_ms = fl_codec_u32(r);
        s->age_ms = fl_reader_varint(r);
    }
}

static void put_info(struct fl_buf *buf, const struct fl_status_info *info)
{
    fl_buf_put_varint(buf, info->node_id);
    fl_buf_put_varint(buf, info->leader_id);
    fl_buf_put_varint(buf, info->term);
    fl_buf_put_varint(buf, info->commit_index);
    fl_buf_put_varint(buf, info->applied_index);
    fl_buf_put_varint(buf, info->last_index);
    fl_buf_put_varint(buf, info->snapshot_index);
    fl_buf_put_u64(buf, info->history_hash);
    fl_buf_put_u8(buf, info->role);
    fl_buf_put_varint(buf, info->stats.sessions);
    fl_buf_put_varint(buf, info->stats.names);
    fl_buf_put_varint(buf, info->stats.holds);
    fl_buf_put_varint(buf, info->stats.waits);
    fl_buf_put_varint(buf, info->stats.grants);
    fl_buf_put_varint(buf, info->stats.memory);
    fl_buf_put_varint(buf, info->token);
    fl_buf_put_str(buf, info->version);
    fl_buf_put_u8(buf, (uint8_t)info->n_members);
    for (uint32_t i = 0; i < info->n_members; i++) {
        fl_buf_put_varint(buf, info->members[i].id);
        fl_buf_put_str(buf, info->members[i].address);
        fl_buf_put_u8(buf, info->members[i].role);
        fl_buf_put_u8(buf, info->members[i].reachable);
        fl_buf_put_varint(buf, info->members[i].match_index);
    }
}

static void read_info(struct fl_reader *r, struct fl_status_info *info)
{
    info->node_id = fl_reader_varint(r);
    info->leader_id = fl_reader_varint(r);
    info->term = fl_reader_varint(r);
    info->commit_index = fl_reader_varint(r);
    info->applied_index = fl_reader_varint(r);
    info->last_index = fl_reader_varint(r);
    info->snapshot_index = fl_reader_varint(r);
    info->history_hash = fl_reader_u64(r);
    info->role = fl_codec_u8(r, 2);
    info->stats.sessions = fl_reader_varint(r);
    info->stats.names = fl_reader_varint(r);
    info->stats.holds = fl_reader_varint(r);
    info->stats.waits = fl_reader_varint(r);
    info->stats.grants = fl_reader_varint(r);
    info->stats.memory = (size_t)fl_reader_varint(r);
    info->token = fl_reader_varint(r);
    info->version = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    info->n_members = fl_codec_u8(r, FL_ARRAY_LEN(info->members));
    for (uint32_t i = 0; i < info->n_members; i++) {
        info->members[i].id = fl_reader_varint(r);
        info->members[i].address = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        info->members[i].role = fl_codec_u8(r, 2);
        info->members[i].reachable = fl_codec_bool(r);
        info->members[i].match_index = fl_reader_varint(r);
    }
}

static void put_acquired(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_codec_put_session(buf, reply->session);
    fl_buf_put_varint(buf, reply->request_id);
    fl_buf_put_varint(buf, reply->token);
    fl_buf_put_u8(buf, (uint8_t)reply->mode);
    fl_buf_put_varint(buf, reply->limit);
    fl_buf_put_varint(buf, reply->ttl_ms);
    fl_buf_put_varint(buf, reply->position);
    fl_buf_put_str(buf, reply->holder_client);
    fl_buf_put_varint(buf, reply->holder_token);
    fl_buf_put_varint(buf, reply->holder_for_ms);
}

static void read_acquired(struct fl_reader *r, struct fl_reply *reply)
{
    reply->session = fl_codec_session(r);
    reply->request_id = fl_reader_varint(r);
    reply->token = fl_reader_varint(r);
    reply->mode = (enum fl_mode)fl_codec_u8(r, FL_MODE_COUNTED);
    reply->limit = fl_codec_u32(r);
    reply->ttl_ms = fl_codec_u32(r);
    reply->position = fl_codec_u32(r);
    reply->holder_client = fl_reader_str(r, FL_MESSAGE_STR_MAX);
    reply->holder_token = fl_reader_varint(r);
    reply->holder_for_ms = fl_codec_u32(r);
}

static void put_described(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_u8(buf, (uint8_t)reply->name_info.mode);
    fl_buf_put_varint(buf, reply->name_info.limit);
    fl_buf_put_varint(buf, reply->name_info.holders);
    fl_buf_put_varint(buf, reply->name_info.waiters);
    fl_buf_put_varint(buf, reply->closed_for_ms);
    put_requests(buf, reply);
}

static void read_described(struct fl_reader *r, struct fl_reply *reply)
{
    reply->name_info.mode = (enum fl_mode)fl_codec_u8(r, FL_MODE_COUNTED);
    reply->name_info.limit = fl_codec_u32(r);
    reply->name_info.holders = fl_codec_u32(r);
    reply->name_info.waiters = fl_codec_u32(r);
    reply->closed_for_ms = fl_codec_u32(r);
    read_requests(r, reply);
}

static void put_answer(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_u8(buf, (uint8_t)reply->answer);
    fl_buf_put_varint(buf, reply->index);
    switch (reply->request_type) {
    case FL_REQ_OPEN_SESSION:
    case FL_REQ_KEEP_ALIVE:
    case FL_REQ_RESUME_SESSION:
        fl_codec_put_session(buf, reply->session);
        fl_buf_put_varint(buf, reply->ttl_ms);
        if (reply->request_type == FL_REQ_RESUME_SESSION)
            put_requests(buf, reply);
        break;
    case FL_REQ_ACQUIRE:
        put_acquired(buf, reply);
        break;
    case FL_REQ_RELEASE:
    case FL_REQ_CANCEL:
    case FL_REQ_FORCE_RELEASE:
        fl_buf_put_varint(buf, reply->token);
        break;
    case FL_REQ_DESCRIBE:
        put_described(buf, reply);
        break;
    case FL_REQ_LIST:
        put_names(buf, reply);
        fl_buf_put_u8(buf, reply->more);
        break;
    case FL_REQ_WAITS:
        put_requests(buf, reply);
        fl_buf_put_u8(buf, reply->more);
        break;
    case FL_REQ_SESSIONS:
        put_sessions(buf, reply);
        fl_buf_put_u8(buf, reply->more);
        break;
    case FL_REQ_STATUS:
        put_info(buf, &reply->info);
        break;
    case FL_REQ_BACKUP:
        fl_buf_put_varint(buf, reply->request_id);
        fl_buf_put_varint(buf, reply->node_id);
        fl_buf_put_varint(buf, reply->size);
        fl_buf_put_varint(buf, reply->token);
        break;
    case FL_REQ_BACKUP_READ:
        fl_buf_put_str(buf, reply->bytes);
        break;
    case FL_REQ_CLOSE_SESSION:
    case FL_REQ_DETACH:
    case FL_REQ_END_SESSION:
    case FL_REQ_WATCH:
    case FL_REQ_UNWATCH:
    case FL_REQ_TRANSFER_LEADER:
    case FL_REQ_ADD_NODE:
    case FL_REQ_PROMOTE_NODE:
    case FL_REQ_REMOVE_NODE:
        break;
    }
}

static void read_answer(struct fl_reader *r, struct fl_reply *reply)
{
    reply->answer = (enum fl_answer)fl_codec_u8(r, FL_ANS_TOKENS_EXHAUSTED);
    reply->index = fl_reader_varint(r);
    switch (reply->request_type) {
    case FL_REQ_OPEN_SESSION:
    case FL_REQ_KEEP_ALIVE:
    case FL_REQ_RESUME_SESSION:
        reply->session = fl_codec_session(r);
        reply->ttl_ms = fl_codec_u32(r);
        if (reply->request_type == FL_REQ_RESUME_SESSION)
            read_requests(r, reply);
        break;
    case FL_REQ_ACQUIRE:
        read_acquired(r, reply);
        break;
    case FL_REQ_RELEASE:
    case FL_REQ_CANCEL:
    case FL_REQ_FORCE_RELEASE:
        reply->token = fl_reader_varint(r);
        break;
    case FL_REQ_DESCRIBE:
        read_described(r, reply);
        break;
    case FL_REQ_LIST:
        read_names(r, reply);
        reply->more = fl_codec_bool(r);
        break;
    case FL_REQ_WAITS:
        read_requests(r, reply);
        reply->more = fl_codec_bool(r);
        break;
    case FL_REQ_SESSIONS:
        read_sessions(r, reply);
        reply->more = fl_codec_bool(r);
        break;
    case FL_REQ_STATUS:
        read_info(r, &reply->info);
        break;
    case FL_REQ_BACKUP:
        reply->request_id = fl_reader_varint(r);
        reply->node_id = fl_reader_varint(r);
        reply->size = fl_reader_varint(r);
        reply->token = fl_reader_varint(r);
        break;
    case FL_REQ_BACKUP_READ:
        reply->bytes = fl_reader_str(r, FL_BACKUP_PIECE_MAX);
        break;
    case FL_REQ_CLOSE_SESSION:
    case FL_REQ_DETACH:
    case FL_REQ_END_SESSION:
    case FL_REQ_WATCH:
    case FL_REQ_UNWATCH:
    case FL_REQ_TRANSFER_LEADER:
    case FL_REQ_ADD_NODE:
    case FL_REQ_PROMOTE_NODE:
    case FL_REQ_REMOVE_NODE:
        break;
    }
}

void fl_reply_encode(struct fl_buf *buf, const struct fl_reply *reply)
{
    fl_buf_put_u8(buf, (uint8_t)reply->request_type);
    fl_buf_put_u8(buf, (uint8_t)reply->status);
    fl_buf_put_varint(buf, reply->tag);
    switch (reply->status) {
    case FL_REPLY_ANSWER:
        put_answer(buf, reply);
        break;
    case FL_REPLY_NOT_LEADER:
        fl_buf_put_varint(buf, reply->leader_id);
        fl_buf_put_varint(buf, reply->term);
        break;
    case FL_REPLY_INVALID:
        fl_buf_put_str(buf, reply->field);
        fl_buf_put_str(buf, reply->text);
        break;
    case FL_REPLY_BUSY:
    case FL_REPLY_DISK_FULL:
    case FL_REPLY_NOT_READY:
    case FL_REPLY_CHANGING:
        fl_buf_put_varint(buf, reply->retry_ms);
        break;
    }
}

static void read_body(struct fl_reader *r, struct fl_reply *reply)
{
    switch (reply->status) {
    case FL_REPLY_ANSWER:
        read_answer(r, reply);
        break;
    case FL_REPLY_NOT_LEADER:
        reply->leader_id = fl_reader_varint(r);
        reply->term = fl_reader_varint(r);
        break;
    case FL_REPLY_INVALID:
        reply->field = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        reply->text = fl_reader_str(r, FL_MESSAGE_STR_MAX);
        break;
    case FL_REPLY_BUSY:
    case FL_REPLY_DISK_FULL:
    case FL_REPLY_NOT_READY:
    case FL_REPLY_CHANGING:
        reply->retry_ms = fl_codec_u32(r);
        break;
    }
}

int fl_reply_decode(const void *data, size_t len, struct fl_reply *ret_reply)
{
    struct fl_reader r = fl_reader_from(data, len);
    struct fl_reply reply = {0};
    uint8_t type = fl_reader_u8(&r), status = fl_reader_u8(&r);
    int result;

    if (fl_reader_failed(&r) || type == 0)
        return FL_E_MALFORMED;
    if (type > FL_REQ_LAST || status > FL_REPLY_LAST)
        return FL_E_VERSION;
    reply.request_type = (enum fl_request_type)type;
    reply.status = (enum fl_reply_status)status;
    reply.tag = fl_reader_varint(&r);
    read_body(&r, &reply);
    result = fl_reader_end(&r);
    if (result == FL_OK)
        *ret_reply = reply;
    else
        fl_reply_deinit(&reply);
    return result;
}

void fl_reply_deinit(struct fl_reply *reply)
{
    if (reply == NULL)
        return;
    free(reply->requests);
    free(reply->names);
    free(reply->sessions);
    *reply = (struct fl_reply){0};
}
