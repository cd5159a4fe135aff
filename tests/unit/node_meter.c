/* What a node counts of itself, fed by hand. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "node/meter.h"

static const struct fl_hash_key key = {1, 2};

static void acquire(struct fl_meter *meter, const char *name, enum fl_answer answer)
{
    struct fl_effect effect = {.type = FL_EFF_ANSWER, .answer = answer, .name = fl_str_from(name)};

    fl_meter_effect(meter, &effect, true);
}

static struct fl_figures *figures_of(const struct fl_meter *meter)
{
    struct fl_figures *figures = fl_xcalloc(1, sizeof *figures);

    fl_meter_figures(meter, figures);
    return figures;
}

/* A hot name is found among a million that come once, and those are not named (C78). */
static void the_busiest_stand_out_of_a_million(void **state)
{
    struct fl_meter *meter = fl_meter_new(NULL, 0, key);
    struct fl_figures *figures;

    (void)state;
    for (unsigned i = 0; i < 1000000; i++) {
        char name[32];

        if (i % 500 == 0)
            fl_meter_tick(meter, i / 500);
        snprintf(name, sizeof name, "invoice/%u", i);
        acquire(meter, name, FL_ANS_GRANTED);
        if (i % 20 == 0)
            acquire(meter, "hot", i % 40 == 0 ? FL_ANS_QUEUED : FL_ANS_GRANTED);
    }
    figures = figures_of(meter);
    assert_int_equal(figures->n_busiest, 1);
    assert_string_equal(figures->busiest[0].name, "hot");
    assert_int_equal(figures->n_contended, 1);
    assert_string_equal(figures->contended[0].name, "hot");
    assert_true(figures->contended[0].per_s < figures->busiest[0].per_s);
    free(figures);
    fl_meter_free(meter);
}

/* Of one that is asked for once and queued there is a queue, too. */
static void a_queue_is_told_from_its_first_waiter_to_its_last(void **state)
{
    struct fl_meter *meter = fl_meter_new(NULL, 0, key);
    struct fl_effect queued = {.type = FL_EFF_ENQUEUE, .name = FL_STR("q"), .waiters = 1};
    struct fl_effect ended = {.type = FL_EFF_WAIT_END, .name = FL_STR("q"), .waiters = 0};
    struct fl_figures *figures;

    (void)state;
    fl_meter_effect(meter, &queued, true);
    queued.type = FL_EFF_ANSWER;
    queued.answer = FL_ANS_QUEUED;
    fl_meter_effect(meter, &queued, true);
    figures = figures_of(meter);
    assert_int_equal(figures->contended[0].waiters, 1);
    free(figures);
    fl_meter_effect(meter, &ended, true);
    figures = figures_of(meter);
    assert_int_equal(figures->contended[0].waiters, 0);
    free(figures);
    fl_meter_free(meter);
}

/* Under a load that is only sampled the rates are still the rates. */
static void a_steady_rate_is_told_with_and_without_sampling(void **state)
{
    static const unsigned rates[] = {100, 50000};

    (void)state;
    for (size_t r = 0; r < FL_ARRAY_LEN(rates); r++) {
        struct fl_meter *meter = fl_meter_new(NULL, 0, key);
        struct fl_figures *figures;

        for (uint64_t ms = 0; ms < 120000; ms += 200) {
            fl_meter_tick(meter, ms);
            for (unsigned i = 0; i < rates[r] / 5; i++)
                acquire(meter, "steady", FL_ANS_GRANTED);
        }
        figures = figures_of(meter);
        assert_true(figures->busiest[0].per_s > 0.75 * rates[r]);
        assert_true(figures->busiest[0].per_s < 1.3 * rates[r]);
        free(figures);
        fl_meter_free(meter);
    }
}

static void what_is_past_fades(void **state)
{
    struct fl_meter *meter = fl_meter_new(NULL, 0, key);
    struct fl_figures *figures;

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        acquire(meter, "past", FL_ANS_HELD);
    for (uint64_t ms = 0; ms < 600000; ms += 1000)
        fl_meter_tick(meter, ms);
    figures = figures_of(meter);
    assert_int_equal(figures->n_busiest + figures->n_contended, 0);
    free(figures);
    fl_meter_free(meter);
}

static void hold_end(struct fl_meter *meter, const char *name, uint64_t for_ms, bool is_leader)
{
    struct fl_effect effect = {.type = FL_EFF_HOLD_END,
                               .cause = FL_CAUSE_EXPIRED,
                               .name = fl_str_from(name),
                               .for_ms = for_ms};

    fl_meter_effect(meter, &effect, is_leader);
}

/* The sum over all nodes is the cluster's: whoever follows counts nothing. */
static void only_the_leader_counts(void **state)
{
    struct fl_meter *meter = fl_meter_new(NULL, 0, key);
    struct fl_figures *figures;

    (void)state;
    fl_meter_role(meter, true);
    fl_meter_role(meter, true);
    hold_end(meter, "a", 5, true);
    hold_end(meter, "a", 5, false);
    figures = figures_of(meter);
    assert_int_equal(figures->leaderships, 1);
    assert_int_equal(figures->hold_ends[FL_CAUSE_EXPIRED], 1);
    assert_int_equal(fl_timing_count(&figures->prefixes[0].hold), 1);
    free(figures);
    fl_meter_free(meter);
}

static void the_longest_prefix_takes_the_time(void **state)
{
    static const char *const prefixes[] = {"pay/", "pay/eu/"};
    struct fl_meter *meter = fl_meter_new(prefixes, 2, key);
    struct fl_figures *figures;

    (void)state;
    hold_end(meter, "pay/1", 1500, true);
    hold_end(meter, "pay/eu/1", 40, true);
    hold_end(meter, "pay/eu/2", 40, true);
    hold_end(meter, "other", 90000, true);
    figures = figures_of(meter);
    assert_int_equal(figures->n_prefixes, 3);
    assert_int_equal(fl_timing_at_us(&figures->prefixes[0].hold, 1), 2000000);
    assert_int_equal(fl_timing_count(&figures->prefixes[1].hold), 2);
    assert_int_equal(fl_timing_at_us(&figures->prefixes[1].hold, 0.5), 50000);
    assert_int_equal(figures->prefixes[2].hold.sum_us, 90000000);
    assert_string_equal(figures->prefixes[2].prefix, "");
    free(figures);
    fl_meter_free(meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_busiest_stand_out_of_a_million),
        cmocka_unit_test(a_queue_is_told_from_its_first_waiter_to_its_last),
        cmocka_unit_test(a_steady_rate_is_told_with_and_without_sampling),
        cmocka_unit_test(what_is_past_fades),
        cmocka_unit_test(only_the_leader_counts),
        cmocka_unit_test(the_longest_prefix_takes_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
