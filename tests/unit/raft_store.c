/* The store on the machine's own disk, with its thread. What a power cut does to it is the matter
 * of tests/crash. */
#include "test.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/disk.h"
#include "raft/engine.h"
#include "raft/store.h"

struct world {
    char root[64], directory[96];
    struct fl_store_config config;
    struct fl_store *store;
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    sem_t woken;
};

static void on_wake(void *ctx)
{
    sem_post(&((struct world *)ctx)->woken);
}

static int setup(void **state)
{
    struct world *w = fl_xcalloc(1, sizeof *w);

    snprintf(w->root, sizeof w->root, "/tmp/fl-store-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->directory, sizeof w->directory, "%s/n1", w->root);
    sem_init(&w->woken, 0, 0);
    w->config = (struct fl_store_config){
        .directory = w->directory,
        .identity = {.cluster_id = "cluster of tests", .group_id = 2, .node_id = 1},
        .segment_bytes = 64 * 1024,
        .reserve_bytes = 64 * 1024,
        .wake = on_wake,
        .ctx = w,
    };
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];

    fl_store_recovered_deinit(&w->found);
    fl_store_close(w->store);
    snprintf(command, sizeof command, "rm -rf %s", w->root);
    assert_int_equal(system(command), 0);
    sem_destroy(&w->woken);
    free(w);
    return 0;
}

static int try_open(struct world *w)
{
    fl_store_recovered_deinit(&w->found);
    fl_store_close(w->store);
    w->store = NULL;
    return fl_store_open(&w->config, &w->found, &w->store, &w->fault);
}

static void reopen(struct world *w)
{
    int r = try_open(w);

    if (r != 0)
        fail_msg("%s: %s", fl_error_text(r), w->fault.text);
}

/* Appends entries of these texts at `index`, in `term`, as one append. */
static void append(struct world *w, uint64_t index, uint64_t term, unsigned n, const char **texts)
{
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    append->index = index;
    append->n = n;
    append->entries = fl_xcalloc(n, sizeof(struct fl_entry *));
    for (unsigned i = 0; i < n; i++)
        append->entries[i] =
            fl_entry_new(FL_ENTRY_COMMAND, term, texts[i], (uint32_t)strlen(texts[i]));
    fl_store_append(w->store, append);
}

#define APPEND(w, index, term, ...)                                                                \
    append((w), (index), (term), sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *),     \
           (const char *[]){__VA_ARGS__})

/* Waits for the next durable append and returns its index. */
static uint64_t completed(struct world *w)
{
    struct fl_append *append;
    uint64_t index;

    while ((append = fl_store_complete(w->store)) == NULL)
        assert_int_equal(sem_wait(&w->woken), 0);
    index = append->index;
    fl_append_free(append);
    return index;
}

static void expect_entry(const struct world *w, uint64_t index, uint64_t term, const char *text)
{
    const struct fl_entry *entry;

    assert_in_range(index, w->found.start_index, w->found.start_index + w->found.n - 1);
    entry = w->found.entries[index - w->found.start_index];
    assert_int_equal(entry->term, term);
    assert_int_equal(entry->type, FL_ENTRY_COMMAND);
    assert_int_equal(entry->len, strlen(text));
    assert_memory_equal(entry->data, text, entry->len);
}

static void a_new_directory_is_new_until_something_is_written(void **state)
{
    struct world *w = *state;

    reopen(w);
    assert_true(w->found.is_new);
    assert_int_equal(w->found.start_index, 1);
    reopen(w);
    assert_true(w->found.is_new);
    APPEND(w, 1, 1, "first");
    reopen(w);
    assert_false(w->found.is_new);
}

static void entries_and_the_vote_come_back(void **state)
{
    struct world *w = *state;

    reopen(w);
    fl_store_set_vote(w->store, 3, 0);
    fl_store_set_vote(w->store, 3, 5);
    APPEND(w, 1, 1, "a", "b");
    APPEND(w, 3, 3, "c");
    assert_int_equal(completed(w), 1);
    assert_int_equal(completed(w), 3);
    reopen(w);
    assert_int_equal(w->found.term, 3);
    assert_int_equal(w->found.voted_for, 5);
    assert_int_equal(w->found.n, 3);
    expect_entry(w, 1, 1, "a");
    expect_entry(w, 2, 1, "b");
    expect_entry(w, 3, 3, "c");
}

/* A new leader's entries take the place of those that were never committed. */
static void a_truncated_suffix_does_not_come_back(void **state)
{
    struct world *w = *state;

    reopen(w);
    APPEND(w, 1, 1, "a", "b", "c", "d");
    APPEND(w, 2, 2, "B");
    reopen(w);
    assert_int_equal(w->found.n, 2);
    expect_entry(w, 1, 1, "a");
    expect_entry(w, 2, 2, "B");
    APPEND(w, 3, 2, "C");
    reopen(w);
    assert_int_equal(w->found.n, 3);
    expect_entry(w, 3, 2, "C");
}

static void a_long_log_spans_segments(void **state)
{
    struct world *w = *state;
    char text[8000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    reopen(w);
    for (uint64_t i = 1; i <= 50; i++)
        APPEND(w, i, 1, text);
    for (uint64_t i = 1; i <= 50; i++)
        assert_int_equal(completed(w), i);
    reopen(w);
    assert_int_equal(w->found.n, 50);
    expect_entry(w, 50, 1, text);
}

static void an_entry_larger_than_a_segment_fits(void **state)
{
    struct world *w = *state;
    char *text = fl_xalloc(200000);

    memset(text, 'y', 199999);
    text[199999] = '\0';
    reopen(w);
    APPEND(w, 1, 1, "small", text, "small again");
    reopen(w);
    assert_int_equal(w->found.n, 3);
    expect_entry(w, 2, 1, text);
    expect_entry(w, 3, 1, "small again");
    free(text);
}

static void two_processes_cannot_have_it_open(void **state)
{
    struct world *w = *state;
    struct fl_store_recovered found;
    struct fl_store *other;

    reopen(w);
    assert_int_equal(fl_store_open(&w->config, &found, &other, &w->fault), FL_E_BUSY);
    assert_non_null(strstr(w->fault.text, w->directory));
}

static void the_directory_of_another_node_is_refused(void **state)
{
    struct world *w = *state;

    reopen(w);
    w->config.identity.node_id = 2;
    assert_int_equal(try_open(w), FL_E_WRONG_PEER);
    assert_non_null(strstr(w->fault.text, "node 1"));
    w->config.identity.node_id = 1;
    w->config.identity.cluster_id[3] = 'X';
    assert_int_equal(try_open(w), FL_E_WRONG_PEER);
}

/* What a node knows of the others survives it; under another life nobody gets in. */
static void who_was_met_is_remembered_and_nobody_takes_its_place(void **state)
{
    struct world *w = *state;
    uint64_t life;

    w->config.identity.life = 0x5a5a;
    reopen(w);
    assert_int_equal(fl_store_meet_peer(w->store, 2, 22), FL_PEER_WELCOME);
    assert_int_equal(fl_store_meet_peer(w->store, 3, 33), FL_PEER_WELCOME);
    fl_store_remove_peer(w->store, 3);
    w->config.identity.life = 0x1234; /* only a new directory takes it */
    reopen(w);
    life = fl_store_life(w->store);
    assert_int_equal(life, 0x5a5a);
    assert_int_equal(fl_store_meet_peer(w->store, 2, 22), FL_PEER_WELCOME);
    assert_int_equal(fl_store_meet_peer(w->store, 2, 23), FL_PEER_STRANGER);
    assert_int_equal(fl_store_meet_peer(w->store, 2, 0), FL_PEER_STRANGER);
    assert_int_equal(fl_store_meet_peer(w->store, 3, 33), FL_PEER_REMOVED);
    assert_true(fl_store_is_removed(w->store, 3));
    assert_false(fl_store_is_removed(w->store, 2));
}

static void who_was_met_is_refused_when_any_byte_of_it_is_damaged(void **state)
{
    struct world *w = *state;
    char path[200];
    FILE *file;
    long size;

    reopen(w);
    fl_store_meet_peer(w->store, 2, 22);
    snprintf(path, sizeof path, "%s/peers", w->directory);
    file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    assert_true(size > 40);
    for (long at = 0; at < size; at++) {
        for (int turn = 0; turn < 2; turn++) { /* damaged, then whole again */
            int byte;

            fseek(file, at, SEEK_SET);
            byte = fgetc(file);
            fseek(file, at, SEEK_SET);
            fputc(byte ^ 0x10, file);
            fflush(file);
            if (turn == 0)
                assert_int_equal(try_open(w), FL_E_CORRUPT);
        }
    }
    assert_non_null(strstr(w->fault.text, "/peers, offset 0"));
    fclose(file);
    reopen(w);
}

/* --- snapshots --- */

static struct fl_snapshot *snapshot_at(struct world *w, uint64_t index, size_t size)
{
    struct fl_snapshot *meta = fl_snapshot_new(index, 1, 1, "members", 7);
    struct fl_snapshot_writer *writer;
    char path[512], *data = fl_xcalloc(1, size);

    memset(data, (int)('A' + index % 26), size);
    assert_int_equal(fl_snapshot_writer_new(w->store, meta, &writer), 0);
    assert_int_equal(fl_snapshot_writer_write(writer, data, size), 0);
    assert_int_equal(fl_snapshot_writer_finish(writer, path), 0);
    assert_int_equal(fl_snapshot_file_commit(w->store, path, meta), 0);
    free(data);
    return meta;
}

static void expect_content(struct world *w, const struct fl_snapshot *meta, uint64_t size)
{
    const struct fl_store_snapshot *content = meta->content;
    struct fl_snapshot_reader *reader;
    char data[10000];
    uint64_t total = 0;
    long n;

    assert_int_equal(content->size, size);
    assert_int_equal(fl_snapshot_reader_new(w->store, content->path, &reader, &w->fault), 0);
    while ((n = fl_snapshot_reader_read(reader, data, sizeof data)) > 0) {
        for (long i = 0; i < n; i++)
            assert_int_equal(data[i], 'A' + meta->index % 26);
        total += (uint64_t)n;
    }
    assert_int_equal(n, 0);
    assert_int_equal(total, size);
    fl_snapshot_reader_free(reader);
}

static void fill(struct world *w, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i <= to; i++) {
        char text[4000];

        memset(text, 'z', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        APPEND(w, i, 1, text);
        assert_int_equal(completed(w), i);
    }
}

static void a_snapshot_comes_back_with_its_configuration(void **state)
{
    struct world *w = *state;
    struct fl_snapshot *meta;

    reopen(w);
    fill(w, 1, 3);
    meta = snapshot_at(w, 2, 1000000);
    expect_content(w, meta, 1000000);
    fl_snapshot_unref(meta);
    reopen(w);
    assert_non_null(w->found.snapshot);
    assert_int_equal(w->found.snapshot->index, 2);
    assert_int_equal(w->found.snapshot->term, 1);
    assert_int_equal(w->found.snapshot->configuration_index, 1);
    assert_int_equal(w->found.snapshot->configuration_len, 7);
    assert_memory_equal(w->found.snapshot->configuration, "members", 7);
    expect_content(w, w->found.snapshot, 1000000);
    assert_int_equal(w->found.n, 3);
}

static void flip(const char *path, off_t offset)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

/* Each of its chunks is checked when it is opened. */
static void damage_anywhere_in_a_large_snapshot_is_seen(void **state)
{
    struct world *w = *state;
    struct fl_snapshot_reader *reader;
    struct fl_snapshot *meta;
    const char *path;

    reopen(w);
    fill(w, 1, 3);
    meta = snapshot_at(w, 2, 1000000);
    path = ((struct fl_store_snapshot *)meta->content)->path;
    for (off_t offset = 0; offset < 1000000; offset += 9973) {
        flip(path, offset);
        assert_int_equal(fl_snapshot_reader_new(w->store, path, &reader, &w->fault), FL_E_CORRUPT);
        assert_non_null(strstr(w->fault.text, path));
        flip(path, offset);
    }
    expect_content(w, meta, 1000000);
    fl_snapshot_unref(meta);
}

/* The log is kept for the older of two snapshots, so the newest may be lost. */
static void a_damaged_snapshot_falls_back_to_the_one_before(void **state)
{
    struct world *w = *state;
    char path[512];

    reopen(w);
    fill(w, 1, 60);
    fl_snapshot_unref(snapshot_at(w, 30, 5000));
    fl_store_compact(w->store, 30);
    fill(w, 61, 90);
    fl_snapshot_unref(snapshot_at(w, 80, 5000));
    fl_store_compact(w->store, 81);
    reopen(w);
    assert_int_equal(w->found.snapshot->index, 80);
    assert_in_range(w->found.start_index, 2, 31);
    snprintf(path, sizeof path, "%s",
             ((struct fl_store_snapshot *)w->found.snapshot->content)->path);
    flip(path, 3000);
    reopen(w);
    assert_int_equal(w->found.snapshot->index, 30);
    assert_int_equal(w->found.start_index + w->found.n, 91);
    expect_content(w, w->found.snapshot, 5000);
}

static void the_last_two_snapshots_are_kept(void **state)
{
    struct world *w = *state;
    char path[512];

    reopen(w);
    fill(w, 1, 30);
    for (uint64_t index = 5; index <= 25; index += 5)
        fl_snapshot_unref(snapshot_at(w, index, 10));
    reopen(w);
    for (uint64_t index = 5; index <= 25; index += 5) {
        snprintf(path, sizeof path, "%s/snapshot-%020llu", w->directory, (unsigned long long)index);
        assert_int_equal(access(path, F_OK), index >= 20 ? 0 : -1);
    }
}

/* A follower that was far behind goes on behind what it received. */
static void an_installed_snapshot_replaces_the_log(void **state)
{
    struct world *w = *state;

    reopen(w);
    fill(w, 1, 40);
    fl_snapshot_unref(snapshot_at(w, 100, 10));
    fl_store_reset(w->store, 101);
    reopen(w);
    assert_int_equal(w->found.snapshot->index, 100);
    assert_int_equal(w->found.start_index, 101);
    assert_int_equal(w->found.n, 0);
    fill(w, 101, 102);
    reopen(w);
    assert_int_equal(w->found.n, 2);
}

/* Killed between the snapshot's rename and the reset: the old log ends before the snapshot. */
static void an_install_that_was_cut_short_is_finished_by_the_next_start(void **state)
{
    struct world *w = *state;

    reopen(w);
    fill(w, 1, 40);
    fl_snapshot_unref(snapshot_at(w, 100, 10));
    reopen(w);
    assert_int_equal(w->found.start_index, 101);
    assert_int_equal(w->found.n, 0);
    fill(w, 101, 101);
    reopen(w);
    assert_int_equal(w->found.n, 1);
}

static void compaction_removes_segments_that_no_snapshot_needs(void **state)
{
    struct world *w = *state;
    char path[512];

    reopen(w);
    fill(w, 1, 100);
    fl_snapshot_unref(snapshot_at(w, 50, 10));
    fl_snapshot_unref(snapshot_at(w, 90, 10));
    fl_store_compact(w->store, 91);
    reopen(w);
    assert_in_range(w->found.start_index, 30, 51);
    assert_int_equal(w->found.start_index + w->found.n, 101);
    snprintf(path, sizeof path, "%s/log-%020d", w->directory, 1);
    assert_int_equal(access(path, F_OK), -1);
}

/* Own snapshots are written by a forked child, which may outlive its parent. */
static void a_child_that_writes_a_snapshot_does_not_keep_the_lock(void **state)
{
    struct world *w = *state;
    struct fl_snapshot *meta = fl_snapshot_new(1, 1, 1, "members", 7);
    int to_child[2], from_child[2];
    char byte;
    pid_t child;

    reopen(w);
    assert_int_equal(pipe(to_child), 0);
    assert_int_equal(pipe(from_child), 0);
    child = fork();
    if (child == 0) {
        struct fl_snapshot_writer *writer;
        ssize_t n;

        if (fl_snapshot_writer_new(w->store, meta, &writer) != 0)
            _exit(1);
        n = write(from_child[1], "x", 1);
        n += read(to_child[0], &byte, 1);
        _exit(n == 2 ? 0 : 1);
    }
    assert_int_equal(read(from_child[0], &byte, 1), 1);
    reopen(w);
    assert_int_equal(write(to_child[1], "x", 1), 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(from_child[i]);
    }
    fl_snapshot_unref(meta);
}

/* Appends for ever, and says through the pipe what is durable. */
__attribute__((noreturn)) static void append_for_ever(struct world *w, int out)
{
    uint64_t next, done;

    if (fl_store_open(&w->config, &w->found, &w->store, &w->fault) != 0)
        _exit(1);
    next = done = w->found.start_index + w->found.n;
    for (;;) {
        char text[32];

        for (; next < done + 8; next++) {
            snprintf(text, sizeof text, "entry %llu", (unsigned long long)next);
            APPEND(w, next, 1, text);
        }
        done = completed(w) + 1;
        if (write(out, &done, sizeof done) != sizeof done)
            _exit(1);
    }
}

static void a_killed_process_leaves_what_it_acknowledged(void **state)
{
    struct world *w = *state;
    uint64_t done = 1;

    w->config.segment_bytes = 4096;
    for (unsigned round = 0; round < 12; round++) {
        char text[32];
        int acks[2];
        pid_t child;

        assert_int_equal(pipe(acks), 0);
        child = fork();
        if (child == 0)
            append_for_ever(w, acks[1]);
        close(acks[1]);
        for (unsigned i = 0; i < 20 + 7 * round; i++)
            assert_int_equal(read(acks[0], &done, sizeof done), sizeof done);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(acks[0], &done, sizeof done) == sizeof done)
            continue;
        close(acks[0]);
        reopen(w);
        assert_true(w->found.start_index + w->found.n >= done);
        for (uint64_t index = 1; index <= w->found.n; index++) {
            snprintf(text, sizeof text, "entry %llu", (unsigned long long)index);
            expect_entry(w, index, 1, text);
        }
        fl_store_recovered_deinit(&w->found);
        fl_store_close(w->store);
        w->store = NULL;
    }
}

/* What proves the last entry durable comes by itself when nothing else is written. */
static void a_quiet_log_gets_a_mark(void **state)
{
    struct world *w = *state;
    const off_t type_of_second = 128 + 40 + 28; /* head of the segment, first record, type */
    char path[512];
    unsigned char type = 0;
    int fd;

    reopen(w);
    APPEND(w, 1, 1, "quiet");
    assert_int_equal(completed(w), 1);
    snprintf(path, sizeof path, "%s/log-%020d", w->directory, 1);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 3000 && type != 0x81; i++) {
        assert_int_equal(pread(fd, &type, 1, type_of_second), 1);
        usleep(10000);
    }
    close(fd);
    assert_int_equal(type, 0x81);
}

static bool sync_fails;

static int failing_sync(struct fl_disk *disk, int file)
{
    return sync_fails ? FL_E_IO : fl_disk_real()->sync(disk, file);
}

/* The kernel may have dropped the pages: trying again would tell a lie. */
static void a_failed_fdatasync_ends_the_process(void **state)
{
    struct world *w = *state;
    struct fl_disk disk = *fl_disk_real();
    int status;
    pid_t child = fork();

    if (child == 0) {
        struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        fl_log_set_level(FL_LOG_NONE);
        disk.sync = failing_sync;
        w->config.disk = &disk;
        if (fl_store_open(&w->config, &w->found, &w->store, &w->fault) != 0)
            _exit(1);
        sync_fails = true;
        APPEND(w, 1, 1, "never durable");
        completed(w);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_new_directory_is_new_until_something_is_written),
        STORY(entries_and_the_vote_come_back),
        STORY(a_truncated_suffix_does_not_come_back),
        STORY(a_long_log_spans_segments),
        STORY(an_entry_larger_than_a_segment_fits),
        STORY(two_processes_cannot_have_it_open),
        STORY(the_directory_of_another_node_is_refused),
        STORY(who_was_met_is_remembered_and_nobody_takes_its_place),
        STORY(who_was_met_is_refused_when_any_byte_of_it_is_damaged),
        STORY(a_snapshot_comes_back_with_its_configuration),
        STORY(damage_anywhere_in_a_large_snapshot_is_seen),
        STORY(a_damaged_snapshot_falls_back_to_the_one_before),
        STORY(the_last_two_snapshots_are_kept),
        STORY(an_installed_snapshot_replaces_the_log),
        STORY(an_install_that_was_cut_short_is_finished_by_the_next_start),
        STORY(compaction_removes_segments_that_no_snapshot_needs),
        STORY(a_child_that_writes_a_snapshot_does_not_keep_the_lock),
        STORY(a_killed_process_leaves_what_it_acknowledged),
        STORY(a_quiet_log_gets_a_mark),
        STORY(a_failed_fdatasync_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
