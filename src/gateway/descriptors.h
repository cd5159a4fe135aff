/* The .proto files as protoc's FileDescriptorSets, for server reflection; made by embed. */
#ifndef FL_GATEWAY_DESCRIPTORS_H
#define FL_GATEWAY_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

extern const uint8_t fl_descriptor_lock[], fl_descriptor_admin[];
extern const size_t fl_descriptor_lock_len, fl_descriptor_admin_len;

#endif
