#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "cli/cli.h"

static json_t *members_json(const struct fl_node_status *node)
{
    json_t *members = json_array();

    for (size_t i = 0; i < node->n_members; i++)
        json_array_append_new(members,
                              json_pack("{s:I, s:s, s:s, s:b, s:I}", "node_id",
                                        (json_int_t)node->members[i].node_id, "address",
                                        node->members[i].address, "role", node->members[i].role,
                                        "reachable", (int)node->members[i].is_reachable,
                                        "match_index", (json_int_t)node->members[i].match_index));
    return members;
}

static json_t *node_json(const struct fl_node_status *node)
{
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"node_id", node->node_id},
        {"leader_id", node->leader_id},
        {"term", node->term},
        {"commit_index", node->commit_index},
        {"applied_index", node->applied_index},
        {"last_index", node->last_index},
        {"snapshot_index", node->snapshot_index},
        {"sessions", node->sessions},
        {"names", node->names},
        {"holds", node->holds},
        {"waits", node->waits},
        {"grants", node->grants},
        {"memory_bytes", node->memory_bytes},
        {"token", node->token},
    };
    json_t *json = json_pack("{s:s, s:s, s:s, s:o}", "role", node->role, "version", node->version,
                             "error", node->error, "members", members_json(node));
    char hash[20];

    for (size_t i = 0; i < FL_ARRAY_LEN(numbers); i++)
        json_object_set_new(json, numbers[i].key, json_integer((json_int_t)numbers[i].value));
    snprintf(hash, sizeof hash, "%016" PRIx64, node->state_hash);
    json_object_set_new(json, "state_hash", json_string(hash));
    return json;
}

static void print_json(const struct fl_cluster_status *status)
{
    json_t *nodes = json_array();

    for (size_t i = 0; i < status->n_nodes; i++)
        json_array_append_new(nodes, node_json(&status->nodes[i]));
    cli_print_json(json_pack("{s:o}", "nodes", nodes));
}

static void add_row(struct cli_table *table, const struct fl_node_status *node)
{
    cli_table_add(table, "%" PRIu64, node->node_id);
    if (node->error[0] != '\0') {
        cli_table_add(table, "%s", node->error);
        for (int c = 2; c < table->n_columns; c++)
            cli_table_add(table, "-");
        return;
    }
    cli_table_add(table, "%s", node->role);
    cli_table_add(table, "%" PRIu64, node->leader_id);
    cli_table_add(table, "%" PRIu64, node->term);
    cli_table_add(table, "%" PRIu64, node->applied_index);
    cli_table_add(table, "%" PRIu64, node->sessions);
    cli_table_add(table, "%" PRIu64, node->holds);
    cli_table_add(table, "%" PRIu64, node->waits);
    cli_table_add(table, "%.1f MiB", (double)node->memory_bytes / (1 << 20));
    cli_table_add(table, "%016" PRIx64, node->state_hash);
    cli_table_add(table, "%s", node->version);
}

static void print_text(const struct fl_cluster_status *status)
{
    static const char *const heads[] = {"NODE",    "ROLE",       "LEADER", "TERM",
                                        "APPLIED", "SESSIONS",   "HOLDS",  "WAITS",
                                        "MEMORY",  "STATE HASH", "VERSION"};
    struct cli_table table;

    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    for (size_t i = 0; i < status->n_nodes; i++)
        add_row(&table, &status->nodes[i]);
    cli_table_print(&table);
    cli_table_deinit(&table);
}

static int status(int argc, char **argv)
{
    static const struct option options[] = {{"local", no_argument, NULL, 'l'}, CLI_COMMON_OPTIONS};
    struct fl_cluster_status *cluster;
    struct fl_client *client;
    struct cli_common common;
    bool all_nodes = true;
    struct fl_why why;

    cli_common_init(&common, &cli_status);
    while (cli_next_option(&common, argc, argv, options) != -1)
        all_nodes = false;
    if (!cli_want_operands(&common, argc, 0, "no operand"))
        return common.exit_code;
    client = cli_connect(&common, NULL);
    if (client == NULL)
        return common.exit_code;
    if (fl_cluster_status(client, all_nodes, &cluster, &why) < 0) {
        common.exit_code = cli_fail(&common, &why);
    } else {
        common.exit_code = 0;
        if (common.json)
            print_json(cluster);
        else
            print_text(cluster);
        fl_cluster_status_free(cluster);
    }
    fl_client_free(client);
    return common.exit_code;
}

const struct cli_command cli_status = {
    .name = "status",
    .summary = "the nodes: who leads, how far each is",
    .help = "fencelock status [OPTIONS]\n"
            "\n"
            "Shows every node that the one we reach is linked to. Nodes at the same APPLIED index\n"
            "have the same STATE HASH.\n"
            "\n"
            "  --local                    only the node behind the endpoint\n" CLI_COMMON_HELP "\n"
            "Examples:\n"
            "  fencelock status\n"
            "  fencelock status --json | jq '.nodes[] | select(.role == \"leader\") | .node_id'\n",
    .run = status,
};
