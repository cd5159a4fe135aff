#include "test.h"

#include <stdlib.h>

#include "base/histogram.h"
#include "base/random.h"

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Against sorting all values, over every order of magnitude. */
static void a_percentile_is_never_low_and_at_most_a_thousandth_high(void **state)
{
    static const double parts[] = {0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1};
    enum { N = 20000 };
    uint64_t *values = calloc(N, sizeof *values);
    struct fl_histogram histogram;
    struct fl_random random;

    (void)state;
    fl_random_init(&random, 1);
    fl_histogram_init(&histogram);
    for (size_t i = 0; i < N; i++) {
        values[i] = fl_random_u64(&random) >> (22 + fl_random_below(&random, 42));
        fl_histogram_record(&histogram, values[i]);
    }
    qsort(values, N, sizeof *values, by_value);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double exact = parts[i] * N;
        size_t rank = (size_t)exact + ((double)(size_t)exact < exact || exact < 1);
        uint64_t truth = values[rank - 1], shown = fl_histogram_at(&histogram, parts[i]);

        assert_true(shown >= truth);
        assert_true((double)shown <= (double)truth * 1.001);
    }
    assert_int_equal(fl_histogram_at(&histogram, 1), values[N - 1]);
    fl_histogram_deinit(&histogram);
    free(values);
}

static void small_values_are_exact_and_huge_ones_are_capped(void **state)
{
    struct fl_histogram histogram;

    (void)state;
    fl_histogram_init(&histogram);
    assert_int_equal(fl_histogram_at(&histogram, 0.5), 0);
    for (uint64_t value = 0; value <= 2000; value++)
        fl_histogram_record(&histogram, value);
    assert_int_equal(fl_histogram_at(&histogram, 0.5), 1000);
    fl_histogram_record(&histogram, UINT64_MAX);
    assert_int_equal(fl_histogram_at(&histogram, 1), FL_HISTOGRAM_VALUE_MAX);
    fl_histogram_deinit(&histogram);
}

static void adding_two_is_recording_both(void **state)
{
    struct fl_histogram a, b;

    (void)state;
    fl_histogram_init(&a);
    fl_histogram_init(&b);
    for (uint64_t value = 0; value < 100; value++)
        fl_histogram_record(value % 2 == 0 ? &a : &b, value);
    fl_histogram_add(&a, &b);
    assert_int_equal(a.n, 100);
    assert_int_equal(fl_histogram_at(&a, 0.9), 89);
    assert_int_equal(fl_histogram_at(&a, 1), 99);
    assert_true(fl_histogram_mean(&a) > 49.4 && fl_histogram_mean(&a) < 49.6);
    fl_histogram_deinit(&a);
    fl_histogram_deinit(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_percentile_is_never_low_and_at_most_a_thousandth_high),
        cmocka_unit_test(small_values_are_exact_and_huge_ones_are_capped),
        cmocka_unit_test(adding_two_is_recording_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
