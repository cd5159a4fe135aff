#include "test.h"

#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/random.h"

static void what_is_written_is_read_back(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_reader r;

    (void)state;
    fl_buf_put_u8(&buf, 7);
    fl_buf_put_u16(&buf, 0x1234);
    fl_buf_put_u32(&buf, 0xdeadbeef);
    fl_buf_put_u64(&buf, UINT64_MAX - 1);
    fl_buf_put_varint(&buf, 300);
    fl_buf_put_varint(&buf, UINT64_MAX);
    fl_buf_put_str(&buf, FL_STR("invoice/1"));
    r = fl_reader_from(buf.data, buf.len);
    assert_int_equal(fl_reader_u8(&r), 7);
    assert_int_equal(fl_reader_u16(&r), 0x1234);
    assert_int_equal(fl_reader_u32(&r), 0xdeadbeef);
    assert_true(fl_reader_u64(&r) == UINT64_MAX - 1);
    assert_int_equal(fl_reader_varint(&r), 300);
    assert_true(fl_reader_varint(&r) == UINT64_MAX);
    assert_true(fl_str_equal(fl_reader_str(&r, 100), FL_STR("invoice/1")));
    assert_int_equal(fl_reader_end(&r), FL_OK);
    fl_buf_deinit(&buf);
}

/* Cut anywhere, or overlong, or too big: the reader fails and stays failed. */
static void damaged_input_fails_and_stays_failed(void **state)
{
    static const uint8_t overlong[] = {0x80, 0x00};
    static const uint8_t too_long[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    static const uint8_t claims_more[] = {200, 1, 'a'};
    struct fl_reader r;

    (void)state;
    r = fl_reader_from(overlong, sizeof overlong);
    fl_reader_varint(&r);
    assert_true(fl_reader_failed(&r));
    r = fl_reader_from(too_long, sizeof too_long);
    fl_reader_varint(&r);
    assert_true(fl_reader_failed(&r));
    r = fl_reader_from(claims_more, sizeof claims_more);
    assert_int_equal(fl_reader_str(&r, 1000).len, 0);
    assert_int_equal(fl_reader_u8(&r), 0);
    assert_int_equal(fl_reader_end(&r), FL_E_MALFORMED);
    r = fl_reader_from("\x05hello", 6);
    assert_int_equal(fl_reader_str(&r, 4).len, 0);
    assert_true(fl_reader_failed(&r));
}

static void varints_of_every_length_come_back(void **state)
{
    struct fl_random random;

    (void)state;
    fl_random_init(&random, 3);
    for (int i = 0; i < 10000; i++) {
        uint64_t value = fl_random_u64(&random) >> fl_random_below(&random, 64);
        struct fl_buf buf = FL_BUF_INIT;
        struct fl_reader r;

        fl_buf_put_varint(&buf, value);
        r = fl_reader_from(buf.data, buf.len);
        assert_true(fl_reader_varint(&r) == value);
        assert_int_equal(fl_reader_end(&r), FL_OK);
        fl_buf_deinit(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(damaged_input_fails_and_stays_failed),
        cmocka_unit_test(varints_of_every_length_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
