#include "test.h"

#include <string.h>

#include "base/error.h"
#include "core/types.h"

static void session_ids_have_one_text_form(void **state)
{
    struct fl_session_id id = {0x0123456789abcdefu, 0xfedcba9876543210u}, back = {0, 0};
    char text[FL_SESSION_ID_TEXT_SIZE];

    (void)state;
    assert_string_equal(fl_session_id_format(id, text), "s_0123456789abcdeffedcba9876543210");
    assert_int_equal(fl_session_id_parse(fl_str_from(text), &back), FL_OK);
    assert_true(fl_session_id_equal(id, back));
    text[5] = 'A';
    assert_int_equal(fl_session_id_parse(fl_str_from(text), &back), FL_E_INVALID);
    assert_int_equal(fl_session_id_parse(FL_STR("s_00000000000000000000000000000000"), &back),
                     FL_E_INVALID);
    assert_int_equal(fl_session_id_parse(FL_STR(""), &back), FL_E_INVALID);
    assert_true(fl_session_id_equal(id, back));
}

static void faulty_names_are_told_why(void **state)
{
    char long_name[FL_NAME_MAX + 1];

    (void)state;
    memset(long_name, 'n', sizeof long_name);
    assert_null(fl_name_fault(FL_STR("invoice/INV-55102")));
    assert_null(fl_name_fault((struct fl_str){long_name, FL_NAME_MAX}));
    assert_string_equal(fl_name_fault(FL_STR("")), "is empty");
    assert_string_equal(fl_name_fault((struct fl_str){long_name, FL_NAME_MAX + 1}),
                        "is longer than 512 bytes");
    assert_string_equal(fl_name_fault(FL_STR("a\nb")), "has a control character");
    assert_string_equal(fl_name_fault(FL_STR("\xff")), "is not valid UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_ids_have_one_text_form),
        cmocka_unit_test(faulty_names_are_told_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
