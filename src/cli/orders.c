/* What an operator ends by hand: force-release, end-session, transfer-leader. Each is one call
 * whose answer is empty. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define OPERATOR_SIZE 160

/* Says that it is done, or why not; frees the client. */
static int conclude(struct cli_common *common, struct fl_client *client, int r,
                    const struct fl_why *why, const char *done)
{
    fl_client_free(client);
    if (r < 0)
        return cli_fail(common, why);
    if (common->json)
        cli_print_json(json_pack("{s:b}", "ok", 1));
    else
        puts(done);
    return 0;
}

static int force_release(int argc, char **argv)
{
    static const struct option options[] = {{"token", required_argument, NULL, 't'},
                                            {"reason", required_argument, NULL, 'r'},
                                            {"by", required_argument, NULL, 'b'},
                                            CLI_COMMON_OPTIONS};
    char operator_name[OPERATOR_SIZE];
    const char *by = cli_operator_name(operator_name, sizeof operator_name), *reason = NULL;
    struct fl_client *client;
    struct cli_common common;
    struct fl_why why;
    uint64_t token = 0;
    int option, r;

    cli_common_init(&common, &cli_force_release);
    while ((option = cli_next_option(&common, argc, argv, options)) != -1) {
        if (option == 't')
            token = cli_number(&common, "--token", optarg, 1, UINT64_C(1) << 53);
        else if (option == 'r')
            reason = optarg;
        else
            by = optarg;
    }
    if (!cli_want_operands(&common, argc, 1, "NAME"))
        return common.exit_code;
    if (token == 0)
        return cli_usage(&common, "--token is missing: take it from fencelock describe %s",
                         argv[optind]);
    if (reason == NULL || reason[0] == '\0')
        return cli_usage(&common, "--reason is missing: the holder will be told it");
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    r = fl_force_release(client, argv[optind], token, by, reason, &why);
    return conclude(&common, client, r, &why,
                    "released. Its former holder may still be at work: only the fence stops it.");
}

const struct cli_command cli_force_release = {
    .name = "force-release",
    .summary = "take a name from its holder",
    .help =
        "fencelock force-release NAME --token T --reason TEXT [OPTIONS]\n"
        "\n"
        "Takes NAME from the holder with token T; the next in the queue gets it. The holder is "
        "told\n"
        "who did it and why, but may be in the middle of a write: a store that checks tokens will\n"
        "refuse it, another will not.\n"
        "\n"
        "  --token T                  as fencelock describe NAME shows it; a later holder is safe\n"
        "  --reason TEXT              required\n"
        "  --by WHO                   (USER@HOST)\n" CLI_COMMON_HELP "\n"
        "Example:\n"
        "  fencelock force-release payout/INV-55102 --token 90412 --reason 'host is gone'\n",
    .run = force_release,
};

static int end_session(int argc, char **argv)
{
    static const struct option options[] = {{"reason", required_argument, NULL, 'r'},
                                            {"by", required_argument, NULL, 'b'},
                                            CLI_COMMON_OPTIONS};
    char operator_name[OPERATOR_SIZE];
    const char *by = cli_operator_name(operator_name, sizeof operator_name);
    const char *reason = "ended with the command-line tool";
    struct fl_client *client;
    struct cli_common common;
    struct fl_why why;
    int option, r;

    cli_common_init(&common, &cli_end_session);
    while ((option = cli_next_option(&common, argc, argv, options)) != -1) {
        if (option == 'r')
            reason = optarg;
        else
            by = optarg;
    }
    if (!cli_want_operands(&common, argc, 1, "SESSION"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    r = fl_end_session(client, argv[optind], by, reason, &why);
    return conclude(&common, client, r, &why, "ended. All that it held is free or granted on.");
}

const struct cli_command cli_end_session = {
    .name = "end-session",
    .summary = "end a client's session and all that it holds",
    .help = "fencelock end-session SESSION [OPTIONS]\n"
            "\n"
            "Ends SESSION at once: its locks go to those who wait, its waits are gone, its client\n"
            "is told who did it and why.\n"
            "\n"
            "  --reason TEXT              shown to the client\n"
            "  --by WHO                   (USER@HOST)\n" CLI_COMMON_HELP "\n"
            "Example:\n"
            "  fencelock end-session s_7f2c91d0c1a24b6f9e5d3b7a11223344 --reason 'stuck job'\n",
    .run = end_session,
};

static int transfer_leader(int argc, char **argv)
{
    static const struct option options[] = {{"to", required_argument, NULL, 't'},
                                            CLI_COMMON_OPTIONS};
    struct fl_client *client;
    struct cli_common common;
    struct fl_why why;
    uint64_t node_id = 0;
    int r;

    cli_common_init(&common, &cli_transfer_leader);
    while (cli_next_option(&common, argc, argv, options) != -1)
        node_id = cli_number(&common, "--to", optarg, 1, UINT64_MAX);
    if (!cli_want_operands(&common, argc, 0, "no operand"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    r = fl_transfer_leader(client, node_id, &why);
    return conclude(&common, client, r, &why, "under way: see fencelock status");
}

const struct cli_command cli_transfer_leader = {
    .name = "transfer-leader",
    .summary = "hand leadership to another node",
    .help =
        "fencelock transfer-leader [--to NODE] [OPTIONS]\n"
        "\n"
        "Hands leadership to NODE, or to whoever is furthest: before maintenance of the\n"
        "leader's machine. Sessions and locks live on.\n"
        "\n"
        "  --to NODE                  its id, as fencelock status shows it\n" CLI_COMMON_HELP "\n"
        "Example:\n"
        "  fencelock transfer-leader --to 3\n",
    .run = transfer_leader,
};
