/* The names that occur most often of however many, in bounded memory: a space-saving sketch
 * (Metwally, Agrawal, El Abbadi, 2005). Whatever occurs more often than once in `capacity` is among
 * them for certain. A name gets the place of the rarest and its count with it; one that owes more
 * than half of its count to those before is not listed, so that among a million names of which none
 * stands out none is named. */
#ifndef FL_BASE_TOP_H
#define FL_BASE_TOP_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/str.h"

struct fl_top;

struct fl_top_entry {
    struct fl_str name; /* borrowed until the next change */
    uint64_t count;
    uint32_t mark; /* what the user noted last */
};

/* Names are cut at `name_max` bytes. */
struct fl_top *fl_top_new(size_t capacity, size_t name_max, struct fl_hash_key key);
void fl_top_free(struct fl_top *top);
void fl_top_add(struct fl_top *top, struct fl_str name, uint64_t count);
/* Notes something beside a name that is in the sketch; else does nothing. */
void fl_top_mark(struct fl_top *top, struct fl_str name, uint32_t mark);
/* Scales every count, so that what is past fades; names whose count becomes 0 go. */
void fl_top_fade(struct fl_top *top, double factor);
/* The first `max`, most often first, with at least what they occurred themselves while they were
 * here. Returns how many. */
size_t fl_top_list(const struct fl_top *top, struct fl_top_entry *ret_entries, size_t max);

#endif
