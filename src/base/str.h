/* A borrowed string: pointer and length, not terminated. */
#ifndef FL_BASE_STR_H
#define FL_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct fl_str {
    const char *data; /* borrowed; may be NULL when len is 0 */
    size_t len;
};

#define FL_STR(literal) ((struct fl_str){(literal), sizeof(literal) - 1})

/* For printf: printf("%.*s", FL_STR_ARGS(s)). */
#define FL_STR_ARGS(s) (int)(s).len, ((s).data != NULL ? (s).data : "")

static inline struct fl_str fl_str_from(const char *text)
{
    return (struct fl_str){text, text != NULL ? strlen(text) : 0};
}

static inline bool fl_str_equal(struct fl_str a, struct fl_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Order of bytes, a prefix before what it begins: the order of List. */
int fl_str_compare(struct fl_str a, struct fl_str b);

bool fl_str_has_prefix(struct fl_str s, struct fl_str prefix);

/* Whether `s` is well-formed UTF-8 (Unicode 15, table 3-7): no overlong form, no surrogate, nothing
 * above U+10FFFF. */
bool fl_str_is_utf8(struct fl_str s);

/* Whether `s` holds a control character: U+0000 to U+001F, U+007F to U+009F. `s` must be UTF-8. */
bool fl_str_has_control(struct fl_str s);

/* Writes `s` for a log line or an error: control characters, backslashes and bytes that are not
 * UTF-8 as \xNN. Always terminates; cuts at a whole character and ends in "..." when `size` is too
 * small (at least 8). Returns `out`. */
const char *fl_str_escape(struct fl_str s, char *out, size_t size);

#endif
