/* What server and client calls share: messages as blocks, and the queue of those that wait to be
 * sent. */
#ifndef FL_RPC_CALL_H
#define FL_RPC_CALL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rpc/frame.h"
#include "rpc/server.h"

struct fl_rpc_block {
    struct fl_rpc_block *next;
    uint32_t at, end;   /* what is left to send, counted from the block's start */
    uint8_t padding[3]; /* so that the payload is aligned */
    uint8_t prefix[FL_RPC_PREFIX_BYTES];
    /* payload */
};
_Static_assert(sizeof(struct fl_rpc_block) % 8 == 0 &&
                   offsetof(struct fl_rpc_block, prefix) + FL_RPC_PREFIX_BYTES ==
                       sizeof(struct fl_rpc_block),
               "the prefix stands right before the payload");

struct fl_rpc_queue {
    struct fl_rpc_block *first, *last; /* owned */
    size_t bytes;
};

struct fl_rpc_block *fl_rpc_block_of(uint8_t *message);
/* Takes the message. */
void fl_rpc_queue_put(struct fl_rpc_queue *queue, uint8_t *message, size_t len);
/* Moves up to `size` bytes out; returns how many. */
size_t fl_rpc_queue_take(struct fl_rpc_queue *queue, uint8_t *out, size_t size);
void fl_rpc_queue_clear(struct fl_rpc_queue *queue);

#endif
