/* Opening: makes a new directory, or reads one, checks all of it, and repairs what a crash may
 * leave. Anything else is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/store_identity.h"
#include "raft/store_recover.h"
#include "raft/store_work.h"

#define SEGMENT_BYTES_DEFAULT (UINT64_C(64) << 20)
#define SEGMENT_BYTES_MIN     1024u
#define RESERVE_BYTES_DEFAULT (UINT64_C(64) << 20)

struct names {
    char **names; /* owned */
    size_t n, capacity;
};

struct numbers {
    uint64_t *numbers; /* owned */
    unsigned n;
};

/* What opening holds in its hands. */
struct opening {
    struct fl_store *store;
    struct names names;
    struct numbers segments;
    struct fl_log_content content;
    struct fl_snapshot *snapshot;
    unsigned n_damaged; /* snapshots newer than that one */
    struct fl_store_fault damage;
    struct fl_store_fault *fault;
};

static void collect(void *ctx, const char *name)
{
    struct names *names = ctx;

    if (names->n == names->capacity) {
        names->capacity = fl_grow_capacity(names->capacity, names->n + 1, sizeof(char *));
        names->names = fl_xrealloc(names->names, names->capacity * sizeof(char *));
    }
    names->names[names->n++] = fl_xstrdup(name);
}

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);

    return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int list_directory(struct opening *o)
{
    const struct fl_store_files *files = &o->store->files;
    int r = files->disk->list(files->disk, files->directory, collect, &o->names);

    if (r < 0)
        return fl_store__refuse_io(files, o->fault, r, "listing", "");
    o->segments.numbers = fl_xcalloc(o->names.n, sizeof(uint64_t));
    for (size_t i = 0; i < o->names.n; i++) {
        uint64_t number;

        if (fl_store__parse_name(o->names.names[i], FL_SEGMENT_PREFIX, &number))
            o->segments.numbers[o->segments.n++] = number;
        else if (fl_store__parse_name(o->names.names[i], FL_SNAPSHOT_PREFIX, &number))
            fl_snapshot_shelf__add(&o->store->shelf, number);
    }
    qsort(o->segments.numbers, o->segments.n, sizeof(uint64_t), compare_numbers);
    return 0;
}

/* Removes what was being written, and damaged snapshots that a newer one has replaced. */
static int remove_leftovers(struct opening *o)
{
    const struct fl_store_files *files = &o->store->files;

    for (size_t i = 0; i < o->names.n; i++) {
        const char *name = o->names.names[i];
        int r;

        if (!ends_with(name, ".tmp") &&
            !(ends_with(name, FL_SNAPSHOT_DAMAGED) && o->n_damaged == 0))
            continue;
        r = fl_store__unlink(files, name);
        if (r < 0)
            return fl_store__refuse_io(files, o->fault, r, "removing", name);
    }
    return 0;
}

/* --- a new directory --- */

/* The first segment may be there from a start that was cut short; nothing can be in it. */
static int check_unused(struct opening *o)
{
    static const struct fl_vote none;
    const struct fl_store_files *files = &o->store->files;
    struct fl_vote_file vote;
    struct fl_log log;
    int r;

    fl_log__init(&log, files, 0);
    if (o->store->shelf.n != 0 || o->segments.n > 1)
        goto in_use;
    if (o->segments.n == 1) {
        r = fl_log__recover(&log, &none, o->segments.numbers, 1, &o->content, o->fault);
        fl_log__deinit(&log);
        if (r < 0)
            return r;
        if (o->content.n != 0 || log.next_index != 1)
            goto in_use;
    }
    r = fl_vote_file__open(files, &vote, NULL);
    if (r == 0) {
        fl_vote_file__close(files, &vote);
        if (vote.vote.term != 0)
            goto in_use;
    }
    return 0;
in_use:
    fl_log__deinit(&log);
    return fl_store__refuse(o->fault, FL_E_CORRUPT,
                            "%s/identity is missing, but the directory was in use; %s",
                            files->directory, FL_STORE_REMEDY);
}

static int create(struct opening *o)
{
    struct fl_store *store = o->store;
    const struct fl_store_files *files = &store->files;
    int r = check_unused(o);

    if (r < 0)
        return r;
    fl_log_content__clear(&o->content);
    r = fl_vote_file__create(files);
    if (r < 0)
        return fl_store__refuse_io(files, o->fault, r, "creating", "vote");
    if (o->segments.n == 0) {
        r = fl_log__reset(&store->log, 1);
        if (r < 0)
            return fl_store__refuse_io(files, o->fault, r, "creating", "the log");
        fl_log__deinit(&store->log);
        fl_log__init(&store->log, files, store->segment_bytes);
        o->segments.numbers[0] = 1;
        o->segments.n = 1;
    }
    return fl_store__identity_write(files, o->fault);
}

/* --- one that is there --- */

static uint64_t last_index(const struct opening *o)
{
    return o->store->log.next_index - 1;
}

static uint64_t term_at(const struct opening *o, uint64_t index)
{
    uint64_t start = o->content.start_index;

    if (index < start || index >= start + o->content.n)
        return 0;
    return o->content.entries[index - start]->term;
}

static int refuse_gap(struct opening *o)
{
    uint64_t index = o->snapshot != NULL ? o->snapshot->index : 0;
    const char *directory = o->store->files.directory;

    if (o->n_damaged != 0)
        return fl_store__refuse(o->fault, FL_E_CORRUPT,
                                "%.250s; the log (entries %" PRIu64 " to %" PRIu64
                                ") and the snapshot before it do not make up for it; %s",
                                o->damage.text, o->content.start_index, last_index(o),
                                FL_STORE_REMEDY);
    return fl_store__refuse(o->fault, FL_E_CORRUPT,
                            "%s: the log begins at entry %" PRIu64
                            ", the newest snapshot ends at %" PRIu64 ": what is between is "
                            "missing; %s",
                            directory, o->content.start_index, index, FL_STORE_REMEDY);
}

/* Fits the snapshot and the log together. A snapshot that was received may be in place while the
 * log is still the old one: then the log is dropped, as it was about to be. */
static int join(struct opening *o)
{
    struct fl_store *store = o->store;
    uint64_t index = o->snapshot != NULL ? o->snapshot->index : 0;

    if (o->content.start_index > index + 1)
        return refuse_gap(o);
    if (o->n_damaged != 0) {
        if (last_index(o) < store->shelf.indexes[store->shelf.n - 1])
            return refuse_gap(o);
        fl_error("store", "%s; going on from the one before it", o->damage.text);
        fl_snapshot__set_aside(&store->files, &store->shelf, o->n_damaged);
    }
    if (index != 0 && (last_index(o) < index || (index >= o->content.start_index &&
                                                 term_at(o, index) != o->snapshot->term))) {
        int r = fl_log__reset(&store->log, index + 1);

        if (r < 0)
            return fl_store__refuse_io(&store->files, o->fault, r, "replacing", "the log");
        fl_log_content__clear(&o->content);
        o->content.start_index = index + 1;
    }
    return 0;
}

static int recover(struct opening *o)
{
    struct fl_store *store = o->store;
    const struct fl_store_files *files = &store->files;
    int r = fl_vote_file__open(files, &store->vote, o->fault);

    if (r < 0)
        return r;
    if (o->segments.n == 0)
        return fl_store__refuse(o->fault, FL_E_CORRUPT, "%s: the log is missing; %s",
                                files->directory, FL_STORE_REMEDY);
    r = fl_snapshot__load_newest(files, &store->shelf, &o->snapshot, &o->n_damaged, &o->damage);
    if (r < 0)
        return fl_store__refuse(o->fault, r, "%s", o->damage.text);
    r = fl_log__recover(&store->log, &store->vote.vote, o->segments.numbers, o->segments.n,
                        &o->content, o->fault);
    if (r == 0)
        r = join(o);
    if (r == 0)
        r = remove_leftovers(o);
    if (r < 0)
        return r;
    fl_log__mark(&store->log);
    r = fl_store__sync_directory(files);
    if (r < 0)
        return fl_store__refuse_io(files, o->fault, r, "fsync of", "");
    r = fl_vote_file__bind(files, &store->vote, fl_log__number(&store->log), store->log.tail);
    if (r < 0)
        return fl_store__refuse_io(files, o->fault, r, "writing", "vote");
    store->queued_next = store->log.next_index;
    return 0;
}

static int open_reserve(struct opening *o, uint64_t size)
{
    struct fl_store *store = o->store;
    int r = fl_reserve__open(&store->files, &store->reserve, size);

    if (r == FL_E_NOSPACE) {
        fl_store_work__set_full(store);
        return 0;
    }
    return r < 0 ? fl_store__refuse_io(&store->files, o->fault, r, "making", "reserve") : 0;
}

/* Also syncs the parent when the directory is there: whoever made it may not have come to it. */
static int make_directory(const struct fl_store_files *files, struct fl_store_fault *fault)
{
    struct fl_disk *disk = files->disk;
    char parent[sizeof files->directory];
    int made = disk->make_directory(disk, files->directory);
    char *slash;
    int r;

    if (made < 0 && made != FL_E_EXISTS)
        return fl_store__refuse_io(files, fault, made, "making the directory", "");
    strcpy(parent, files->directory);
    slash = strrchr(parent, '/');
    if (slash == NULL)
        strcpy(parent, ".");
    else
        slash[slash == parent ? 1 : 0] = '\0';
    r = disk->sync_directory(disk, parent);
    if (r == FL_E_DENIED && made == FL_E_EXISTS)
        return 0; /* somebody else's: made for us, and long ago */
    return r < 0 ? fl_store__refuse_io(files, fault, r, "fsync of the parent of", "") : 0;
}

static int lock_directory(struct fl_store *store, struct fl_store_fault *fault)
{
    char path[FL_STORE_PATH_MAX];

    store->lock =
        store->files.disk->lock(store->files.disk, fl_store__path(&store->files, "lock", path));
    if (store->lock == FL_E_BUSY)
        return fl_store__refuse(fault, FL_E_BUSY, "%s: another process has it open",
                                store->files.directory);
    return store->lock < 0
               ? fl_store__refuse_io(&store->files, fault, store->lock, "locking", "lock")
               : 0;
}

static int open_files(struct opening *o, const struct fl_store_config *config)
{
    int r = make_directory(&o->store->files, o->fault);

    if (r == 0)
        r = lock_directory(o->store, o->fault);
    if (r == 0)
        r = list_directory(o);
    if (r < 0)
        return r;
    r = fl_store__identity_check(&o->store->files, o->fault);
    if (r == FL_E_NOT_FOUND)
        r = create(o);
    if (r == 0)
        r = recover(o);
    if (r == 0)
        r = fl_peers_file__open(&o->store->files, &o->store->peers, o->fault);
    if (r == 0)
        r = open_reserve(o, config->reserve_bytes != 0 ? config->reserve_bytes
                                                       : RESERVE_BYTES_DEFAULT);
    return r;
}

static struct fl_store *store_new(const struct fl_store_config *config)
{
    struct fl_store *store = fl_xcalloc(1, sizeof *store);
    pthread_condattr_t attr;

    store->files.disk = config->disk != NULL ? config->disk : fl_disk_real();
    strcpy(store->files.directory, config->directory);
    store->files.identity = config->identity;
    store->files.seed = fl_format_seed(&config->identity);
    store->owner = getpid();
    store->lock = store->vote.file = store->reserve.file = -1;
    store->synchronous = config->synchronous;
    store->wake = config->wake;
    store->wake_ctx = config->ctx;
    store->segment_bytes =
        config->segment_bytes != 0 ? config->segment_bytes : SEGMENT_BYTES_DEFAULT;
    FL_REQUIRE(store->segment_bytes >= SEGMENT_BYTES_MIN &&
               store->segment_bytes <= FL_SEGMENT_SIZE_MAX);
    fl_log__init(&store->log, &store->files, store->segment_bytes);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&store->work, &attr);
    pthread_cond_init(&store->done, &attr);
    pthread_condattr_destroy(&attr);
    return store;
}

static void hand_over(struct opening *o, struct fl_store_recovered *ret_recovered)
{
    const struct fl_vote *vote = &o->store->vote.vote;

    *ret_recovered = (struct fl_store_recovered){
        .is_new =
            o->snapshot == NULL && o->content.n == 0 && vote->term <= 1 && vote->voted_for == 0,
        .term = vote->term,
        .voted_for = vote->voted_for,
        .snapshot = o->snapshot,
        .start_index = o->content.start_index,
        .entries = o->content.entries,
        .n = o->content.n,
    };
    o->snapshot = NULL;
    o->content = (struct fl_log_content){0, NULL, 0, 0};
}

static void opening_deinit(struct opening *o)
{
    for (size_t i = 0; i < o->names.n; i++)
        free(o->names.names[i]);
    free(o->names.names);
    free(o->segments.numbers);
    fl_log_content__clear(&o->content);
    fl_snapshot_unref(o->snapshot);
}

int fl_store_open(const struct fl_store_config *config, struct fl_store_recovered *ret_recovered,
                  struct fl_store **ret_store, struct fl_store_fault *ret_fault)
{
    struct opening o = {.fault = ret_fault};
    int r;

    if (strlen(config->directory) >= sizeof o.store->files.directory)
        return fl_store__refuse(ret_fault, FL_E_INVALID, "%.100s...: the path is too long",
                                config->directory);
    o.store = store_new(config);
    r = open_files(&o, config);
    if (r == 0 && !config->synchronous &&
        pthread_create(&o.store->thread, NULL, fl_store_work__main, o.store) != 0)
        r = fl_store__refuse(ret_fault, FL_E_NOMEM, "%s: no thread can be started",
                             config->directory);
    if (r < 0) {
        fl_store__free(o.store);
    } else {
        hand_over(&o, ret_recovered);
        *ret_store = o.store;
    }
    opening_deinit(&o);
    return r;
}
