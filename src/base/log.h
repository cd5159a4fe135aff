/* Log lines of the daemon and the tools, to standard error: "2026-01-31T10:00:00.123Z WARN node:
 * text". base, core, node and the client library are silent below debug. A line says what happens
 * next. Any thread may log; a line is written whole. */
#ifndef FL_BASE_LOG_H
#define FL_BASE_LOG_H

enum fl_log_level { FL_LOG_DEBUG, FL_LOG_INFO, FL_LOG_WARN, FL_LOG_ERROR, FL_LOG_NONE };

/* Info by default. */
void fl_log_set_level(enum fl_log_level level);
/* Stands before every line, e.g. "n1"; at most 31 bytes, copied. Set it before threads start. */
void fl_log_set_name(const char *name);
/* The level of that name ("debug", "info", "warn", "error", "none"), or -1. */
int fl_log_level_parse(const char *text);

void fl_log_write(enum fl_log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define fl_debug(area, ...) fl_log_write(FL_LOG_DEBUG, area, __VA_ARGS__)
#define fl_info(area, ...)  fl_log_write(FL_LOG_INFO, area, __VA_ARGS__)
#define fl_warn(area, ...)  fl_log_write(FL_LOG_WARN, area, __VA_ARGS__)
#define fl_error(area, ...) fl_log_write(FL_LOG_ERROR, area, __VA_ARGS__)

#endif
