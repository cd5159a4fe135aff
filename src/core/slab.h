/* Records of one size, named by 32-bit handles: half the size of pointers, no overhead per record.
 * A record stays where it is for its life. Handle 0 is none. */
#ifndef FL_CORE_SLAB_H
#define FL_CORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

struct fl_slab {
    uint8_t **chunks; /* owned */
    uint32_t n_chunks, chunks_capacity;
    uint32_t record_size;
    uint32_t free_head; /* the first 4 bytes of a free record name the next */
    uint32_t used, next_fresh;
};

void fl_slab_init(struct fl_slab *slab, uint32_t record_size); /* at least 4 */
void fl_slab_deinit(struct fl_slab *slab);
/* Not cleared. */
uint32_t fl_slab_take(struct fl_slab *slab);
void fl_slab_give(struct fl_slab *slab, uint32_t handle);
size_t fl_slab_memory(const struct fl_slab *slab);

#define FL_SLAB_CHUNK_BITS 12

static inline void *fl_slab_at(const struct fl_slab *slab, uint32_t handle)
{
    uint32_t place = handle - 1;

    return slab->chunks[place >> FL_SLAB_CHUNK_BITS] +
           (size_t)(place & ((1u << FL_SLAB_CHUNK_BITS) - 1)) * slab->record_size;
}

#endif
