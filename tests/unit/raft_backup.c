/* The file of a backup: its bytes are a promise, any damage is seen, and what a restore makes of it
 * has higher tokens and no sessions.
 *
 *     test_raft_backup --write     writes the golden file anew, to be looked at with git diff */
#include "test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "core/command.h"
#include "core/machine.h"
#include "net/handshake.h"
#include "raft/backup.h"
#include "raft/restore.h"
#include "raft/store.h"

#define GOLDEN     GOLDEN_DIRECTORY "/backup.hex"
#define MADE_AT_MS UINT64_C(1800000000000)

static const uint64_t hash_key[2] = {1, 2};

struct world {
    char root[64], path[96], directory[96];
    struct fl_buf whole; /* a backup of one session that holds two names */
};

static int put_state(void *ctx, const void *data, size_t len)
{
    fl_buf_put(ctx, data, len);
    return 0;
}

static void ignore_effect(void *ctx, const struct fl_effect *effect)
{
    (void)ctx;
    (void)effect;
}

static struct fl_machine *new_machine(void)
{
    struct fl_machine *machine = fl_machine_new(hash_key);
    struct fl_command open = {.type = FL_CMD_OPEN_SESSION,
                              .session = {1, 2},
                              .client = FL_STR("worker"),
                              .ttl_ms = 10000,
                              .lock_delay_ms = 5000};
    struct fl_buf batch = FL_BUF_INIT;

    fl_batch_begin(&batch, 1000);
    fl_batch_add(&batch, &open);
    for (uint64_t i = 1; i <= 2; i++) {
        struct fl_command acquire = {.type = FL_CMD_ACQUIRE,
                                     .session = {1, 2},
                                     .request_id = i,
                                     .name = i == 1 ? FL_STR("invoice/1") : FL_STR("invoice/2"),
                                     .mode = FL_MODE_EXCLUSIVE};

        fl_batch_add(&batch, &acquire);
    }
    assert_int_equal(fl_machine_apply(machine, 7, 3, batch.data, batch.len, ignore_effect, NULL),
                     FL_OK);
    fl_buf_deinit(&batch);
    return machine;
}

static void make_backup(struct fl_buf *out)
{
    struct fl_machine *machine = new_machine();
    struct fl_buf state = FL_BUF_INIT;
    uint8_t head_bytes[FL_BACKUP_HEAD_SIZE];
    struct fl_backup_head head = {
        .cluster_id = "0123456789abcde",
        .node_id = 3,
        .index = 9,
        .term = 4,
        .made_at_ms = MADE_AT_MS,
        .sessions = 1,
        .names = 2,
        .holds = 2,
    };
    uint32_t seed;

    fl_machine_save(machine, put_state, &state);
    head.token = fl_machine_token(machine);
    head.size = state.len;
    fl_backup_head_encode(&head, head_bytes);
    seed = fl_backup_seed(head_bytes);
    fl_buf_put(out, head_bytes, sizeof head_bytes);
    /* Two chunks, so that they can be exchanged. */
    fl_backup_put_chunk(out, seed, out->len, state.data, 40);
    fl_backup_put_chunk(out, seed, out->len, state.data + 40, (uint32_t)state.len - 40);
    fl_backup_put_end(out, seed, out->len, state.len);
    fl_buf_deinit(&state);
    fl_machine_free(machine);
}

static int setup(void **state)
{
    struct world *w = fl_xcalloc(1, sizeof *w);

    snprintf(w->root, sizeof w->root, "/tmp/fl-backup-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->path, sizeof w->path, "%s/backup", w->root);
    snprintf(w->directory, sizeof w->directory, "%s/n1", w->root);
    make_backup(&w->whole);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", w->root);
    assert_int_equal(system(command), 0);
    fl_buf_deinit(&w->whole);
    free(w);
    return 0;
}

static void write_file(const struct world *w, const void *data, size_t len)
{
    FILE *file = fopen(w->path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static int open_code(const struct world *w, char *why)
{
    struct fl_backup *backup;
    int r = fl_backup_open(w->path, &backup, why);

    if (r == 0)
        fl_backup_close(backup);
    return r;
}

static struct fl_restore restore_of(const struct world *w, uint64_t age_ms)
{
    return (struct fl_restore){.backup = w->path,
                               .directory = w->directory,
                               .cluster = "another",
                               .node_id = 5,
                               .address = "ten:3363",
                               .now_ms = MADE_AT_MS + age_ms};
}

static struct fl_buf parse_golden(void)
{
    struct fl_buf out = FL_BUF_INIT;
    FILE *file = fopen(GOLDEN, "r");
    char line[200];

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        for (char *p = line; isxdigit((unsigned char)*p); p += strspn(p, " "))
            fl_buf_put_u8(&out, (uint8_t)strtoul(p, &p, 16));
    fclose(file);
    return out;
}

/* --- Promises --- */

static void the_bytes_of_a_backup_are_golden(void **state)
{
    const struct world *w = *state;
    struct fl_buf golden = parse_golden();

    assert_int_equal(golden.len, w->whole.len);
    assert_memory_equal(golden.data, w->whole.data, golden.len);
    fl_buf_deinit(&golden);
}

static void a_whole_backup_is_read_back(void **state)
{
    struct world *w = *state;
    struct fl_machine *machine;
    struct fl_backup *backup;
    char why[512];

    write_file(w, w->whole.data, w->whole.len);
    assert_int_equal(fl_backup_open(w->path, &backup, why), FL_OK);
    assert_int_equal(fl_backup_head(backup)->index, 9);
    assert_int_equal(fl_backup_head(backup)->node_id, 3);
    assert_true(fl_backup_file_size(fl_backup_head(backup)->size) + FL_BACKUP_CHUNK_EXTRA ==
                w->whole.len); /* it has one chunk more than it needs */
    assert_int_equal(fl_machine_load(hash_key, fl_backup_read, backup, &machine), FL_OK);
    assert_int_equal(fl_machine_index(machine), 7);
    fl_machine_free(machine);
    fl_backup_close(backup);
}

/* Every bit of every byte, every length, and chunks in each other's place. */
static void any_damage_is_seen_before_anything_changes(void **state)
{
    struct world *w = *state;
    struct fl_buf *whole = &w->whole;
    uint64_t token;
    char why[512];

    for (size_t at = 0; at < whole->len; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            struct fl_restore restore = restore_of(w, 0);
            int r;

            whole->data[at] ^= (uint8_t)(1u << bit);
            write_file(w, whole->data, whole->len);
            r = fl_restore_run(&restore, &token, why);
            if (r != FL_E_CORRUPT)
                fail_msg("bit %u of byte %zu: %d", bit, at, r);
            whole->data[at] ^= (uint8_t)(1u << bit);
        }
    }
    assert_int_equal(access(w->directory, F_OK), -1);
    for (size_t len = 0; len < whole->len; len++) {
        write_file(w, whole->data, len);
        assert_int_equal(open_code(w, why), FL_E_CORRUPT);
        assert_non_null(strstr(why, w->path));
        assert_non_null(strstr(why, "offset"));
    }
    fl_buf_put_u8(whole, 0);
    write_file(w, whole->data, whole->len);
    assert_int_equal(open_code(w, why), FL_E_CORRUPT);
}

static void a_restore_raises_tokens_and_ends_sessions(void **state)
{
    struct world *w = *state;
    struct fl_restore restore = restore_of(w, 3600 * 1000);
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    struct fl_store *store;
    struct fl_snapshot_reader *reader;
    struct fl_machine *machine;
    struct fl_machine_stats stats;
    struct fl_name_info info;
    struct fl_store_config config = {
        .directory = w->directory, .identity = {.node_id = 5}, .synchronous = true};
    uint64_t token;
    char why[512];

    write_file(w, w->whole.data, w->whole.len);
    assert_int_equal(fl_restore_run(&restore, &token, why), FL_OK);
    assert_int_equal(token, 2 + (UINT64_C(1) << 40) + 3600 * (UINT64_C(1) << 20));
    fl_handshake_cluster_id("another", config.identity.cluster_id);
    assert_int_equal(fl_store_open(&config, &found, &store, &fault), FL_OK);
    assert_int_equal(found.term, 5);
    assert_int_equal(found.n, 0);
    assert_true(found.snapshot->index > 9);
    assert_int_equal(found.start_index, found.snapshot->index + 1);
    assert_int_equal(fl_snapshot_reader_new(
                         store, ((const struct fl_store_snapshot *)found.snapshot->content)->path,
                         &reader, &fault),
                     FL_OK);
    assert_int_equal(fl_machine_load(hash_key, fl_snapshot_reader_read, reader, &machine), FL_OK);
    fl_machine_stats(machine, &stats);
    assert_int_equal(stats.sessions, 0);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(fl_machine_token(machine), token);
    /* Its lock-delay counts: the store cannot check tokens, and the holder may still write. */
    fl_machine_describe(machine, FL_STR("invoice/1"), 0, &info, NULL, NULL);
    assert_int_equal(info.holders, 0);
    assert_true(info.closed_until_ms > fl_machine_now_ms(machine));
    assert_int_equal(fl_machine_check(machine, why, sizeof why), 0);
    fl_machine_free(machine);
    fl_snapshot_reader_free(reader);
    fl_store_recovered_deinit(&found);
    fl_store_close(store);
    assert_int_equal(fl_restore_run(&restore, &token, why), FL_E_EXISTS);
}

/* A cluster that was restored before from the same backup handed out tokens, too. */
static void a_later_restore_of_the_same_backup_begins_above_the_earlier(void **state)
{
    (void)state;
    assert_true(fl_restore_jump(0) == UINT64_C(1) << 40);
    assert_true(fl_restore_jump(10000) - fl_restore_jump(9000) >= 1000000);
    assert_true(fl_restore_jump(UINT64_C(365) * 86400 * 1000) < UINT64_C(1) << 46);
}

static void tokens_are_never_raised_to_where_they_end(void **state)
{
    struct world *w = *state;
    struct fl_restore restore = restore_of(w, 0);
    uint64_t token;
    char why[512];

    write_file(w, w->whole.data, w->whole.len);
    restore.token_floor = FL_TOKEN_MAX;
    assert_int_equal(fl_restore_run(&restore, &token, why), FL_E_INVALID);
    assert_int_equal(access(w->directory, F_OK), -1);
    restore.token_floor = UINT64_C(1) << 52;
    assert_int_equal(fl_restore_run(&restore, &token, why), FL_OK);
    assert_true(token == UINT64_C(1) << 52);
}

static int write_golden(void)
{
    struct fl_buf whole = FL_BUF_INIT;
    FILE *file = fopen(GOLDEN, "w");

    assert_non_null(file);
    make_backup(&whole);
    fprintf(file, "# backup: docs/storage-format.md\n");
    for (size_t i = 0; i < whole.len; i++)
        fprintf(file, "%02x%s", whole.data[i], i % 16 == 15 || i + 1 == whole.len ? "\n" : " ");
    fl_buf_deinit(&whole);
    return fclose(file);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        STORY(the_bytes_of_a_backup_are_golden),
        STORY(a_whole_backup_is_read_back),
        STORY(any_damage_is_seen_before_anything_changes),
        STORY(a_restore_raises_tokens_and_ends_sessions),
        STORY(a_later_restore_of_the_same_backup_begins_above_the_earlier),
        STORY(tokens_are_never_raised_to_where_they_end),
    };

    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        return write_golden();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
