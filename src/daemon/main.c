#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/backup_work.h"
#include "daemon/options.h"
#include "daemon/process.h"

/* The same code as the tool's for wrong usage (sysexits.h, EX_USAGE). */
#define EXIT_USAGE 64

static void name_log(const struct fl_options *options)
{
    char name[32] = "gateway";

    if (options->node_id != 0)
        snprintf(name, sizeof name, "n%llu", (unsigned long long)options->node_id);
    fl_log_set_name(name);
    fl_log_set_level((enum fl_log_level)options->log_level);
}

int main(int argc, char **argv)
{
    struct fl_options options;
    char why[512];
    int code = EXIT_SUCCESS;

    fl_options_init(&options);
    if (fl_options_read(&options, argc, argv, environ, why) < 0) {
        fprintf(stderr, "fencelockd: %s\n", why);
        code = EXIT_USAGE;
    } else if (options.help) {
        fputs(fl_options_usage(), stdout);
    } else if (options.version) {
        printf("fencelockd %s\n", FL_VERSION);
    } else if (options.check_config) {
        printf("fencelockd: the configuration is good\n");
    } else if (options.check_backup != NULL || options.restore != NULL) {
        code = fl_backup_work(&options);
    } else {
        name_log(&options);
        code = fl_process_run(&options);
    }
    fl_options_deinit(&options);
    return code;
}
