/* What one entry may do is bounded, however much comes together: counted in effects. And what comes
 * and goes leaves no memory behind. bench/core_scale.c measures the same in time. */
#include "test.h"

#include <stdio.h>

#include "core/machine.h"
#include "core_rig.h"

#define MANY 3000u
/* A step of the entry's work is seen as at most a hold's end and the next one's grant. */
#define EFFECTS_MAX (2 * FL_MACHINE_WORK_PER_ENTRY)

struct story {
    struct rig rig;
    uint64_t index;
    unsigned in_entry, most; /* effects */
    unsigned n_grants;
    struct fl_effect last_grant, last_answer; /* without their strings */
};

static void count(void *ctx, const struct fl_effect *effect)
{
    struct story *s = ctx;

    if (effect->index != s->index)
        s->in_entry = 0;
    s->index = effect->index;
    if (++s->in_entry > s->most)
        s->most = s->in_entry;
    if (effect->type == FL_EFF_GRANT) {
        s->n_grants++;
        s->last_grant = *effect;
    } else if (effect->type == FL_EFF_ANSWER) {
        s->last_answer = *effect;
    }
}

static int begin(void **state)
{
    static struct story s;

    s = (struct story){0};
    rig_init(&s.rig);
    rig_open_sessions(&s.rig, 10);
    s.rig.sink = count;
    s.rig.ctx = &s;
    *state = &s;
    return 0;
}

static int end(void **state)
{
    struct story *s = *state;
    char why[256];

    assert_int_equal(fl_machine_check(s->rig.m, why, sizeof why), 0);
    rig_deinit(&s->rig);
    return 0;
}

static void run(struct story *s, struct fl_command command)
{
    rig_add(&s->rig, &command);
    rig_submit(&s->rig);
}

static void acquire(struct story *s, uint64_t session, uint64_t request, enum fl_mode mode,
                    uint32_t wait_ms)
{
    run(s, (struct fl_command){.type = FL_CMD_ACQUIRE,
                               .session = rig_session(session),
                               .request_id = request,
                               .name = FL_STR("L"),
                               .mode = mode,
                               .wait_ms = wait_ms});
}

static void release(struct story *s, uint64_t session, fl_token token)
{
    run(s, (struct fl_command){.type = FL_CMD_RELEASE,
                               .session = rig_session(session),
                               .name = FL_STR("L"),
                               .token = token});
}

static void expire(struct story *s, uint64_t session)
{
    run(s, (struct fl_command){
               .type = FL_CMD_EXPIRE_SESSION, .session = rig_session(session), .term = 1});
}

/* Each entry on the way is checked. */
static void work_off(struct story *s)
{
    char why[256];

    for (int n = 0; fl_machine_has_backlog(s->rig.m); n++) {
        assert_in_range(n, 0, 100);
        rig_submit(&s->rig);
        if (fl_machine_check(s->rig.m, why, sizeof why) != 0)
            fail_msg("%s", why);
    }
}

static void waiters_that_died_do_not_hold_up_an_entry(void **state)
{
    struct story *s = *state;

    acquire(s, 0, 1, FL_MODE_EXCLUSIVE, 0);
    for (unsigned i = 1; i <= MANY; i++)
        acquire(s, 1 + i % 2, i, FL_MODE_EXCLUSIVE, 60000);
    acquire(s, 3, 1, FL_MODE_EXCLUSIVE, 60000);
    expire(s, 1);
    expire(s, 2);
    release(s, 0, 1);
    acquire(s, 4, 1, FL_MODE_EXCLUSIVE, 0);
    assert_int_equal(s->last_answer.answer, FL_ANS_HELD); /* 3 comes before */
    work_off(s);
    assert_in_range(s->most, 1, EFFECTS_MAX + 2);
    assert_int_equal(s->n_grants, 2);
    assert_true(fl_session_id_equal(s->last_grant.session, rig_session(3)));
}

static void readers_that_waited_come_in_over_some_entries(void **state)
{
    struct story *s = *state;
    unsigned first;

    acquire(s, 0, 1, FL_MODE_EXCLUSIVE, 0);
    for (unsigned i = 1; i <= MANY; i++)
        acquire(s, 1 + i % 5, i, FL_MODE_SHARED, 60000);
    release(s, 0, 1);
    first = s->n_grants - 1;
    assert_in_range(first, FL_MACHINE_WORK_PER_ENTRY, EFFECTS_MAX);
    acquire(s, 6, 1, FL_MODE_SHARED, 60000); /* behind those who were there */
    acquire(s, 7, 1, FL_MODE_EXCLUSIVE, 60000);
    work_off(s);
    assert_in_range(s->most, 1, EFFECTS_MAX + 2);
    assert_int_equal(s->n_grants, 1 + MANY + 1);
    assert_true(fl_session_id_equal(s->last_grant.session, rig_session(6)));
}

static void readers_that_died_are_cleared_away_over_some_entries(void **state)
{
    struct story *s = *state;

    for (unsigned i = 1; i <= MANY; i++)
        acquire(s, i % 2, i, FL_MODE_SHARED, 0);
    acquire(s, 2, 1, FL_MODE_EXCLUSIVE, 60000);
    expire(s, 0);
    release(s, 1, 1); /* token 1 is session 1's */
    expire(s, 1);
    work_off(s);
    assert_in_range(s->most, 1, EFFECTS_MAX + 2);
    assert_true(fl_session_id_equal(s->last_grant.session, rig_session(2)));
}

/* Any of many readers is found by its token, and theirs alone. */
static void a_reader_among_thousands_releases_its_own(void **state)
{
    struct story *s = *state;

    for (unsigned i = 1; i <= MANY; i++)
        acquire(s, i % 5, i, FL_MODE_SHARED, 0);
    release(s, 1, 2); /* it is session 2's */
    assert_int_equal(s->last_answer.answer, FL_ANS_STALE_TOKEN);
    assert_int_equal(s->last_answer.token, MANY);
    for (unsigned i = MANY; i > 0; i--) {
        release(s, i % 5, i);
        assert_int_equal(s->last_answer.answer, FL_ANS_OK);
    }
    acquire(s, 6, 1, FL_MODE_EXCLUSIVE, 0);
    assert_int_equal(s->last_answer.answer, FL_ANS_GRANTED);
}

static void count_holder(void *ctx, const struct fl_request_info *info)
{
    unsigned *n = ctx;

    assert_int_equal(info->token, ++*n);
}

/* Somebody begins to wait: that is told to some of the readers, and no more are looked at. */
static void some_of_many_readers_are_named(void **state)
{
    struct story *s = *state;
    unsigned n = 0;

    for (unsigned i = 1; i <= MANY; i++)
        acquire(s, i % 5, i, FL_MODE_SHARED, 0);
    fl_machine_each_holder(s->rig.m, FL_STR("L"), 64, count_holder, &n);
    assert_int_equal(n, 64);
    fl_machine_each_holder(s->rig.m, FL_STR("M"), 64, count_holder, &n);
    assert_int_equal(n, 64);
}

/* A hundred thousand names, of which a thousand are held at a time. */
static void names_that_come_and_go_leave_no_memory(void **state)
{
    struct story *s = *state;
    struct fl_machine_stats early, late;
    size_t given_early = 0;
    char name[64];

    for (uint64_t i = 0; i < 100000; i++) {
        struct fl_command c = {.type = FL_CMD_ACQUIRE,
                               .session = rig_session(i % 10),
                               .request_id = i + 1,
                               .name = rig_name(i, name),
                               .mode = FL_MODE_EXCLUSIVE};

        run(s, c);
        if (i < 1000)
            continue;
        c = (struct fl_command){.type = FL_CMD_RELEASE,
                                .session = rig_session(i % 10),
                                .name = rig_name(i - 1000, name),
                                .token = i - 999};
        run(s, c);
        assert_int_equal(s->last_answer.answer, FL_ANS_OK);
        if (i != 20000)
            continue;
        fl_machine_stats(s->rig.m, &early);
        given_early = rig_allocated();
    }
    fl_machine_stats(s->rig.m, &late);
    assert_int_equal(late.holds, 1000);
    assert_int_equal(late.memory, early.memory);
    assert_int_equal(rig_allocated(), given_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waiters_that_died_do_not_hold_up_an_entry, begin, end),
        cmocka_unit_test_setup_teardown(readers_that_waited_come_in_over_some_entries, begin, end),
        cmocka_unit_test_setup_teardown(readers_that_died_are_cleared_away_over_some_entries, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_reader_among_thousands_releases_its_own, begin, end),
        cmocka_unit_test_setup_teardown(some_of_many_readers_are_named, begin, end),
        cmocka_unit_test_setup_teardown(names_that_come_and_go_leave_no_memory, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
