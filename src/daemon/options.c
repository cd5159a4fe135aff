#include "daemon/options.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "net/address.h"

#define WHY_BYTES    512
#define ENV_PREFIX   "FENCELOCK_"
#define CLUSTER_MAX  64
#define ELECTION_MIN 100
#define ELECTION_MAX 60000

/* Sets one option from its text; returns what is wrong with it, or NULL. */
typedef const char *(*setter)(struct fl_options *options, const char *value);

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    char *end;
    unsigned long long value;

    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < min || value > max)
        return false;
    *ret_value = value;
    return true;
}

static void replace(char **field, const char *value)
{
    free(*field);
    *field = fl_xstrdup(value);
}

static const char *set_node_id(struct fl_options *o, const char *value)
{
    return parse_number(value, 1, INT64_MAX, &o->node_id) ? NULL : "must be a number from 1 up";
}

static const char *set_directory(struct fl_options *o, const char *value)
{
    if (*value == '\0' || strlen(value) > 300)
        return "must be a path of at most 300 bytes";
    replace(&o->directory, value);
    return NULL;
}

static const char *set_cluster(struct fl_options *o, const char *value)
{
    struct fl_str name = fl_str_from(value);

    if (name.len == 0 || name.len > CLUSTER_MAX || !fl_str_is_utf8(name) ||
        fl_str_has_control(name))
        return "must be 1 to 64 bytes of text";
    replace(&o->cluster, value);
    return NULL;
}

static const char *set_address(char **field, const char *value)
{
    struct fl_address address;

    if (fl_address_parse(value, &address) < 0)
        return "must be HOST:PORT, [IPV6]:PORT or *:PORT";
    replace(field, value);
    return NULL;
}

static const char *set_listen(struct fl_options *o, const char *value)
{
    return set_address(&o->listen, value);
}

static const char *set_peer_listen(struct fl_options *o, const char *value)
{
    return set_address(&o->peer_listen, value);
}

static const char *set_http_listen(struct fl_options *o, const char *value)
{
    return set_address(&o->http_listen, value);
}

static const char *add_peer(struct fl_options *o, const char *value)
{
    const char *equals = strchr(value, '=');
    char id_text[24];
    struct fl_address address;
    uint64_t id;

    if (equals == NULL || (size_t)(equals - value) >= sizeof id_text)
        return "must be ID=HOST:PORT";
    memcpy(id_text, value, (size_t)(equals - value));
    id_text[equals - value] = '\0';
    if (!parse_number(id_text, 1, INT64_MAX, &id) || fl_address_parse(equals + 1, &address) < 0 ||
        address.host[0] == '\0' || address.port == 0)
        return "must be ID=HOST:PORT, with a number from 1 up and the address that others dial";
    for (unsigned i = 0; i < o->n_peers; i++) {
        if (o->peers[i].id == id) {
            replace(&o->peers[i].address, equals + 1);
            return NULL;
        }
    }
    if (o->n_peers == FL_PEERS_MAX)
        return "is given more than 16 times";
    o->peers[o->n_peers].id = id;
    o->peers[o->n_peers++].address = fl_xstrdup(equals + 1);
    return NULL;
}

/* In a file or the environment: all of them, separated by commas. */
static const char *set_peers(struct fl_options *o, const char *value)
{
    char *copy = fl_xstrdup(value), *at = copy, *item;
    const char *fault = NULL;

    while (fault == NULL && (item = strsep(&at, ", ")) != NULL) {
        if (*item != '\0')
            fault = add_peer(o, item);
    }
    free(copy);
    return fault;
}

bool fl_options_parse_peers(struct fl_options *o, const char *text)
{
    return set_peers(o, text) == NULL;
}

const char *fl_options_peer(const struct fl_options *o, uint64_t id)
{
    for (unsigned i = 0; i < o->n_peers; i++) {
        if (o->peers[i].id == id)
            return o->peers[i].address;
    }
    return NULL;
}

static const char *add_metrics_prefix(struct fl_options *o, const char *value)
{
    struct fl_str prefix = fl_str_from(value);

    if (prefix.len == 0 || prefix.len > 64 || !fl_str_is_utf8(prefix) || fl_str_has_control(prefix))
        return "must be 1 to 64 bytes of text";
    if (o->n_metrics_prefixes == FL_PREFIXES_MAX)
        return "is given more than 32 times";
    o->metrics_prefixes[o->n_metrics_prefixes++] = fl_xstrdup(value);
    return NULL;
}

static const char *set_metrics_prefixes(struct fl_options *o, const char *value)
{
    char *copy = fl_xstrdup(value), *at = copy, *item;
    const char *fault = NULL;

    while (fault == NULL && (item = strsep(&at, ", ")) != NULL) {
        if (*item != '\0')
            fault = add_metrics_prefix(o, item);
    }
    free(copy);
    return fault;
}

static const char *set_election_timeout(struct fl_options *o, const char *value)
{
    uint64_t ms;

    if (!parse_number(value, ELECTION_MIN, ELECTION_MAX, &ms))
        return "must be 100 to 60000 (milliseconds)";
    o->election_timeout_ms = (unsigned)ms;
    return NULL;
}

static const char *set_snapshot_every(struct fl_options *o, const char *value)
{
    return parse_number(value, 16, INT64_MAX, &o->snapshot_every) ? NULL
                                                                  : "must be a number from 16 up";
}

static const char *set_log_level(struct fl_options *o, const char *value)
{
    int level = fl_log_level_parse(value);

    if (level < 0)
        return "must be debug, info, warn, error or none";
    o->log_level = level;
    return NULL;
}

static const char *set_flag(bool *flag, const char *value)
{
    if (strcmp(value, "yes") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
        *flag = true;
    else if (strcmp(value, "no") == 0 || strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
        *flag = false;
    else
        return "must be yes or no";
    return NULL;
}

static const char *set_bootstrap(struct fl_options *o, const char *value)
{
    return set_flag(&o->bootstrap, value);
}

static const char *set_file(char **field, const char *value)
{
    if (*value == '\0' || strlen(value) > 250)
        return "must be a path of at most 250 bytes";
    replace(field, value);
    return NULL;
}

static const char *set_restore(struct fl_options *o, const char *value)
{
    return set_file(&o->restore, value);
}

static const char *set_check_backup(struct fl_options *o, const char *value)
{
    return set_file(&o->check_backup, value);
}

static const char *set_min_token(struct fl_options *o, const char *value)
{
    return parse_number(value, 0, INT64_MAX, &o->min_token) ? NULL : "must be a number";
}

static const char *set_join(struct fl_options *o, const char *value)
{
    return set_flag(&o->join, value);
}

static const char *set_gateway(struct fl_options *o, const char *value)
{
    return set_flag(&o->gateway, value);
}

static const struct option_row {
    const char *name; /* with dashes; _ in a file, upper case in the environment */
    setter set;
    bool is_flag;
    const char *argument, *help;
} rows[] = {
    {"node-id", set_node_id, false, "N", "this node's id, a number from 1 up"},
    {"dir", set_directory, false, "DIR", "where this node keeps its data"},
    {"cluster", set_cluster, false, "NAME", "the cluster's name, the same on every node"},
    {"listen", set_listen, false, "HOST:PORT", "clients' port (gRPC); 127.0.0.1:3362"},
    {"peer-listen", set_peer_listen, false, "HOST:PORT", "peers' port; 127.0.0.1:3363"},
    {"http-listen", set_http_listen, false, "HOST:PORT",
     "people's port (JSON, metrics, dashboard), e.g. 127.0.0.1:3364; none"},
    {"metrics-prefix", add_metrics_prefix, false, "PREFIX",
     "measure waits and holds of these names by themselves"},
    {"metrics-prefixes", set_metrics_prefixes, false, "PREFIX,...", "the same in one"},
    {"peer", add_peer, false, "ID=HOST:PORT", "one for every node, itself included"},
    {"peers", set_peers, false, "ID=HOST:PORT,...", "the same in one"},
    {"bootstrap", set_bootstrap, true, NULL, "an empty directory begins a new cluster"},
    {"join", set_join, true, NULL,
     "an empty directory joins a cluster: see fencelock node add; --peer of one member is enough"},
    {"restore", set_restore, false, "FILE",
     "make the directory of a new cluster's first node from a backup, and end"},
    {"min-token", set_min_token, false, "T", "restore: tokens begin above it, too"},
    {"check-backup", set_check_backup, false, "FILE", "say whether a backup is whole, and end"},
    {"gateway", set_gateway, true, NULL, "a gateway alone: no data, serves clients for the nodes"},
    {"election-timeout", set_election_timeout, false, "MS",
     "how long a leader may be silent; 500, the same on every node"},
    {"snapshot-every", set_snapshot_every, false, "N", "log entries between snapshots; 65536"},
    {"log-level", set_log_level, false, "LEVEL", "debug, info, warn, error or none; info"},
};

static const struct option_row *find_row(const char *name, size_t len)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(rows); i++) {
        if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0)
            return &rows[i];
    }
    return NULL;
}

void fl_options_init(struct fl_options *o)
{
    memset(o, 0, sizeof *o);
    o->listen = fl_xstrdup("127.0.0.1:3362");
    o->peer_listen = fl_xstrdup("127.0.0.1:3363");
    o->cluster = fl_xstrdup("fencelock");
    o->log_level = FL_LOG_INFO;
}

void fl_options_deinit(struct fl_options *o)
{
    free(o->restore);
    free(o->check_backup);
    free(o->directory);
    free(o->cluster);
    free(o->listen);
    free(o->peer_listen);
    free(o->http_listen);
    for (unsigned i = 0; i < o->n_metrics_prefixes; i++)
        free(o->metrics_prefixes[i]);
    for (unsigned i = 0; i < o->n_peers; i++)
        free(o->peers[i].address);
    memset(o, 0, sizeof *o);
}

/* --- The three sources --- */

struct file_reader {
    struct fl_options *options;
    char *why;
    const char *path;
};

static int on_ini_line(void *ctx, const char *section, const char *key, const char *value)
{
    struct file_reader *reader = ctx;
    const struct option_row *row;
    char name[64];
    const char *fault;

    snprintf(name, sizeof name, "%s", key);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    row = find_row(name, strlen(name));
    fault = row == NULL || section[0] != '\0' ? "is unknown" : row->set(reader->options, value);
    if (fault == NULL)
        return 1;
    snprintf(reader->why, WHY_BYTES, "\"%s\" in %s %s", key, reader->path, fault);
    return 0;
}

static int read_file(struct fl_options *o, const char *path, char *why)
{
    struct file_reader reader = {o, why, path};
    int r;

    why[0] = '\0';
    r = ini_parse(path, on_ini_line, &reader);
    if (r == 0)
        return FL_OK;
    if (r < 0)
        snprintf(why, WHY_BYTES, "the configuration file %s cannot be read: %s", path,
                 strerror(errno));
    else if (why[0] == '\0')
        snprintf(why, WHY_BYTES, "line %d of %s is not KEY = VALUE", r, path);
    return FL_E_INVALID;
}

static int read_environment(struct fl_options *o, char **environment, char *why)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(rows); i++) {
        char variable[64] = ENV_PREFIX;
        size_t len = strlen(ENV_PREFIX);
        const char *fault;

        for (const char *c = rows[i].name; *c != '\0'; c++)
            variable[len++] = (char)(*c == '-' ? '_' : *c - 'a' + 'A');
        for (char **e = environment; *e != NULL; e++) {
            if (strncmp(*e, variable, len) != 0 || (*e)[len] != '=')
                continue;
            fault = rows[i].set(o, *e + len + 1);
            if (fault != NULL) {
                snprintf(why, WHY_BYTES, "the environment's %s %s", variable, fault);
                return FL_E_INVALID;
            }
        }
    }
    return FL_OK;
}

/* Splits "--name=value" or "--name value"; *i moves on when the value is the next word. */
static const struct option_row *match_argument(char **argv, int argc, int *i,
                                               const char **ret_value)
{
    const char *word = argv[*i], *equals;
    const struct option_row *row;

    *ret_value = NULL;
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    word += 2;
    equals = strchr(word, '=');
    row = find_row(word, equals != NULL ? (size_t)(equals - word) : strlen(word));
    if (row == NULL)
        return NULL;
    if (equals != NULL)
        *ret_value = equals + 1;
    else if (row->is_flag)
        *ret_value = "yes";
    else if (*i + 1 < argc)
        *ret_value = argv[++*i];
    return row;
}

static int read_arguments(struct fl_options *o, int argc, char **argv, char *why)
{
    for (int i = 1; i < argc; i++) {
        const struct option_row *row;
        const char *word = argv[i], *value, *fault;

        if (strcmp(word, "--config") == 0) {
            i++; /* read before */
            continue;
        }
        if (strcmp(word, "--check-config") == 0) {
            o->check_config = true;
            continue;
        }
        row = match_argument(argv, argc, &i, &value);
        if (row == NULL) {
            snprintf(why, WHY_BYTES, "\"%.100s\" is no option: see --help", word);
            return FL_E_INVALID;
        }
        fault = value == NULL ? "needs a value" : row->set(o, value);
        if (fault != NULL) {
            snprintf(why, WHY_BYTES, "--%s %s", row->name, fault);
            return FL_E_INVALID;
        }
    }
    return FL_OK;
}

static int check_together(const struct fl_options *o, char *why)
{
    const char *fault = NULL;

    if (o->check_backup != NULL)
        return FL_OK; /* needs nothing else */
    if (o->restore != NULL && (o->bootstrap || o->join || o->gateway))
        fault = "--restore makes a directory and ends: leave --bootstrap, --join and --gateway out";
    else if (o->restore != NULL && fl_options_peer(o, o->node_id) == NULL)
        fault = "--peer with this node's own address is missing: others will dial it";
    else if (o->gateway && o->node_id != 0)
        fault = "--gateway has no node: leave --node-id out";
    else if (!o->gateway && o->node_id == 0)
        fault = "--node-id is missing (or --gateway, for a gateway alone)";
    else if (!o->gateway && o->directory == NULL)
        fault = "--dir is missing: where shall the node keep its data?";
    else if (o->bootstrap && o->join)
        fault = "--bootstrap begins a new cluster, --join joins one: give one of them";
    else if (o->n_peers == 0)
        fault = "--peer is missing: give one for every node of the cluster";
    if (fault == NULL)
        return FL_OK;
    snprintf(why, WHY_BYTES, "%s", fault);
    return FL_E_INVALID;
}

int fl_options_read(struct fl_options *o, int argc, char **argv, char **environment, char *why)
{
    int r = FL_OK;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            o->help = true;
        if (strcmp(argv[i], "--version") == 0)
            o->version = true;
    }
    if (o->help || o->version)
        return FL_OK;
    for (int i = 1; i < argc && r == FL_OK; i++) {
        if (strcmp(argv[i], "--config") != 0)
            continue;
        if (i + 1 == argc) {
            snprintf(why, WHY_BYTES, "--config needs a path");
            return FL_E_INVALID;
        }
        r = read_file(o, argv[i + 1], why);
    }
    if (r == FL_OK)
        r = read_environment(o, environment, why);
    if (r == FL_OK)
        r = read_arguments(o, argc, argv, why);
    if (r == FL_OK)
        r = check_together(o, why);
    return r;
}

const char *fl_options_usage(void)
{
    static char text[4096];
    int used =
        snprintf(text, sizeof text,
                 "Usage: fencelockd [--config FILE] [OPTION]...\n"
                 "\n"
                 "Runs one node of a Fencelock cluster, with its gateway; or a gateway alone.\n"
                 "\n");

    for (size_t i = 0; i < FL_ARRAY_LEN(rows); i++) {
        char name[64];

        snprintf(name, sizeof name, "--%s%s%s", rows[i].name, rows[i].argument != NULL ? " " : "",
                 rows[i].argument != NULL ? rows[i].argument : "");
        used +=
            snprintf(text + used, sizeof text - (size_t)used, "  %-26s %s\n", name, rows[i].help);
    }
    snprintf(text + used, sizeof text - (size_t)used,
             "  %-26s %s\n  %-26s %s\n"
             "\n"
             "In FILE (INI, no section) the names are written with _, in the environment as\n"
             "FENCELOCK_NODE_ID and so on; the command line wins.\n",
             "--check-config", "read the configuration, say what is wrong, and end", "--version",
             "print the version and end");
    return text;
}
