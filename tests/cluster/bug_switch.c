/* Switches on the seeded bug (base/bugs.h) that FENCELOCK_BUG names: for daemons that clients and
 * checkers must see failing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bugs.h"

enum fl_bug fl_bug_on = FL_BUG_NONE;

__attribute__((constructor)) static void switch_on(void)
{
    const char *wanted = getenv("FENCELOCK_BUG");

    if (wanted == NULL)
        return;
#define X(name, what)                                                                              \
    if (strcmp(wanted, #name) == 0)                                                                \
        fl_bug_on = FL_BUG_##name;
    FL_BUG_TABLE(X)
#undef X
    if (fl_bug_on == FL_BUG_NONE) {
        fprintf(stderr, "%s is no seeded bug\n", wanted);
        exit(EXIT_FAILURE);
    }
}
