/* A test that cannot fail is none: the same stories are told again with one seeded bug after the
 * other (base/bugs.h), and each must be seen by at least one of them. */
#ifndef FL_TESTS_UNIT_SEEDED_H
#define FL_TESTS_UNIT_SEEDED_H

#include "test.h"

#include <stdio.h>

#include "base/bugs.h"

/* The number of bugs that no test of the array `tests` saw. */
#define RUN_SEEDED(tests, bugs)                                                                    \
    run_seeded((tests), sizeof(tests) / sizeof *(tests), (bugs), sizeof(bugs) / sizeof *(bugs))

#ifdef FL_BUGS
static inline int run_seeded(const struct CMUnitTest *tests, size_t n_tests,
                             const enum fl_bug *bugs, size_t n_bugs)
{
    int survivors = 0;

    cmocka_set_message_output(CM_OUTPUT_TAP);
    for (size_t i = 0; i < n_bugs; i++) {
        fl_bug_on = bugs[i];
        if (_cmocka_run_group_tests("seeded", tests, n_tests, NULL, NULL) == 0) {
            fprintf(stderr, "seeded bug %d was seen by no story\n", (int)bugs[i]);
            survivors++;
        }
    }
    fl_bug_on = FL_BUG_NONE;
    return survivors;
}
#endif

#endif
