#include "base/heap.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

void fl_heap_deinit(struct fl_heap *heap)
{
    if (heap == NULL)
        return;
    free(heap->nodes);
    *heap = FL_HEAP_INIT;
}

static bool is_before(const struct fl_heap_node *a, const struct fl_heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static void put_at(struct fl_heap *heap, size_t index, struct fl_heap_node *node)
{
    heap->nodes[index] = node;
    node->place = index + 1;
}

static void sift_up(struct fl_heap *heap, size_t index)
{
    struct fl_heap_node *node = heap->nodes[index];

    while (index > 0 && is_before(node, heap->nodes[(index - 1) / 2])) {
        put_at(heap, index, heap->nodes[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put_at(heap, index, node);
}

static void sift_down(struct fl_heap *heap, size_t index)
{
    struct fl_heap_node *node = heap->nodes[index];

    for (;;) {
        size_t child = 2 * index + 1;

        if (child >= heap->len)
            break;
        if (child + 1 < heap->len && is_before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (!is_before(heap->nodes[child], node))
            break;
        put_at(heap, index, heap->nodes[child]);
        index = child;
    }
    put_at(heap, index, node);
}

static void set_key(struct fl_heap *heap, struct fl_heap_node *node, uint64_t key)
{
    if (node->place == 0)
        put_at(heap, heap->len++, node);
    node->key = key;
    node->order = heap->next_order++;
    sift_up(heap, node->place - 1);
    sift_down(heap, node->place - 1);
}

int fl_heap_try_set(struct fl_heap *heap, struct fl_heap_node *node, uint64_t key)
{
    if (node->place == 0 && heap->len == heap->capacity) {
        size_t capacity = fl_grow_capacity(heap->capacity, heap->len + 1, sizeof *heap->nodes);
        struct fl_heap_node **nodes = realloc(heap->nodes, capacity * sizeof *nodes);

        if (nodes == NULL)
            return FL_E_NOMEM;
        heap->nodes = nodes;
        heap->capacity = capacity;
    }
    set_key(heap, node, key);
    return FL_OK;
}

void fl_heap_set(struct fl_heap *heap, struct fl_heap_node *node, uint64_t key)
{
    if (node->place == 0 && heap->len == heap->capacity) {
        heap->capacity = fl_grow_capacity(heap->capacity, heap->len + 1, sizeof *heap->nodes);
        heap->nodes = fl_xrealloc(heap->nodes, heap->capacity * sizeof *heap->nodes);
    }
    set_key(heap, node, key);
}

void fl_heap_remove(struct fl_heap *heap, struct fl_heap_node *node)
{
    size_t index = node->place - 1;
    struct fl_heap_node *last;

    if (node->place == 0)
        return;
    FL_REQUIRE(index < heap->len && heap->nodes[index] == node);
    node->place = 0;
    last = heap->nodes[--heap->len];
    if (last == node)
        return;
    put_at(heap, index, last);
    sift_up(heap, index);
    sift_down(heap, last->place - 1);
}

struct fl_heap_node *fl_heap_first(const struct fl_heap *heap)
{
    return heap->len != 0 ? heap->nodes[0] : NULL;
}
