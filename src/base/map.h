/* A hash map from a 64-bit hash to pointers, open addressing with linear probing and backward-shift
 * deletion (no tombstones, so memory and probe lengths recover after a peak). The caller owns the
 * elements and decides equality, so a key of any kind works:
 *
 *     struct session *s = fl_map_find(&map, hash_of(id), session_has_id, &id);
 */
#ifndef FL_BASE_MAP_H
#define FL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_map_slot {
    uint64_t hash;
    void *value; /* NULL: empty */
};

struct fl_map {
    struct fl_map_slot *slots; /* owned; borrowed values */
    size_t len, capacity;      /* a power of two, or 0 */
};

typedef bool (*fl_map_match)(const void *value, const void *key);

#define FL_MAP_INIT ((struct fl_map){NULL, 0, 0})

void fl_map_deinit(struct fl_map *map);
/* The value, or NULL. */
void *fl_map_find(const struct fl_map *map, uint64_t hash, fl_map_match match, const void *key);
/* `value` must not be NULL; an equal one must not be there (the map does not look). */
void fl_map_insert(struct fl_map *map, uint64_t hash, void *value);
/* Removes by identity; returns whether it was there. Shrinks when mostly empty. */
bool fl_map_remove(struct fl_map *map, uint64_t hash, const void *value);
/* Walks in no promised order: start with *cursor = 0, until NULL. The map must not change
 * meanwhile. */
void *fl_map_next(const struct fl_map *map, size_t *cursor);

#endif
