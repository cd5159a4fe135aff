#include "core/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

/* docs/log-format.md describes these bytes; tests/golden pins them. */
#define BATCH_VERSION 1

enum { ABANDON_FLAG = 1, CANCEL_ASKER_FLAG = 2, MODE_ASKER_FLAG = 0x80 };

/* --- Ranges --- */

static const char *name_fault(struct fl_str name, const char **ret_why)
{
    *ret_why = fl_name_fault(name);
    return *ret_why != NULL ? "name" : NULL;
}

static const char *text_fault(const char *field, struct fl_str text, size_t max,
                              const char **ret_why)
{
    if (text.len > max)
        *ret_why = "is too long";
    else if (!fl_str_is_utf8(text))
        *ret_why = "is not valid UTF-8";
    else if (fl_str_has_control(text))
        *ret_why = "has a control character";
    else
        return NULL;
    return field;
}

static const char *open_fault(const struct fl_command *c, const char **ret_why)
{
    *ret_why = fl_client_name_fault(c->client);
    if (*ret_why != NULL)
        return "client";
    if (c->ttl_ms < FL_TTL_MS_MIN || c->ttl_ms > FL_TTL_MS_MAX) {
        *ret_why = "must be 1000 to 3600000";
        return "ttl_ms";
    }
    if (c->lock_delay_ms > FL_LOCK_DELAY_MS_MAX) {
        *ret_why = "must be at most 600000";
        return "lock_delay_ms";
    }
    return NULL;
}

static const char *acquire_fault(const struct fl_command *c, const char **ret_why)
{
    if (c->mode < FL_MODE_EXCLUSIVE || c->mode > FL_MODE_COUNTED) {
        *ret_why = "must be EXCLUSIVE, SHARED or COUNTED";
        return "mode";
    }
    if (c->mode == FL_MODE_COUNTED && (c->limit < 1 || c->limit > FL_LIMIT_MAX)) {
        *ret_why = "must be 1 to 1000000 in mode COUNTED";
        return "limit";
    }
    if (c->mode != FL_MODE_COUNTED && c->limit != 0) {
        *ret_why = "is for mode COUNTED only";
        return "limit";
    }
    if (c->wait_ms > FL_WAIT_MS_MAX) {
        *ret_why = "must be at most 86400000";
        return "wait_ms";
    }
    return name_fault(c->name, ret_why);
}

static const char *token_fault(fl_token token, const char **ret_why)
{
    if (token >= 1 && token <= FL_TOKEN_MAX)
        return NULL;
    *ret_why = "must be 1 to 9007199254740991";
    return "token";
}

static const char *operator_fault(const struct fl_command *c, const char **ret_why)
{
    const char *field = text_fault("by", c->actor, FL_CLIENT_MAX, ret_why);

    return field != NULL ? field : text_fault("reason", c->reason, FL_REASON_MAX, ret_why);
}

static bool has_session(enum fl_command_type type)
{
    return type != FL_CMD_FORCE_RELEASE && type != FL_CMD_RAISE_TOKEN && type != FL_CMD_MARK_LEVEL;
}

const char *fl_command_fault(const struct fl_command *c, const char **ret_why)
{
    const char *field;

    if (has_session(c->type) && fl_session_id_is_none(c->session)) {
        *ret_why = "is missing";
        return "session_id";
    }
    switch (c->type) {
    case FL_CMD_OPEN_SESSION:
        return open_fault(c, ret_why);
    case FL_CMD_END_SESSION:
        return operator_fault(c, ret_why);
    case FL_CMD_ACQUIRE:
        return acquire_fault(c, ret_why);
    case FL_CMD_RELEASE:
        field = name_fault(c->name, ret_why);
        return field != NULL ? field : token_fault(c->token, ret_why);
    case FL_CMD_FORCE_RELEASE:
        field = name_fault(c->name, ret_why);
        if (field == NULL)
            field = token_fault(c->token, ret_why);
        return field != NULL ? field : operator_fault(c, ret_why);
    case FL_CMD_RAISE_TOKEN:
        return token_fault(c->token, ret_why);
    case FL_CMD_CLOSE_SESSION:
    case FL_CMD_EXPIRE_SESSION:
    case FL_CMD_NOTE_SILENCE:
    case FL_CMD_CANCEL:
    case FL_CMD_MARK_LEVEL:
        return NULL;
    }
    *ret_why = "is unknown";
    return "type";
}

/* --- Encoding --- */

void fl_batch_begin(struct fl_buf *buf, uint64_t now_ms)
{
    fl_buf_put_u8(buf, BATCH_VERSION);
    fl_buf_put_u64(buf, now_ms);
}

static void put_session(struct fl_buf *buf, struct fl_session_id id)
{
    fl_buf_put_u64(buf, id.high);
    fl_buf_put_u64(buf, id.low);
}

void fl_batch_add(struct fl_buf *buf, const struct fl_command *c)
{
    const char *why;

    FL_REQUIRE(fl_command_fault(c, &why) == NULL);
    fl_buf_put_u8(buf, (uint8_t)c->type);
    if (has_session(c->type))
        put_session(buf, c->session);
    switch (c->type) {
    case FL_CMD_OPEN_SESSION:
        fl_buf_put_str(buf, c->client);
        fl_buf_put_varint(buf, c->ttl_ms);
        fl_buf_put_varint(buf, c->lock_delay_ms);
        break;
    case FL_CMD_CLOSE_SESSION:
        break;
    case FL_CMD_EXPIRE_SESSION:
        fl_buf_put_varint(buf, c->term);
        break;
    case FL_CMD_END_SESSION:
        fl_buf_put_str(buf, c->actor);
        fl_buf_put_str(buf, c->reason);
        break;
    case FL_CMD_NOTE_SILENCE:
        fl_buf_put_varint(buf, c->silence_ms);
        break;
    case FL_CMD_ACQUIRE:
        fl_buf_put_u64(buf, c->request_id);
        fl_buf_put_u8(buf, (uint8_t)(c->mode | (c->asker != 0 ? MODE_ASKER_FLAG : 0)));
        fl_buf_put_varint(buf, c->limit);
        fl_buf_put_varint(buf, c->wait_ms);
        fl_buf_put_str(buf, c->name);
        if (c->asker != 0)
            fl_buf_put_u16(buf, c->asker);
        break;
    case FL_CMD_RELEASE:
        fl_buf_put_varint(buf, c->token);
        fl_buf_put_str(buf, c->name);
        break;
    case FL_CMD_CANCEL:
        fl_buf_put_u64(buf, c->request_id);
        fl_buf_put_u8(buf, (uint8_t)((c->abandon ? ABANDON_FLAG : 0) |
                                     (c->asker != 0 ? CANCEL_ASKER_FLAG : 0)));
        if (c->asker != 0)
            fl_buf_put_u16(buf, c->asker);
        break;
    case FL_CMD_FORCE_RELEASE:
        fl_buf_put_varint(buf, c->token);
        fl_buf_put_str(buf, c->name);
        fl_buf_put_str(buf, c->actor);
        fl_buf_put_str(buf, c->reason);
        break;
    case FL_CMD_RAISE_TOKEN:
        fl_buf_put_varint(buf, c->token);
        break;
    case FL_CMD_MARK_LEVEL:
        break;
    }
}

/* --- Decoding --- */

static uint32_t read_u32_varint(struct fl_reader *r)
{
    uint64_t value = fl_reader_varint(r);

    if (value > UINT32_MAX)
        r->failed = true;
    return (uint32_t)value;
}

/* One state, one encoding: who is there is not 0. */
static uint16_t read_asker(struct fl_reader *r, bool is_there)
{
    uint16_t asker = is_there ? fl_reader_u16(r) : 0;

    if (is_there && asker == 0)
        r->failed = true;
    return asker;
}

static void read_cancel(struct fl_reader *r, struct fl_command *c)
{
    uint8_t flags;

    c->request_id = fl_reader_u64(r);
    flags = fl_reader_u8(r);
    if ((flags & ~(ABANDON_FLAG | CANCEL_ASKER_FLAG)) != 0)
        r->failed = true;
    c->abandon = (flags & ABANDON_FLAG) != 0;
    c->asker = read_asker(r, (flags & CANCEL_ASKER_FLAG) != 0);
}

static void read_acquire(struct fl_reader *r, struct fl_command *c)
{
    uint8_t mode;

    c->request_id = fl_reader_u64(r);
    mode = fl_reader_u8(r);
    c->mode = (enum fl_mode)(mode & ~MODE_ASKER_FLAG);
    c->limit = read_u32_varint(r);
    c->wait_ms = read_u32_varint(r);
    c->name = fl_reader_str(r, FL_NAME_MAX);
    c->asker = read_asker(r, (mode & MODE_ASKER_FLAG) != 0);
}

static void read_command(struct fl_reader *r, struct fl_command *c)
{
    if (has_session(c->type)) {
        c->session.high = fl_reader_u64(r);
        c->session.low = fl_reader_u64(r);
    }
    switch (c->type) {
    case FL_CMD_OPEN_SESSION:
        c->client = fl_reader_str(r, FL_CLIENT_MAX);
        c->ttl_ms = read_u32_varint(r);
        c->lock_delay_ms = read_u32_varint(r);
        break;
    case FL_CMD_CLOSE_SESSION:
        break;
    case FL_CMD_EXPIRE_SESSION:
        c->term = fl_reader_varint(r);
        break;
    case FL_CMD_END_SESSION:
        c->actor = fl_reader_str(r, FL_CLIENT_MAX);
        c->reason = fl_reader_str(r, FL_REASON_MAX);
        break;
    case FL_CMD_NOTE_SILENCE:
        c->silence_ms = read_u32_varint(r);
        break;
    case FL_CMD_ACQUIRE:
        read_acquire(r, c);
        break;
    case FL_CMD_RELEASE:
        c->token = fl_reader_varint(r);
        c->name = fl_reader_str(r, FL_NAME_MAX);
        break;
    case FL_CMD_CANCEL:
        read_cancel(r, c);
        break;
    case FL_CMD_FORCE_RELEASE:
        c->token = fl_reader_varint(r);
        c->name = fl_reader_str(r, FL_NAME_MAX);
        c->actor = fl_reader_str(r, FL_CLIENT_MAX);
        c->reason = fl_reader_str(r, FL_REASON_MAX);
        break;
    case FL_CMD_RAISE_TOKEN:
        c->token = fl_reader_varint(r);
        break;
    case FL_CMD_MARK_LEVEL:
        break;
    }
}

static int read_commands(struct fl_reader *r, struct fl_batch *batch)
{
    size_t capacity = 0;

    while (fl_reader_left(r) != 0) {
        struct fl_command *c;
        const char *why;
        uint8_t type = fl_reader_u8(r);

        if (type < FL_CMD_OPEN_SESSION)
            return FL_E_MALFORMED;
        if (type > FL_CMD_LAST)
            return FL_E_VERSION;
        if (batch->n == capacity) {
            capacity = fl_grow_capacity(capacity, batch->n + 1, sizeof *batch->commands);
            batch->commands = fl_xrealloc(batch->commands, capacity * sizeof *batch->commands);
        }
        c = &batch->commands[batch->n];
        memset(c, 0, sizeof *c);
        c->type = (enum fl_command_type)type;
        read_command(r, c);
        if (fl_reader_failed(r) || fl_command_fault(c, &why) != NULL)
            return FL_E_MALFORMED;
        batch->n++;
    }
    return fl_reader_end(r);
}

int fl_batch_decode(const void *data, size_t len, struct fl_batch *ret_batch)
{
    struct fl_reader r = fl_reader_from(data, len);
    struct fl_batch batch = {0};
    uint8_t version = fl_reader_u8(&r);
    int result;

    if (fl_reader_failed(&r) || version == 0)
        return FL_E_MALFORMED;
    if (version > BATCH_VERSION)
        return FL_E_VERSION;
    batch.now_ms = fl_reader_u64(&r);
    result = fl_reader_failed(&r) ? FL_E_MALFORMED : read_commands(&r, &batch);
    if (result < 0) {
        fl_batch_deinit(&batch);
        return result;
    }
    *ret_batch = batch;
    return FL_OK;
}

void fl_batch_deinit(struct fl_batch *batch)
{
    free(batch->commands);
    memset(batch, 0, sizeof *batch);
}
