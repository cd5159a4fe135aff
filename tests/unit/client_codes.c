/* The public header has its own copy of the codes; this file sees no other. */
#include "test.h"

#include <string.h>

#include <fencelock/admin.h>

static void public_codes_are_the_codes_of_the_library(void **state)
{
    static const struct {
        int code;
        const char *text;
    } codes[] = {
        {FL_OK, "no error"},
        {FL_E_NOMEM, "out of memory"},
        {FL_E_INVALID, "invalid argument"},
        {FL_E_NOSPACE, "no space left"},
        {FL_E_NOT_FOUND, "not found"},
        {FL_E_CLOSED, "closed"},
        {FL_E_TIMEOUT, "timed out"},
        {FL_E_UNREACHABLE, "unreachable"},
        {FL_E_DENIED, "denied"},
        {FL_E_STALE, "stale token"},
        {FL_E_LOST, "lock lost"},
        {FL_E_SESSION_GONE, "session gone"},
        {FL_E_PROTOCOL, "protocol error"},
        {FL_E_UNSUPPORTED, "not supported"},
        {FL_E_INTERNAL, "internal error"},
        {FL_E_HELD, "held by somebody else"},
        {FL_E_NO_LEADER, "no leader"},
        {FL_E_LIMITED, "over a limit"},
        {FL_E_CONFLICT, "in use in another mode"},
        {FL_E_FORKED, "used after a fork"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        assert_string_equal(fl_code_text(codes[i].code), codes[i].text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_codes_are_the_codes_of_the_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
