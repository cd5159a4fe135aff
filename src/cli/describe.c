#include <stdio.h>

#include "cli/cli.h"

static json_t *holders_json(const struct fl_description *d)
{
    json_t *holders = json_array();

    for (size_t i = 0; i < d->n_holders; i++)
        json_array_append_new(
            holders,
            json_pack("{s:s, s:s, s:I, s:s, s:I, s:I}", "client", d->holders[i].client,
                      "session_id", d->holders[i].session_id, "token",
                      (json_int_t)d->holders[i].token, "mode", cli_mode_text(d->holders[i].mode),
                      "held_for_ms", (json_int_t)d->holders[i].held_for_ms, "lease_left_ms",
                      (json_int_t)d->holders[i].lease_left_ms));
    return holders;
}

static json_t *waiters_json(const struct fl_description *d)
{
    json_t *waiters = json_array();

    for (size_t i = 0; i < d->n_waiters; i++)
        json_array_append_new(waiters,
                              json_pack("{s:s, s:s, s:I}", "client", d->waiters[i].client, "mode",
                                        cli_mode_text(d->waiters[i].mode), "waiting_for_ms",
                                        (json_int_t)d->waiters[i].waiting_for_ms));
    return waiters;
}

static void print_json(const char *name, const struct fl_description *d)
{
    cli_print_json(json_pack("{s:s, s:b, s:s, s:i, s:o, s:i, s:o, s:I, s:I}", "name", name, "held",
                             (int)d->is_held, "mode", cli_mode_text(d->mode), "limit",
                             (int)d->limit, "holders", holders_json(d), "waiter_count",
                             (int)d->waiter_count, "waiters", waiters_json(d), "closed_for_ms",
                             (json_int_t)d->closed_for_ms, "log_index", (json_int_t)d->log_index));
}

static void print_holders(const struct fl_description *d)
{
    static const char *const heads[] = {"HOLDER", "TOKEN", "HELD FOR", "LEASE LEFT", "SESSION"};
    struct cli_table table;
    char held[32], left[32];

    cli_table_init(&table, heads, 5);
    for (size_t i = 0; i < d->n_holders; i++) {
        cli_table_add(&table, "%s", d->holders[i].client);
        cli_table_add(&table, "%llu", (unsigned long long)d->holders[i].token);
        cli_table_add(&table, "%s", cli_format_duration(d->holders[i].held_for_ms, held));
        cli_table_add(&table, "%s", cli_format_duration(d->holders[i].lease_left_ms, left));
        cli_table_add(&table, "%s", d->holders[i].session_id);
    }
    cli_table_print(&table);
    cli_table_deinit(&table);
}

static void print_waiters(const struct fl_description *d)
{
    static const char *const heads[] = {"WAITER", "WAITING FOR", "MODE"};
    struct cli_table table;
    char waiting[32];

    cli_table_init(&table, heads, 3);
    for (size_t i = 0; i < d->n_waiters; i++) {
        cli_table_add(&table, "%s", d->waiters[i].client);
        cli_table_add(&table, "%s", cli_format_duration(d->waiters[i].waiting_for_ms, waiting));
        cli_table_add(&table, "%s", cli_mode_text(d->waiters[i].mode));
    }
    putchar('\n');
    cli_table_print(&table);
    if (d->waiter_count > d->n_waiters)
        printf("and %u more\n", (unsigned)(d->waiter_count - d->n_waiters));
    cli_table_deinit(&table);
}

static void print_text(const struct fl_description *d)
{
    char closed[32];

    if (d->closed_for_ms > 0)
        printf("closed for %s more: its last session expired, and asked for that delay\n",
               cli_format_duration(d->closed_for_ms, closed));
    if (!d->is_held) {
        puts("free");
    } else {
        printf("%s", cli_mode_text(d->mode));
        if (d->mode == FL_COUNTED)
            printf(", %zu of %u permits taken", d->n_holders, (unsigned)d->limit);
        printf(", %u waiting\n\n", (unsigned)d->waiter_count);
        print_holders(d);
    }
    if (d->n_waiters > 0)
        print_waiters(d);
}

static int describe(int argc, char **argv)
{
    static const struct option options[] = {{"waiters", required_argument, NULL, 'w'},
                                            {"stale-ok", no_argument, NULL, 's'},
                                            CLI_COMMON_OPTIONS};
    struct fl_description *description;
    struct fl_client *client;
    struct cli_common common;
    uint32_t waiters_max = 10;
    bool stale_ok = false;
    struct fl_why why;
    int option;

    cli_common_init(&common, &cli_describe);
    while ((option = cli_next_option(&common, argc, argv, options)) != -1) {
        if (option == 'w')
            waiters_max = (uint32_t)cli_number(&common, "--waiters", optarg, 0, 1000);
        else
            stale_ok = true;
    }
    if (!cli_want_operands(&common, argc, 1, "NAME"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    if (fl_describe(client, argv[optind], stale_ok, waiters_max, &description, &why) < 0) {
        common.exit_code = cli_fail(&common, &why);
    } else {
        common.exit_code = 0;
        if (common.json)
            print_json(argv[optind], description);
        else
            print_text(description);
        fl_description_free(description);
    }
    fl_client_free(client);
    return common.exit_code;
}

const struct cli_command cli_describe = {
    .name = "describe",
    .summary = "who holds a name, and who waits for it",
    .help =
        "fencelock describe NAME [OPTIONS]\n"
        "\n"
        "Shows holders with their tokens, and the first waiters, as of now.\n"
        "\n"
        "  --waiters N                how many waiters to show, at most 1000 (10)\n"
        "  --stale-ok                 what one node knows, also without a leader\n" CLI_COMMON_HELP
        "\n"
        "Examples:\n"
        "  fencelock describe payout/INV-55102\n"
        "  fencelock describe --json payout/INV-55102 | jq .holders[0].token\n",
    .run = describe,
};
