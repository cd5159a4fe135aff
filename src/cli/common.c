#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS_DEFAULT 5000

void cli_common_init(struct cli_common *common, const struct cli_command *command)
{
    *common =
        (struct cli_common){.command = command, .timeout_ms = TIMEOUT_MS_DEFAULT, .exit_code = -1};
    optind = 0; /* a new walk, for getopt of the GNU library */
    opterr = 0;
}

int cli_usage(struct cli_common *common, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "fencelock %s: ", common->command->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nSee: fencelock %s --help\n", common->command->name);
    common->exit_code = CLI_EXIT_USAGE;
    return common->exit_code;
}

/* Whether it was one of the options that every command has. */
static bool take_common(struct cli_common *common, int option)
{
    switch (option) {
    case CLI_OPT_ENDPOINTS:
        common->endpoints = optarg;
        return true;
    case CLI_OPT_JSON:
        common->json = true;
        return true;
    case CLI_OPT_TIMEOUT:
        common->timeout_ms = cli_duration(common, "--timeout", optarg);
        if (common->exit_code == -1 && common->timeout_ms == 0)
            cli_usage(common, "--timeout must be more than 0");
        return true;
    case CLI_OPT_HELP:
        fputs(common->command->help, stdout);
        common->exit_code = 0;
        return true;
    default:
        return false;
    }
}

int cli_next_option(struct cli_common *common, int argc, char **argv, const struct option *options)
{
    int option;

    while (common->exit_code == -1 &&
           (option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == ':')
            cli_usage(common, "%s needs a value", argv[optind - 1]);
        else if (option == '?')
            cli_usage(common, "%s is not an option of this command", argv[optind - 1]);
        else if (!take_common(common, option))
            return option;
    }
    return -1;
}

bool cli_want_operands(struct cli_common *common, int argc, int n, const char *what)
{
    if (common->exit_code != -1)
        return false;
    if (argc - optind == n)
        return true;
    cli_usage(common, argc - optind < n ? "%s is missing" : "more operands than %s", what);
    return false;
}

bool cli_parse_u64(const char *text, uint64_t *ret_value)
{
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

bool cli_parse_duration(const char *text, uint32_t *ret_ms)
{
    static const struct {
        const char *unit;
        uint32_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    unsigned long long number;
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, 10);
    for (size_t i = 0; errno == 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].unit) == 0 && number <= UINT32_MAX / units[i].ms) {
            *ret_ms = (uint32_t)number * units[i].ms;
            return true;
        }
    }
    return false;
}

uint32_t cli_duration(struct cli_common *common, const char *option, const char *text)
{
    uint32_t ms = 0;

    if (!cli_parse_duration(text, &ms))
        cli_usage(common, "%s %s is not a time: write 500ms, 30s, 5m or 1h", option, text);
    return ms;
}

uint64_t cli_number(struct cli_common *common, const char *option, const char *text, uint64_t min,
                    uint64_t max)
{
    uint64_t value = 0;

    if (!cli_parse_u64(text, &value) || value < min || value > max)
        cli_usage(common, "%s %s is not a number between %" PRIu64 " and %" PRIu64, option, text,
                  min, max);
    return value;
}

const char *cli_format_duration(uint64_t ms, char *out)
{
    static const struct {
        uint64_t ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        uint64_t whole = ms / units[i].ms;

        if (whole == 0)
            continue;
        if (i == 3 || ms % units[i].ms / units[i + 1].ms == 0)
            snprintf(out, 32, "%" PRIu64 " %s", whole, units[i].unit);
        else
            snprintf(out, 32, "%" PRIu64 " %s %" PRIu64 " %s", whole, units[i].unit,
                     ms % units[i].ms / units[i + 1].ms, units[i + 1].unit);
        return out;
    }
    snprintf(out, 32, "%" PRIu64 " ms", ms);
    return out;
}

const char *cli_mode_text(int mode)
{
    switch (mode) {
    case FL_EXCLUSIVE:
        return "exclusive";
    case FL_SHARED:
        return "shared";
    case FL_COUNTED:
        return "counted";
    default:
        return "free";
    }
}

struct fl_client *cli_connect(struct cli_common *common, const struct fl_client_options *options)
{
    struct fl_client_options with_timeout = {0};
    struct fl_client *client = NULL;
    struct fl_why why;

    if (options != NULL)
        with_timeout = *options;
    with_timeout.timeout_ms = common->timeout_ms;
    if (fl_client_new(common->endpoints, &with_timeout, &client, &why) < 0) {
        common->exit_code = cli_fail(common, &why);
        return NULL;
    }
    return client;
}

static int exit_code_of(int code)
{
    switch (code) {
    case 0:
        return 0;
    case FL_E_INVALID:
        return CLI_EXIT_USAGE;
    case FL_E_UNREACHABLE:
    case FL_E_NO_LEADER:
    case FL_E_PROTOCOL:
        return CLI_EXIT_UNREACHABLE;
    case FL_E_HELD:
    case FL_E_TIMEOUT:
        return CLI_EXIT_NOT_GRANTED;
    case FL_E_LOST:
    case FL_E_STALE:
    case FL_E_SESSION_GONE:
        return CLI_EXIT_LOST;
    case FL_E_DENIED:
        return CLI_EXIT_DENIED;
    default:
        return CLI_EXIT_FAILED;
    }
}

/* What a person can do about it; "" when the message says it all. */
static const char *advice_for(int code)
{
    switch (code) {
    case FL_E_UNREACHABLE:
        return "Is the cluster running, and are --endpoints (or FENCELOCK_ENDPOINTS) its client "
               "ports?";
    case FL_E_NO_LEADER:
        return "A majority of the nodes must be up and connected: see fencelock status.";
    case FL_E_HELD:
        return "Wait for it with --wait 30s.";
    case FL_E_STALE:
        return "See who holds it now: fencelock describe NAME.";
    case FL_E_CONFLICT:
        return "Use the mode and limit that the name has now, or wait until it is free.";
    case FL_E_UNSUPPORTED:
        return "The server does not know this call: is it the client port, and of this release?";
    case FL_E_PROTOCOL:
        return "Is it the client port (3362), not the peers' (3363)?";
    default:
        return "";
    }
}

int cli_fail(const struct cli_common *common, const struct fl_why *why)
{
    const char *advice = advice_for(why->code);

    if (common->json) {
        json_t *document =
            json_pack("{s:{s:s, s:s, s:s, s:s, s:i}}", "error", "code", fl_code_text(why->code),
                      "reason", why->reason, "field", why->field, "message", why->message,
                      "retry_after_ms", (int)why->retry_after_ms);

        if (why->holder.token != 0)
            json_object_set_new(document, "holder",
                                json_pack("{s:s, s:I, s:I}", "client", why->holder.client, "token",
                                          (json_int_t)why->holder.token, "held_for_ms",
                                          (json_int_t)why->holder.held_for_ms));
        cli_print_json(document);
    }
    fprintf(stderr, "fencelock %s: %s\n", common->command->name,
            why->message[0] != '\0' ? why->message : fl_code_text(why->code));
    if (advice[0] != '\0')
        fprintf(stderr, "%s\n", advice);
    return exit_code_of(why->code);
}

const char *cli_operator_name(char *out, size_t size)
{
    const struct passwd *user = getpwuid(getuid());
    char host[65] = "";

    gethostname(host, sizeof host - 1);
    if (user != NULL)
        snprintf(out, size, "%s@%s", user->pw_name, host);
    else
        snprintf(out, size, "%ld@%s", (long)getuid(), host);
    return out;
}

void cli_print_json(json_t *document)
{
    json_dumpf(document, stdout, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    putchar('\n');
    fflush(stdout);
    json_decref(document);
}
