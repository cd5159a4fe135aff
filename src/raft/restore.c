#include "raft/restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "core/command.h"
#include "core/machine.h"
#include "net/handshake.h"
#include "raft/backup.h"
#include "raft/engine.h"
#include "raft/store.h"

#define WHY_BYTES 512
/* More tokens than any cluster hands out in a second: what a cluster that was restored from this
 * backup before may have used up since. */
#define TOKENS_PER_SECOND  (UINT64_C(1) << 20)
#define SESSIONS_PER_BATCH 1000
/* So far above the old cluster's entries that a watch of its clients cannot go on by mistake. */
#define INDEX_JUMP (UINT64_C(1) << 32)

uint64_t fl_restore_jump(uint64_t age_ms)
{
    return FL_TOKEN_RESTORE_JUMP + age_ms / 1000 * TOKENS_PER_SECOND;
}

/* --- The state --- */

struct session_ids {
    struct fl_session_id *ids; /* owned */
    size_t n, capacity;
};

static void collect(void *ctx, const struct fl_session_info *info)
{
    struct session_ids *sessions = ctx;

    if (sessions->n == sessions->capacity) {
        sessions->capacity =
            fl_grow_capacity(sessions->capacity, sessions->n + 1, sizeof *sessions->ids);
        sessions->ids = fl_xrealloc(sessions->ids, sessions->capacity * sizeof *sessions->ids);
    }
    sessions->ids[sessions->n++] = info->id;
}

static void ignore_effect(void *ctx, const struct fl_effect *effect)
{
    (void)ctx;
    (void)effect;
}

/* The entries of the restored cluster's first term, before it has a log. */
struct entries {
    struct fl_machine *machine; /* borrowed */
    uint64_t index, term;       /* of the last */
};

static void apply(struct entries *entries, const struct fl_buf *batch)
{
    FL_REQUIRE(fl_machine_apply(entries->machine, ++entries->index, entries->term, batch->data,
                                batch->len, ignore_effect, NULL) == FL_OK);
}

static void raise_token(struct entries *entries, uint64_t floor)
{
    struct fl_command command = {.type = FL_CMD_RAISE_TOKEN, .token = floor};
    struct fl_buf batch = FL_BUF_INIT;

    fl_batch_begin(&batch, fl_machine_now_ms(entries->machine));
    fl_batch_add(&batch, &command);
    apply(entries, &batch);
    fl_buf_deinit(&batch);
}

/* As if each had been silent for its TTL, lock-delays included. */
static void expire_sessions(struct entries *entries)
{
    struct fl_machine *machine = entries->machine;
    struct session_ids sessions = {0};
    struct fl_buf batch = FL_BUF_INIT;
    size_t i = 0;

    fl_machine_each_session(machine, collect, &sessions);
    while (i < sessions.n || fl_machine_has_backlog(machine)) {
        fl_buf_clear(&batch);
        fl_batch_begin(&batch, fl_machine_now_ms(machine));
        for (unsigned k = 0; k < SESSIONS_PER_BATCH && i < sessions.n; k++) {
            struct fl_command command = {
                .type = FL_CMD_EXPIRE_SESSION, .session = sessions.ids[i++], .term = entries->term};

            fl_batch_add(&batch, &command);
        }
        apply(entries, &batch);
    }
    fl_buf_deinit(&batch);
    free(sessions.ids);
}

/* --- The directory --- */

static int write_state(void *writer, const void *data, size_t len)
{
    return fl_snapshot_writer_write(writer, data, len);
}

static int write_snapshot(struct fl_store *store, const struct fl_machine *machine,
                          struct fl_snapshot *meta)
{
    struct fl_snapshot_writer *writer;
    char path[512];
    int r = fl_snapshot_writer_new(store, meta, &writer);

    if (r < 0)
        return r;
    r = fl_machine_save(machine, write_state, writer);
    if (r < 0) {
        fl_snapshot_writer_abort(writer);
        return r;
    }
    r = fl_snapshot_writer_finish(writer, path);
    return r < 0 ? r : fl_snapshot_file_commit(store, path, meta);
}

/* A cluster of one. */
static struct fl_snapshot *describe_snapshot(const struct fl_restore *restore,
                                             const struct fl_machine *machine, uint64_t term)
{
    struct fl_member_info self = {restore->node_id, restore->address, FL_MEMBER_VOTER};
    struct fl_entry *configuration = fl_engine_bootstrap_entry(&self, 1);
    uint64_t index = fl_machine_index(machine);
    struct fl_snapshot *meta =
        fl_snapshot_new(index, term, index, configuration->data, configuration->len);

    fl_entry_unref(configuration);
    return meta;
}

static int fill_directory(const struct fl_restore *restore, const char *directory,
                          const struct fl_machine *machine, uint64_t term, char *why)
{
    struct fl_store_config config = {
        .directory = directory,
        .identity = {.node_id = restore->node_id},
        .synchronous = true,
    };
    struct fl_store_recovered recovered;
    struct fl_store_fault fault = {{0}};
    struct fl_snapshot *meta;
    struct fl_store *store;
    int r;

    fl_handshake_cluster_id(restore->cluster, config.identity.cluster_id);
    FL_REQUIRE(getrandom(&config.identity.life, sizeof config.identity.life, 0) ==
               sizeof config.identity.life);
    r = fl_store_open(&config, &recovered, &store, &fault);
    if (r < 0) {
        snprintf(why, WHY_BYTES, "%s", fault.text);
        return r;
    }
    fl_store_recovered_deinit(&recovered);
    meta = describe_snapshot(restore, machine, term);
    fl_store_set_vote(store, term, 0);
    r = write_snapshot(store, machine, meta);
    if (r == 0)
        fl_store_reset(store, meta->index + 1);
    else
        snprintf(why, WHY_BYTES, "%.400s cannot be written: %s", directory, fl_error_text(r));
    fl_snapshot_unref(meta);
    fl_store_close(store);
    return r;
}

/* Made beside and renamed, so that it is there whole or not at all. */
static int make_directory(const struct fl_restore *restore, const struct fl_machine *machine,
                          uint64_t term, char *why)
{
    char beside[400];
    int r;

    snprintf(beside, sizeof beside, "%s.restoring", restore->directory);
    if (rmdir(restore->directory) != 0 && errno != ENOENT) {
        snprintf(why, WHY_BYTES,
                 "%s is in use, or cannot be replaced (%s): a backup is restored into a directory "
                 "that is not there, or empty; nothing was changed",
                 restore->directory, strerror(errno));
        return FL_E_EXISTS;
    }
    if (access(beside, F_OK) == 0) {
        snprintf(why, WHY_BYTES,
                 "%s is left from a restore that was cut off: remove it, then restore again",
                 beside);
        return FL_E_EXISTS;
    }
    r = fill_directory(restore, beside, machine, term, why);
    if (r < 0)
        return r;
    if (rename(beside, restore->directory) != 0) {
        r = fl_error_from_errno(errno);
        snprintf(why, WHY_BYTES, "%s cannot be renamed to %s: %s", beside, restore->directory,
                 strerror(errno));
    }
    return r;
}

/* --- All of it --- */

static int load(const char *path, struct fl_backup **ret_backup, struct fl_machine **ret_machine,
                char *why)
{
    uint64_t hash_key[2];
    int r = fl_backup_open(path, ret_backup, why);

    if (r < 0)
        return r;
    FL_REQUIRE(getrandom(hash_key, sizeof hash_key, 0) == sizeof hash_key);
    r = fl_machine_load(hash_key, fl_backup_read, *ret_backup, ret_machine);
    if (r < 0) {
        snprintf(why, WHY_BYTES, "%.300s does not hold a lock state (%s): nothing was changed",
                 path, fl_error_text(r));
        fl_backup_close(*ret_backup);
    }
    return r;
}

int fl_restore_run(const struct fl_restore *restore, uint64_t *ret_token, char *why)
{
    struct fl_backup *backup;
    struct fl_machine *machine;
    const struct fl_backup_head *head;
    uint64_t term, floor;
    int r = load(restore->backup, &backup, &machine, why);

    if (r < 0)
        return r;
    head = fl_backup_head(backup);
    term = head->term + 1;
    floor = fl_machine_token(machine) + fl_restore_jump(restore->now_ms > head->made_at_ms
                                                            ? restore->now_ms - head->made_at_ms
                                                            : 0);
    if (floor < restore->token_floor)
        floor = restore->token_floor;
    if (floor >= FL_TOKEN_MAX) {
        snprintf(
            why, WHY_BYTES,
            "tokens would begin above %llu, which is the highest there is: nothing was changed",
            (unsigned long long)FL_TOKEN_MAX);
        r = FL_E_INVALID;
    } else {
        struct entries entries = {machine, head->index + INDEX_JUMP, term};

        expire_sessions(&entries);
        raise_token(&entries, floor);
        *ret_token = fl_machine_token(machine);
        r = make_directory(restore, machine, term, why);
    }
    fl_machine_free(machine);
    fl_backup_close(backup);
    return r;
}
