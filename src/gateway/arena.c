#include "gateway/arena.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CHUNK_BYTES 16384
#define ALIGNMENT   sizeof(max_align_t)

struct fl_arena_chunk {
    struct fl_arena_chunk *next;
    _Alignas(max_align_t) char bytes[];
};

void fl_arena_init(struct fl_arena *arena)
{
    arena->used = 0;
    arena->size = sizeof arena->first;
    arena->chunks = NULL;
}

void fl_arena_deinit(struct fl_arena *arena)
{
    while (arena->chunks != NULL) {
        struct fl_arena_chunk *next = arena->chunks->next;

        free(arena->chunks);
        arena->chunks = next;
    }
}

static void add_chunk(struct fl_arena *arena, size_t size)
{
    struct fl_arena_chunk *chunk = fl_xalloc(sizeof *chunk + size);

    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->used = 0;
    arena->size = size;
}

void *fl_arena_alloc(struct fl_arena *arena, size_t size)
{
    char *at;

    FL_REQUIRE(size < SIZE_MAX / 2);
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena->size - arena->used < size)
        add_chunk(arena, size > CHUNK_BYTES ? size : CHUNK_BYTES);
    at = arena->chunks != NULL ? arena->chunks->bytes : arena->first;
    at += arena->used;
    arena->used += size;
    memset(at, 0, size);
    return at;
}

char *fl_arena_text(struct fl_arena *arena, struct fl_str text)
{
    char *copy = fl_arena_alloc(arena, text.len + 1);

    if (text.len > 0)
        memcpy(copy, text.data, text.len);
    return copy;
}
