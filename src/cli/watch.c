#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"

static const char *kind_text(int kind)
{
    switch (kind) {
    case FL_WATCH_PRESENT:
        return "held";
    case FL_WATCH_GRANTED:
        return "granted";
    case FL_WATCH_ENDED:
        return "ended";
    case FL_WATCH_CAUGHT_UP:
        return "caught-up";
    default:
        return "unknown";
    }
}

static bool print_event(void *ctx, const struct fl_watch_event *event)
{
    const struct cli_common *common = ctx;
    char name[2100], client[600];

    if (common->json) {
        cli_print_json(json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:s, s:s}", "kind", kind_text(event->kind), "name",
            event->name, "client", event->client, "token", (json_int_t)event->token, "index",
            (json_int_t)event->index, "mode", cli_mode_text(event->mode), "cause", event->cause));
    } else if (event->kind != FL_WATCH_CAUGHT_UP) {
        printf("%-8s %s  token %" PRIu64 "  %s%s%s\n", kind_text(event->kind),
               fl_str_escape(fl_str_from(event->name), name, sizeof name), event->token,
               fl_str_escape(fl_str_from(event->client), client, sizeof client),
               event->cause[0] != '\0' ? "  " : "", event->cause);
    }
    fflush(stdout);
    return !ferror(stdout);
}

static int watch(int argc, char **argv)
{
    static const struct option options[] = {{"prefix", no_argument, NULL, 'p'}, CLI_COMMON_OPTIONS};
    struct fl_client *client;
    struct cli_common common;
    bool is_prefix = false;
    struct fl_why why;

    cli_common_init(&common, &cli_watch);
    while (cli_next_option(&common, argc, argv, options) != -1)
        is_prefix = true;
    if (!cli_want_operands(&common, argc, 1, "NAME"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    if (fl_watch(client, argv[optind], is_prefix, print_event, &common, &why) < 0)
        common.exit_code = cli_fail(&common, &why);
    else
        common.exit_code = 0;
    fl_client_free(client);
    return common.exit_code;
}

const struct cli_command cli_watch = {
    .name = "watch",
    .summary = "holder changes as they happen",
    .help = "fencelock watch NAME [--prefix] [OPTIONS]\n"
            "\n"
            "Prints the present holders, then each change, until it is stopped.\n"
            "\n"
            "  --prefix                   every name that begins with NAME\n" CLI_COMMON_HELP "\n"
            "Examples:\n"
            "  fencelock watch payout/INV-55102\n"
            "  fencelock watch --prefix payout/ --json\n",
    .run = watch,
};
