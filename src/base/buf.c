#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

void fl_buf_deinit(struct fl_buf *buf)
{
    if (buf == NULL)
        return;
    free(buf->data);
    *buf = FL_BUF_INIT;
}

void fl_buf_clear(struct fl_buf *buf)
{
    buf->len = 0;
}

uint8_t *fl_buf_reserve(struct fl_buf *buf, size_t more)
{
    FL_REQUIRE(more <= SIZE_MAX - buf->len);
    if (buf->data == NULL || buf->capacity - buf->len < more) {
        buf->capacity =
            fl_grow_capacity(buf->capacity < 64 ? 64 : buf->capacity, buf->len + more, 1);
        buf->data = fl_xrealloc(buf->data, buf->capacity);
    }
    return buf->data + buf->len;
}

void fl_buf_commit(struct fl_buf *buf, size_t written)
{
    FL_REQUIRE(written <= buf->capacity - buf->len);
    buf->len += written;
}

uint8_t *fl_buf_take(struct fl_buf *buf, size_t *ret_len)
{
    uint8_t *data = buf->data != NULL ? buf->data : fl_xalloc(0);

    *ret_len = buf->len;
    *buf = FL_BUF_INIT;
    return data;
}

void fl_buf_put(struct fl_buf *buf, const void *data, size_t len)
{
    if (len == 0)
        return;
    memcpy(fl_buf_reserve(buf, len), data, len);
    buf->len += len;
}

static void put_le(struct fl_buf *buf, uint64_t value, size_t bytes)
{
    uint8_t *out = fl_buf_reserve(buf, bytes);

    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
    buf->len += bytes;
}

void fl_buf_put_u8(struct fl_buf *buf, uint8_t value)
{
    put_le(buf, value, 1);
}

void fl_buf_put_u16(struct fl_buf *buf, uint16_t value)
{
    put_le(buf, value, 2);
}

void fl_buf_put_u32(struct fl_buf *buf, uint32_t value)
{
    put_le(buf, value, 4);
}

void fl_buf_put_u64(struct fl_buf *buf, uint64_t value)
{
    put_le(buf, value, 8);
}

void fl_buf_put_varint(struct fl_buf *buf, uint64_t value)
{
    uint8_t *out = fl_buf_reserve(buf, 10);
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    buf->len += n;
}

void fl_buf_put_str(struct fl_buf *buf, struct fl_str value)
{
    fl_buf_put_varint(buf, value.len);
    fl_buf_put(buf, value.data, value.len);
}

void fl_buf_printf(struct fl_buf *buf, const char *format, ...)
{
    size_t room = 128;

    for (;;) {
        char *out = (char *)fl_buf_reserve(buf, room);
        va_list args;
        int need;

        va_start(args, format);
        need = vsnprintf(out, room, format, args);
        va_end(args);
        FL_REQUIRE(need >= 0);
        if ((size_t)need < room) {
            buf->len += (size_t)need;
            return;
        }
        room = (size_t)need + 1;
    }
}

struct fl_reader fl_reader_from(const void *data, size_t len)
{
    return (struct fl_reader){data, len, 0, false};
}

const uint8_t *fl_reader_bytes(struct fl_reader *r, size_t len)
{
    const uint8_t *p;

    if (r->failed || len > r->len - r->at) {
        r->failed = true;
        return NULL;
    }
    p = r->data + r->at;
    r->at += len;
    return p;
}

static uint64_t read_le(struct fl_reader *r, size_t bytes)
{
    const uint8_t *p = fl_reader_bytes(r, bytes);
    uint64_t value = 0;

    if (p == NULL)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

uint8_t fl_reader_u8(struct fl_reader *r)
{
    return (uint8_t)read_le(r, 1);
}

uint16_t fl_reader_u16(struct fl_reader *r)
{
    return (uint16_t)read_le(r, 2);
}

uint32_t fl_reader_u32(struct fl_reader *r)
{
    return (uint32_t)read_le(r, 4);
}

uint64_t fl_reader_u64(struct fl_reader *r)
{
    return read_le(r, 8);
}

uint64_t fl_reader_varint(struct fl_reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t byte = fl_reader_u8(r);

        if (r->failed || (shift == 63 && byte > 1) || (shift != 0 && byte == 0))
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    r->failed = true;
    return 0;
}

struct fl_str fl_reader_str(struct fl_reader *r, size_t max)
{
    uint64_t len = fl_reader_varint(r);
    const uint8_t *p;

    if (len > max)
        r->failed = true;
    p = fl_reader_bytes(r, (size_t)len);
    return (struct fl_str){(const char *)p, p != NULL ? (size_t)len : 0};
}

size_t fl_reader_left(const struct fl_reader *r)
{
    return r->failed ? 0 : r->len - r->at;
}

int fl_reader_end(const struct fl_reader *r)
{
    return r->failed || r->at != r->len ? FL_E_MALFORMED : FL_OK;
}
