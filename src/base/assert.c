#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void fl_assert_failed(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "fencelock: bug: %s is false, in %s at %s:%d\n", condition, function, file,
            line);
    abort();
}
