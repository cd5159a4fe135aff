/* `fencelock node`: who is a member. A change is one call that begins it; then the leader's status
 * is watched until it is done, so that a person sees how far it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"

#define WAIT_MS_DEFAULT 300000
#define LOOK_EVERY_MS   200
/* A standby that is this near is promoted: the rest takes no time. */
#define NEAR_ENTRIES 1000

struct order {
    struct cli_common common;
    struct fl_client *client;
    uint64_t node_id, other_id;
    char address[256];
    uint64_t deadline_ms;
    uint32_t wait_ms;
    bool only_standby;
    bool has_line; /* a line of progress is on the terminal */
    struct fl_why why;
};

/* What the leader says of one member. */
struct view {
    bool has_leader, is_member, is_voter, is_reachable;
    uint64_t leader_id, match_index, last_index;
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&wait, NULL);
}

/* --- Looking --- */

static const struct fl_node_status *leader_of(const struct fl_cluster_status *cluster)
{
    const struct fl_node_status *leader = NULL;

    for (size_t i = 0; i < cluster->n_nodes; i++) {
        const struct fl_node_status *node = &cluster->nodes[i];

        if (strcmp(node->role, "leader") == 0 && (leader == NULL || node->term > leader->term))
            leader = node;
    }
    return leader;
}

static int look(struct order *o, uint64_t node_id, struct view *view)
{
    struct fl_cluster_status *cluster;
    const struct fl_node_status *leader;
    int r = fl_cluster_status(o->client, true, &cluster, &o->why);

    *view = (struct view){0};
    if (r < 0)
        return r;
    leader = leader_of(cluster);
    if (leader != NULL) {
        view->has_leader = true;
        view->leader_id = leader->node_id;
        view->last_index = leader->last_index;
        for (size_t i = 0; i < leader->n_members; i++) {
            const struct fl_member_status *member = &leader->members[i];

            if (member->node_id != node_id)
                continue;
            view->is_member = true;
            view->is_voter = strcmp(member->role, "voter") == 0;
            view->is_reachable = member->is_reachable;
            view->match_index = member->match_index;
        }
    }
    fl_cluster_status_free(cluster);
    return 0;
}

static void show_progress(struct order *o, const struct view *view, const char *doing)
{
    if (!isatty(STDERR_FILENO) || o->common.json)
        return;
    o->has_line = true;
    if (view->is_member && !view->is_reachable)
        fprintf(stderr, "\r\033[Knode %" PRIu64 ": waiting for it; is it started with --join?",
                o->node_id);
    else
        fprintf(stderr, "\r\033[Knode %" PRIu64 ": %s (entry %" PRIu64 " of %" PRIu64 ")",
                o->node_id, doing, view->match_index, view->last_index);
}

static void end_progress(struct order *o)
{
    if (o->has_line)
        fputs("\r\033[K", stderr);
    o->has_line = false;
}

/* False: the time is over, which o->why tells. */
static bool has_time(struct order *o, const char *undone)
{
    if (now_ms() < o->deadline_ms)
        return true;
    o->why.code = FL_E_TIMEOUT;
    snprintf(o->why.message, sizeof o->why.message, "node %" PRIu64 " %s", o->node_id, undone);
    return false;
}

static bool is_missing(struct order *o, const struct view *view)
{
    if (!view->has_leader || view->is_member)
        return false;
    o->why.code = FL_E_NOT_FOUND;
    snprintf(o->why.message, sizeof o->why.message, "node %" PRIu64 " is no member: add it first",
             o->node_id);
    return true;
}

/* --- The steps --- */

/* What passes by itself: another change is under way, a leader is being elected. */
static bool may_pass(const struct fl_why *why)
{
    return why->code == FL_E_UNREACHABLE || why->code == FL_E_NO_LEADER;
}

static int step_add(struct order *o)
{
    struct view view;

    do {
        int r = look(o, o->node_id, &view);

        if (r == 0 && view.is_member)
            return 0;
        r = fl_add_node(o->client, o->node_id, o->address, &o->why);
        if (r < 0 && !may_pass(&o->why))
            return r;
        pause_ms(LOOK_EVERY_MS);
    } while (has_time(o, "could not be added: no change went through"));
    return FL_E_TIMEOUT;
}

static int step_catch_up(struct order *o)
{
    struct view view;

    do {
        int r = look(o, o->node_id, &view);

        if (r == 0 && is_missing(o, &view))
            return FL_E_NOT_FOUND;
        if (r == 0 && view.is_reachable && view.match_index != 0 &&
            view.match_index + NEAR_ENTRIES >= view.last_index)
            return 0;
        if (r == 0 && view.has_leader)
            show_progress(o, &view, "catching up");
        pause_ms(LOOK_EVERY_MS);
    } while (has_time(o, "is a standby, but has not caught up: is it started with --join, and can "
                         "the nodes dial each other? Then go on with fencelock node promote"));
    return FL_E_TIMEOUT;
}

/* Asked again when it was given up as too slow. */
static int step_promote(struct order *o)
{
    struct view view;
    bool is_asked = false;

    do {
        int r = look(o, o->node_id, &view);

        if (r == 0 && view.is_voter)
            return 0;
        if (r == 0 && is_missing(o, &view))
            return FL_E_NOT_FOUND;
        r = fl_promote_node(o->client, o->node_id, &o->why);
        if (r < 0 && !may_pass(&o->why) && !is_asked)
            return r;
        is_asked = true;
        show_progress(o, &view, "promoting");
        pause_ms(LOOK_EVERY_MS);
    } while (has_time(o, "is a standby still: it could not be promoted in time"));
    return FL_E_TIMEOUT;
}

static int step_remove(struct order *o, uint64_t node_id)
{
    struct view view;
    bool was_member = false;

    do {
        int r = look(o, node_id, &view);

        if (r == 0 && view.has_leader && !view.is_member && was_member)
            return 0;
        was_member = was_member || view.is_member;
        r = fl_remove_node(o->client, node_id, &o->why);
        if (r < 0 && !may_pass(&o->why) && (!was_member || view.is_member))
            return r;
        pause_ms(LOOK_EVERY_MS);
    } while (has_time(o, "could not be removed in time"));
    return FL_E_TIMEOUT;
}

/* --- The commands --- */

static int conclude(struct order *o, int r, const char *done)
{
    end_progress(o);
    fl_client_free(o->client);
    if (r < 0)
        return cli_fail(&o->common, &o->why);
    if (o->common.json)
        cli_print_json(json_pack("{s:b, s:I}", "ok", 1, "node_id", (json_int_t)o->node_id));
    else
        printf("node %" PRIu64 " %s\n", o->node_id, done);
    return 0;
}

static int run_add(struct order *o)
{
    int r = step_add(o);

    if (r == 0 && !o->only_standby)
        r = step_catch_up(o);
    if (r == 0 && !o->only_standby)
        r = step_promote(o);
    return conclude(o, r,
                    o->only_standby ? "is a standby: it receives everything and does not vote"
                                    : "has caught up and votes");
}

static int run_promote(struct order *o)
{
    int r = step_catch_up(o);

    return conclude(o, r == 0 ? step_promote(o) : r, "votes");
}

static int run_remove(struct order *o)
{
    return conclude(o, step_remove(o, o->node_id),
                    "is no member any more, for ever: stop it, and use a new id for the next");
}

/* The new one votes before the old one goes: the cluster is never smaller than it was. */
static int run_replace(struct order *o)
{
    int r = step_add(o);

    if (r == 0)
        r = step_catch_up(o);
    if (r == 0)
        r = step_promote(o);
    if (r == 0)
        r = step_remove(o, o->other_id);
    return conclude(o, r, "votes in the other's place");
}

static json_t *member_json(const struct fl_member_status *member)
{
    return json_pack("{s:I, s:s, s:s, s:b, s:I}", "node_id", (json_int_t)member->node_id, "address",
                     member->address, "role", member->role, "reachable", (int)member->is_reachable,
                     "match_index", (json_int_t)member->match_index);
}

static void print_members(const struct order *o, const struct fl_node_status *leader)
{
    static const char *const heads[] = {"NODE", "ADDRESS", "ROLE", "REACHABLE", "BEHIND"};
    json_t *array = json_array();
    struct cli_table table;

    cli_table_init(&table, heads, (int)FL_ARRAY_LEN(heads));
    for (size_t i = 0; i < leader->n_members; i++) {
        const struct fl_member_status *member = &leader->members[i];
        bool leads = member->node_id == leader->node_id;

        json_array_append_new(array, member_json(member));
        cli_table_add(&table, "%" PRIu64, member->node_id);
        cli_table_add(&table, "%s", member->address);
        cli_table_add(&table, "%s", leads ? "leader" : member->role);
        cli_table_add(&table, "%s", member->is_reachable ? "yes" : "no");
        cli_table_add(&table, "%" PRIu64,
                      leads || member->match_index > leader->last_index
                          ? (uint64_t)0
                          : leader->last_index - member->match_index);
    }
    if (o->common.json)
        cli_print_json(
            json_pack("{s:I, s:O}", "leader_id", (json_int_t)leader->node_id, "members", array));
    else
        cli_table_print(&table);
    json_decref(array);
    cli_table_deinit(&table);
}

static int run_ls(struct order *o)
{
    const struct fl_node_status *leader = NULL;
    struct fl_cluster_status *cluster = NULL;
    int r = fl_cluster_status(o->client, true, &cluster, &o->why), code = 0;

    if (r == 0)
        leader = leader_of(cluster);
    if (r == 0 && leader == NULL) {
        o->why.code = FL_E_NO_LEADER;
        snprintf(o->why.message, sizeof o->why.message, "no node leads at present");
    }
    if (leader != NULL)
        print_members(o, leader);
    else
        code = cli_fail(&o->common, &o->why);
    fl_cluster_status_free(cluster);
    fl_client_free(o->client);
    return code;
}

/* --- Words --- */

/* "ID=HOST:PORT" */
static bool parse_new(struct order *o, const char *text)
{
    const char *equals = strchr(text, '=');
    char id[24];

    if (equals == NULL || (size_t)(equals - text) >= sizeof id ||
        strlen(equals + 1) >= sizeof o->address)
        return false;
    snprintf(id, sizeof id, "%.*s", (int)(equals - text), text);
    strcpy(o->address, equals + 1);
    return cli_parse_u64(id, &o->node_id) && o->node_id != 0;
}

static const struct verb {
    const char *name;
    int operands;
    const char *what;
    int (*run)(struct order *o);
} verbs[] = {
    {"ls", 0, "no operand", run_ls},
    {"add", 1, "ID=HOST:PORT", run_add},
    {"promote", 1, "ID", run_promote},
    {"remove", 1, "ID", run_remove},
    {"replace", 2, "OLD-ID NEW-ID=HOST:PORT", run_replace},
};

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    }
    return NULL;
}

static bool read_operands(struct order *o, const struct verb *verb, char **operands)
{
    const char *last = verb->operands > 0 ? operands[verb->operands - 1] : NULL;

    if (verb->run == run_replace && (!cli_parse_u64(operands[0], &o->other_id) || o->other_id == 0))
        return false;
    if (verb->run == run_add || verb->run == run_replace)
        return parse_new(o, last);
    return last == NULL || (cli_parse_u64(last, &o->node_id) && o->node_id != 0);
}

static int node(int argc, char **argv)
{
    static const struct option options[] = {{"wait", required_argument, NULL, 'w'},
                                            {"standby", no_argument, NULL, 's'},
                                            CLI_COMMON_OPTIONS};
    struct order o = {.wait_ms = WAIT_MS_DEFAULT};
    const struct verb *verb;
    int option;

    cli_common_init(&o.common, &cli_node);
    while ((option = cli_next_option(&o.common, argc, argv, options)) != -1) {
        if (option == 'w')
            o.wait_ms = cli_duration(&o.common, "--wait", optarg);
        else
            o.only_standby = true;
    }
    if (o.common.exit_code >= 0)
        return o.common.exit_code;
    verb = optind < argc ? find_verb(argv[optind]) : NULL;
    if (verb == NULL)
        return cli_usage(&o.common, "say what to do: ls, add, promote, remove or replace");
    optind++;
    if (!cli_want_operands(&o.common, argc, verb->operands, verb->what))
        return o.common.exit_code;
    if (!read_operands(&o, verb, argv + optind))
        return cli_usage(&o.common, "%s needs %s, with ids from 1 up", verb->name, verb->what);
    o.client = cli_connect(&o.common, NULL);
    if (o.client == NULL)
        return o.common.exit_code;
    o.deadline_ms = now_ms() + o.wait_ms;
    return verb->run(&o);
}

const struct cli_command cli_node = {
    .name = "node",
    .summary = "add, promote, remove, replace and list the cluster's nodes",
    .help =
        "fencelock node ls\n"
        "fencelock node add ID=HOST:PORT [--standby]\n"
        "fencelock node promote ID\n"
        "fencelock node remove ID\n"
        "fencelock node replace OLD-ID ID=HOST:PORT\n"
        "\n"
        "Changes the cluster's members while it serves. HOST:PORT is the new node's peer port, as\n"
        "the others dial it; its process runs already, with --join and an empty directory. It is\n"
        "sent everything first and votes only then. ID was never used before: a node that lost\n"
        "its data comes back under a new one. A leader that is removed hands over first. Three\n"
        "that vote is the least.\n"
        "\n"
        "  --standby                  add: leave it as one that does not vote\n"
        "  --wait TIME                how long to wait until it is done (5m)\n" CLI_COMMON_HELP "\n"
        "Examples:\n"
        "  fencelock node add 6=10.0.0.6:3363\n"
        "  fencelock node replace 3 7=10.0.0.7:3363\n",
    .run = node,
};
