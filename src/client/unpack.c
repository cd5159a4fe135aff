#include "client/unpack.h"

#include <stdlib.h>

static void *allocate(void *ctx, size_t size)
{
    bool *is_short = ctx;
    void *memory = malloc(size);

    if (memory == NULL && size != 0)
        *is_short = true;
    return memory;
}

static void release(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

void *fl_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                int *ret_code, struct fl_why *why)
{
    bool is_short = false;
    ProtobufCAllocator allocator = {
        .alloc = allocate, .free = release, .allocator_data = &is_short};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, len, data);

    if (message == NULL)
        *ret_code = is_short ? fl_why_set_nomem(why)
                             : fl_why_set(why, FL_E_PROTOCOL, NULL,
                                          "the answer is not one of Fencelock's: wrong port?");
    return message;
}

void fl_unpacked_free(void *message)
{
    ProtobufCAllocator allocator = {.alloc = allocate, .free = release};

    protobuf_c_message_free_unpacked(message, &allocator);
}
