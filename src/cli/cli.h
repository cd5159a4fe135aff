/* The `fencelock` tool: what its subcommands share.
 *
 * Every subcommand is one file and one row of the table in main.c. A command returns its exit code.
 * What it has to say goes to standard output, what went wrong to standard error, with what to do
 * about it. */
#ifndef FL_CLI_CLI_H
#define FL_CLI_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <fencelock/admin.h>

/* Beside 0; from sysexits.h where it has one. `run` passes its command's own code through. */
enum cli_exit {
    CLI_EXIT_USAGE = 64,
    CLI_EXIT_UNREACHABLE = 69, /* no endpoint answers, or the cluster has no leader */
    CLI_EXIT_FAILED = 70,      /* anything else */
    CLI_EXIT_NOT_GRANTED = 75, /* held by somebody else, for as long as we were willing to wait */
    CLI_EXIT_LOST = 76,        /* the lock is not ours any more */
    CLI_EXIT_DENIED = 77,
    CLI_EXIT_NOT_EXECUTABLE = 126, /* as shells have it */
    CLI_EXIT_NO_COMMAND = 127,
    CLI_EXIT_SIGNAL = 128, /* + its number */
};

struct cli_command {
    const char *name, *summary;
    const char *help; /* all of --help */
    int (*run)(int argc, char **argv);
};
extern const struct cli_command cli_run, cli_acquire, cli_release, cli_describe, cli_ls,
    cli_sessions, cli_status, cli_watch, cli_force_release, cli_end_session, cli_transfer_leader,
    cli_top, cli_bench, cli_dev, cli_node, cli_backup, cli_restore;

/* ---- Options that every command has ---- */

struct cli_common {
    const struct cli_command *command;
    const char *endpoints; /* NULL: environment, then the default */
    uint32_t timeout_ms;
    bool json;
    int exit_code; /* -1: go on; else return it: help was asked for, or usage was wrong */
};

enum { CLI_OPT_ENDPOINTS = 1000, CLI_OPT_JSON, CLI_OPT_TIMEOUT, CLI_OPT_HELP };
#define CLI_COMMON_OPTIONS                                                                         \
    {"endpoints", required_argument, NULL, CLI_OPT_ENDPOINTS},                                     \
        {"json", no_argument, NULL, CLI_OPT_JSON},                                                 \
        {"timeout", required_argument, NULL, CLI_OPT_TIMEOUT},                                     \
        {"help", no_argument, NULL, CLI_OPT_HELP},                                                 \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }
#define CLI_COMMON_HELP                                                                            \
    "  --endpoints HOST:PORT,...  where the cluster is; else FENCELOCK_ENDPOINTS, else\n"          \
    "                             127.0.0.1:3362\n"                                                \
    "  --timeout TIME             how long to wait for an answer (5s)\n"                           \
    "  --json                     one JSON document instead of text for people\n"                  \
    "  --help                     this text\n"

/* Begins a walk over the options of `command`. */
void cli_common_init(struct cli_common *common, const struct cli_command *command);
/* The next option that is the command's own, or -1 when there is none left or common->exit_code is
 * set. */
int cli_next_option(struct cli_common *common, int argc, char **argv, const struct option *options);
/* Complains and sets common->exit_code to CLI_EXIT_USAGE. Returns it. */
int cli_usage(struct cli_common *common, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Exactly `n` operands must be left; complains as above with `what` ("NAME"). */
bool cli_want_operands(struct cli_common *common, int argc, int n, const char *what);

/* ---- Values ---- */

/* "1500ms", "30s", "5m", "1h", "2d", or seconds without a unit. False: it is none, or too long. */
bool cli_parse_duration(const char *text, uint32_t *ret_ms);
bool cli_parse_u64(const char *text, uint64_t *ret_value);
/* The option's value, or a complaint and 0. */
uint32_t cli_duration(struct cli_common *common, const char *option, const char *text);
uint64_t cli_number(struct cli_common *common, const char *option, const char *text, uint64_t min,
                    uint64_t max);
/* "2 d 3 h", "12 s", "340 ms"; `out` has 32 bytes. */
const char *cli_format_duration(uint64_t ms, char *out);
const char *cli_mode_text(int mode);

/* ---- Talking to the cluster ---- */

/* Sets FENCELOCK_ENDPOINTS from the configuration file, if it is not set and there is one: the file
 * that FENCELOCK_CLIENT_CONFIG names, ~/.config/fencelock/client.conf, /etc/fencelock/client.conf.
 * False: complained about what is in it. */
bool cli_read_settings(void);
/* NULL: complained, and common->exit_code is set. `options` may be NULL. */
struct fl_client *cli_connect(struct cli_common *common, const struct fl_client_options *options);
/* Says why on standard error, and what to do; returns the exit code for it. */
int cli_fail(const struct cli_common *common, const struct fl_why *why);
/* "NAME@HOST" of whoever runs the tool, for the records of operators' acts. */
const char *cli_operator_name(char *out, size_t size);

/* Prints and frees `document`. */
void cli_print_json(json_t *document);

/* ---- Tables ---- */

struct cli_table {
    int n_columns;
    const char *const *heads;
    char **cells; /* owned, row by row */
    size_t n_cells, capacity;
};
void cli_table_init(struct cli_table *table, const char *const *heads, int n_columns);
void cli_table_add(struct cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* one cell; control characters are escaped */
void cli_table_print(const struct cli_table *table);
void cli_table_deinit(struct cli_table *table);

#endif
