/* Memory for one answer: everything that is made while a message is built, freed in one go. The
 * first kilobyte needs no allocation. */
#ifndef FL_GATEWAY_ARENA_H
#define FL_GATEWAY_ARENA_H

#include <stddef.h>

#include "base/str.h"

struct fl_arena_chunk;

struct fl_arena {
    _Alignas(max_align_t) char first[1024];
    size_t used; /* of `first`, then of the newest chunk */
    size_t size;
    struct fl_arena_chunk *chunks;
};

void fl_arena_init(struct fl_arena *arena);
void fl_arena_deinit(struct fl_arena *arena);
/* Zeroed; never NULL. */
void *fl_arena_alloc(struct fl_arena *arena, size_t size);
/* A terminated copy. */
char *fl_arena_text(struct fl_arena *arena, struct fl_str text);

#endif
