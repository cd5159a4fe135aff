#include "rpc/wire.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Other encoders may write a number longer than needed, which fl_reader_varint() refuses. */
static uint64_t read_varint(struct fl_reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = fl_reader_u8(r);

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    r->failed = true;
    return 0;
}

bool fl_wire_next(struct fl_reader *r, struct fl_wire_field *f)
{
    uint64_t key, len;

    if (fl_reader_left(r) == 0)
        return false;
    key = read_varint(r);
    *f = (struct fl_wire_field){.number = (unsigned)(key >> 3)};
    switch (key & 7) {
    case VARINT:
        f->value = read_varint(r);
        break;
    case FIXED64:
        f->value = fl_reader_u64(r);
        break;
    case FIXED32:
        f->value = fl_reader_u32(r);
        break;
    case BYTES:
        len = read_varint(r);
        f->bytes.data =
            (const char *)(len <= fl_reader_left(r) ? fl_reader_bytes(r, (size_t)len) : NULL);
        f->bytes.len = (size_t)len;
        if (f->bytes.data == NULL)
            r->failed = true;
        break;
    default:
        r->failed = true;
        break;
    }
    return !fl_reader_failed(r);
}

struct fl_str fl_wire_find(struct fl_str message, unsigned number)
{
    struct fl_reader r = fl_reader_from(message.data, message.len);
    struct fl_wire_field f;
    struct fl_str found = {NULL, 0};

    while (fl_wire_next(&r, &f)) {
        if (f.number == number && f.bytes.data != NULL)
            found = f.bytes;
    }
    return found;
}

void fl_wire_put_varint(struct fl_buf *buf, unsigned number, uint64_t value)
{
    fl_buf_put_varint(buf, number << 3 | VARINT);
    fl_buf_put_varint(buf, value);
}

void fl_wire_put_bytes(struct fl_buf *buf, unsigned number, struct fl_str bytes)
{
    fl_buf_put_varint(buf, number << 3 | BYTES);
    fl_buf_put_str(buf, bytes);
}
