#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "core/order_tree.h"

/* --- The texts between --- */

static size_t memory_of(const struct low *low)
{
    return sizeof *low + low->len + 16; /* the allocator's share, about */
}

struct low *fl_order_low_between(struct order *order, struct fl_str left, struct fl_str right)
{
    size_t len = 0;
    struct low *low;

    while (len < left.len && left.data[len] == right.data[len])
        len++;
    len++; /* `right` is behind `left`, so it has one more that differs */
    FL_REQUIRE(len <= right.len);
    low = fl_xalloc(sizeof *low + len);
    low->len = (uint16_t)len;
    memcpy(low->text, right.data, len);
    order->low_memory += memory_of(low);
    return low;
}

static void low_free(struct order *order, struct low *low)
{
    if (low == NULL)
        return;
    order->low_memory -= memory_of(low);
    free(low);
}

/* --- Searching --- */

/* The last child whose low is not behind the name. */
static unsigned child_for(const struct inner *inner, struct fl_str name)
{
    unsigned first = 0, end = inner->n;

    while (end - first > 1) {
        unsigned middle = (first + end) / 2;
        const struct low *low = inner->lows[middle];

        if (fl_str_compare((struct fl_str){low->text, low->len}, name) <= 0)
            first = middle;
        else
            end = middle;
    }
    return first;
}

uint32_t fl_order_find_leaf(const struct order *order, struct fl_str name)
{
    uint32_t at = order->root;

    for (unsigned height = order->height; height > 0; height--) {
        const struct inner *inner = fl_order_inner(order, at);

        at = inner->children[child_for(inner, name)];
    }
    return at;
}

static unsigned place_of(const struct inner *inner, uint32_t child)
{
    unsigned i = 0;

    while (inner->children[i] != child)
        i++;
    return i;
}

void fl_order_siblings(const struct order *order, uint32_t leaf, uint32_t *ret_before,
                       uint32_t *ret_behind)
{
    uint32_t parent = fl_order_leaf(order, leaf)->parent;

    *ret_before = *ret_behind = 0;
    if (parent != 0) {
        const struct inner *inner = fl_order_inner(order, parent);
        unsigned place = place_of(inner, leaf);

        if (place > 0)
            *ret_before = inner->children[place - 1];
        if (place + 1 < inner->n)
            *ret_behind = inner->children[place + 1];
    }
}

/* --- Growing --- */

static uint32_t inner_new(struct order *order, bool has_leaves)
{
    uint32_t handle = fl_slab_take(&order->inners);
    struct inner *inner = fl_order_inner(order, handle);

    memset(inner, 0, sizeof *inner);
    inner->has_leaves = has_leaves;
    return handle;
}

static void set_parent(const struct order *order, bool is_leaf, uint32_t child, uint32_t parent)
{
    if (is_leaf)
        fl_order_leaf(order, child)->parent = parent;
    else
        fl_order_inner(order, child)->parent = parent;
}

/* Children [from, n) of one go to the end of another. */
static void move_children(const struct order *order, struct inner *from, unsigned first,
                          uint32_t to_handle)
{
    struct inner *to = fl_order_inner(order, to_handle);
    unsigned n = from->n - first;

    memcpy(to->children + to->n, from->children + first, n * sizeof from->children[0]);
    memcpy(to->lows + to->n, from->lows + first, n * sizeof from->lows[0]);
    for (unsigned i = first; i < from->n; i++)
        set_parent(order, from->has_leaves, from->children[i], to_handle);
    to->n = (uint16_t)(to->n + n);
    from->n = (uint16_t)first;
}

static void grow_root(struct order *order, uint32_t left, bool is_leaf)
{
    uint32_t root = inner_new(order, is_leaf);
    struct inner *inner = fl_order_inner(order, root);

    inner->children[0] = left;
    inner->n = 1;
    set_parent(order, is_leaf, left, root);
    order->root = root;
    order->height++;
}

static void insert_at(struct order *order, uint32_t handle, uint32_t left, uint32_t right,
                      struct low *low);

/* One that is full gives its second half to a new one behind it. */
static uint32_t split_inner(struct order *order, uint32_t handle)
{
    struct inner *inner = fl_order_inner(order, handle), *half;
    uint32_t behind = inner_new(order, inner->has_leaves);
    struct low *low;

    move_children(order, inner, INNER_MAX / 2, behind);
    half = fl_order_inner(order, behind);
    low = half->lows[0];
    half->lows[0] = NULL;
    if (inner->parent == 0)
        grow_root(order, handle, false);
    insert_at(order, inner->parent, handle, behind, low);
    return behind;
}

static void insert_at(struct order *order, uint32_t handle, uint32_t left, uint32_t right,
                      struct low *low)
{
    struct inner *inner = fl_order_inner(order, handle);
    unsigned place = place_of(inner, left) + 1;

    if (inner->n == INNER_MAX) {
        uint32_t behind = split_inner(order, handle);

        if (place > INNER_MAX / 2) {
            handle = behind;
            place -= INNER_MAX / 2;
        }
        inner = fl_order_inner(order, handle);
    }
    memmove(inner->children + place + 1, inner->children + place,
            (inner->n - place) * sizeof inner->children[0]);
    memmove(inner->lows + place + 1, inner->lows + place,
            (inner->n - place) * sizeof inner->lows[0]);
    inner->children[place] = right;
    inner->lows[place] = low;
    inner->n++;
    set_parent(order, inner->has_leaves, right, handle);
}

void fl_order_insert_child(struct order *order, uint32_t left, uint32_t right, struct low *low)
{
    if (fl_order_leaf(order, left)->parent == 0)
        grow_root(order, left, true);
    insert_at(order, fl_order_leaf(order, left)->parent, left, right, low);
}

/* --- Shrinking --- */

static void remove_at(struct order *order, uint32_t handle, unsigned place);

/* Joins a small one with the one behind it, or before it, where both fit well. */
static void join_small(struct order *order, uint32_t handle)
{
    const struct inner *inner = fl_order_inner(order, handle);
    uint32_t parent = inner->parent, left, right;
    struct inner *above, *first, *second;
    unsigned place;

    if (parent == 0 || inner->n >= INNER_MAX / 4)
        return;
    above = fl_order_inner(order, parent);
    place = place_of(above, handle);
    if (above->n == 1)
        return;
    if (place + 1 == above->n)
        place--;
    left = above->children[place];
    right = above->children[place + 1];
    first = fl_order_inner(order, left);
    second = fl_order_inner(order, right);
    if (first->n + second->n > INNER_MAX * 3 / 4)
        return;
    second->lows[0] = above->lows[place + 1];
    above->lows[place + 1] = NULL;
    move_children(order, second, 0, left);
    fl_slab_give(&order->inners, right);
    remove_at(order, parent, place + 1);
}

/* A root with one child is none. */
static void shrink_root(struct order *order)
{
    while (order->height > 0 && fl_order_inner(order, order->root)->n == 1) {
        uint32_t root = order->root;
        const struct inner *inner = fl_order_inner(order, root);

        order->root = inner->children[0];
        order->height--;
        set_parent(order, inner->has_leaves, order->root, 0);
        fl_slab_give(&order->inners, root);
    }
}

/* The child is gone already; its low goes too. */
static void remove_at(struct order *order, uint32_t handle, unsigned place)
{
    struct inner *inner = fl_order_inner(order, handle);

    low_free(order, inner->lows[place]);
    inner->n--;
    memmove(inner->children + place, inner->children + place + 1,
            (inner->n - place) * sizeof inner->children[0]);
    memmove(inner->lows + place, inner->lows + place + 1,
            (inner->n - place) * sizeof inner->lows[0]);
    if (inner->n == 0) {
        uint32_t parent = inner->parent; /* a root has two children at least */

        FL_REQUIRE(parent != 0);
        place = place_of(fl_order_inner(order, parent), handle);
        fl_slab_give(&order->inners, handle);
        remove_at(order, parent, place);
        return;
    }
    if (place == 0) { /* what is first needs no text before it */
        low_free(order, inner->lows[0]);
        inner->lows[0] = NULL;
    }
    join_small(order, handle);
    shrink_root(order);
}

void fl_order_remove_leaf(struct order *order, uint32_t leaf)
{
    uint32_t parent = fl_order_leaf(order, leaf)->parent;

    fl_slab_give(&order->leaves, leaf);
    if (parent == 0)
        order->root = 0;
    else
        remove_at(order, parent, place_of(fl_order_inner(order, parent), leaf));
}

static void free_lows_of(struct order *order, uint32_t handle)
{
    const struct inner *inner = fl_order_inner(order, handle);

    for (unsigned i = 0; i < inner->n; i++) {
        low_free(order, inner->lows[i]);
        if (!inner->has_leaves)
            free_lows_of(order, inner->children[i]);
    }
}

void fl_order_free_lows(struct order *order)
{
    if (order->height > 0)
        free_lows_of(order, order->root);
}
