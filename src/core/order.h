/* Names in byte order, for prefix listing and snapshots: a B+ tree whose leaves hold the handles of
 * locks, each of which knows its leaf. So a name that goes is found without a comparison, one that
 * comes costs a few, and whoever goes through all of them in order does not search at all.
 *
 * Between two children stands the shortest text that tells them apart (prefix B-trees, Bayer and
 * Unterauer, 1977): the search to the leaf touches no lock and no name. */
#ifndef FL_CORE_ORDER_H
#define FL_CORE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "core/slab.h"

struct fl_machine;

struct order {
    struct fl_slab leaves, inners;
    uint32_t root;     /* a leaf's handle, or an inner node's; 0: no names */
    unsigned height;   /* inner nodes above each leaf */
    size_t low_memory; /* of the texts between */
};

void fl_order_init(struct order *order);
void fl_order_deinit(struct order *order);
size_t fl_order_memory(const struct order *order);

/* The lock's name must be set, and not be in it. */
void fl_order_add(struct fl_machine *m, uint32_t lock);
void fl_order_remove(struct fl_machine *m, uint32_t lock);
/* The first name that is not before `from` (or, with `after`, that is behind it); 0: none. */
uint32_t fl_order_seek(const struct fl_machine *m, struct fl_str from, bool after);
/* The name behind that one; 0: none. */
uint32_t fl_order_next(const struct fl_machine *m, uint32_t lock);
/* What is wrong with the tree, or NULL. For tests. */
const char *fl_order__fault(const struct fl_machine *m);

#endif
