#include "gateway/wire.h"

#include <string.h>

#include "base/buf.h"
#include "base/bugs.h"

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Messages of ours nest three deep. */
#define DEPTH_MAX 8

/* Protobuf allows longer forms than needed, which fl_reader_varint() refuses. */
static uint64_t read_varint(struct fl_reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = fl_reader_u8(r);

        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return value;
    }
    r->failed = true;
    return 0;
}

static struct fl_str read_bytes(struct fl_reader *r)
{
    uint64_t len = read_varint(r);
    const uint8_t *data;

    if (len > fl_reader_left(r)) {
        r->failed = true;
        return (struct fl_str){NULL, 0};
    }
    data = fl_reader_bytes(r, (size_t)len);
    return (struct fl_str){(const char *)data, (size_t)len};
}

static void skip(struct fl_reader *r, unsigned wire)
{
    switch (wire) {
    case WIRE_VARINT:
        (void)read_varint(r);
        break;
    case WIRE_64:
        (void)fl_reader_u64(r);
        break;
    case WIRE_32:
        (void)fl_reader_u32(r);
        break;
    default:
        r->failed = true;
    }
}

static const char *find_fault(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                              unsigned depth);

static const char *field_fault(const ProtobufCFieldDescriptor *field, struct fl_str value,
                               unsigned depth)
{
    if (field == NULL)
        return NULL;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        bool has_zero = !FL_BUG(GATEWAY_NAME_ENDS_AT_ZERO_BYTE) && value.len > 0 &&
                        memchr(value.data, 0, value.len) != NULL;

        return has_zero || !fl_str_is_utf8(value) ? field->name : NULL;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && depth < DEPTH_MAX)
        return find_fault(field->descriptor, value.data, value.len, depth + 1);
    return NULL;
}

static const char *find_fault(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                              unsigned depth)
{
    struct fl_reader r = fl_reader_from(data, len);

    while (fl_reader_left(&r) > 0 && !fl_reader_failed(&r)) {
        uint64_t key = read_varint(&r);
        const char *fault;

        if ((key & 7) != WIRE_BYTES) {
            skip(&r, (unsigned)(key & 7));
            continue;
        }
        fault = field_fault(protobuf_c_message_descriptor_get_field(type, (unsigned)(key >> 3)),
                            read_bytes(&r), depth);
        if (fault != NULL)
            return fault;
    }
    return NULL;
}

const char *fl_wire_string_fault(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                 size_t len)
{
    return find_fault(type, data, len, 0);
}

ProtobufCMessage *fl_wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                 size_t len, const char **ret_field)
{
    *ret_field = fl_wire_string_fault(type, data, len);
    if (*ret_field != NULL)
        return NULL;
    return protobuf_c_message_unpack(type, NULL, len, data);
}
