#include "net/h2_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

struct fl_h2_memory {
    nghttp2_mem functions;
    struct fl_list blocks;
};

struct block {
    struct fl_list link;
    struct fl_h2_memory *memory;
    _Alignas(max_align_t) uint8_t data[];
};

static struct block *block_of(const void *data)
{
    return FL_CONTAINER_OF((void *)(uintptr_t)data, struct block, data);
}

static void *enter(struct fl_h2_memory *memory, struct block *block)
{
    block->memory = memory;
    fl_list_append(&memory->blocks, &block->link);
    return block->data;
}

static void *resize(void *data, size_t size, void *ctx)
{
    struct block *old = data != NULL ? block_of(data) : NULL, *block;

    if (size > SIZE_MAX - sizeof *block)
        return NULL;
    if (old != NULL)
        fl_list_remove(&old->link);
    block = realloc(old, sizeof *block + size);
    if (block != NULL)
        return enter(ctx, block);
    if (old != NULL)
        enter(ctx, old);
    return NULL;
}

static void *allocate(size_t size, void *ctx)
{
    return resize(NULL, size, ctx);
}

static void *allocate_zeroed(size_t count, size_t size, void *ctx)
{
    void *data;

    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    data = allocate(count * size, ctx);
    if (data != NULL)
        memset(data, 0, count * size);
    return data;
}

static void release(void *data, void *ctx)
{
    (void)ctx;
    if (data == NULL)
        return;
    fl_list_remove(&block_of(data)->link);
    free(block_of(data));
}

struct fl_h2_memory *fl_h2_memory_new(void)
{
    struct fl_h2_memory *memory = malloc(sizeof *memory);

    if (memory == NULL)
        return NULL;
    memory->functions = (nghttp2_mem){.mem_user_data = memory,
                                      .malloc = allocate,
                                      .free = release,
                                      .calloc = allocate_zeroed,
                                      .realloc = resize};
    fl_list_init(&memory->blocks);
    return memory;
}

void fl_h2_memory_free(struct fl_h2_memory *memory)
{
    struct fl_list *link;

    if (memory == NULL)
        return;
    while ((link = fl_list_first(&memory->blocks)) != NULL) {
        fl_list_remove(link);
        free(FL_CONTAINER_OF(link, struct block, link));
    }
    free(memory);
}

nghttp2_mem *fl_h2_memory_functions(struct fl_h2_memory *memory)
{
    return &memory->functions;
}

struct fl_h2_memory *fl_h2_memory_of(const void *block)
{
    return block_of(block)->memory;
}
