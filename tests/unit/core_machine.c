#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "core/internal.h"
#include "core/machine.h"

static const uint64_t key[2] = {7, 9};

/* --- Stories: what a few commands lead to, as one line per effect --- */

struct story {
    struct fl_machine *m;
    uint64_t index, now_ms;
    uint64_t held_ms, waited_ms; /* of the last hold that ended, the last grant, the last wait */
    char trace[8192];
};

static const char *effect_name(const struct fl_effect *e)
{
    static const char *const answers[] = {
        "ok",        "granted",       "queued",         "held",       "timed-out",
        "cancelled", "not-waiting",   "ended",          "no-session", "session-exists",
        "stale",     "mode-conflict", "request-reused", "term-over",  "exhausted"};
    static const char *const types[] = {"",         "grant", "enqueue", "hold-end",
                                        "wait-end", "open",  "end"};

    return e->type == FL_EFF_ANSWER ? answers[e->answer] : types[e->type];
}

static void note(void *ctx, const struct fl_effect *e)
{
    struct story *s = ctx;
    size_t used = strlen(s->trace);

    snprintf(s->trace + used, sizeof s->trace - used, "%s%c%llu:%s", used != 0 ? " " : "",
             (char)e->session.low, (unsigned long long)e->request_id, effect_name(e));
    used = strlen(s->trace);
    if (e->type == FL_EFF_HOLD_END)
        s->held_ms = e->for_ms;
    if (e->type == FL_EFF_GRANT || e->type == FL_EFF_WAIT_END)
        s->waited_ms = e->for_ms;
    if (e->type == FL_EFF_GRANT)
        snprintf(s->trace + used, sizeof s->trace - used, "=%llu", (unsigned long long)e->token);
}

static void run(struct story *s, struct fl_command command)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_batch_begin(&buf, s->now_ms);
    fl_batch_add(&buf, &command);
    assert_int_equal(fl_machine_apply(s->m, ++s->index, 1, buf.data, buf.len, note, s), FL_OK);
    fl_buf_deinit(&buf);
}

static struct fl_session_id who(char c)
{
    return (struct fl_session_id){1, (uint64_t)c};
}

static void open_session(struct story *s, char c)
{
    run(s, (struct fl_command){.type = FL_CMD_OPEN_SESSION,
                               .session = who(c),
                               .ttl_ms = 10000,
                               .client = FL_STR("test")});
}

static void acquire(struct story *s, char c, uint64_t request, const char *name, enum fl_mode mode,
                    uint32_t wait_ms)
{
    run(s, (struct fl_command){.type = FL_CMD_ACQUIRE,
                               .session = who(c),
                               .request_id = request,
                               .name = fl_str_from(name),
                               .mode = mode,
                               .limit = mode == FL_MODE_COUNTED ? 2 : 0,
                               .wait_ms = wait_ms});
}

static void release(struct story *s, char c, const char *name, fl_token token)
{
    run(s,
        (struct fl_command){
            .type = FL_CMD_RELEASE, .session = who(c), .name = fl_str_from(name), .token = token});
}

static int begin(void **state)
{
    struct story *s = calloc(1, sizeof *s);

    s->m = fl_machine_new(key);
    for (char c = 'a'; c <= 'd'; c++)
        open_session(s, c);
    s->trace[0] = '\0';
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct story *s = *state;
    char why[256];

    assert_int_equal(fl_machine_check(s->m, why, sizeof why), FL_OK);
    fl_machine_free(s->m);
    free(s);
    return 0;
}

static void release_grants_the_oldest_waiter_in_the_same_entry(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    acquire(s, 'c', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    release(s, 'a', "L", 1);
    assert_string_equal(s->trace, "a1:grant=1 a1:granted b1:enqueue b1:queued c1:enqueue c1:queued "
                                  "a1:hold-end a0:ok b1:grant=2");
}

/* C02: the reply of a granted request was lost; the retry is the same request. */
static void a_retry_gets_the_first_outcome(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 5000);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 0);
    release(s, 'a', "L", 1);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'a', 1, "M", FL_MODE_EXCLUSIVE, 0);
    assert_string_equal(s->trace,
                        "a1:grant=1 a1:granted a1:granted b1:held a1:hold-end a0:ok b1:held "
                        "a1:ended a1:request-reused");
}

/* C03: a late release never touches a newer grant; a repeated one says released. */
static void a_late_release_is_harmless(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    release(s, 'a', "L", 1);
    release(s, 'a', "L", 1);
    acquire(s, 'a', 2, "L", FL_MODE_EXCLUSIVE, 0);
    release(s, 'a', "L", 1);
    release(s, 'b', "L", 2);
    assert_string_equal(s->trace,
                        "a1:grant=1 a1:granted a1:hold-end a0:ok a0:ok a2:grant=2 a2:granted "
                        "a0:ok b0:stale");
}

/* C54: a queued writer stops later readers; adjacent readers come together. */
static void readers_do_not_overtake_a_queued_writer(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_SHARED, 0);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    acquire(s, 'c', 1, "L", FL_MODE_SHARED, 0);
    acquire(s, 'c', 2, "L", FL_MODE_SHARED, 1000);
    acquire(s, 'd', 1, "L", FL_MODE_SHARED, 1000);
    release(s, 'a', "L", 1);
    release(s, 'b', "L", 2);
    assert_string_equal(s->trace,
                        "a1:grant=1 a1:granted b1:enqueue b1:queued c1:held c2:enqueue c2:queued "
                        "d1:enqueue d1:queued a1:hold-end a0:ok b1:grant=2 b1:hold-end b0:ok "
                        "c2:grant=3 d1:grant=4");
}

/* C01: the waiter whose session died is not granted; the next one is. */
static void the_dead_are_never_granted(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 60000);
    acquire(s, 'c', 1, "L", FL_MODE_EXCLUSIVE, 60000);
    run(s, (struct fl_command){.type = FL_CMD_EXPIRE_SESSION, .session = who('b'), .term = 1});
    release(s, 'a', "L", 1);
    run(s, (struct fl_command){.type = FL_CMD_EXPIRE_SESSION, .session = who('c'), .term = 2});
    assert_string_equal(s->trace,
                        "a1:grant=1 a1:granted b1:enqueue b1:queued c1:enqueue c1:queued "
                        "b0:end b0:ok b1:wait-end a1:hold-end a0:ok c1:grant=2 c0:term-over");
}

static void a_wait_ends_at_its_deadline_in_log_time(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 100);
    acquire(s, 'c', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    assert_int_equal(fl_machine_next_due(s->m), 100);
    s->now_ms = 100;
    release(s, 'a', "L", 1);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 100);
    assert_string_equal(s->trace, "a1:grant=1 a1:granted b1:enqueue b1:queued c1:enqueue c1:queued "
                                  "b1:wait-end a1:hold-end a0:ok c1:grant=2 b1:timed-out");
}

static void holds_and_waits_are_measured_in_log_time(void **state)
{
    struct story *s = *state;

    s->now_ms = 1000;
    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    assert_int_equal(s->waited_ms, 0);
    s->now_ms = 1300;
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 5000);
    acquire(s, 'c', 1, "L", FL_MODE_EXCLUSIVE, 2000);
    s->now_ms = 2500;
    release(s, 'a', "L", 1);
    assert_int_equal(s->held_ms, 1500);
    assert_int_equal(s->waited_ms, 1200);
    s->now_ms = 3300;
    release(s, 'b', "L", 2);
    assert_int_equal(s->held_ms, 800);
    assert_int_equal(s->waited_ms, 2000);
}

/* C05, C04: a cancel loses against an earlier grant, unless nobody waits for it any more. */
static void a_cancel_leaves_the_queue_or_loses(void **state)
{
    struct story *s = *state;
    struct fl_command cancel = {.type = FL_CMD_CANCEL, .session = who('b'), .request_id = 1};

    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'b', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    acquire(s, 'c', 1, "L", FL_MODE_EXCLUSIVE, 1000);
    run(s, cancel);
    release(s, 'a', "L", 1);
    cancel.session = who('c');
    run(s, cancel);
    cancel.abandon = true;
    run(s, cancel);
    cancel.session = who('d');
    run(s, cancel);
    acquire(s, 'd', 1, "L", FL_MODE_EXCLUSIVE, 0);
    assert_string_equal(
        s->trace, "a1:grant=1 a1:granted b1:enqueue b1:queued c1:enqueue c1:queued b1:wait-end "
                  "b1:cancelled a1:hold-end a0:ok c1:grant=2 c1:granted c1:hold-end c1:cancelled "
                  "d1:not-waiting d1:cancelled");
}

/* C02, T1: who gave a call up and asked again elsewhere holds what the second call was told,
 * however late the first gateway cancels. */
static void giving_up_one_call_leaves_what_another_asked_for(void **state)
{
    struct story *s = *state;
    struct fl_command cancel = {
        .type = FL_CMD_CANCEL, .session = who('a'), .request_id = 1, .abandon = true, .asker = 7};
    struct fl_command again = {.type = FL_CMD_ACQUIRE,
                               .session = who('a'),
                               .request_id = 1,
                               .name = FL_STR("L"),
                               .mode = FL_MODE_EXCLUSIVE,
                               .asker = 7};

    run(s, again);
    again.asker = 8;
    run(s, again);
    run(s, cancel);
    cancel.asker = 8;
    run(s, cancel);
    assert_string_equal(s->trace, "a1:grant=1 a1:granted a1:granted a1:not-waiting a1:hold-end "
                                  "a1:cancelled");
}

/* C32: one kind at a time; free again, the name takes another, and tokens still rise. */
static void a_name_is_of_one_kind_until_idle(void **state)
{
    struct story *s = *state;

    acquire(s, 'a', 1, "L", FL_MODE_COUNTED, 0);
    acquire(s, 'b', 1, "L", FL_MODE_COUNTED, 0);
    acquire(s, 'c', 1, "L", FL_MODE_COUNTED, 0);
    acquire(s, 'c', 2, "L", FL_MODE_EXCLUSIVE, 1000);
    release(s, 'a', "L", 1);
    release(s, 'b', "L", 2);
    acquire(s, 'c', 3, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'd', 1, "L", FL_MODE_SHARED, 0);
    acquire(s, 'c', 4, "L", FL_MODE_SHARED, 1000);
    assert_string_equal(s->trace,
                        "a1:grant=1 a1:granted b1:grant=2 b1:granted c1:held c2:mode-conflict "
                        "a1:hold-end a0:ok b1:hold-end b0:ok c3:grant=3 c3:granted d1:held "
                        "c4:mode-conflict");
}

static void lock_delay_closes_a_name_after_an_expiry_only(void **state)
{
    struct story *s = *state;

    run(s, (struct fl_command){.type = FL_CMD_OPEN_SESSION,
                               .session = who('z'),
                               .ttl_ms = 1000,
                               .lock_delay_ms = 500});
    s->trace[0] = '\0';
    acquire(s, 'z', 1, "L", FL_MODE_EXCLUSIVE, 0);
    run(s, (struct fl_command){.type = FL_CMD_EXPIRE_SESSION, .session = who('z'), .term = 1});
    acquire(s, 'a', 1, "L", FL_MODE_EXCLUSIVE, 0);
    acquire(s, 'a', 2, "L", FL_MODE_EXCLUSIVE, 5000);
    s->now_ms = 500;
    open_session(s, 'a');
    assert_string_equal(s->trace,
                        "z1:grant=1 z1:granted z0:end z0:ok z1:hold-end a1:held a2:enqueue "
                        "a2:queued a2:grant=2 a0:ok");
}

/* --- Random commands: the invariants hold, and a snapshot is the state --- */

struct bytes {
    struct fl_buf buf;
    size_t at;
};

static int append(void *ctx, const void *data, size_t len)
{
    fl_buf_put(&((struct bytes *)ctx)->buf, data, len);
    return FL_OK;
}

static long take(void *ctx, void *data, size_t size)
{
    struct bytes *bytes = ctx;
    size_t n = bytes->buf.len - bytes->at < size ? bytes->buf.len - bytes->at : size;

    if (n > 0)
        memcpy(data, bytes->buf.data + bytes->at, n);
    bytes->at += n;
    return (long)n;
}

static struct fl_command random_command(struct fl_random *random, fl_token last)
{
    static const char *const names[] = {"a", "a/b", "a/c", "b", "bb", "c"};
    struct fl_command c = {
        .session = {1, 1 + fl_random_below(random, 5)},
        .request_id = fl_random_below(random, 12),
        .name = fl_str_from(names[fl_random_below(random, 6)]),
        .mode = (enum fl_mode)fl_random_between(random, 1, 3),
        .wait_ms = fl_random_chance(random, 1, 2) ? 0 : (uint32_t)fl_random_below(random, 200),
        .token = 1 + fl_random_below(random, last + 1),
        .ttl_ms = 1000,
        .lock_delay_ms = fl_random_chance(random, 1, 4) ? 50 : 0,
        .term = 1,
        .client = FL_STR("c"),
        .reason = FL_STR("r"),
    };
    static const enum fl_command_type types[] = {
        FL_CMD_OPEN_SESSION, FL_CMD_OPEN_SESSION, FL_CMD_CLOSE_SESSION, FL_CMD_EXPIRE_SESSION,
        FL_CMD_NOTE_SILENCE, FL_CMD_CANCEL,       FL_CMD_FORCE_RELEASE, FL_CMD_RELEASE,
        FL_CMD_RELEASE,      FL_CMD_RELEASE};

    c.type = fl_random_chance(random, 3, 5) ? FL_CMD_ACQUIRE : types[fl_random_below(random, 10)];
    if (c.mode == FL_MODE_COUNTED)
        c.limit = 1 + (uint32_t)fl_random_below(random, 3);
    return c;
}

static void reload(struct fl_machine **m)
{
    struct bytes first = {0}, second = {0};
    struct fl_machine *loaded;

    assert_int_equal(fl_machine_save(*m, append, &first), FL_OK);
    assert_int_equal(fl_machine_load(key, take, &first, &loaded), FL_OK);
    assert_int_equal(fl_machine_save(loaded, append, &second), FL_OK);
    assert_int_equal(first.buf.len, second.buf.len);
    assert_memory_equal(first.buf.data, second.buf.data, first.buf.len);
    fl_machine_free(*m);
    *m = loaded;
    fl_buf_deinit(&first.buf);
    fl_buf_deinit(&second.buf);
}

static void random_commands_keep_the_invariants(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fl_machine *m = fl_machine_new(key);
        struct fl_random random;
        uint64_t now_ms = 0;
        char why[256];

        fl_random_init(&random, seed);
        fl_machine__set_work(m, 1 + (uint32_t)fl_random_below(&random, 4),
                             1 + (uint32_t)fl_random_below(&random, 4));
        for (uint64_t index = 1; index <= 400; index++) {
            struct fl_buf buf = FL_BUF_INIT;

            now_ms += fl_random_below(&random, 30);
            fl_batch_begin(&buf, now_ms);
            for (uint64_t n = fl_random_below(&random, 4); n > 0; n--) {
                struct fl_command c = random_command(&random, fl_machine_token(m));

                fl_batch_add(&buf, &c);
            }
            assert_int_equal(fl_machine_apply(m, index, 1, buf.data, buf.len, NULL, NULL), FL_OK);
            fl_buf_deinit(&buf);
            if (fl_machine_check(m, why, sizeof why) != FL_OK)
                fail_msg("seed %llu, entry %llu: %s", (unsigned long long)seed,
                         (unsigned long long)index, why);
            if (index % 50 == 0)
                reload(&m);
        }
        fl_machine_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(release_grants_the_oldest_waiter_in_the_same_entry, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_retry_gets_the_first_outcome, begin, end),
        cmocka_unit_test_setup_teardown(a_late_release_is_harmless, begin, end),
        cmocka_unit_test_setup_teardown(readers_do_not_overtake_a_queued_writer, begin, end),
        cmocka_unit_test_setup_teardown(the_dead_are_never_granted, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_ends_at_its_deadline_in_log_time, begin, end),
        cmocka_unit_test_setup_teardown(holds_and_waits_are_measured_in_log_time, begin, end),
        cmocka_unit_test_setup_teardown(a_cancel_leaves_the_queue_or_loses, begin, end),
        cmocka_unit_test_setup_teardown(giving_up_one_call_leaves_what_another_asked_for, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_name_is_of_one_kind_until_idle, begin, end),
        cmocka_unit_test_setup_teardown(lock_delay_closes_a_name_after_an_expiry_only, begin, end),
        cmocka_unit_test(random_commands_keep_the_invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
