/* Readers and a writer of one file.
 *
 *     catalog read FILE          prints it, under a shared lock
 *     catalog write FILE TEXT    replaces it, under an exclusive one
 *
 * Any number of readers come together. A writer waits until they are done, and readers who come
 * after it wait behind it, so that neither starves. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <fencelock/fencelock.h>

static int print_file(const char *path)
{
    FILE *file = fopen(path, "r");
    int c;

    if (file == NULL)
        return -1;
    while ((c = getc(file)) != EOF)
        putchar(c);
    return fclose(file);
}

/* A plain file cannot refuse a stale token. Replacing it in one step keeps readers from half a
 * file; a writer that was stopped in here may still put old text over new. Where that matters the
 * catalog belongs in a store that checks tokens: see fence/. */
static int replace_file(const char *path, const char *text)
{
    char fresh[512];
    FILE *file;

    snprintf(fresh, sizeof fresh, "%.500s.new", path);
    file = fopen(fresh, "w");
    if (file == NULL)
        return -1;
    fprintf(file, "%s\n", text);
    return fclose(file) == 0 ? rename(fresh, path) : -1;
}

int main(int argc, char **argv)
{
    int is_read = argc == 3 && strcmp(argv[1], "read") == 0;
    int is_write = argc == 4 && strcmp(argv[1], "write") == 0;
    struct fl_acquire_options options = {.wait_ms = 30000,
                                         .mode = is_read ? FL_SHARED : FL_EXCLUSIVE};
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    struct fl_why why = {0};
    int r = 0;

    if (!is_read && !is_write) {
        fprintf(stderr, "usage: catalog read FILE | catalog write FILE TEXT\n");
        return 64;
    }
    if (fl_client_new(NULL, NULL, &client, &why) == 0 &&
        fl_acquire(client, "catalog", &options, &lock, &why) == 0) {
        if (fl_lock_valid(lock, 200))
            r = is_read ? print_file(argv[2]) : replace_file(argv[2], argv[3]);
        fl_release(lock, &why);
    }
    if (why.code != 0)
        fprintf(stderr, "catalog: %s\n", why.message);
    if (r != 0)
        perror(argv[2]);
    fl_lock_free(lock);
    fl_client_free(client);
    return why.code != 0 || r != 0;
}
