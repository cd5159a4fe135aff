#include "base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *memory, size_t size)
{
    if (memory == NULL) {
        fprintf(stderr, "fencelock: out of memory (%zu bytes asked)\n", size);
        abort();
    }
    return memory;
}

void *fl_xalloc(size_t size)
{
    return checked(malloc(size != 0 ? size : 1), size);
}

void *fl_xcalloc(size_t count, size_t size)
{
    if (count == 0 || size == 0)
        return fl_xalloc(0);
    return checked(calloc(count, size), size);
}

void *fl_xrealloc(void *old, size_t size)
{
    return checked(realloc(old, size != 0 ? size : 1), size);
}

char *fl_xstrdup(const char *text)
{
    return fl_xmemdup(text, strlen(text) + 1);
}

void *fl_xmemdup(const void *data, size_t size)
{
    void *copy = fl_xalloc(size);

    if (size != 0)
        memcpy(copy, data, size);
    return copy;
}

size_t fl_grow_capacity(size_t old, size_t need, size_t element_size)
{
    size_t capacity = old < 8 ? 8 : old;

    while (capacity < need) {
        if (capacity > SIZE_MAX / 2)
            checked(NULL, SIZE_MAX);
        capacity += capacity / 2;
    }
    if (element_size != 0 && capacity > SIZE_MAX / element_size)
        checked(NULL, SIZE_MAX);
    return capacity;
}
