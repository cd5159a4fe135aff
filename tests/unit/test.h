/* What every cmocka test includes, in the order that cmocka needs. */
#ifndef FL_TESTS_UNIT_TEST_H
#define FL_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
