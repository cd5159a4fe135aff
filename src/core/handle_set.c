#include "core/handle_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CAPACITY_MIN 64
/* Slots of the old table that are moved with each change: with a table that doubles, two would do.
 */
#define MOVE_STEP 8

void fl_handle_set_init(struct fl_handle_set *set,
                        uint64_t (*hash)(const void *owner, uint32_t handle), const void *owner)
{
    memset(set, 0, sizeof *set);
    set->hash = hash;
    set->owner = owner;
}

void fl_handle_set_deinit(struct fl_handle_set *set)
{
    free(set->now.slots);
    free(set->old.slots);
    memset(&set->now, 0, sizeof set->now);
    memset(&set->old, 0, sizeof set->old);
}

static uint32_t find_in(const struct fl_handle_set *set, const struct fl_handle_table *table,
                        uint64_t hash,
                        bool (*match)(const void *owner, uint32_t handle, const void *key),
                        const void *key)
{
    size_t mask = table->capacity - 1;

    if (table->len == 0)
        return 0;
    for (size_t i = hash & mask; table->slots[i] != 0; i = (i + 1) & mask) {
        if (match(set->owner, table->slots[i], key))
            return table->slots[i];
    }
    return 0;
}

uint32_t fl_handle_set_find(const struct fl_handle_set *set, uint64_t hash,
                            bool (*match)(const void *owner, uint32_t handle, const void *key),
                            const void *key)
{
    uint32_t handle = find_in(set, &set->now, hash, match, key);

    return handle != 0 ? handle : find_in(set, &set->old, hash, match, key);
}

static void place(struct fl_handle_table *table, uint64_t hash, uint32_t handle)
{
    size_t mask = table->capacity - 1;
    size_t i = hash & mask;

    while (table->slots[i] != 0)
        i = (i + 1) & mask;
    table->slots[i] = handle;
    table->len++;
}

/* Closes the gap at `hole`: each follower that may sit there moves back (Knuth, TAOCP 6.4, R). */
static void close_gap(const struct fl_handle_set *set, struct fl_handle_table *table, size_t hole)
{
    size_t mask = table->capacity - 1;

    for (size_t i = (hole + 1) & mask; table->slots[i] != 0; i = (i + 1) & mask) {
        size_t home = set->hash(set->owner, table->slots[i]) & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table->slots[hole] = table->slots[i];
            hole = i;
        }
    }
    table->slots[hole] = 0;
    table->len--;
}

static bool remove_from(const struct fl_handle_set *set, struct fl_handle_table *table,
                        uint64_t hash, uint32_t handle)
{
    size_t mask = table->capacity - 1;

    if (table->len == 0)
        return false;
    for (size_t i = hash & mask; table->slots[i] != 0; i = (i + 1) & mask) {
        if (table->slots[i] == handle) {
            close_gap(set, table, i);
            return true;
        }
    }
    return false;
}

static void begin_resize(struct fl_handle_set *set, size_t capacity)
{
    FL_REQUIRE(set->old.slots == NULL);
    set->old = set->now;
    set->old_left = set->old.capacity;
    set->now.slots = fl_xcalloc(capacity, sizeof *set->now.slots);
    set->now.capacity = capacity;
    set->now.len = 0;
}

/* From the end, and whole runs at a time: what is left of the old table keeps its probe chains. */
static void move_some(struct fl_handle_set *set)
{
    struct fl_handle_table *old = &set->old;

    for (int step = 0; old->slots != NULL && step < MOVE_STEP; step++) {
        size_t i = set->old_left - 1;

        while (old->slots[i] != 0) {
            uint32_t handle = old->slots[i];

            close_gap(set, old, i);
            place(&set->now, set->hash(set->owner, handle), handle);
        }
        if (--set->old_left == 0 || old->len == 0) {
            free(old->slots);
            memset(old, 0, sizeof *old);
        }
    }
}

void fl_handle_set_add(struct fl_handle_set *set, uint32_t handle)
{
    size_t len = fl_handle_set_len(set) + 1;

    move_some(set);
    if (set->now.capacity == 0)
        begin_resize(set, CAPACITY_MIN);
    else if (len > set->now.capacity / 5 * 4 && set->old.slots == NULL)
        begin_resize(set, set->now.capacity * 2);
    place(&set->now, set->hash(set->owner, handle), handle);
}

void fl_handle_set_remove(struct fl_handle_set *set, uint32_t handle)
{
    uint64_t hash = set->hash(set->owner, handle);

    FL_REQUIRE(remove_from(set, &set->now, hash, handle) ||
               remove_from(set, &set->old, hash, handle));
    move_some(set);
    /* By half only: while the old table is moved over, an eighth of it may be added. */
    if (set->old.slots == NULL && set->now.capacity > CAPACITY_MIN &&
        set->now.len < set->now.capacity / 8)
        begin_resize(set, set->now.capacity / 2);
}

size_t fl_handle_set_len(const struct fl_handle_set *set)
{
    return set->now.len + set->old.len;
}

size_t fl_handle_set_memory(const struct fl_handle_set *set)
{
    return (set->now.capacity + set->old.capacity) * sizeof(uint32_t) + 32;
}
