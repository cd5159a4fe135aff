#include "raft/store_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

#define NUMBER_DIGITS 20

char *fl_store__path(const struct fl_store_files *files, const char *name, char *out)
{
    int n = snprintf(out, FL_STORE_PATH_MAX, "%s/%s", files->directory, name);

    FL_REQUIRE(n > 0 && n < FL_STORE_PATH_MAX);
    return out;
}

int fl_store__refuse(struct fl_store_fault *fault, int code, const char *format, ...)
{
    va_list args;

    if (fault == NULL)
        return code;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return code;
}

int fl_store__refuse_io(const struct fl_store_files *files, struct fl_store_fault *fault, int code,
                        const char *operation, const char *name)
{
    return fl_store__refuse(fault, code, "%s/%s: %s failed: %s", files->directory, name, operation,
                            fl_error_text(code));
}

void fl_store__fail(const struct fl_store_files *files, const char *operation, const char *name,
                    int code)
{
    char text[FL_STORE_PATH_MAX + 128];

    snprintf(text, sizeof text, "%s/%s: %s failed: %s", files->directory, name, operation,
             fl_error_text(code));
    files->disk->fail(files->disk, text);
}

int fl_store__open_file(const struct fl_store_files *files, const char *name, unsigned flags)
{
    char path[FL_STORE_PATH_MAX];

    return files->disk->open(files->disk, fl_store__path(files, name, path), flags);
}

int fl_store__rename(const struct fl_store_files *files, const char *from, const char *to)
{
    char from_path[FL_STORE_PATH_MAX], to_path[FL_STORE_PATH_MAX];

    return files->disk->rename(files->disk, fl_store__path(files, from, from_path),
                               fl_store__path(files, to, to_path));
}

int fl_store__unlink(const struct fl_store_files *files, const char *name)
{
    char path[FL_STORE_PATH_MAX];
    int r = files->disk->unlink(files->disk, fl_store__path(files, name, path));

    return r == FL_E_NOT_FOUND ? 0 : r;
}

int fl_store__sync_directory(const struct fl_store_files *files)
{
    return files->disk->sync_directory(files->disk, files->directory);
}

int fl_store__replace_file(const struct fl_store_files *files, const char *name, const void *data,
                           size_t size)
{
    struct fl_disk *disk = files->disk;
    char beside[64];
    int file, r;

    snprintf(beside, sizeof beside, "%s.tmp", name);
    file = fl_store__open_file(files, beside, FL_DISK_WRITE | FL_DISK_CREATE);
    if (file < 0)
        return file;
    r = fl_disk_write_all(disk, file, data, size, 0);
    if (r == 0)
        r = disk->sync(disk, file);
    disk->close(disk, file);
    return r < 0 ? r : fl_store__rename(files, beside, name);
}

bool fl_store__parse_name(const char *name, const char *prefix, uint64_t *ret_number)
{
    size_t prefix_len = strlen(prefix);
    uint64_t number = 0;

    if (strncmp(name, prefix, prefix_len) != 0 || strlen(name) != prefix_len + NUMBER_DIGITS)
        return false;
    for (const char *p = name + prefix_len; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || number > UINT64_MAX / 10 - 1)
            return false;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    *ret_number = number;
    return true;
}
