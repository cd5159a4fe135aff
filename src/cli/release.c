/* `fencelock release`: gives back what `fencelock acquire` took, or what a session of ours holds.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/keeper.h"

static int say_lost(const char *path, int file)
{
    char text[4096];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    const char *lost;

    text[n > 0 ? n : 0] = '\0';
    lost = strstr(text, KEEPER_LOST_KEY);
    unlink(path);
    if (lost == NULL) {
        fprintf(stderr,
                "fencelock release: the keeper of %s died; its lock is free when its "
                "session ends\n",
                path);
        return CLI_EXIT_FAILED;
    }
    fprintf(stderr, "fencelock release: the lock was not ours any more: %s",
            lost + strlen(KEEPER_LOST_KEY));
    return CLI_EXIT_LOST;
}

static int release_file(struct cli_common *common, const char *path)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    pid_t keeper;

    if (file < 0) {
        fprintf(stderr, "fencelock release: %s: %s\n", path, strerror(errno));
        return CLI_EXIT_USAGE;
    }
    keeper = keeper_of(file);
    if (keeper > 0)
        kill(keeper, SIGTERM);
    /* The keeper itself waits at most its own timeout for the release and again for the close. */
    for (uint32_t waited_ms = 0; keeper_of(file) != 0; waited_ms += 20) {
        if (waited_ms > 3 * common->timeout_ms) {
            fprintf(stderr, "fencelock release: the keeper (process %ld) does not end\n",
                    (long)keeper);
            return CLI_EXIT_FAILED;
        }
        nanosleep(&pause, NULL);
    }
    if (fstat(file, &status) == 0 && status.st_nlink == 0)
        return 0;
    return say_lost(path, file);
}

static int release_token(struct cli_common *common, const char *session, const char *name,
                         uint64_t token)
{
    struct fl_client *client = cli_connect(common, NULL);
    struct fl_why why;
    int r;

    if (client == NULL)
        return common->exit_code;
    if (name != NULL)
        r = fl_release_by_token(client, session, name, token, &why);
    else
        r = fl_close_session(client, session, &why);
    fl_client_free(client);
    return r < 0 ? cli_fail(common, &why) : 0;
}

static int release(int argc, char **argv)
{
    static const struct option options[] = {{"session", required_argument, NULL, 's'},
                                            {"name", required_argument, NULL, 'n'},
                                            {"token", required_argument, NULL, 't'},
                                            CLI_COMMON_OPTIONS};
    const char *session = NULL, *name = NULL;
    struct cli_common common;
    uint64_t token = 0;
    int option;

    cli_common_init(&common, &cli_release);
    while ((option = cli_next_option(&common, argc, argv, options)) != -1) {
        if (option == 's')
            session = optarg;
        else if (option == 'n')
            name = optarg;
        else
            token = cli_number(&common, "--token", optarg, 1, UINT64_C(1) << 53);
    }
    if (common.exit_code != -1)
        return common.exit_code;
    if (session == NULL && name == NULL && token == 0) {
        if (!cli_want_operands(&common, argc, 1, "FILE (or --session, --name and --token)"))
            return common.exit_code;
        return release_file(&common, argv[optind]);
    }
    if (!cli_want_operands(&common, argc, 0, "--session, --name and --token"))
        return common.exit_code;
    if (session == NULL || (name == NULL) != (token == 0))
        return cli_usage(&common, "--session goes alone, or with both --name and --token");
    return release_token(&common, session, name, token);
}

const struct cli_command cli_release = {
    .name = "release",
    .summary = "give back what acquire took",
    .help =
        "fencelock release FILE [OPTIONS]\n"
        "fencelock release --session S [--name NAME --token T] [OPTIONS]\n"
        "\n"
        "Ends the keeper that fencelock acquire --hold-session FILE left behind, which releases\n"
        "its lock and removes FILE. The second form releases by hand what a session of ours\n"
        "holds: one lock, or all of them, and with them the session. It is safe to repeat.\n"
        "\n" CLI_COMMON_HELP "\n"
        "Exit code 76: it was not ours any more, so what was done since then was unprotected.\n"
        "\n"
        "Examples:\n"
        "  fencelock release /run/db.lock\n"
        "  fencelock release --session $FENCELOCK_SESSION --name db --token $FENCELOCK_TOKEN\n",
    .run = release,
};
