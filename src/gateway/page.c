#include "gateway/page.h"

#include "base/error.h"

#define VERSION 'a'

static const char digits[] = "0123456789abcdef";

char *fl_page_token(struct fl_arena *arena, struct fl_str last)
{
    char *token = fl_arena_alloc(arena, 2 * last.len + 2), *at = token;

    *at++ = VERSION;
    for (size_t i = 0; i < last.len; i++) {
        unsigned char byte = (unsigned char)last.data[i];

        *at++ = digits[byte >> 4];
        *at++ = digits[byte & 15];
    }
    return token;
}

static int digit_value(char c)
{
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

int fl_page_parse(const char *token, char *out, struct fl_str *ret_last)
{
    size_t len = strlen(token);

    if (len == 0) {
        *ret_last = (struct fl_str){NULL, 0};
        return FL_OK;
    }
    if (token[0] != VERSION || len % 2 == 0 || len / 2 > FL_NAME_MAX)
        return FL_E_INVALID;
    for (size_t i = 0; i < len / 2; i++) {
        int high = digit_value(token[1 + 2 * i]), low = digit_value(token[2 + 2 * i]);

        if (high < 0 || low < 0)
            return FL_E_INVALID;
        out[i] = (char)(high << 4 | low);
    }
    *ret_last = (struct fl_str){out, len / 2};
    return FL_OK;
}
