#include "core/handle_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CAPACITY_MIN 64
/* Slots of the old table that are moved with each change. A table grows by half, so three would
 * do; but while there are two, they cost more than at any other time. */
#define MOVE_STEP 16
/* In a slot: so far from home, or further; then the hash tells. Nobody gets there by chance. */
#define STEPS_MAX 255u
/* What has been moved is given back when it is a quarter of what is kept, of tables of some size.
 */
#define GIVE_BACK_MIN 65536u

void fl_handle_set_init(struct fl_handle_set *set,
                        uint64_t (*hash)(const void *owner, uint32_t handle), const void *owner)
{
    memset(set, 0, sizeof *set);
    set->hash = hash;
    set->owner = owner;
}

static void table_free(struct fl_handle_table *table)
{
    free(table->slots);
    free(table->steps);
    memset(table, 0, sizeof *table);
}

void fl_handle_set_deinit(struct fl_handle_set *set)
{
    table_free(&set->now);
    table_free(&set->old);
}

static size_t home_of(const struct fl_handle_table *table, uint64_t hash)
{
    return (size_t)((hash >> 32) * table->capacity >> 32);
}

static size_t next_of(const struct fl_handle_table *table, size_t i)
{
    return i + 1 < table->capacity ? i + 1 : 0;
}

static bool is_taken(const struct fl_handle_table *table, size_t i)
{
    return i < table->n_slots && table->steps[i] != 0;
}

/* Of a slot that is taken: 1 at home. */
static size_t steps_at(const struct fl_handle_set *set, const struct fl_handle_table *table,
                       size_t i)
{
    size_t home;

    if (table->steps[i] < STEPS_MAX)
        return table->steps[i];
    home = home_of(table, set->hash(set->owner, table->slots[i]));
    return (i >= home ? i - home : i + table->capacity - home) + 1;
}

static void put_at(struct fl_handle_table *table, size_t i, uint32_t handle, size_t steps)
{
    table->slots[i] = handle;
    table->steps[i] = (uint8_t)(steps < STEPS_MAX ? steps : STEPS_MAX);
}

static uint32_t find_in(const struct fl_handle_set *set, const struct fl_handle_table *table,
                        uint64_t hash,
                        bool (*match)(const void *owner, uint32_t handle, const void *key),
                        const void *key)
{
    size_t i, steps = 1, there;

    if (table->len == 0)
        return 0;
    i = home_of(table, hash);
    /* One that is nearer to its home would have given way. */
    for (; is_taken(table, i) && (there = steps_at(set, table, i)) >= steps; steps++) {
        if (there == steps && match(set->owner, table->slots[i], key))
            return table->slots[i];
        i = next_of(table, i);
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

static void place(struct fl_handle_set *set, uint32_t handle)
{
    struct fl_handle_table *table = &set->now;
    size_t i = home_of(table, set->hash(set->owner, handle)), steps = 1;

    while (table->steps[i] != 0) {
        size_t there = steps_at(set, table, i);

        if (there < steps) {
            uint32_t pushed = table->slots[i];

            put_at(table, i, handle, steps);
            handle = pushed;
            steps = there;
        }
        i = next_of(table, i);
        steps++;
    }
    put_at(table, i, handle, steps);
    table->len++;
}

/* Those behind it come one nearer, up to one that is at home. */
static void close_gap(const struct fl_handle_set *set, struct fl_handle_table *table, size_t hole)
{
    for (size_t i = next_of(table, hole); is_taken(table, i) && table->steps[i] > 1;
         i = next_of(table, i)) {
        put_at(table, hole, table->slots[i], steps_at(set, table, i) - 1);
        hole = i;
    }
    table->steps[hole] = 0;
    table->len--;
}

static bool remove_from(const struct fl_handle_set *set, struct fl_handle_table *table,
                        uint64_t hash, uint32_t handle)
{
    size_t i, steps = 1;

    if (table->len == 0)
        return false;
    i = home_of(table, hash);
    for (; is_taken(table, i) && steps_at(set, table, i) >= steps; steps++) {
        if (table->slots[i] == handle) {
            close_gap(set, table, i);
            return true;
        }
        i = next_of(table, i);
    }
    return false;
}

static void begin_resize(struct fl_handle_set *set, size_t capacity)
{
    FL_REQUIRE(set->old.slots == NULL && capacity <= UINT32_MAX);
    set->old = set->now;
    set->old_left = set->old.capacity;
    set->now.slots = fl_xcalloc(capacity, sizeof *set->now.slots);
    set->now.steps = fl_xcalloc(capacity, sizeof *set->now.steps);
    set->now.capacity = set->now.n_slots = capacity;
    set->now.len = 0;
}

void fl_handle_set_reserve(struct fl_handle_set *set, size_t n)
{
    FL_REQUIRE(fl_handle_set_len(set) == 0);
    fl_handle_set_deinit(set);
    begin_resize(set, n / 3 * 4 + CAPACITY_MIN);
}

static void give_back(struct fl_handle_table *old, size_t left)
{
    if (old->n_slots < GIVE_BACK_MIN || left > old->n_slots / 4 * 3)
        return;
    old->n_slots = left;
    old->slots = fl_xrealloc(old->slots, left * sizeof *old->slots);
    old->steps = fl_xrealloc(old->steps, left * sizeof *old->steps);
}

/* From the end, and whole runs at a time: what is left of the old table keeps its order. */
static void move_some(struct fl_handle_set *set)
{
    struct fl_handle_table *old = &set->old;

    for (int step = 0; old->slots != NULL && step < MOVE_STEP; step++) {
        size_t i = set->old_left - 1;

        while (old->steps[i] != 0) {
            uint32_t handle = old->slots[i];

            close_gap(set, old, i);
            place(set, handle);
        }
        if (--set->old_left == 0 || old->len == 0)
            table_free(old);
    }
    if (old->slots != NULL)
        give_back(old, set->old_left);
}

void fl_handle_set_add(struct fl_handle_set *set, uint32_t handle)
{
    size_t len = fl_handle_set_len(set) + 1;

    move_some(set);
    if (set->now.capacity == 0)
        begin_resize(set, CAPACITY_MIN);
    else if (len > set->now.capacity / 8 * 7 && set->old.slots == NULL)
        begin_resize(set, set->now.capacity / 2 * 3);
    place(set, handle);
}

void fl_handle_set_remove(struct fl_handle_set *set, uint32_t handle)
{
    uint64_t hash = set->hash(set->owner, handle);

    FL_REQUIRE(remove_from(set, &set->now, hash, handle) ||
               remove_from(set, &set->old, hash, handle));
    move_some(set);
    /* By half only: while the old table is moved over, an eighth of it may be added. */
    if (set->old.slots == NULL && set->now.capacity > CAPACITY_MIN &&
        set->now.len < set->now.capacity / 4)
        begin_resize(set, set->now.capacity / 2);
}

size_t fl_handle_set_len(const struct fl_handle_set *set)
{
    return set->now.len + set->old.len;
}

size_t fl_handle_set_memory(const struct fl_handle_set *set)
{
    return (set->now.n_slots + set->old.n_slots) * (sizeof(uint32_t) + sizeof(uint8_t)) + 32;
}
