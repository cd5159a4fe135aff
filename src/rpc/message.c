#include <stdlib.h>

#include "rpc/call.h"
#include "rpc/frame.h"

/* The block in front of what the caller sees. The prefix of the wire stands right before the
 * payload, so that a message is packed and sent without a copy. */
struct fl_rpc_block *fl_rpc_block_of(uint8_t *message)
{
    return (struct fl_rpc_block *)(void *)(message - sizeof(struct fl_rpc_block));
}

uint8_t *fl_rpc_message_new(size_t size)
{
    struct fl_rpc_block *block;

    if (size > SIZE_MAX / 2)
        return NULL;
    block = malloc(sizeof *block + size);
    return block != NULL ? (uint8_t *)(block + 1) : NULL;
}

void fl_rpc_message_free(uint8_t *message)
{
    if (message != NULL)
        free(fl_rpc_block_of(message));
}

void fl_rpc_queue_put(struct fl_rpc_queue *queue, uint8_t *message, size_t len)
{
    struct fl_rpc_block *block = fl_rpc_block_of(message);

    block->next = NULL;
    block->at = offsetof(struct fl_rpc_block, prefix);
    block->end = (uint32_t)(sizeof *block + len);
    fl_frame_prefix(block->prefix, len);
    if (queue->last != NULL)
        queue->last->next = block;
    else
        queue->first = block;
    queue->last = block;
    queue->bytes += FL_RPC_PREFIX_BYTES + len;
}

size_t fl_rpc_queue_take(struct fl_rpc_queue *queue, uint8_t *out, size_t size)
{
    size_t used = 0;

    while (used < size && queue->first != NULL) {
        struct fl_rpc_block *block = queue->first;
        size_t left = block->end - block->at;
        size_t n = left < size - used ? left : size - used;

        memcpy(out + used, (uint8_t *)block + block->at, n);
        used += n;
        block->at += (uint32_t)n;
        if (block->at == block->end) {
            queue->first = block->next;
            if (queue->first == NULL)
                queue->last = NULL;
            free(block);
        }
    }
    queue->bytes -= used;
    return used;
}

void fl_rpc_queue_clear(struct fl_rpc_queue *queue)
{
    while (queue->first != NULL) {
        struct fl_rpc_block *next = queue->first->next;

        free(queue->first);
        queue->first = next;
    }
    queue->last = NULL;
    queue->bytes = 0;
}
