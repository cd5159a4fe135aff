/* Filling a struct fl_why: one line for each failure. */
#ifndef FL_CLIENT_WHY_H
#define FL_CLIENT_WHY_H

#include "base/error.h"

#include <fencelock/fencelock.h>

/* Clears `why` and fills it; NULL is fine. `reason` may be NULL. Returns `code`. */
int fl_why_set(struct fl_why *why, int code, const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* FL_E_INVALID for `field`. Returns the code. */
int fl_why_set_invalid(struct fl_why *why, const char *field, const char *message);
int fl_why_set_nomem(struct fl_why *why);
/* Cuts `from` (NULL: empty) to what fits at a whole UTF-8 character. */
void fl_why_copy_text(char *to, size_t size, const char *from);

#endif
