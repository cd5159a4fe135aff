/* Just enough of protobuf's wire format for health and reflection, whose messages we do not
 * generate: https://protobuf.dev/programming-guides/encoding/ */
#ifndef FL_RPC_WIRE_H
#define FL_RPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct fl_wire_field {
    unsigned number;
    uint64_t value;      /* varint and fixed fields */
    struct fl_str bytes; /* length-delimited fields; borrowed */
};

/* The next field; false at the end, or at malformed bytes (then r->failed). */
bool fl_wire_next(struct fl_reader *r, struct fl_wire_field *ret_field);
/* The last length-delimited field of that number, or an empty string with NULL data. */
struct fl_str fl_wire_find(struct fl_str message, unsigned number);

void fl_wire_put_varint(struct fl_buf *buf, unsigned number, uint64_t value);
void fl_wire_put_bytes(struct fl_buf *buf, unsigned number, struct fl_str bytes);

#endif
