/* The bytes on disk are a promise: what this program writes is what the golden files hold, and what
 * they hold is read back. A change here is a new version of the format (docs/storage-format.md).
 *
 *     test_raft_store_golden --write     writes the golden files anew, to be looked at with git
 * diff
 */
#include "test.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "raft/engine.h"
#include "raft/store.h"

static const struct {
    const char *golden, *name;
} files[] = {
    {"store-identity.hex", "identity"},
    {"store-vote.hex", "vote"},
    {"store-peers.hex", "peers"},
    {"store-segment.hex", "log-00000000000000000001"},
    {"store-snapshot.hex", "snapshot-00000000000000000002"},
};

struct world {
    char root[64], directory[96];
    struct fl_store_config config;
};

static void world_init(struct world *w)
{
    snprintf(w->root, sizeof w->root, "/tmp/fl-golden-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->directory, sizeof w->directory, "%s/n1", w->root);
    w->config = (struct fl_store_config){
        .directory = w->directory,
        .identity = {.cluster_id = "0123456789abcde",
                     .group_id = 7,
                     .node_id = 3,
                     .life = 0x1122334455667788},
        .segment_bytes = 1024,
        .reserve_bytes = 1024,
        .synchronous = true,
    };
}

static void world_deinit(struct world *w)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", w->root);
    assert_int_equal(system(command), 0);
}

static void append(struct fl_store *store, uint64_t index, uint8_t type, uint64_t term,
                   const char *text)
{
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    append->index = index;
    append->n = 1;
    append->entries = fl_xcalloc(1, sizeof(struct fl_entry *));
    append->entries[0] = fl_entry_new(type, term, text, (uint32_t)strlen(text));
    fl_store_append(store, append);
    fl_store_run(store);
    fl_append_free(fl_store_complete(store));
}

static struct fl_store *open_store(struct world *w, struct fl_store_recovered *ret_found)
{
    struct fl_store_fault fault;
    struct fl_store *store;

    if (fl_store_open(&w->config, ret_found, &store, &fault) != 0)
        fail_msg("%s", fault.text);
    return store;
}

/* The life of a store that the golden files are taken from. */
static void write_store(struct world *w)
{
    struct fl_snapshot *meta = fl_snapshot_new(2, 1, 1, "members", 7);
    struct fl_snapshot_writer *writer;
    struct fl_store_recovered found;
    struct fl_store *store = open_store(w, &found);
    char path[512];

    fl_store_recovered_deinit(&found);
    fl_store_set_vote(store, 1, 0);
    append(store, 1, FL_ENTRY_CHANGE, 1, "members");
    append(store, 2, FL_ENTRY_BARRIER, 1, "");
    append(store, 3, FL_ENTRY_COMMAND, 1, "never committed");
    fl_store_set_vote(store, 2, 3);
    append(store, 3, FL_ENTRY_COMMAND, 2, "hello");
    assert_int_equal(fl_snapshot_writer_new(store, meta, &writer), 0);
    assert_int_equal(fl_snapshot_writer_write(writer, "the state at entry 2", 20), 0);
    assert_int_equal(fl_snapshot_writer_finish(writer, path), 0);
    assert_int_equal(fl_snapshot_file_commit(store, path, meta), 0);
    fl_snapshot_unref(meta);
    assert_int_equal(fl_store_meet_peer(store, 1, 0xa1a2a3), FL_PEER_WELCOME);
    fl_store_remove_peer(store, 9);
    fl_store_close(store);
}

static struct fl_buf read_file(const char *directory, const char *name)
{
    struct fl_buf buf = FL_BUF_INIT;
    char path[512];
    FILE *file;
    int c;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    while ((c = getc(file)) != EOF)
        fl_buf_put_u8(&buf, (uint8_t)c);
    fclose(file);
    return buf;
}

/* --- the golden files: 16 bytes a line, "zero N" for N zero bytes, comments from '#' on --- */

static void print_hex(FILE *out, const struct fl_buf *buf)
{
    for (size_t at = 0; at < buf->len;) {
        size_t zeros = 0;

        while (at + zeros < buf->len && buf->data[at + zeros] == 0)
            zeros++;
        zeros = zeros / 16 * 16;
        if (zeros >= 32 && at % 16 == 0) {
            fprintf(out, "zero %zu\n", zeros);
            at += zeros;
            continue;
        }
        do
            fprintf(out, "%02x%s", buf->data[at], (at + 1) % 16 != 0 ? " " : "\n");
        while (++at < buf->len && at % 16 != 0);
    }
    fprintf(out, buf->len % 16 != 0 ? "\n" : "");
}

static struct fl_buf parse_hex(const char *golden)
{
    struct fl_buf text = read_file(GOLDEN_DIRECTORY, golden), out = FL_BUF_INIT;
    char *save = NULL, *line;

    fl_buf_put_u8(&text, 0);
    for (line = strtok_r((char *)text.data, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        size_t zeros;

        line[strcspn(line, "#")] = '\0';
        if (sscanf(line, "zero %zu", &zeros) == 1)
            for (; zeros > 0; zeros--)
                fl_buf_put_u8(&out, 0);
        else
            for (char *p = line; isxdigit((unsigned char)*p); p += strspn(p, " "))
                fl_buf_put_u8(&out, (uint8_t)strtoul(p, &p, 16));
    }
    fl_buf_deinit(&text);
    return out;
}

static void what_is_written_is_golden(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    write_store(&w);
    for (size_t i = 0; i < FL_ARRAY_LEN(files); i++) {
        struct fl_buf want = parse_hex(files[i].golden);
        struct fl_buf got = read_file(w.directory, files[i].name);

        if (want.len != got.len || memcmp(want.data, got.data, want.len) != 0)
            fail_msg("%s is not as in %s", files[i].name, files[i].golden);
        fl_buf_deinit(&want);
        fl_buf_deinit(&got);
    }
    world_deinit(&w);
}

static void write_golden_into(const struct world *w)
{
    assert_int_equal(mkdir(w->directory, 0700), 0);
    for (size_t i = 0; i < FL_ARRAY_LEN(files); i++) {
        struct fl_buf buf = parse_hex(files[i].golden);
        char path[512];
        FILE *file;

        snprintf(path, sizeof path, "%s/%s", w->directory, files[i].name);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(buf.data, 1, buf.len, file), buf.len);
        fclose(file);
        fl_buf_deinit(&buf);
    }
}

static void expect_snapshot(struct fl_store *store, const struct fl_snapshot *snapshot)
{
    const struct fl_store_snapshot *content = snapshot->content;
    struct fl_snapshot_reader *reader;
    struct fl_store_fault fault;
    char data[64];

    assert_int_equal(snapshot->index, 2);
    assert_int_equal(snapshot->term, 1);
    assert_int_equal(snapshot->configuration_index, 1);
    assert_int_equal(snapshot->configuration_len, 7);
    assert_memory_equal(snapshot->configuration, "members", 7);
    assert_int_equal(fl_snapshot_reader_new(store, content->path, &reader, &fault), 0);
    assert_int_equal(fl_snapshot_reader_read(reader, data, sizeof data), 20);
    assert_memory_equal(data, "the state at entry 2", 20);
    fl_snapshot_reader_free(reader);
}

static void what_is_golden_is_read(void **state)
{
    struct fl_store_recovered found;
    struct fl_store *store;
    struct world w;

    (void)state;
    world_init(&w);
    write_golden_into(&w);
    store = open_store(&w, &found);
    assert_int_equal(found.term, 2);
    assert_int_equal(found.voted_for, 3);
    assert_int_equal(found.start_index, 1);
    assert_int_equal(found.n, 3);
    assert_int_equal(found.entries[0]->type, FL_ENTRY_CHANGE);
    assert_int_equal(found.entries[1]->type, FL_ENTRY_BARRIER);
    assert_int_equal(found.entries[2]->type, FL_ENTRY_COMMAND);
    assert_int_equal(found.entries[2]->term, 2);
    assert_int_equal(found.entries[2]->len, 5);
    assert_memory_equal(found.entries[2]->data, "hello", 5);
    expect_snapshot(store, found.snapshot);
    fl_store_recovered_deinit(&found);
    fl_store_close(store);
    world_deinit(&w);
}

static int write_golden(void)
{
    struct world w;

    world_init(&w);
    write_store(&w);
    for (size_t i = 0; i < FL_ARRAY_LEN(files); i++) {
        struct fl_buf buf = read_file(w.directory, files[i].name);
        char path[512];
        FILE *file;

        snprintf(path, sizeof path, "%s/%s", GOLDEN_DIRECTORY, files[i].golden);
        file = fopen(path, "w");
        if (file == NULL)
            return 1;
        fprintf(file, "# %s: docs/storage-format.md\n", files[i].name);
        print_hex(file, &buf);
        fclose(file);
        fl_buf_deinit(&buf);
    }
    world_deinit(&w);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_golden),
        cmocka_unit_test(what_is_golden_is_read),
    };

    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        return write_golden();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
