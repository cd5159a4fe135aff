#include "base/map.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CAPACITY_MIN 16

void fl_map_deinit(struct fl_map *map)
{
    if (map == NULL)
        return;
    free(map->slots);
    *map = FL_MAP_INIT;
}

void *fl_map_find(const struct fl_map *map, uint64_t hash, fl_map_match match, const void *key)
{
    size_t mask = map->capacity - 1;

    if (map->len == 0)
        return NULL;
    for (size_t i = hash & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
        if (map->slots[i].hash == hash && match(map->slots[i].value, key))
            return map->slots[i].value;
    }
    return NULL;
}

static void place(struct fl_map *map, struct fl_map_slot slot)
{
    size_t mask = map->capacity - 1;
    size_t i = slot.hash & mask;

    while (map->slots[i].value != NULL)
        i = (i + 1) & mask;
    map->slots[i] = slot;
}

static void resize(struct fl_map *map, size_t capacity)
{
    struct fl_map_slot *old = map->slots;
    size_t old_capacity = map->capacity;

    map->slots = fl_xcalloc(capacity, sizeof *map->slots);
    map->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].value != NULL)
            place(map, old[i]);
    }
    free(old);
}

void fl_map_insert(struct fl_map *map, uint64_t hash, void *value)
{
    FL_REQUIRE(value != NULL);
    if (map->capacity == 0 || map->len + 1 > map->capacity / 4 * 3)
        resize(map, map->capacity == 0 ? CAPACITY_MIN : map->capacity * 2);
    place(map, (struct fl_map_slot){hash, value});
    map->len++;
}

/* Closes the gap at `hole`: each follower that may sit there moves back (Knuth, TAOCP 6.4, R). */
static void close_gap(struct fl_map *map, size_t hole)
{
    size_t mask = map->capacity - 1;

    for (size_t i = (hole + 1) & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
        size_t home = map->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole].value = NULL;
}

bool fl_map_remove(struct fl_map *map, uint64_t hash, const void *value)
{
    size_t mask = map->capacity - 1;

    if (map->len == 0)
        return false;
    for (size_t i = hash & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
        if (map->slots[i].value != value)
            continue;
        close_gap(map, i);
        map->len--;
        if (map->capacity > CAPACITY_MIN && map->len < map->capacity / 8)
            resize(map, map->capacity / 2);
        return true;
    }
    return false;
}

void *fl_map_next(const struct fl_map *map, size_t *cursor)
{
    while (*cursor < map->capacity) {
        void *value = map->slots[(*cursor)++].value;

        if (value != NULL)
            return value;
    }
    return NULL;
}
