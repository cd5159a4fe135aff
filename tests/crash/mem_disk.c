#include "mem_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

/* One sector as some write left it. */
struct version {
    uint32_t sector;
    uint8_t data[MEM_SECTOR];
};

struct mem_file {
    unsigned refs;
    bool is_locked;
    uint8_t *data, *durable; /* both of `capacity` bytes, zero behind the size */
    size_t size, durable_size, capacity;
    struct version *versions; /* not synced, oldest first */
    unsigned n_versions;
    size_t *sizes; /* not synced */
    unsigned n_sizes;
};

struct mem_name {
    char name[96];
    struct mem_file *file; /* a reference */
};

struct mem_change {
    char from[96], to[96]; /* either may be empty: made, removed */
    struct mem_file *file; /* a reference; NULL: removed */
};

bool mem_choices_next(struct mem_choices *choices)
{
    choices->at = 0;
    if (choices->random != NULL) {
        choices->n = 0;
        return true;
    }
    while (choices->n > 0) {
        unsigned last = choices->n - 1;

        if (++choices->digits[last] < choices->radixes[last])
            return true;
        choices->n--;
    }
    return false;
}

static uint32_t choose(struct mem_choices *choices, uint32_t radix)
{
    unsigned at = choices->at;

    if (choices->random != NULL)
        return (uint32_t)fl_random_below(choices->random, radix);
    FL_REQUIRE(at < FL_ARRAY_LEN(choices->digits));
    choices->at++;
    if (at == choices->n) {
        choices->digits[at] = 0;
        choices->radixes[at] = radix;
        choices->n++;
    }
    return choices->digits[at];
}

/* --- files --- */

static struct mem_file *file_ref(struct mem_file *file)
{
    file->refs++;
    return file;
}

static void file_unref(struct mem_file *file)
{
    if (file == NULL || --file->refs != 0)
        return;
    free(file->data);
    free(file->durable);
    free(file->versions);
    free(file->sizes);
    free(file);
}

static void file_grow(struct mem_file *file, size_t need)
{
    size_t capacity = (need + MEM_SECTOR - 1) / MEM_SECTOR * MEM_SECTOR;

    if (capacity <= file->capacity)
        return;
    file->data = fl_xrealloc(file->data, capacity);
    file->durable = fl_xrealloc(file->durable, capacity);
    memset(file->data + file->capacity, 0, capacity - file->capacity);
    memset(file->durable + file->capacity, 0, capacity - file->capacity);
    file->capacity = capacity;
}

static void file_resize(struct mem_file *file, size_t size)
{
    if (size == file->size)
        return;
    file_grow(file, size);
    if (size < file->size)
        memset(file->data + size, 0, file->size - size);
    file->size = size;
    file->sizes = fl_xrealloc(file->sizes, (file->n_sizes + 1) * sizeof *file->sizes);
    file->sizes[file->n_sizes++] = size;
}

static const uint8_t *newest_version(const struct mem_file *file, uint32_t sector)
{
    for (unsigned i = file->n_versions; i-- > 0;)
        if (file->versions[i].sector == sector)
            return file->versions[i].data;
    return file->durable + (size_t)sector * MEM_SECTOR;
}

static void file_write(struct mem_file *file, const void *data, size_t size, uint64_t offset)
{
    if (offset + size > file->size)
        file_resize(file, offset + size);
    memcpy(file->data + offset, data, size);
    for (uint64_t sector = offset / MEM_SECTOR; sector * MEM_SECTOR < offset + size; sector++) {
        const uint8_t *now = file->data + sector * MEM_SECTOR;
        struct version *version;

        if (memcmp(newest_version(file, (uint32_t)sector), now, MEM_SECTOR) == 0)
            continue;
        if ((file->n_versions & (file->n_versions - 1)) == 0)
            file->versions = fl_xrealloc(file->versions, (2 * (size_t)file->n_versions + 1) *
                                                             sizeof *file->versions);
        version = &file->versions[file->n_versions++];
        version->sector = (uint32_t)sector;
        memcpy(version->data, now, MEM_SECTOR);
    }
}

static void file_sync(struct mem_file *file)
{
    if (file->capacity != 0)
        memcpy(file->durable, file->data, file->capacity);
    file->durable_size = file->size;
    file->n_versions = file->n_sizes = 0;
}

static struct mem_file *file_new(const uint8_t *data, size_t size)
{
    struct mem_file *file = fl_xcalloc(1, sizeof *file);

    file->refs = 1;
    file_grow(file, size);
    if (size != 0) {
        memcpy(file->data, data, size);
        memcpy(file->durable, data, size);
    }
    file->size = file->durable_size = size;
    return file;
}

/* The file as it comes out of a power cut. */
static struct mem_file *file_crash(const struct mem_file *file, struct mem_choices *choices)
{
    size_t size = file->durable_size;
    struct mem_file *out;
    uint32_t choice = file->n_sizes != 0 ? choose(choices, file->n_sizes + 1) : 0;

    if (choice != 0)
        size = file->sizes[choice - 1];
    out = file_new(file->durable, file->durable_size);
    file_grow(out, file->capacity);
    if (file->capacity == 0)
        return out;
    for (unsigned i = 0; i < file->n_versions; i++) {
        size_t at = (size_t)file->versions[i].sector * MEM_SECTOR;

        /* Later versions of the same sector lie behind, and overwrite. */
        if (at < size && choose(choices, 2) != 0)
            memcpy(out->data + at, file->versions[i].data, MEM_SECTOR);
    }
    memset(out->data + size, 0, out->capacity - size);
    memcpy(out->durable, out->data, out->capacity);
    out->size = out->durable_size = size;
    return out;
}

/* --- names --- */

static struct mem_name *find(struct mem_name *names, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(names[i].name, name) == 0)
            return &names[i];
    return NULL;
}

static void remove_name(struct mem_name *names, unsigned *n, const char *name)
{
    struct mem_name *found = find(names, *n, name);

    if (found == NULL)
        return;
    file_unref(found->file);
    *found = names[--*n];
}

static void set_name(struct mem_name **names, unsigned *n, const char *name, struct mem_file *file)
{
    file_ref(file);
    remove_name(*names, n, name);
    if ((*n & (*n - 1)) == 0)
        *names = fl_xrealloc(*names, (2 * (size_t)*n + 1) * sizeof **names);
    snprintf((*names)[*n].name, sizeof(*names)[*n].name, "%s", name);
    (*names)[(*n)++].file = file;
}

static void apply_change(struct mem_name **names, unsigned *n, const struct mem_change *change)
{
    if (change->to[0] != '\0')
        set_name(names, n, change->to, change->file);
    if (change->from[0] != '\0')
        remove_name(*names, n, change->from);
}

static void add_change(struct mem_disk *disk, const char *from, const char *to,
                       struct mem_file *file)
{
    struct mem_change *change;

    disk->changes = fl_xrealloc(disk->changes, (disk->n_changes + 1) * sizeof *disk->changes);
    change = &disk->changes[disk->n_changes++];
    snprintf(change->from, sizeof change->from, "%s", from);
    snprintf(change->to, sizeof change->to, "%s", to);
    change->file = file != NULL ? file_ref(file) : NULL;
    apply_change(&disk->names, &disk->n_names, change);
}

static void sync_changes(struct mem_disk *disk)
{
    for (unsigned i = 0; i < disk->n_changes; i++) {
        apply_change(&disk->durable, &disk->n_durable, &disk->changes[i]);
        file_unref(disk->changes[i].file);
    }
    disk->n_changes = 0;
}

static const char *base_name(const char *path)
{
    FL_REQUIRE(strncmp(path, MEM_DIRECTORY "/", sizeof MEM_DIRECTORY) == 0);
    return path + sizeof MEM_DIRECTORY;
}

/* --- the calls --- */

static struct mem_disk *self(struct fl_disk *disk)
{
    return FL_CONTAINER_OF(disk, struct mem_disk, disk);
}

/* Counts the call; the code it must fail with, or 0. */
static int begin(struct mem_disk *disk)
{
    disk->calls++;
    if (disk->calls != disk->fault_at || disk->fault == MEM_FAULT_SHORT)
        return 0;
    disk->fault_hit = true;
    return disk->fault == MEM_FAULT_IO ? FL_E_IO : FL_E_NOSPACE;
}

static void end(struct mem_disk *disk)
{
    if (disk->changed != NULL)
        disk->changed(disk->ctx);
}

static bool is_full(const struct mem_disk *disk, const struct mem_file *file, uint64_t size)
{
    uint64_t used = 0;

    if (disk->capacity == 0 || size <= file->size)
        return false;
    for (unsigned i = 0; i < disk->n_names; i++)
        used += disk->names[i].file->size;
    return used + size - file->size > disk->capacity;
}

static int add_handle(struct mem_disk *disk, struct mem_file *file)
{
    unsigned handle = 0;

    while (handle < disk->n_files && disk->files[handle] != NULL)
        handle++;
    if (handle == disk->n_files) {
        disk->files = fl_xrealloc(disk->files, (disk->n_files + 1) * sizeof(struct mem_file *));
        disk->n_files++;
    }
    disk->files[handle] = file_ref(file);
    return (int)handle;
}

static int mem_open(struct fl_disk *base, const char *path, unsigned flags)
{
    struct mem_disk *disk = self(base);
    const char *name = base_name(path);
    struct mem_name *found = find(disk->names, disk->n_names, name);
    int r = begin(disk);

    if (r < 0)
        return r;
    if (found != NULL && (flags & FL_DISK_CREATE) != 0)
        file_resize(found->file, 0);
    if (found == NULL) {
        struct mem_file *file;

        if ((flags & FL_DISK_CREATE) == 0)
            return FL_E_NOT_FOUND;
        file = file_new(NULL, 0);
        add_change(disk, "", name, file);
        file_unref(file);
        found = find(disk->names, disk->n_names, name);
    }
    r = add_handle(disk, found->file);
    if ((flags & FL_DISK_CREATE) != 0)
        end(disk);
    return r;
}

static void mem_close(struct fl_disk *base, int handle)
{
    struct mem_disk *disk = self(base);

    FL_REQUIRE((unsigned)handle < disk->n_files && disk->files[handle] != NULL);
    disk->files[handle]->is_locked = false;
    file_unref(disk->files[handle]);
    disk->files[handle] = NULL;
}

static long mem_read(struct fl_disk *base, int handle, void *data, size_t size, uint64_t offset)
{
    struct mem_disk *disk = self(base);
    const struct mem_file *file = disk->files[handle];
    int r = begin(disk);

    if (r < 0)
        return r;
    if (offset >= file->size)
        return 0;
    if (size > file->size - offset)
        size = file->size - offset;
    memcpy(data, file->data + offset, size);
    return (long)size;
}

static long mem_write(struct fl_disk *base, int handle, const void *data, size_t size,
                      uint64_t offset)
{
    struct mem_disk *disk = self(base);
    struct mem_file *file = disk->files[handle];
    int r = begin(disk);

    if (disk->calls == disk->fault_at && size > 1) {
        /* Half of it is there, whatever the process is told. */
        file_write(file, data, size / 2, offset);
        disk->fault_hit = true;
        end(disk);
        return r < 0 ? r : (long)(size / 2);
    }
    if (r < 0)
        return r;
    if (is_full(disk, file, offset + size))
        return FL_E_NOSPACE;
    file_write(file, data, size, offset);
    end(disk);
    return (long)size;
}

static int mem_allocate(struct fl_disk *base, int handle, uint64_t size)
{
    struct mem_disk *disk = self(base);
    struct mem_file *file = disk->files[handle];
    int r = begin(disk);

    if (r < 0)
        return r;
    if (is_full(disk, file, size))
        return FL_E_NOSPACE;
    if (size > file->size)
        file_resize(file, size);
    end(disk);
    return 0;
}

static int mem_truncate(struct fl_disk *base, int handle, uint64_t size)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    if (r < 0)
        return r;
    file_resize(disk->files[handle], size);
    end(disk);
    return 0;
}

static int64_t mem_size(struct fl_disk *base, int handle)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    return r < 0 ? r : (int64_t)disk->files[handle]->size;
}

static int mem_sync(struct fl_disk *base, int handle)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    if (r < 0)
        return r;
    file_sync(disk->files[handle]);
    end(disk);
    return 0;
}

static int mem_rename(struct fl_disk *base, const char *from, const char *to)
{
    struct mem_disk *disk = self(base);
    struct mem_name *found = find(disk->names, disk->n_names, base_name(from));
    int r = begin(disk);

    if (r < 0)
        return r;
    if (found == NULL)
        return FL_E_NOT_FOUND;
    add_change(disk, base_name(from), base_name(to), found->file);
    end(disk);
    return 0;
}

static int mem_unlink(struct fl_disk *base, const char *path)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    if (r < 0)
        return r;
    if (find(disk->names, disk->n_names, base_name(path)) == NULL)
        return FL_E_NOT_FOUND;
    add_change(disk, base_name(path), "", NULL);
    end(disk);
    return 0;
}

static int mem_make_directory(struct fl_disk *base, const char *path)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    if (r < 0)
        return r;
    FL_REQUIRE(strcmp(path, MEM_DIRECTORY) == 0);
    if (disk->is_made)
        return FL_E_EXISTS;
    disk->is_made = true;
    end(disk);
    return 0;
}

static int mem_sync_directory(struct fl_disk *base, const char *path)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    if (r < 0)
        return r;
    if (strcmp(path, MEM_DIRECTORY) == 0)
        sync_changes(disk);
    else
        disk->is_made_durably = disk->is_made;
    end(disk);
    return 0;
}

static int mem_list(struct fl_disk *base, const char *path,
                    void (*each)(void *ctx, const char *name), void *ctx)
{
    struct mem_disk *disk = self(base);
    int r = begin(disk);

    (void)path;
    for (unsigned i = 0; r == 0 && i < disk->n_names; i++)
        each(ctx, disk->names[i].name);
    return r;
}

static int mem_lock(struct fl_disk *base, const char *path)
{
    struct mem_disk *disk = self(base);
    int handle = mem_open(base, path,
                          find(disk->names, disk->n_names, base_name(path)) != NULL
                              ? FL_DISK_READ
                              : FL_DISK_READ | FL_DISK_CREATE);

    if (handle < 0)
        return handle;
    if (disk->files[handle]->is_locked) {
        file_unref(disk->files[handle]);
        disk->files[handle] = NULL;
        return FL_E_BUSY;
    }
    disk->files[handle]->is_locked = true;
    return handle;
}

__attribute__((noreturn)) static void mem_fail(struct fl_disk *base, const char *why)
{
    struct mem_disk *disk = self(base);

    snprintf(disk->failure, sizeof disk->failure, "%s", why);
    if (disk->failed == NULL) {
        fprintf(stderr, "the store gave up: %s\n", why);
        abort();
    }
    longjmp(*disk->failed, 1);
}

struct mem_disk *mem_disk_new(void)
{
    struct mem_disk *disk = fl_xcalloc(1, sizeof *disk);

    disk->disk = (struct fl_disk){
        .open = mem_open,
        .close = mem_close,
        .read = mem_read,
        .write = mem_write,
        .allocate = mem_allocate,
        .truncate = mem_truncate,
        .size = mem_size,
        .sync = mem_sync,
        .rename = mem_rename,
        .unlink = mem_unlink,
        .make_directory = mem_make_directory,
        .sync_directory = mem_sync_directory,
        .list = mem_list,
        .lock = mem_lock,
        .fail = mem_fail,
    };
    return disk;
}

void mem_disk_free(struct mem_disk *disk)
{
    for (unsigned i = 0; i < disk->n_names; i++)
        file_unref(disk->names[i].file);
    for (unsigned i = 0; i < disk->n_durable; i++)
        file_unref(disk->durable[i].file);
    for (unsigned i = 0; i < disk->n_changes; i++)
        file_unref(disk->changes[i].file);
    for (unsigned i = 0; i < disk->n_files; i++)
        file_unref(disk->files[i]);
    free(disk->names);
    free(disk->durable);
    free(disk->changes);
    free(disk->files);
    free(disk);
}

/* Puts a durable file under a durable name; takes the reference. */
static void put(struct mem_disk *disk, const char *name, struct mem_file *file)
{
    set_name(&disk->names, &disk->n_names, name, file);
    set_name(&disk->durable, &disk->n_durable, name, file);
    file_unref(file);
}

struct mem_disk *mem_disk_crash(const struct mem_disk *disk, struct mem_choices *choices)
{
    struct mem_disk *out = mem_disk_new();
    struct mem_name *names = NULL;
    unsigned n = 0;

    if (!disk->is_made || (!disk->is_made_durably && choose(choices, 2) == 0))
        return out;
    out->is_made = out->is_made_durably = true;
    for (unsigned i = 0; i < disk->n_durable; i++)
        set_name(&names, &n, disk->durable[i].name, disk->durable[i].file);
    for (unsigned i = 0; i < disk->n_changes; i++)
        if (choose(choices, 2) != 0)
            apply_change(&names, &n, &disk->changes[i]);
    for (unsigned i = 0; i < n; i++) {
        put(out, names[i].name, file_crash(names[i].file, choices));
        file_unref(names[i].file);
    }
    free(names);
    return out;
}

struct mem_disk *mem_disk_copy(const struct mem_disk *disk)
{
    struct mem_disk *out = mem_disk_new();

    out->is_made = out->is_made_durably = disk->is_made;
    for (unsigned i = 0; i < disk->n_names; i++)
        put(out, disk->names[i].name,
            file_new(disk->names[i].file->data, disk->names[i].file->size));
    return out;
}

static struct mem_file *file_clone(const struct mem_file *file)
{
    struct mem_file *out = file_new(NULL, 0);

    file_grow(out, file->capacity);
    if (file->capacity != 0) {
        memcpy(out->data, file->data, file->capacity);
        memcpy(out->durable, file->durable, file->capacity);
    }
    out->size = file->size;
    out->durable_size = file->durable_size;
    out->n_versions = file->n_versions;
    /* Room for the next power of two, where file_write() looks again. */
    out->versions = fl_xcalloc(2 * (size_t)file->n_versions + 1, sizeof *out->versions);
    if (file->n_versions != 0)
        memcpy(out->versions, file->versions, file->n_versions * sizeof *out->versions);
    out->n_sizes = file->n_sizes;
    out->sizes = fl_xcalloc(file->n_sizes, sizeof *out->sizes);
    if (file->n_sizes != 0)
        memcpy(out->sizes, file->sizes, file->n_sizes * sizeof *out->sizes);
    return out;
}

/* Clones of files, each once however many names it has. */
struct clones {
    struct mem_file *from[1024], *to[1024]; /* references in `to` */
    unsigned n;
};

static struct mem_file *clone_of(struct clones *clones, struct mem_file *file)
{
    for (unsigned i = 0; i < clones->n; i++)
        if (clones->from[i] == file)
            return clones->to[i];
    FL_REQUIRE(clones->n < FL_ARRAY_LEN(clones->from));
    clones->from[clones->n] = file;
    clones->to[clones->n] = file_clone(file);
    return clones->to[clones->n++];
}

struct mem_disk *mem_disk_kill(const struct mem_disk *disk)
{
    struct mem_disk *out = mem_disk_new();
    struct clones clones = {.n = 0};

    out->is_made = disk->is_made;
    out->is_made_durably = disk->is_made_durably;
    for (unsigned i = 0; i < disk->n_durable; i++)
        set_name(&out->durable, &out->n_durable, disk->durable[i].name,
                 clone_of(&clones, disk->durable[i].file));
    for (unsigned i = 0; i < disk->n_durable; i++)
        set_name(&out->names, &out->n_names, disk->durable[i].name,
                 clone_of(&clones, disk->durable[i].file));
    for (unsigned i = 0; i < disk->n_changes; i++) {
        const struct mem_change *change = &disk->changes[i];

        add_change(out, change->from, change->to,
                   change->file != NULL ? clone_of(&clones, change->file) : NULL);
    }
    for (unsigned i = 0; i < clones.n; i++)
        file_unref(clones.to[i]);
    return out;
}

uint8_t *mem_disk_content(struct mem_disk *disk, const char *name, size_t *ret_size)
{
    struct mem_name *found = find(disk->names, disk->n_names, name);

    if (found == NULL)
        return NULL;
    *ret_size = found->file->size;
    return found->file->data;
}

const char *mem_disk_name(const struct mem_disk *disk, unsigned i)
{
    return i < disk->n_names ? disk->names[i].name : NULL;
}

void mem_disk_resize(struct mem_disk *disk, const char *name, size_t size)
{
    file_resize(find(disk->names, disk->n_names, name)->file, size);
}

void mem_disk_remove(struct mem_disk *disk, const char *name)
{
    remove_name(disk->names, &disk->n_names, name);
    remove_name(disk->durable, &disk->n_durable, name);
}
