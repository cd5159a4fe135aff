/* Names in byte order, for prefix listing: a treap (Seidel and Aragon, 1996) whose links live in
 * the lock records. Priorities are a mix of the handles, so they need no memory; the shape has no
 * effect on what is listed. */
#include "core/internal.h"

static uint64_t priority(fl_handle handle)
{
    return fl_hash_mix64(handle);
}

static bool is_before(const struct fl_machine *m, fl_handle a, struct fl_str name)
{
    return fl_str_compare(fl_lock_name(m, fl_lock_at(m, a)), name) < 0;
}

/* Splits the tree at `name`: what is before it goes under *left, the rest under *right. */
static void split(const struct fl_machine *m, fl_handle root, struct fl_str name, fl_handle *left,
                  fl_handle *right)
{
    while (root != 0) {
        struct lock *lock = fl_lock_at(m, root);

        if (is_before(m, root, name)) {
            *left = root;
            left = &lock->right;
            root = lock->right;
        } else {
            *right = root;
            right = &lock->left;
            root = lock->left;
        }
    }
    *left = *right = 0;
}

void fl_order_add(struct fl_machine *m, fl_handle handle)
{
    struct lock *lock = fl_lock_at(m, handle);
    struct fl_str name = fl_lock_name(m, lock);
    fl_handle *at = &m->order_root;

    while (*at != 0 && priority(*at) >= priority(handle))
        at = is_before(m, *at, name) ? &fl_lock_at(m, *at)->right : &fl_lock_at(m, *at)->left;
    split(m, *at, name, &lock->left, &lock->right);
    *at = handle;
}

/* Joins two trees of which all of `left` is before all of `right`. */
static void join(const struct fl_machine *m, fl_handle left, fl_handle right, fl_handle *root)
{
    while (left != 0 && right != 0) {
        if (priority(left) >= priority(right)) {
            *root = left;
            root = &fl_lock_at(m, left)->right;
            left = *root;
        } else {
            *root = right;
            root = &fl_lock_at(m, right)->left;
            right = *root;
        }
    }
    *root = left != 0 ? left : right;
}

void fl_order_remove(struct fl_machine *m, fl_handle handle)
{
    struct lock *lock = fl_lock_at(m, handle);
    struct fl_str name = fl_lock_name(m, lock);
    fl_handle *at = &m->order_root;

    while (*at != handle)
        at = is_before(m, *at, name) ? &fl_lock_at(m, *at)->right : &fl_lock_at(m, *at)->left;
    join(m, lock->left, lock->right, at);
}

fl_handle fl_order_seek(const struct fl_machine *m, struct fl_str from, bool after)
{
    fl_handle at = m->order_root, best = 0;

    while (at != 0) {
        const struct lock *lock = fl_lock_at(m, at);
        int order = fl_str_compare(fl_lock_name(m, lock), from);

        if (order < 0 || (after && order == 0)) {
            at = lock->right;
        } else {
            best = at;
            at = lock->left;
        }
    }
    return best;
}
