/* A hash set of 32-bit handles, open addressing, grown and shrunk a little with each change, so
 * that no single insertion at two million entries stalls the others. What a handle hashes to, and
 * what it is equal to, is its owner's business. */
#ifndef FL_CORE_HANDLE_SET_H
#define FL_CORE_HANDLE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_handle_set {
    struct fl_handle_table {
        uint32_t *slots; /* owned; 0: empty */
        size_t capacity, len;
    } now, old; /* `old` is being moved over, from its end */
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
/* Must not be in it. */
void fl_handle_set_add(struct fl_handle_set *set, uint32_t handle);
/* Must be in it. */
void fl_handle_set_remove(struct fl_handle_set *set, uint32_t handle);
size_t fl_handle_set_len(const struct fl_handle_set *set);
size_t fl_handle_set_memory(const struct fl_handle_set *set);

#endif
