#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cli/cli.h"

#define PAGE_SIZE 1000

static const char *const heads[] = {"SESSION", "CLIENT",     "TTL", "HOLDS",
                                    "WAITS",   "SILENT FOR", "AGE"};

static void add_row(struct cli_table *table, const struct fl_session_item *item)
{
    char text[32];

    cli_table_add(table, "%s", item->session_id);
    cli_table_add(table, "%s", item->client);
    cli_table_add(table, "%s", cli_format_duration(item->ttl_ms, text));
    cli_table_add(table, "%u", (unsigned)item->holds);
    cli_table_add(table, "%u", (unsigned)item->waits);
    cli_table_add(table, "%s", cli_format_duration(item->silent_ms, text));
    cli_table_add(table, "%s", cli_format_duration(item->age_ms, text));
}

static json_t *item_json(const struct fl_session_item *item)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:I}", "session_id", item->session_id,
                     "client", item->client, "ttl_ms", (int)item->ttl_ms, "holds", (int)item->holds,
                     "waits", (int)item->waits, "silent_ms", (json_int_t)item->silent_ms, "age_ms",
                     (json_int_t)item->age_ms);
}

static int collect(struct fl_client *client, struct cli_table *table, json_t *array,
                   struct fl_why *why)
{
    struct fl_session_listing *listing;
    char *page = fl_xstrdup("");
    int r;

    do {
        r = fl_list_sessions(client, page, PAGE_SIZE, &listing, why);
        if (r < 0)
            break;
        for (size_t i = 0; i < listing->n_items; i++) {
            if (array != NULL)
                json_array_append_new(array, item_json(&listing->items[i]));
            else
                add_row(table, &listing->items[i]);
        }
        free(page);
        page = fl_xstrdup(listing->next_page);
        fl_session_listing_free(listing);
    } while (page[0] != '\0');
    free(page);
    return r;
}

static int sessions(int argc, char **argv)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS};
    struct fl_client *client;
    struct cli_common common;
    struct cli_table table;
    struct fl_why why;
    json_t *array;

    cli_common_init(&common, &cli_sessions);
    cli_next_option(&common, argc, argv, options);
    if (!cli_want_operands(&common, argc, 0, "no operand"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    array = common.json ? json_array() : NULL;
    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    common.exit_code = collect(client, &table, array, &why) < 0 ? cli_fail(&common, &why) : 0;
    if (common.exit_code == 0 && common.json)
        cli_print_json(json_pack("{s:O}", "sessions", array));
    else if (common.exit_code == 0)
        cli_table_print(&table);
    json_decref(array);
    cli_table_deinit(&table);
    fl_client_free(client);
    return common.exit_code;
}

const struct cli_command cli_sessions = {
    .name = "sessions",
    .summary = "clients that the cluster keeps locks for",
    .help = "fencelock sessions [OPTIONS]\n"
            "\n"
            "Lists sessions with what they hold and how long they have been silent.\n"
            "\n" CLI_COMMON_HELP "\n"
            "Examples:\n"
            "  fencelock sessions\n"
            "  fencelock sessions --json | jq '.sessions[] | select(.silent_ms > 5000)'\n",
    .run = sessions,
};
