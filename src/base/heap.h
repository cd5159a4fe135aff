/* An intrusive binary min-heap by a 64-bit key: timers and deadlines. The node lives in the
 * element; the heap owns only its array of pointers. Equal keys come out in the order they were put
 * in, so that replicas agree. */
#ifndef FL_BASE_HEAP_H
#define FL_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_heap_node {
    uint64_t key, order;
    size_t place; /* 0 when in no heap, else index + 1 */
};

struct fl_heap {
    struct fl_heap_node **nodes; /* owned array of borrowed pointers */
    size_t len, capacity;
    uint64_t next_order;
};

#define FL_HEAP_INIT ((struct fl_heap){NULL, 0, 0, 0})

void fl_heap_deinit(struct fl_heap *heap);
/* Adds, or moves when it is in the heap already (which cannot fail). FL_E_NOMEM: nothing changed.
 */
int fl_heap_try_set(struct fl_heap *heap, struct fl_heap_node *node, uint64_t key);
/* The same; ends the process when memory runs out (base/alloc.h). */
void fl_heap_set(struct fl_heap *heap, struct fl_heap_node *node, uint64_t key);
/* Safe when it is in no heap. */
void fl_heap_remove(struct fl_heap *heap, struct fl_heap_node *node);
/* The node with the least key, or NULL. */
struct fl_heap_node *fl_heap_first(const struct fl_heap *heap);
static inline bool fl_heap_contains(const struct fl_heap_node *node)
{
    return node->place != 0;
}

#endif
