/* The tool's configuration file: where the cluster is, for those who set no environment. */
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define SYSTEM_FILE "/etc/fencelock/client.conf"

struct reader {
    const char *path;
    bool is_bad;
};

static int take_line(void *ctx, const char *section, const char *name, const char *value)
{
    struct reader *reader = ctx;

    if (section[0] == '\0' && strcmp(name, "endpoints") == 0)
        return setenv("FENCELOCK_ENDPOINTS", value, 0) == 0;
    fprintf(
        stderr,
        "fencelock: %s: \"%s%s%s\" is not known. It has one setting: endpoints = HOST:PORT,...\n",
        reader->path, section, section[0] != '\0' ? "." : "", name);
    reader->is_bad = true;
    return 1;
}

/* The first that is there: the one that was named, the user's, the machine's. NULL: none. */
static const char *find_file(char *out, size_t size)
{
    const char *named = getenv("FENCELOCK_CLIENT_CONFIG");
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (named != NULL && named[0] != '\0')
        return named;
    if (config != NULL && config[0] != '\0')
        snprintf(out, size, "%s/fencelock/client.conf", config);
    else
        snprintf(out, size, "%s/.config/fencelock/client.conf", home != NULL ? home : "");
    if (access(out, R_OK) == 0)
        return out;
    return access(SYSTEM_FILE, R_OK) == 0 ? SYSTEM_FILE : NULL;
}

bool cli_read_settings(void)
{
    char path[4096];
    struct reader reader = {.path = find_file(path, sizeof path)};
    const char *set = getenv("FENCELOCK_ENDPOINTS");
    int r;

    if (reader.path == NULL || (set != NULL && set[0] != '\0'))
        return true;
    (void)unsetenv("FENCELOCK_ENDPOINTS"); /* empty is as good as not set */
    r = ini_parse(reader.path, take_line, &reader);
    if (r == -1)
        fprintf(stderr, "fencelock: %s cannot be read\n", reader.path);
    else if (r != 0)
        fprintf(stderr,
                "fencelock: %s, line %d: not a line of the form endpoints = HOST:PORT,...\n",
                reader.path, r);
    return r == 0 && !reader.is_bad;
}
