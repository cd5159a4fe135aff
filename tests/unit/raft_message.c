#include "test.h"

#include "base/error.h"
#include "raft/message.h"

/* A message comes back as it was, and not at all when a byte of it changed or is missing. */
static void message_survives_its_bytes(void **state)
{
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 3, "abc", 3);
    struct fl_raft_message m = {.type = FL_RAFT_APPEND,
                                .term = 4,
                                .log_index = 9,
                                .log_term = 2,
                                .commit = 8,
                                .entries = &entry,
                                .n = 1};
    struct fl_raft_message *back;
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    fl_raft_message_encode(&buf, &m);
    assert_int_equal(fl_raft_message_decode(buf.data, buf.len, &back), FL_OK);
    assert_int_equal(back->log_index, 9);
    assert_int_equal(back->entries[0]->len, 3);
    assert_memory_equal(back->entries[0]->data, "abc", 3);
    fl_raft_message_free(back);
    for (size_t i = 0; i < buf.len; i++) {
        assert_true(fl_raft_message_decode(buf.data, i, &back) < 0);
        buf.data[i] ^= 1;
        assert_true(fl_raft_message_decode(buf.data, buf.len, &back) < 0);
        buf.data[i] ^= 1;
    }
    fl_buf_deinit(&buf);
    fl_entry_unref(entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_survives_its_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
