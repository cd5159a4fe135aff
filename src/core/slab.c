#include "core/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CHUNK_RECORDS (1u << FL_SLAB_CHUNK_BITS)

void fl_slab_init(struct fl_slab *slab, uint32_t record_size)
{
    FL_REQUIRE(record_size >= sizeof(uint32_t));
    memset(slab, 0, sizeof *slab);
    slab->record_size = record_size;
}

void fl_slab_deinit(struct fl_slab *slab)
{
    for (uint32_t i = 0; i < slab->n_chunks; i++)
        free(slab->chunks[i]);
    free(slab->chunks);
    memset(slab, 0, sizeof *slab);
}

static void add_chunk(struct fl_slab *slab)
{
    if (slab->n_chunks == slab->chunks_capacity) {
        slab->chunks_capacity = (uint32_t)fl_grow_capacity(
            slab->chunks_capacity, (size_t)slab->n_chunks + 1, sizeof *slab->chunks);
        slab->chunks = fl_xrealloc(slab->chunks, slab->chunks_capacity * sizeof *slab->chunks);
    }
    slab->chunks[slab->n_chunks++] = fl_xalloc((size_t)CHUNK_RECORDS * slab->record_size);
}

uint32_t fl_slab_take(struct fl_slab *slab)
{
    uint32_t handle = slab->free_head;

    if (handle != 0) {
        memcpy(&slab->free_head, fl_slab_at(slab, handle), sizeof slab->free_head);
    } else {
        FL_REQUIRE(slab->next_fresh < UINT32_MAX - CHUNK_RECORDS);
        if (slab->next_fresh == slab->n_chunks * CHUNK_RECORDS)
            add_chunk(slab);
        handle = ++slab->next_fresh;
    }
    slab->used++;
    return handle;
}

/* A slab that is empty again gives its memory back, but for the first chunk: a lock that comes and
 * goes must not cost the allocator anything. */
static void reset(struct fl_slab *slab)
{
    while (slab->n_chunks > 1)
        free(slab->chunks[--slab->n_chunks]);
    slab->free_head = slab->next_fresh = 0;
}

void fl_slab_give(struct fl_slab *slab, uint32_t handle)
{
    FL_REQUIRE(handle != 0 && slab->used != 0);
    if (--slab->used == 0) {
        reset(slab);
        return;
    }
    memcpy(fl_slab_at(slab, handle), &slab->free_head, sizeof slab->free_head);
    slab->free_head = handle;
}

size_t fl_slab_memory(const struct fl_slab *slab)
{
    return (size_t)slab->n_chunks * ((size_t)CHUNK_RECORDS * slab->record_size + 16) +
           slab->chunks_capacity * sizeof *slab->chunks;
}
