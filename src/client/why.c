#include "client/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fl_why_set(struct fl_why *why, int code, const char *reason, const char *format, ...)
{
    va_list args;

    if (why == NULL)
        return code;
    memset(why, 0, sizeof *why);
    why->code = code;
    fl_why_copy_text(why->reason, sizeof why->reason, reason);
    va_start(args, format);
    vsnprintf(why->message, sizeof why->message, format, args);
    va_end(args);
    return code;
}

int fl_why_set_invalid(struct fl_why *why, const char *field, const char *message)
{
    fl_why_set(why, FL_E_INVALID, "INVALID_ARGUMENT", "%s %s", field, message);
    if (why != NULL)
        fl_why_copy_text(why->field, sizeof why->field, field);
    return FL_E_INVALID;
}

int fl_why_set_nomem(struct fl_why *why)
{
    return fl_why_set(why, FL_E_NOMEM, "OUT_OF_MEMORY", "out of memory");
}

void fl_why_copy_text(char *to, size_t size, const char *from)
{
    size_t len = from != NULL ? strlen(from) : 0;

    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80)
            len--;
    }
    if (len > 0)
        memcpy(to, from, len);
    to[len] = '\0';
}

const char *fl_code_text(int code)
{
    return fl_error_text(code);
}

const char *fl_lost_cause_text(enum fl_lost_cause cause)
{
    switch (cause) {
    case FL_LOST_LEASE:
        return "the lease ran out: no heartbeat was acknowledged in time";
    case FL_LOST_EXPIRED:
        return "the session expired";
    case FL_LOST_SESSION_END:
        return "the session was ended by an operator";
    case FL_LOST_FORCED:
        return "the lock was taken by an operator";
    case FL_LOST_GONE:
        return "the lock was gone after a reconnect";
    case FL_LOST_NO_PROGRESS:
        return "the work under the lock made no progress for max_hold_ms";
    }
    return "unknown cause";
}
