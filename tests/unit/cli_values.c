#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int do_nothing(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 0;
}

static const struct cli_command command = {.name = "test", .help = "help\n", .run = do_nothing};

static void times_are_read_with_their_units(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint32_t ms;
    } cases[] = {
        {"0", true, 0},
        {"30", true, 30000},
        {"30s", true, 30000},
        {"1500ms", true, 1500},
        {"5m", true, 300000},
        {"1h", true, 3600000},
        {"49d", true, 4233600000u},
        {"", false, 0},
        {"s", false, 0},
        {"-1s", false, 0},
        {" 1s", false, 0},
        {"1 s", false, 0},
        {"1.5s", false, 0},
        {"50d", false, 0},
        {"4294967296ms", false, 0},
        {"99999999999999999999", false, 0},
        {"1w", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t ms = 0;

        assert_int_equal(cli_parse_duration(cases[i].text, &ms), cases[i].good);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void times_are_written_for_people(void **state)
{
    char out[32];

    (void)state;
    assert_string_equal(cli_format_duration(0, out), "0 ms");
    assert_string_equal(cli_format_duration(999, out), "999 ms");
    assert_string_equal(cli_format_duration(12345, out), "12 s");
    assert_string_equal(cli_format_duration(61000, out), "1 min 1 s");
    assert_string_equal(cli_format_duration(3600000, out), "1 h");
    assert_string_equal(cli_format_duration(93600000, out), "1 d 2 h");
}

static int walk(struct cli_common *common, char **argv)
{
    static const struct option options[] = {{"own", required_argument, NULL, 'o'},
                                            CLI_COMMON_OPTIONS};
    int argc = 0, taken = 0;

    while (argv[argc] != NULL)
        argc++;
    cli_common_init(common, &command);
    while (cli_next_option(common, argc, argv, options) != -1)
        taken++;
    return taken;
}

static void options_may_stand_before_and_behind_the_operand(void **state)
{
    char *argv[] = {"test", "--own", "1", "NAME", "--json", "--timeout", "2s", "--own", "2", NULL};
    struct cli_common common;

    (void)state;
    assert_int_equal(walk(&common, argv), 2);
    assert_int_equal(common.exit_code, -1);
    assert_true(common.json);
    assert_int_equal(common.timeout_ms, 2000);
    assert_true(cli_want_operands(&common, 9, 1, "NAME"));
}

static void what_is_wrong_is_usage(void **state)
{
    char *unknown[] = {"test", "--nonsense", NULL};
    char *without[] = {"test", "--own", NULL};
    char *timeout[] = {"test", "--timeout", "soon", NULL};
    char *zero[] = {"test", "--timeout", "0", NULL};
    char **cases[] = {unknown, without, timeout, zero};
    struct cli_common common;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(walk(&common, cases[i]), 0);
        assert_int_equal(common.exit_code, CLI_EXIT_USAGE);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read_with_their_units),
        cmocka_unit_test(times_are_written_for_people),
        cmocka_unit_test(options_may_stand_before_and_behind_the_operand),
        cmocka_unit_test(what_is_wrong_is_usage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
