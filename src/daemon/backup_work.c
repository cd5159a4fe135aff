#include "daemon/backup_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "raft/backup.h"
#include "raft/restore.h"

#define WHY_BYTES 512

static uint64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int check(const char *path, char *why)
{
    const struct fl_backup_head *head;
    struct fl_backup *backup;
    time_t made_at;
    char text[32];
    int r = fl_backup_open(path, &backup, why);

    if (r < 0)
        return r;
    head = fl_backup_head(backup);
    made_at = (time_t)(head->made_at_ms / 1000);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&made_at));
    printf(
        "%s is whole: made at %s by node %llu, entry %llu, %llu sessions, %llu names, %llu holds, "
        "token %llu\n",
        path, text, (unsigned long long)head->node_id, (unsigned long long)head->index,
        (unsigned long long)head->sessions, (unsigned long long)head->names,
        (unsigned long long)head->holds, (unsigned long long)head->token);
    fl_backup_close(backup);
    return 0;
}

static int restore(const struct fl_options *o, char *why)
{
    struct fl_restore restore = {
        .backup = o->restore,
        .directory = o->directory,
        .cluster = o->cluster,
        .node_id = o->node_id,
        .address = fl_options_peer(o, o->node_id),
        .token_floor = o->min_token,
        .now_ms = wall_ms(),
    };
    uint64_t token;
    int r = fl_restore_run(&restore, &token, why);

    if (r < 0)
        return r;
    printf("%s is node %llu of a new cluster; its tokens begin above %llu.\n"
           "Start it as usual. Start the others with --join and empty directories, then add each:\n"
           "  fencelock node add ID=HOST:PORT\n",
           o->directory, (unsigned long long)o->node_id, (unsigned long long)token);
    return 0;
}

int fl_backup_work(const struct fl_options *options)
{
    char why[WHY_BYTES] = {0};
    int r =
        options->check_backup != NULL ? check(options->check_backup, why) : restore(options, why);

    if (r == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "fencelockd: %s\n", why);
    return EXIT_FAILURE;
}
