#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cli/cli.h"

#define PAGE_SIZE 1000

static const char *const heads[] = {"NAME",  "MODE",     "HOLDERS", "WAITERS",
                                    "TOKEN", "HELD FOR", "HOLDER"};

static void add_row(struct cli_table *table, const struct fl_list_item *item)
{
    char held[32];

    cli_table_add(table, "%s", item->name);
    cli_table_add(table, "%s", cli_mode_text(item->mode));
    if (item->mode == FL_COUNTED)
        cli_table_add(table, "%u/%u", (unsigned)item->holders, (unsigned)item->limit);
    else
        cli_table_add(table, "%u", (unsigned)item->holders);
    cli_table_add(table, "%u", (unsigned)item->waiters);
    cli_table_add(table, "%llu", (unsigned long long)item->token);
    cli_table_add(table, "%s", cli_format_duration(item->held_for_ms, held));
    cli_table_add(table, "%s", item->client);
}

static json_t *item_json(const struct fl_list_item *item)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:I}", "name", item->name, "mode",
                     cli_mode_text(item->mode), "limit", (int)item->limit, "holders",
                     (int)item->holders, "waiters", (int)item->waiters, "client", item->client,
                     "token", (json_int_t)item->token, "held_for_ms",
                     (json_int_t)item->held_for_ms);
}

/* Adds all pages to the table or the array, up to `max` names. */
static int collect(struct fl_client *client, const char *prefix, uint64_t max,
                   struct cli_table *table, json_t *array, struct fl_why *why)
{
    struct fl_listing *listing;
    char *page = fl_xstrdup("");
    uint64_t n = 0;
    int r;

    do {
        uint32_t size = max - n < PAGE_SIZE ? (uint32_t)(max - n) : PAGE_SIZE;

        r = fl_list_names(client, prefix, page, size, &listing, why);
        if (r < 0)
            break;
        for (size_t i = 0; i < listing->n_items; i++, n++) {
            if (array != NULL)
                json_array_append_new(array, item_json(&listing->items[i]));
            else
                add_row(table, &listing->items[i]);
        }
        free(page);
        page = fl_xstrdup(listing->next_page);
        fl_listing_free(listing);
    } while (page[0] != '\0' && n < max);
    free(page);
    return r;
}

static int list(struct cli_common *common, const char *prefix, uint64_t max)
{
    struct fl_client *client = cli_connect(common, NULL);
    json_t *array = common->json ? json_array() : NULL;
    struct cli_table table;
    struct fl_why why;

    if (client == NULL)
        return common->exit_code;
    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    if (collect(client, prefix, max, &table, array, &why) < 0)
        common->exit_code = cli_fail(common, &why);
    else
        common->exit_code = 0;
    if (common->exit_code == 0 && common->json)
        cli_print_json(json_pack("{s:O}", "names", array));
    else if (common->exit_code == 0)
        cli_table_print(&table);
    json_decref(array);
    cli_table_deinit(&table);
    fl_client_free(client);
    return common->exit_code;
}

static int ls(int argc, char **argv)
{
    static const struct option options[] = {{"max", required_argument, NULL, 'm'},
                                            CLI_COMMON_OPTIONS};
    struct cli_common common;
    uint64_t max = 1000;
    const char *prefix = "";

    cli_common_init(&common, &cli_ls);
    while (cli_next_option(&common, argc, argv, options) != -1)
        max = cli_number(&common, "--max", optarg, 1, 100000000);
    if (common.exit_code != -1)
        return common.exit_code;
    if (optind < argc)
        prefix = argv[optind++];
    if (!cli_want_operands(&common, argc, 0, "PREFIX"))
        return common.exit_code;
    return list(&common, prefix, max);
}

const struct cli_command cli_ls = {
    .name = "ls",
    .summary = "names that are held or waited for",
    .help = "fencelock ls [PREFIX] [OPTIONS]\n"
            "\n"
            "Lists names in use that begin with PREFIX, in order.\n"
            "\n"
            "  --max N                    show at most N names (1000)\n" CLI_COMMON_HELP "\n"
            "Examples:\n"
            "  fencelock ls payout/\n"
            "  fencelock ls --json --max 100000 | jq -r .names[].name\n",
    .run = ls,
};
