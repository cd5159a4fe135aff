#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
    &cli_run,         &cli_acquire,         &cli_release,  &cli_describe,
    &cli_ls,          &cli_watch,           &cli_sessions, &cli_status,
    &cli_top,         &cli_bench,           &cli_dev,      &cli_force_release,
    &cli_end_session, &cli_transfer_leader, &cli_node,     &cli_backup,
    &cli_restore,
};

static void print_help(FILE *to)
{
    fputs("Fencelock: locks with fencing tokens.\n"
          "\n"
          "  fencelock COMMAND [OPTIONS]\n"
          "\n",
          to);
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++)
        fprintf(to, "  %-16s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "Each has --help with examples. To try it: fencelock dev, and in another terminal\n"
          "  fencelock run my-lock -- sh -c 'echo my token is $FENCELOCK_TOKEN'\n"
          "\n"
          "Every command finds its cluster by --endpoints, else FENCELOCK_ENDPOINTS, else the\n"
          "line endpoints = HOST:PORT,... of ~/.config/fencelock/client.conf or\n"
          "/etc/fencelock/client.conf, else 127.0.0.1:3362. Exit codes: 64 usage, 69\n"
          "unreachable, 70 failed, 75 not granted, 76 lost, 77 denied.\n",
          to);
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const struct cli_command *command;

    if (argc < 2) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("fencelock " FL_VERSION);
        return 0;
    }
    command = find_command(argv[1]);
    if (command == NULL) {
        fprintf(stderr, "fencelock: %s is not a command. See: fencelock --help\n", argv[1]);
        return CLI_EXIT_USAGE;
    }
    if (!cli_read_settings())
        return CLI_EXIT_USAGE;
    return command->run(argc - 1, argv + 1);
}
