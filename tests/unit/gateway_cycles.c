/* Who waits in a circle, told as "SESSION holds NAME" and "SESSION waits for NAME" (C80). */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/cycles.h"

#define MAX 32

struct story {
    struct fl_reply_request requests[MAX];
    size_t n;
};

static void add(struct story *story, const char *name, unsigned session, fl_token token,
                enum fl_mode mode)
{
    story->requests[story->n++] = (struct fl_reply_request){
        .session = {0, session}, .name = fl_str_from(name), .mode = mode, .token = token};
}

/* "L: 1 | 2 3": session 1 holds L, 2 and 3 wait for it. Modes: "x" exclusive, "s", "c". */
static void tell(struct story *story, const char *name, const char *holders, const char *waiters,
                 enum fl_mode mode)
{
    for (const char *c = holders; *c != '\0'; c++)
        add(story, name, (unsigned)(*c - '0'), story->n + 1, mode);
    for (const char *c = waiters; *c != '\0'; c++)
        add(story, name, (unsigned)(*c - '0'), 0, mode);
}

/* "1:B 2:A": session 1 waits for B, which 2 holds; cycles separated by " / ". */
static void assert_cycles(const struct story *story, const char *expected)
{
    struct fl_cycles cycles;
    struct fl_arena arena;
    char text[256] = "";

    fl_arena_init(&arena);
    fl_cycles_find(&arena, story->requests, story->n, &cycles);
    for (size_t i = 0; i < cycles.n; i++) {
        for (size_t k = 0; k < cycles.cycles[i].n_steps; k++) {
            const struct fl_reply_request *wait = &story->requests[cycles.cycles[i].steps[k]];

            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%llu:%.*s",
                     k > 0   ? " "
                     : i > 0 ? " / "
                             : "",
                     (unsigned long long)wait->session.low, FL_STR_ARGS(wait->name));
        }
    }
    fl_arena_deinit(&arena);
    assert_string_equal(text, expected);
}

#define X FL_MODE_EXCLUSIVE
#define S FL_MODE_SHARED
#define C FL_MODE_COUNTED

static void two_that_took_two_in_turn_are_found(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "1", "2", X);
    tell(&story, "B", "2", "1", X);
    assert_cycles(&story, "1:B 2:A");
}

static void a_long_circle_is_found_and_those_behind_it_are_not_in_it(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "1", "25", X);
    tell(&story, "B", "2", "36", X);
    tell(&story, "C", "3", "1", X);
    assert_cycles(&story, "1:C 3:B 2:A");
}

static void two_circles_are_two(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "1", "2", X);
    tell(&story, "B", "2", "1", X);
    tell(&story, "C", "3", "4", X);
    tell(&story, "D", "4", "3", X);
    assert_cycles(&story, "1:B 2:A / 3:D 4:C");
}

/* Two ways that meet again are no circle. */
static void a_diamond_is_none(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "1", "23", X);
    tell(&story, "B", "2", "4", X);
    tell(&story, "C", "3", "4", X);
    assert_cycles(&story, "");
}

static void a_session_that_waits_for_itself_is_none(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "1", "1", X);
    assert_cycles(&story, "");
}

/* Any permit will do: as long as one holder can go on, nobody is stuck. */
static void of_permits_all_holders_must_be_stuck(void **state)
{
    struct story one = {0}, all = {0};

    (void)state;
    tell(&one, "P", "13", "2", C);
    tell(&one, "Q", "2", "1", X);
    assert_cycles(&one, "");
    tell(&all, "P", "13", "2", C);
    tell(&all, "Q", "2", "13", X);
    assert_cycles(&all, "1:Q 2:P");
}

/* A writer waits for every reader. */
static void of_readers_one_is_enough(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "31", "2", S);
    tell(&story, "B", "2", "1", X);
    assert_cycles(&story, "1:B 2:A");
}

/* A name that is closed, or whose holder waits for nothing, ends by itself. */
static void whoever_can_go_on_frees_the_others(void **state)
{
    struct story story = {0};

    (void)state;
    tell(&story, "A", "", "1", X);
    tell(&story, "B", "1", "2", X);
    tell(&story, "C", "2", "3", X);
    assert_cycles(&story, "");
}

static void nothing_is_nothing(void **state)
{
    struct story story = {0};

    (void)state;
    assert_cycles(&story, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_took_two_in_turn_are_found),
        cmocka_unit_test(a_long_circle_is_found_and_those_behind_it_are_not_in_it),
        cmocka_unit_test(two_circles_are_two),
        cmocka_unit_test(a_diamond_is_none),
        cmocka_unit_test(a_session_that_waits_for_itself_is_none),
        cmocka_unit_test(of_permits_all_holders_must_be_stuck),
        cmocka_unit_test(of_readers_one_is_enough),
        cmocka_unit_test(whoever_can_go_on_frees_the_others),
        cmocka_unit_test(nothing_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
