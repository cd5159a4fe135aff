#include <stdio.h>
#include <string.h>

#include "base/error.h"

#include <fencelock/fencelock.h>

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '#' && c != '%';
}

/* The end of what was written, or NULL: it does not fit with a zero behind it. */
static char *put(char *at, const char *end, const char *text)
{
    for (; *text != '\0'; text++) {
        size_t len = is_plain((unsigned char)*text) ? 1 : 3;

        if (end - at <= (ptrdiff_t)len)
            return NULL;
        if (len == 1)
            *at = *text;
        else
            snprintf(at, 4, "%%%02X", (unsigned)(unsigned char)*text);
        at += len;
    }
    return at;
}

int fl_idempotency_key(const char *name, const char *work_item, char *out, size_t size)
{
    const char *end = out + size;
    char *at = put(out, end, name);

    if (at != NULL && end - at > 1) {
        *at = '#';
        at = put(at + 1, end, work_item);
    } else {
        at = NULL;
    }
    if (size != 0)
        *(at != NULL ? at : out) = '\0';
    return at != NULL ? FL_OK : FL_E_INVALID;
}
