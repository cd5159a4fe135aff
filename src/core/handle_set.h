/* A hash set of 32-bit handles, open addressing, grown and shrunk a little with each change, so
 * that no single insertion at two million entries stalls the others. What a handle hashes to, and
 * what it is equal to, is its owner's business.
 *
 * Each slot knows how far its handle is from home, and those further away go first (Robin Hood
 * hashing; Celis, 1986). So a search looks only at handles of the same home, a removal asks for no
 * hash, and the tables can be full to seven eighths. */
#ifndef FL_CORE_HANDLE_SET_H
#define FL_CORE_HANDLE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_handle_set {
    struct fl_handle_table {
        uint32_t *slots; /* owned */
        uint8_t *steps;  /* owned; 0: empty; 1: at home; 2: one further; ... */
        size_t capacity, len;
        size_t n_slots; /* of the capacity, those that are kept: the rest is empty */
    } now, old;         /* `old` is being moved over, from its end, and gives back what is empty */
    size_t old_left;
    uint64_t (*hash)(const void *owner, uint32_t handle);
    const void *owner;
};

void fl_handle_set_init(struct fl_handle_set *set,
                        uint64_t (*hash)(const void *owner, uint32_t handle), const void *owner);
void fl_handle_set_deinit(struct fl_handle_set *set);
/* The handle that matches, or 0. */
uint32_t fl_handle_set_find(const struct fl_handle_set *set, uint64_t hash,
                            bool (*match)(const void *owner, uint32_t handle, const void *key),
                            const void *key);
/* Room for so many; the set must be empty. */
void fl_handle_set_reserve(struct fl_handle_set *set, size_t n);
/* Must not be in it. */
void fl_handle_set_add(struct fl_handle_set *set, uint32_t handle);
/* Must be in it. */
void fl_handle_set_remove(struct fl_handle_set *set, uint32_t handle);
size_t fl_handle_set_len(const struct fl_handle_set *set);
size_t fl_handle_set_memory(const struct fl_handle_set *set);

#endif
