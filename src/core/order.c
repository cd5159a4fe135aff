#include "core/order.h"

#include <string.h>

#include "base/assert.h"
#include "core/order_tree.h"

static struct fl_str name_at(const struct fl_machine *m, const struct leaf *leaf, unsigned place)
{
    return fl_lock_name(m, fl_lock_at(m, leaf->locks[place]));
}

/* Where the first name stands that is not before `name` (with `after`: that is behind it). */
static unsigned place_for(const struct fl_machine *m, const struct leaf *leaf, struct fl_str name,
                          bool after)
{
    unsigned first = 0, end = leaf->n;

    while (first < end) {
        unsigned middle = (first + end) / 2;
        int order = fl_str_compare(name_at(m, leaf, middle), name);

        if (order < 0 || (after && order == 0))
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static unsigned place_of(const struct leaf *leaf, fl_handle lock)
{
    unsigned i = 0;

    while (leaf->locks[i] != lock)
        i++;
    FL_REQUIRE(i < leaf->n);
    return i;
}

/* --- The chain of leaves --- */

static uint32_t leaf_new(struct order *order, uint32_t before)
{
    uint32_t handle = fl_slab_take(&order->leaves);
    struct leaf *leaf = fl_order_leaf(order, handle);

    leaf->parent = leaf->next = leaf->n = 0;
    leaf->prev = before;
    if (before != 0) {
        leaf->next = fl_order_leaf(order, before)->next;
        fl_order_leaf(order, before)->next = handle;
    }
    if (leaf->next != 0)
        fl_order_leaf(order, leaf->next)->prev = handle;
    return handle;
}

static void leaf_remove(struct order *order, uint32_t handle)
{
    const struct leaf *leaf = fl_order_leaf(order, handle);

    if (leaf->prev != 0)
        fl_order_leaf(order, leaf->prev)->next = leaf->next;
    if (leaf->next != 0)
        fl_order_leaf(order, leaf->next)->prev = leaf->prev;
    fl_order_remove_leaf(order, handle);
}

/* Locks [first, n) of one go to the end of another. */
static void move_locks(struct fl_machine *m, struct leaf *from, unsigned first, uint32_t to_handle)
{
    struct leaf *to = fl_order_leaf(&m->order, to_handle);

    for (unsigned i = first; i < from->n; i++) {
        fl_lock_at(m, from->locks[i])->leaf = to_handle;
        to->locks[to->n++] = from->locks[i];
    }
    from->n = first;
}

/* --- Adding and removing --- */

/* Makes room in a full leaf for a name that belongs at *place; returns the leaf where it goes, and
 * its place there. Names that come in order (a snapshot that is read, or numbers that rise) leave
 * full leaves behind. */
static uint32_t split(struct fl_machine *m, uint32_t handle, struct fl_str name, unsigned *place)
{
    struct order *order = &m->order;
    struct leaf *leaf = fl_order_leaf(order, handle);
    bool is_last = *place == leaf->n && leaf->next == 0;
    unsigned first = is_last ? leaf->n : leaf->n / 2;
    struct fl_str right = *place == first ? name : name_at(m, leaf, first);
    struct low *low = fl_order_low_between(order, name_at(m, leaf, first - 1), right);
    uint32_t behind = leaf_new(order, handle);

    move_locks(m, leaf, first, behind);
    fl_order_insert_child(order, handle, behind, low);
    if (*place < first)
        return handle;
    *place -= first;
    return behind;
}

void fl_order_add(struct fl_machine *m, fl_handle lock)
{
    struct order *order = &m->order;
    struct fl_str name = fl_lock_name(m, fl_lock_at(m, lock));
    uint32_t handle = order->root != 0 ? fl_order_find_leaf(order, name) : leaf_new(order, 0);
    struct leaf *leaf = fl_order_leaf(order, handle);
    unsigned place = place_for(m, leaf, name, false);

    if (order->root == 0)
        order->root = handle;
    if (leaf->n == LEAF_MAX) {
        handle = split(m, handle, name, &place);
        leaf = fl_order_leaf(order, handle);
    }
    memmove(leaf->locks + place + 1, leaf->locks + place,
            (leaf->n - place) * sizeof leaf->locks[0]);
    leaf->locks[place] = lock;
    leaf->n++;
    fl_lock_at(m, lock)->leaf = handle;
}

/* With room to spare, so that it does not split again at once. */
static bool fit_together(const struct order *order, uint32_t a, uint32_t b)
{
    return a != 0 && b != 0 &&
           fl_order_leaf(order, a)->n + fl_order_leaf(order, b)->n <= LEAF_MAX * 3 / 4;
}

static void join_small(struct fl_machine *m, uint32_t handle)
{
    struct order *order = &m->order;
    uint32_t before, behind;

    fl_order_siblings(order, handle, &before, &behind);
    if (fit_together(order, before, handle)) {
        move_locks(m, fl_order_leaf(order, handle), 0, before);
        leaf_remove(order, handle);
    } else if (fit_together(order, handle, behind)) {
        move_locks(m, fl_order_leaf(order, behind), 0, handle);
        leaf_remove(order, behind);
    }
}

void fl_order_remove(struct fl_machine *m, fl_handle lock)
{
    struct order *order = &m->order;
    uint32_t handle = fl_lock_at(m, lock)->leaf;
    struct leaf *leaf = fl_order_leaf(order, handle);
    unsigned place = place_of(leaf, lock);

    leaf->n--;
    memmove(leaf->locks + place, leaf->locks + place + 1,
            (leaf->n - place) * sizeof leaf->locks[0]);
    if (leaf->n == 0)
        leaf_remove(order, handle);
    else if (leaf->n < LEAF_MAX / 4)
        join_small(m, handle);
}

/* --- Looking --- */

static fl_handle lock_at(const struct order *order, const struct leaf *leaf, unsigned place)
{
    if (place < leaf->n)
        return leaf->locks[place];
    return leaf->next != 0 ? fl_order_leaf(order, leaf->next)->locks[0] : 0;
}

fl_handle fl_order_seek(const struct fl_machine *m, struct fl_str from, bool after)
{
    const struct order *order = &m->order;
    const struct leaf *leaf;

    if (order->root == 0)
        return 0;
    leaf = fl_order_leaf(order, fl_order_find_leaf(order, from));
    return lock_at(order, leaf, place_for(m, leaf, from, after));
}

fl_handle fl_order_next(const struct fl_machine *m, fl_handle lock)
{
    const struct leaf *leaf = fl_order_leaf(&m->order, fl_lock_at(m, lock)->leaf);

    return lock_at(&m->order, leaf, place_of(leaf, lock) + 1);
}

/* --- Life --- */

void fl_order_init(struct order *order)
{
    memset(order, 0, sizeof *order);
    fl_slab_init(&order->leaves, sizeof(struct leaf));
    fl_slab_init(&order->inners, sizeof(struct inner));
}

void fl_order_deinit(struct order *order)
{
    fl_order_free_lows(order);
    fl_slab_deinit(&order->leaves);
    fl_slab_deinit(&order->inners);
}

size_t fl_order_memory(const struct order *order)
{
    return fl_slab_memory(&order->leaves) + fl_slab_memory(&order->inners) + order->low_memory;
}

/* --- For tests --- */

static const char *fault_of_leaf(const struct fl_machine *m, uint32_t handle, uint32_t parent,
                                 const struct low *low)
{
    const struct leaf *leaf = fl_order_leaf(&m->order, handle);

    if (leaf->parent != parent)
        return "a leaf has another's parent";
    if (leaf->n == 0)
        return "a leaf is empty";
    if (leaf->next != 0 && fl_order_leaf(&m->order, leaf->next)->prev != handle)
        return "the chain of leaves is broken";
    for (unsigned i = 0; i < leaf->n; i++) {
        if (fl_lock_at(m, leaf->locks[i])->leaf != handle)
            return "a lock is in another leaf than it knows";
    }
    if (low != NULL &&
        fl_str_compare(name_at(m, leaf, 0), (struct fl_str){low->text, low->len}) < 0)
        return "a name is before its leaf's";
    if (low != NULL && leaf->prev != 0) {
        const struct leaf *before = fl_order_leaf(&m->order, leaf->prev);

        if (fl_str_compare(name_at(m, before, before->n - 1),
                           (struct fl_str){low->text, low->len}) >= 0)
            return "a name is in the leaf before its own";
    }
    return NULL;
}

static const char *fault_of(const struct fl_machine *m, uint32_t handle, unsigned height,
                            uint32_t parent, const struct low *low)
{
    const struct inner *inner;
    const char *fault = NULL;

    if (height == 0)
        return fault_of_leaf(m, handle, parent, low);
    inner = fl_order_inner(&m->order, handle);
    if (inner->parent != parent || inner->n == 0 || inner->has_leaves != (height == 1))
        return "an inner node is not what it says";
    if (inner->lows[0] != NULL)
        return "there is a text before the first child";
    for (unsigned i = 0; i < inner->n && fault == NULL; i++)
        fault = fault_of(m, inner->children[i], height - 1, handle, i == 0 ? low : inner->lows[i]);
    return fault;
}

const char *fl_order__fault(const struct fl_machine *m)
{
    const struct order *order = &m->order;

    if (order->root == 0)
        return order->leaves.used != 0 || order->inners.used != 0 || order->low_memory != 0
                   ? "an empty tree has nodes"
                   : NULL;
    return fault_of(m, order->root, order->height, 0, NULL);
}
