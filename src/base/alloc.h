/* Memory for the daemon and the tools: an allocation succeeds or the process ends, since a replica
 * that skips an entry for want of memory is worse than one that restarts. libfencelock does not use
 * these: it returns FL_E_NOMEM. */
#ifndef FL_BASE_ALLOC_H
#define FL_BASE_ALLOC_H

#include <stddef.h>

/* Never NULL; a size of 0 gives a pointer that can be freed. The result is freed with free(). */
void *fl_xalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *fl_xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *fl_xrealloc(void *old, size_t size) __attribute__((returns_nonnull));
char *fl_xstrdup(const char *text) __attribute__((malloc, returns_nonnull));
void *fl_xmemdup(const void *data, size_t size) __attribute__((malloc, returns_nonnull));

/* The capacity that holds `need` elements, grown by half from `old`; ends the process when
 * `need * element_size` would overflow. */
size_t fl_grow_capacity(size_t old, size_t need, size_t element_size);

/* struct that contains `member`, from a pointer to the member. */
#define FL_CONTAINER_OF(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define FL_ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

#endif
