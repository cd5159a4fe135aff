#include "base/top.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/heap.h"
#include "base/map.h"

struct slot {
    struct fl_heap_node in_heap; /* by count */
    uint64_t hash;
    size_t len;
    uint64_t inherited; /* of the count: of the names that had the place before */
    uint32_t mark;
    char name[];
};

struct fl_top {
    size_t capacity, name_max, n;
    struct fl_hash_key key;
    struct fl_map by_name;
    struct fl_heap by_count; /* the rarest first: it gives its place up */
    struct slot **slots;     /* [n], owned */
};

static bool has_name(const void *value, const void *key)
{
    const struct slot *slot = value;

    return fl_str_equal((struct fl_str){slot->name, slot->len}, *(const struct fl_str *)key);
}

struct fl_top *fl_top_new(size_t capacity, size_t name_max, struct fl_hash_key key)
{
    struct fl_top *top = fl_xcalloc(1, sizeof *top);

    top->capacity = capacity;
    top->name_max = name_max;
    top->key = key;
    top->slots = fl_xcalloc(capacity, sizeof *top->slots);
    return top;
}

void fl_top_free(struct fl_top *top)
{
    if (top == NULL)
        return;
    for (size_t i = 0; i < top->n; i++)
        free(top->slots[i]);
    fl_heap_deinit(&top->by_count);
    fl_map_deinit(&top->by_name);
    free(top->slots);
    free(top);
}

static struct slot *find(const struct fl_top *top, struct fl_str *name, uint64_t *ret_hash)
{
    if (name->len > top->name_max)
        name->len = top->name_max;
    *ret_hash = fl_hash_siphash(top->key, name->data, name->len);
    return fl_map_find(&top->by_name, *ret_hash, has_name, name);
}

/* A new place, or that of the rarest name, whose count stays. */
static struct slot *take_place(struct fl_top *top)
{
    struct slot *slot;

    if (top->n < top->capacity) {
        slot = fl_xcalloc(1, sizeof *slot + top->name_max);
        top->slots[top->n++] = slot;
        return slot;
    }
    slot = (struct slot *)(void *)fl_heap_first(&top->by_count);
    fl_map_remove(&top->by_name, slot->hash, slot);
    return slot;
}

void fl_top_add(struct fl_top *top, struct fl_str name, uint64_t count)
{
    uint64_t hash;
    struct slot *slot = find(top, &name, &hash);

    if (slot == NULL) {
        slot = take_place(top);
        slot->hash = hash;
        slot->len = name.len;
        slot->inherited = slot->in_heap.key;
        slot->mark = 0;
        memcpy(slot->name, name.data, name.len);
        fl_map_insert(&top->by_name, hash, slot);
    }
    fl_heap_set(&top->by_count, &slot->in_heap, slot->in_heap.key + count);
}

void fl_top_mark(struct fl_top *top, struct fl_str name, uint32_t mark)
{
    uint64_t hash;
    struct slot *slot = find(top, &name, &hash);

    if (slot != NULL)
        slot->mark = mark;
}

void fl_top_fade(struct fl_top *top, double factor)
{
    for (size_t i = 0; i < top->n;) {
        struct slot *slot = top->slots[i];
        uint64_t count = (uint64_t)((double)slot->in_heap.key * factor);

        slot->inherited = (uint64_t)((double)slot->inherited * factor);
        if (count != 0) {
            fl_heap_set(&top->by_count, &slot->in_heap, count);
            i++;
            continue;
        }
        fl_heap_remove(&top->by_count, &slot->in_heap);
        fl_map_remove(&top->by_name, slot->hash, slot);
        top->slots[i] = top->slots[--top->n];
        free(slot);
    }
}

static int compare(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;

    return (x->in_heap.key < y->in_heap.key) - (x->in_heap.key > y->in_heap.key);
}

size_t fl_top_list(const struct fl_top *top, struct fl_top_entry *ret_entries, size_t max)
{
    struct slot **sorted;
    size_t n = 0;

    if (top->n == 0)
        return 0;
    sorted = fl_xmemdup(top->slots, top->n * sizeof *sorted);
    qsort(sorted, top->n, sizeof *sorted, compare);
    for (size_t i = 0; i < top->n && n < max; i++) {
        const struct slot *slot = sorted[i];

        if (slot->in_heap.key >= 2 * slot->inherited)
            ret_entries[n++] = (struct fl_top_entry){
                {slot->name, slot->len}, slot->in_heap.key - slot->inherited, slot->mark};
    }
    free(sorted);
    return n;
}
