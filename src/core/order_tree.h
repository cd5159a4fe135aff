/* The inside of the ordered index: order.c has the leaves, order_inner.c what is above them. */
#ifndef FL_CORE_ORDER_TREE_H
#define FL_CORE_ORDER_TREE_H

#include "core/internal.h"

/* 256 bytes. */
#define LEAF_MAX 60u
/* 488 bytes. */
#define INNER_MAX 40u

struct leaf {
    uint32_t parent; /* inner; 0: it is the root */
    uint32_t prev, next;
    uint32_t n;
    fl_handle locks[LEAF_MAX];
};

/* The least text of a child: every name in it is at or behind it, every name in the children before
 * is before it. */
struct low {
    uint16_t len;
    char text[];
};

struct inner {
    uint32_t parent;
    uint16_t n;
    bool has_leaves;
    uint32_t children[INNER_MAX];
    struct low *lows[INNER_MAX]; /* owned; NULL for the first child */
};

static inline struct leaf *fl_order_leaf(const struct order *order, uint32_t handle)
{
    return fl_slab_at(&order->leaves, handle);
}

static inline struct inner *fl_order_inner(const struct order *order, uint32_t handle)
{
    return fl_slab_at(&order->inners, handle);
}

/* The leaf in which the name is, or would be. The tree is not empty. */
uint32_t fl_order_find_leaf(const struct order *order, struct fl_str name);
/* The shortest text that is behind `left` and not behind `right`. */
struct low *fl_order_low_between(struct order *order, struct fl_str left, struct fl_str right);
/* Makes `right` the next child after `left`, of which it was split off; takes `low`. */
void fl_order_insert_child(struct order *order, uint32_t left, uint32_t right, struct low *low);
/* The leaf is empty, and no longer in the chain. */
void fl_order_remove_leaf(struct order *order, uint32_t leaf);
/* The leaves beside it under the same parent; 0: none. */
void fl_order_siblings(const struct order *order, uint32_t leaf, uint32_t *ret_before,
                       uint32_t *ret_behind);
void fl_order_free_lows(struct order *order);

#endif
