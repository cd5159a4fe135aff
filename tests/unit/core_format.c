/* The bytes of the log and of snapshots are a promise between releases (docs/log-format.md): what
 * is written is what the golden files hold, what they hold is read back, and bytes that were cut or
 * damaged are refused or give values in range.
 *
 *     test_core_format --write     writes the golden files anew, to be looked at with git diff */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "core/command.h"
#include "core/machine.h"

static const uint64_t key[2] = {3, 4};

#define ONE                                                                                        \
    {                                                                                              \
        UINT64_C(0x0102030405060708), UINT64_C(0x1112131415161718)                                 \
    }
#define TWO                                                                                        \
    {                                                                                              \
        1, 2                                                                                       \
    }

static const struct {
    const char *golden;
    struct fl_command command;
} commands[] = {
    {"command-open-session",
     {.type = FL_CMD_OPEN_SESSION,
      .session = ONE,
      .client = {"api-7", 5},
      .ttl_ms = 10000,
      .lock_delay_ms = 500}},
    {"command-close-session", {.type = FL_CMD_CLOSE_SESSION, .session = ONE}},
    {"command-expire-session", {.type = FL_CMD_EXPIRE_SESSION, .session = ONE, .term = 300}},
    {"command-end-session",
     {.type = FL_CMD_END_SESSION, .session = ONE, .actor = {"ops", 3}, .reason = {"stuck", 5}}},
    {"command-note-silence", {.type = FL_CMD_NOTE_SILENCE, .session = ONE, .silence_ms = 4000}},
    {"command-acquire",
     {.type = FL_CMD_ACQUIRE,
      .session = ONE,
      .request_id = 77,
      .name = {"jobs/\xc3\xa4", 7},
      .mode = FL_MODE_COUNTED,
      .limit = 200,
      .wait_ms = 30000}},
    {"command-acquire-asker",
     {.type = FL_CMD_ACQUIRE,
      .session = ONE,
      .request_id = 78,
      .name = {"jobs/1", 6},
      .mode = FL_MODE_EXCLUSIVE,
      .asker = 0xfe01}},
    {"command-release",
     {.type = FL_CMD_RELEASE, .session = ONE, .name = {"jobs/1", 6}, .token = FL_TOKEN_MAX}},
    {"command-cancel",
     {.type = FL_CMD_CANCEL, .session = ONE, .request_id = UINT64_MAX, .abandon = true}},
    {"command-cancel-asker",
     {.type = FL_CMD_CANCEL, .session = ONE, .request_id = 78, .abandon = true, .asker = 0xfe01}},
    {"command-force-release",
     {.type = FL_CMD_FORCE_RELEASE,
      .name = {"jobs/1", 6},
      .token = 9,
      .actor = {"ops", 3},
      .reason = {"", 0}}},
    {"command-raise-token", {.type = FL_CMD_RAISE_TOKEN, .token = UINT64_C(1) << 40}},
};

static void encode(struct fl_buf *buf, uint64_t now_ms, const struct fl_command *c, size_t n)
{
    fl_batch_begin(buf, now_ms);
    for (size_t i = 0; i < n; i++)
        fl_batch_add(buf, &c[i]);
}

/* --- A state with something of everything in it --- */

static int append(void *ctx, const void *data, size_t len)
{
    fl_buf_put(ctx, data, len);
    return FL_OK;
}

struct source {
    const uint8_t *data;
    size_t len, at, piece;
};

static long take(void *ctx, void *data, size_t size)
{
    struct source *s = ctx;
    size_t n = s->len - s->at;

    if (n > size)
        n = size;
    if (n > s->piece)
        n = s->piece;
    if (n != 0)
        memcpy(data, s->data + s->at, n);
    s->at += n;
    return (long)n;
}

static int load(const uint8_t *data, size_t len, size_t piece, struct fl_machine **ret_machine)
{
    struct source source = {data, len, 0, piece};

    return fl_machine_load(key, take, &source, ret_machine);
}

static struct fl_command acquire(uint64_t request, const char *name, enum fl_mode mode,
                                 uint32_t wait_ms)
{
    return (struct fl_command){.type = FL_CMD_ACQUIRE,
                               .session = TWO,
                               .request_id = request,
                               .name = fl_str_from(name),
                               .mode = mode,
                               .limit = mode == FL_MODE_COUNTED ? 2 : 0,
                               .wait_ms = wait_ms};
}

static struct fl_machine *rich_machine(void)
{
    struct fl_machine *m = fl_machine_new(key);
    struct fl_command open_two = commands[0].command;
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_command of_one = acquire(1, "closed", FL_MODE_EXCLUSIVE, 0);
    struct fl_command script[] = {
        commands[0].command,
        open_two,
        of_one,
        acquire(1, "held", FL_MODE_EXCLUSIVE, 0),
        acquire(2, "held", FL_MODE_EXCLUSIVE, 5000),
        acquire(3, "held", FL_MODE_EXCLUSIVE, 0),
        acquire(4, "readers", FL_MODE_SHARED, 0),
        acquire(5, "readers", FL_MODE_SHARED, 0),
        acquire(6, "permits", FL_MODE_COUNTED, 0),
        acquire(7, "released", FL_MODE_EXCLUSIVE, 0),
        {.type = FL_CMD_RELEASE, .session = TWO, .name = {"released", 8}, .token = 6},
        {.type = FL_CMD_NOTE_SILENCE, .session = TWO, .silence_ms = 4000},
        {.type = FL_CMD_CANCEL, .session = TWO, .request_id = 8},
        {.type = FL_CMD_EXPIRE_SESSION, .session = ONE, .term = 1},
        acquire(9, "closed", FL_MODE_EXCLUSIVE, 5000),
    };

    script[1].session = (struct fl_session_id)TWO;
    script[2].session = (struct fl_session_id)ONE;
    encode(&buf, 1000, script, FL_ARRAY_LEN(script));
    assert_int_equal(fl_machine_apply(m, 1, 1, buf.data, buf.len, NULL, NULL), FL_OK);
    fl_buf_deinit(&buf);
    return m;
}

static struct fl_buf rich_snapshot(void)
{
    struct fl_machine *m = rich_machine();
    struct fl_buf buf = FL_BUF_INIT;

    assert_int_equal(fl_machine_save(m, append, &buf), FL_OK);
    fl_machine_free(m);
    return buf;
}

/* --- Golden files --- */

static FILE *open_golden(const char *name, const char *mode)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, GOLDEN_DIRECTORY "/%s.hex", name);
    file = fopen(path, mode);
    if (file == NULL)
        fail_msg("%s is missing", path);
    return file;
}

static void write_golden(const char *name, const struct fl_buf *buf)
{
    FILE *file = open_golden(name, "w");

    fprintf(file, "# %s: docs/log-format.md\n", name);
    for (size_t i = 0; i < buf->len; i++)
        fprintf(file, "%02x%s", buf->data[i], i % 16 == 15 || i + 1 == buf->len ? "\n" : " ");
    fclose(file);
}

static struct fl_buf read_golden(const char *name)
{
    struct fl_buf buf = FL_BUF_INIT;
    FILE *file = open_golden(name, "r");
    unsigned byte;

    assert_int_equal(fscanf(file, "#%*[^\n]"), 0);
    while (fscanf(file, "%2x", &byte) == 1)
        fl_buf_put_u8(&buf, (uint8_t)byte);
    fclose(file);
    return buf;
}

static void assert_same(const struct fl_buf *a, const struct fl_buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void write_goldens(void)
{
    struct fl_buf snapshot = rich_snapshot();

    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++) {
        struct fl_buf buf = FL_BUF_INIT;

        encode(&buf, 1234, &commands[i].command, 1);
        write_golden(commands[i].golden, &buf);
        fl_buf_deinit(&buf);
    }
    write_golden("machine-snapshot", &snapshot);
    fl_buf_deinit(&snapshot);
}

static void commands_are_written_as_the_golden_files_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++) {
        struct fl_buf buf = FL_BUF_INIT, golden = read_golden(commands[i].golden);

        encode(&buf, 1234, &commands[i].command, 1);
        assert_same(&buf, &golden);
        fl_buf_deinit(&buf);
        fl_buf_deinit(&golden);
    }
}

static void commands_are_read_from_the_golden_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++) {
        struct fl_buf golden = read_golden(commands[i].golden);
        const struct fl_command *want = &commands[i].command, *got;
        struct fl_batch batch;

        assert_int_equal(fl_batch_decode(golden.data, golden.len, &batch), FL_OK);
        assert_int_equal(batch.now_ms, 1234);
        assert_int_equal(batch.n, 1);
        got = &batch.commands[0];
        assert_int_equal(got->type, want->type);
        assert_true(fl_session_id_equal(got->session, want->session));
        assert_int_equal(got->request_id, want->request_id);
        assert_true(fl_str_equal(got->name, want->name));
        assert_int_equal(got->token, want->token);
        assert_int_equal(got->mode, want->mode);
        assert_int_equal(got->limit, want->limit);
        assert_int_equal(got->wait_ms, want->wait_ms);
        assert_int_equal(got->abandon, want->abandon);
        assert_int_equal(got->asker, want->asker);
        assert_true(fl_str_equal(got->client, want->client));
        assert_int_equal(got->ttl_ms, want->ttl_ms);
        assert_int_equal(got->lock_delay_ms, want->lock_delay_ms);
        assert_int_equal(got->term, want->term);
        assert_int_equal(got->silence_ms, want->silence_ms);
        assert_true(fl_str_equal(got->actor, want->actor));
        assert_true(fl_str_equal(got->reason, want->reason));
        fl_batch_deinit(&batch);
        fl_buf_deinit(&golden);
    }
}

static void a_snapshot_is_as_the_golden_file_says_in_both_directions(void **state)
{
    struct fl_buf buf = rich_snapshot(), golden = read_golden("machine-snapshot"), again = {0};
    struct fl_machine *m;
    char why[256];

    (void)state;
    assert_same(&buf, &golden);
    assert_int_equal(load(golden.data, golden.len, 7, &m), FL_OK);
    assert_int_equal(fl_machine_check(m, why, sizeof why), FL_OK);
    assert_int_equal(fl_machine_save(m, append, &again), FL_OK);
    assert_same(&again, &golden);
    fl_machine_free(m);
    fl_buf_deinit(&buf);
    fl_buf_deinit(&golden);
    fl_buf_deinit(&again);
}

/* --- Damage --- */

static void all_commands(struct fl_buf *buf)
{
    fl_batch_begin(buf, 5);
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++)
        fl_batch_add(buf, &commands[i].command);
}

/* From a copy of exactly that size, so that a sanitizer sees a read behind it. */
static int decode_copy(const uint8_t *data, size_t len)
{
    uint8_t *copy = fl_xmemdup(data, len);
    struct fl_batch batch;
    int r = fl_batch_decode(copy, len, &batch);

    if (r == FL_OK) {
        for (size_t i = 0; i < batch.n; i++) {
            const char *why;

            assert_null(fl_command_fault(&batch.commands[i], &why));
        }
        fl_batch_deinit(&batch);
    } else {
        assert_true(r == FL_E_MALFORMED || r == FL_E_VERSION);
    }
    free(copy);
    return r;
}

static void a_batch_cut_inside_a_command_is_malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(commands); i++) {
        struct fl_buf buf = FL_BUF_INIT;

        encode(&buf, 5, &commands[i].command, 1);
        for (size_t len = 0; len < buf.len; len++)
            assert_int_equal(decode_copy(buf.data, len), len == 9 ? FL_OK : FL_E_MALFORMED);
        fl_buf_deinit(&buf);
    }
}

static void a_flipped_bit_in_a_batch_is_refused_or_in_range(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    all_commands(&buf);
    for (size_t bit = 0; bit < buf.len * 8; bit++) {
        buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        decode_copy(buf.data, buf.len);
        buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    fl_buf_deinit(&buf);
}

static void a_malformed_batch_changes_nothing_but_the_index(void **state)
{
    struct fl_machine *m = rich_machine();
    fl_token before = fl_machine_token(m);

    (void)state;
    assert_int_equal(fl_machine_apply(m, 2, 1, "\x01zz", 3, NULL, NULL), FL_E_MALFORMED);
    assert_int_equal(fl_machine_index(m), 2);
    assert_int_equal(fl_machine_apply(m, 3, 1, "\x02zz", 3, NULL, NULL), FL_E_VERSION);
    assert_int_equal(fl_machine_index(m), 2);
    assert_int_equal(fl_machine_token(m), before);
    fl_machine_free(m);
}

static void a_snapshot_that_is_cut_is_malformed(void **state)
{
    struct fl_buf buf = rich_snapshot();

    (void)state;
    for (size_t len = 0; len < buf.len; len++) {
        uint8_t *copy = fl_xmemdup(buf.data, len);
        struct fl_machine *m;

        assert_int_equal(load(copy, len, 64, &m), FL_E_MALFORMED);
        free(copy);
    }
    fl_buf_deinit(&buf);
}

/* Whatever was read can be used: nothing in it leads out of bounds or into an assertion. */
static void use(struct fl_machine *m)
{
    struct fl_buf batch = FL_BUF_INIT, bytes = FL_BUF_INIT;
    struct fl_command c = acquire(50, "held", FL_MODE_EXCLUSIVE, 100);

    encode(&batch, fl_machine_now_ms(m), &c, 1);
    if (fl_machine_index(m) < UINT64_MAX)
        fl_machine_apply(m, fl_machine_index(m) + 1, 1, batch.data, batch.len, NULL, NULL);
    fl_machine_save(m, append, &bytes);
    fl_buf_deinit(&batch);
    fl_buf_deinit(&bytes);
    fl_machine_free(m);
}

static void a_damaged_snapshot_is_refused_or_can_be_used(void **state)
{
    struct fl_buf buf = rich_snapshot();
    struct fl_random random;

    (void)state;
    fl_random_init(&random, 1);
    for (size_t bit = 0; bit < buf.len * 8; bit++) {
        size_t other = fl_random_below(&random, buf.len);
        uint8_t kept = buf.data[other];
        struct fl_machine *m;

        if (bit % 2 == 1)
            buf.data[other] = (uint8_t)fl_random_u64(&random);
        buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (load(buf.data, buf.len, SIZE_MAX, &m) == FL_OK)
            use(m);
        buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        buf.data[other] = kept;
    }
    fl_buf_deinit(&buf);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_written_as_the_golden_files_say),
        cmocka_unit_test(commands_are_read_from_the_golden_files),
        cmocka_unit_test(a_snapshot_is_as_the_golden_file_says_in_both_directions),
        cmocka_unit_test(a_batch_cut_inside_a_command_is_malformed),
        cmocka_unit_test(a_flipped_bit_in_a_batch_is_refused_or_in_range),
        cmocka_unit_test(a_malformed_batch_changes_nothing_but_the_index),
        cmocka_unit_test(a_snapshot_that_is_cut_is_malformed),
        cmocka_unit_test(a_damaged_snapshot_is_refused_or_can_be_used),
    };

    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        write_goldens();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
