#include "base/str.h"

#include <stdint.h>

#include "base/assert.h"

int fl_str_compare(struct fl_str a, struct fl_str b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter != 0 ? memcmp(a.data, b.data, shorter) : 0;

    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

bool fl_str_has_prefix(struct fl_str s, struct fl_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.data, prefix.data, prefix.len) == 0);
}

/* Length of the well-formed sequence at `p` (Unicode 15, table 3-7), or 0. */
static size_t utf8_sequence(const uint8_t *p, size_t left)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        len = 3;
        if (p[0] == 0xe0)
            low = 0xa0; /* shorter forms exist */
        if (p[0] == 0xed)
            high = 0x9f; /* surrogates */
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4;
        if (p[0] == 0xf0)
            low = 0x90;
        if (p[0] == 0xf4)
            high = 0x8f; /* U+10FFFF is the last */
    } else {
        return 0;
    }
    if (left < len || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

bool fl_str_is_utf8(struct fl_str s)
{
    const uint8_t *p = (const uint8_t *)s.data;

    for (size_t i = 0; i < s.len;) {
        size_t len = utf8_sequence(p + i, s.len - i);

        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

static bool is_control(const uint8_t *p, size_t len)
{
    return (len == 1 && (p[0] < 0x20 || p[0] == 0x7f)) || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0);
}

bool fl_str_has_control(struct fl_str s)
{
    const uint8_t *p = (const uint8_t *)s.data;

    for (size_t i = 0; i < s.len;) {
        size_t len = utf8_sequence(p + i, s.len - i);

        if (len == 0)
            len = 1;
        if (is_control(p + i, len))
            return true;
        i += len;
    }
    return false;
}

/* How one character is shown: itself, or each of its bytes as \\xNN. */
struct piece {
    size_t bytes, shown;
    bool is_plain;
};

static struct piece next_piece(const uint8_t *p, size_t left)
{
    size_t len = utf8_sequence(p, left);
    bool is_plain = len != 0 && !is_control(p, len) && p[0] != '\\';
    size_t bytes = len != 0 ? len : 1;

    return (struct piece){bytes, is_plain ? bytes : 4 * bytes, is_plain};
}

const char *fl_str_escape(struct fl_str s, char *out, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = (const uint8_t *)s.data;
    size_t room = size - 1, used = 0, total = 0;

    FL_REQUIRE(size >= 8);
    for (size_t i = 0; i < s.len && total <= room;) {
        struct piece piece = next_piece(p + i, s.len - i);

        total += piece.shown;
        i += piece.bytes;
    }
    if (total > room)
        room -= 3; /* for the "..." */
    for (size_t i = 0; i < s.len;) {
        struct piece piece = next_piece(p + i, s.len - i);

        if (used + piece.shown > room) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        for (size_t k = i; k < i + piece.bytes; k++) {
            if (piece.is_plain) {
                out[used++] = (char)p[k];
            } else {
                out[used++] = '\\';
                out[used++] = 'x';
                out[used++] = digits[p[k] >> 4];
                out[used++] = digits[p[k] & 15];
            }
        }
        i += piece.bytes;
    }
    out[used] = '\0';
    return out;
}
