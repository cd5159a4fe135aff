/* `fencelock backup` writes one file; `fencelock restore` hands it to fencelockd, which makes the
 * first node's directory of a new cluster from it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/cli.h"

struct writing {
    struct cli_common common;
    struct fl_backup_info info;
    uint64_t done;
    int file, error; /* errno of what went wrong here */
    bool has_line;
};

static void show_progress(struct writing *w)
{
    if (w->common.json || !isatty(STDERR_FILENO))
        return;
    w->has_line = true;
    fprintf(stderr, "\r\033[K%.1f of %.1f MiB", (double)w->done / (1 << 20),
            (double)w->info.size / (1 << 20));
}

static int on_piece(void *ctx, const void *data, size_t len)
{
    struct writing *w = ctx;
    const char *at = data;

    while (len > 0) {
        ssize_t n = write(w->file, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            w->error = errno;
            return -1;
        }
        at += n;
        len -= (size_t)n;
        w->done += (uint64_t)n;
    }
    show_progress(w);
    return 0;
}

/* The name of the file means that it is whole: it is written beside, synced and renamed. */
static int put_in_place(struct writing *w, const char *beside, const char *path)
{
    char *directory = fl_xstrdup(path), *slash = strrchr(directory, '/');
    int file;

    if (fsync(w->file) != 0 || rename(beside, path) != 0) {
        w->error = errno;
        free(directory);
        return -1;
    }
    if (slash != NULL)
        slash[slash == directory ? 1 : 0] = '\0';
    file = open(slash != NULL ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file >= 0) {
        fsync(file);
        close(file);
    }
    free(directory);
    return 0;
}

static int say_done(const struct writing *w, const char *path)
{
    if (w->common.json)
        cli_print_json(json_pack("{s:b, s:s, s:I, s:I, s:I}", "ok", 1, "file", path, "bytes",
                                 (json_int_t)w->done, "index", (json_int_t)w->info.index, "token",
                                 (json_int_t)w->info.token));
    else
        printf("%s holds the state at entry %" PRIu64 ", %.1f MiB\n", path, w->info.index,
               (double)w->done / (1 << 20));
    return 0;
}

static int fail_here(const struct writing *w, const char *path)
{
    struct fl_why why = {.code = FL_E_INTERNAL};

    snprintf(why.message, sizeof why.message, "%.200s cannot be written: %s", path,
             strerror(w->error));
    return cli_fail(&w->common, &why);
}

static int run_backup(struct writing *w, struct fl_client *client, const char *path,
                      const char *beside)
{
    struct stat there;
    struct fl_why why;
    int r;

    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        w->error = S_ISDIR(there.st_mode) ? EISDIR : EEXIST; /* it would be replaced */
        return fail_here(w, path);
    }
    w->file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (w->file < 0) {
        w->error = errno;
        return fail_here(w, beside);
    }
    r = fl_backup(client, on_piece, w, &w->info, &why);
    if (r == 0)
        put_in_place(w, beside, path);
    close(w->file);
    if (w->has_line)
        fputs("\r\033[K", stderr);
    if (r == 0 && w->error == 0)
        return say_done(w, path);
    unlink(beside);
    return w->error != 0 ? fail_here(w, path) : cli_fail(&w->common, &why);
}

static int backup(int argc, char **argv)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS};
    struct writing w = {.file = -1};
    struct fl_client *client;
    char *beside;
    int code;

    cli_common_init(&w.common, &cli_backup);
    cli_next_option(&w.common, argc, argv, options);
    if (!cli_want_operands(&w.common, argc, 1, "FILE"))
        return w.common.exit_code;
    client = cli_connect(&w.common, NULL);
    if (client == NULL)
        return w.common.exit_code;
    beside = fl_xcalloc(1, strlen(argv[optind]) + 6);
    sprintf(beside, "%s.part", argv[optind]);
    code = run_backup(&w, client, argv[optind], beside);
    free(beside);
    fl_client_free(client);
    return code;
}

const struct cli_command cli_backup = {
    .name = "backup",
    .summary = "write the cluster's state to a file",
    .help =
        "fencelock backup FILE [OPTIONS]\n"
        "\n"
        "Takes the state as it is now from the leader, which goes on serving, into FILE. It is\n"
        "whole when it has its name. Check it with fencelockd --check-backup FILE; put it to\n"
        "use with fencelock restore.\n"
        "\n" CLI_COMMON_HELP "\n"
        "Example:\n"
        "  fencelock backup /backup/fencelock-$(date +%F).flb\n",
    .run = backup,
};

/* --- Restore: the daemon's work; this finds it --- */

static int restore(int argc, char **argv)
{
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof "fencelockd");
    char *slash, **args = fl_xcalloc((size_t)argc + 3, sizeof *args);
    int n_args = 0;

    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        fputs(cli_restore.help, argc < 2 ? stderr : stdout);
        free(args);
        return argc < 2 ? CLI_EXIT_USAGE : 0;
    }
    program[n > 0 ? n : 0] = '\0';
    slash = strrchr(program, '/');
    strcpy(slash != NULL ? slash + 1 : program, "fencelockd");
    args[n_args++] = (char *)"fencelockd";
    args[n_args++] = (char *)"--restore";
    for (int i = 1; i < argc; i++)
        args[n_args++] = argv[i];
    execv(program, args);
    execvp("fencelockd", args);
    fprintf(stderr, "fencelock restore: fencelockd cannot be run: %s\n", strerror(errno));
    free(args);
    return CLI_EXIT_FAILED;
}

const struct cli_command cli_restore = {
    .name = "restore",
    .summary = "begin a new cluster from a backup",
    .help =
        "fencelock restore FILE [--config FILE] --node-id N --dir DIR --peer N=HOST:PORT "
        "[OPTIONS]\n"
        "\n"
        "Makes the directory of a new cluster's first node from a backup, and ends. Then start\n"
        "fencelockd on it as usual: it is a cluster of one and serves. Start the others with "
        "--join\n"
        "and empty directories, and add each with fencelock node add.\n"
        "\n"
        "Tokens begin far above everything that was handed out since the backup was taken, the\n"
        "sessions of the backup end, and with them all their locks. A damaged file is refused "
        "before\n"
        "anything is changed; DIR must not be there, or be empty. The old cluster must be gone "
        "for\n"
        "good: nothing stops its nodes from serving their clients, if they still can.\n"
        "\n"
        "  --min-token T              tokens begin above T, too\n"
        "  and the options of fencelockd: see fencelockd --help\n"
        "\n"
        "Example:\n"
        "  fencelock restore backup.flb --node-id 1 --dir /var/lib/fencelock --peer "
        "1=10.0.0.1:3363\n",
    .run = restore,
};
