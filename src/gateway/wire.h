/* Protobuf messages from clients: unpacked by protobuf-c, after what it does not check is checked.
 *
 * It hands strings over as terminated texts and never looks at their encoding, so a name with a
 * zero byte would become another, shorter name. Every string field must be UTF-8 without zero
 * bytes, as the protobuf language wants it. */
#ifndef FL_GATEWAY_WIRE_H
#define FL_GATEWAY_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/* NULL when all strings are good; else the name of the field of the first that is not. What is no
 * message at all has no such field: the unpacking tells. */
const char *fl_wire_string_fault(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                 size_t len);

/* NULL when the bytes are no such message, or a string is not UTF-8 (*ret_field is then its field,
 * else NULL). Freed with protobuf_c_message_free_unpacked(message, NULL). */
ProtobufCMessage *fl_wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                 size_t len, const char **ret_field);

#endif
