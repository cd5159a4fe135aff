#include "test.h"

#include <string.h>

#include "base/str.h"

static void utf8_is_told_from_what_only_looks_like_it(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"", true},
        {"invoice/INV-55102", true},
        {"\xc3\xa9t\xc3\xa9", true},
        {"\xf0\x9f\x94\x92", true},  /* U+1F512 */
        {"\xed\x9f\xbf", true},      /* U+D7FF */
        {"\xf4\x8f\xbf\xbf", true},  /* U+10FFFF */
        {"\xc0\x80", false},         /* overlong NUL */
        {"\xe0\x9f\xbf", false},     /* overlong */
        {"\xed\xa0\x80", false},     /* surrogate */
        {"\xf4\x90\x80\x80", false}, /* above U+10FFFF */
        {"\xf0\x8f\xbf\xbf", false}, /* overlong */
        {"\x80", false},
        {"\xc3", false},
        {"a\xff", false},
        {"\xe2\x82", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fl_str_is_utf8(fl_str_from(cases[i].text)), cases[i].good);
}

static void control_characters_are_found(void **state)
{
    (void)state;
    assert_true(fl_str_has_control(FL_STR("a\nb")));
    assert_true(fl_str_has_control(FL_STR("a\0b")));
    assert_true(fl_str_has_control(FL_STR("\x7f")));
    assert_true(fl_str_has_control(FL_STR("\xc2\x85"))); /* U+0085 */
    assert_false(fl_str_has_control(FL_STR("\xc2\xa0")));
    assert_false(fl_str_has_control(FL_STR("a b")));
}

static void escaping_is_unambiguous_and_never_overruns(void **state)
{
    char out[64];

    (void)state;
    assert_string_equal(fl_str_escape(FL_STR("a\\\n\xff\xc3\xa9"), out, sizeof out),
                        "a\\x5c\\x0a\\xff\xc3\xa9");
    assert_string_equal(fl_str_escape(FL_STR("0123456789"), out, 8), "0123...");
    assert_string_equal(fl_str_escape(FL_STR("0123456"), out, 8), "0123456");
    for (size_t size = 8; size < 40; size++) {
        memset(out, 'X', sizeof out);
        fl_str_escape(FL_STR("\x01\x02\x03\x04\x05\x06\x07\x08\xff"), out, size);
        assert_true(strlen(out) < size);
        assert_int_equal(out[size], 'X');
    }
}

static void order_is_by_bytes_with_prefixes_first(void **state)
{
    (void)state;
    assert_true(fl_str_compare(FL_STR("a"), FL_STR("a/b")) < 0);
    assert_true(fl_str_compare(FL_STR("a/b"), FL_STR("a.c")) > 0);
    assert_true(fl_str_compare(FL_STR("\xff"), FL_STR("a")) > 0);
    assert_int_equal(fl_str_compare(FL_STR("x"), FL_STR("x")), 0);
    assert_true(fl_str_has_prefix(FL_STR("a/b"), FL_STR("a/")));
    assert_false(fl_str_has_prefix(FL_STR("a"), FL_STR("a/")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_told_from_what_only_looks_like_it),
        cmocka_unit_test(control_characters_are_found),
        cmocka_unit_test(escaping_is_unambiguous_and_never_overruns),
        cmocka_unit_test(order_is_by_bytes_with_prefixes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
