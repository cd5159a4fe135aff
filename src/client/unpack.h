/* Messages that tell why they could not be unpacked: protobuf-c says NULL for bad bytes and for
 * want of memory alike. Free them as their own type's free_unpacked(message, NULL) does. */
#ifndef FL_CLIENT_UNPACK_H
#define FL_CLIENT_UNPACK_H

#include <protobuf-c/protobuf-c.h>

#include "client/why.h"

/* NULL: `why` is set and `*ret_code` is FL_E_NOMEM or FL_E_PROTOCOL. */
void *fl_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                int *ret_code, struct fl_why *why);
void fl_unpacked_free(void *message); /* NULL is fine */

#endif
