#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *const level_names[] = {"debug", "info", "warn", "error", "none"};
static atomic_int level_now = FL_LOG_INFO;
static char process_name[32];

void fl_log_set_level(enum fl_log_level level)
{
    atomic_store(&level_now, (int)level);
}

void fl_log_set_name(const char *name)
{
    snprintf(process_name, sizeof process_name, "%s", name);
}

int fl_log_level_parse(const char *text)
{
    for (int i = 0; i <= FL_LOG_NONE; i++) {
        if (strcmp(text, level_names[i]) == 0)
            return i;
    }
    return -1;
}

void fl_log_write(enum fl_log_level level, const char *area, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm utc;
    size_t used;
    int n;
    va_list args;

    if ((int)level < atomic_load_explicit(&level_now, memory_order_relaxed))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    n = snprintf(line + used, sizeof line - used, ".%03ldZ %s %s%s%s: ", now.tv_nsec / 1000000,
                 level_names[level], process_name, process_name[0] != '\0' ? " " : "", area);
    used += n > 0 ? (size_t)n : 0;
    va_start(args, format);
    n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    used += n > 0 ? (size_t)n : 0;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used++] = '\n';
    /* One write per line, so that lines of several threads do not mix; nobody to tell if it fails.
     */
    if (write(STDERR_FILENO, line, used) < 0)
        return;
}
