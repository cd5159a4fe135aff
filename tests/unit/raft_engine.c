/* One engine, fed by hand. Each rule is seen to matter: the same story without it ends otherwise.
 */
#include "test.h"

#include "base/error.h"
#include "raft/engine.h"
#include "raft/message.h"
#include "raft/rules.h"

struct rig {
    struct fl_engine *engine;
    uint64_t term, vote;
    unsigned sent;
    struct fl_raft_message last; /* its objects are gone */
};

static void op_set_vote(void *ctx, uint64_t term, uint64_t vote)
{
    struct rig *rig = ctx;

    rig->term = term;
    rig->vote = vote;
}
static void op_append(void *ctx, struct fl_append *append)
{
    (void)ctx;
    fl_append_free(append);
}
static void op_send(void *ctx, const struct fl_raft_message *m)
{
    struct rig *rig = ctx;

    rig->last = *m;
    rig->sent++;
}
static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    (void)ctx, (void)index, (void)entry;
}
static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader)
{
    (void)ctx, (void)role, (void)term, (void)leader;
}
static const struct fl_engine_ops ops = {.set_vote = op_set_vote,
                                         .append = op_append,
                                         .send = op_send,
                                         .apply = op_apply,
                                         .role = op_role};

/* Node 1 of `voters`, in term 7. */
static void rig_start(struct rig *rig, unsigned voters, uint32_t rules_off)
{
    struct fl_engine_config config = {.id = 1, .address = "n1", .rules_off = rules_off};
    struct fl_member_info members[] = {
        {1, "n1", FL_MEMBER_VOTER}, {2, "n2", FL_MEMBER_VOTER}, {3, "n3", FL_MEMBER_VOTER}};
    struct fl_entry *first = fl_engine_bootstrap_entry(members, voters);

    *rig = (struct rig){.term = 7};
    rig->engine = fl_engine_new(&config, &ops, rig);
    assert_int_equal(fl_engine_start(rig->engine, 100, 7, 0, NULL, 1, &first, 1), FL_OK);
    fl_entry_unref(first);
}

/* A request of an older term gets an answer that nobody can take for a success. */
static void old_term_is_answered_as_old(void **state)
{
    struct fl_raft_message m = {.type = FL_RAFT_APPEND, .term = 6, .log_index = 1, .log_term = 1};
    struct rig rig;

    (void)state;
    for (unsigned off = 0; off < 2; off++) {
        rig_start(&rig, 3, off << FL_RULE_OLD_TERM);
        fl_engine_receive(rig.engine, 110, 2, &m);
        assert_int_equal(rig.last.is_old, !off);
        fl_engine_free(rig.engine);
    }
}

/* A pre-candidate that is behind learns the term from its refusal. */
static void prevote_refusal_tells_the_term(void **state)
{
    struct fl_raft_message m = {
        .type = FL_RAFT_VOTE, .term = 5, .log_index = 9, .log_term = 5, .is_pre_vote = true};
    struct rig rig;

    (void)state;
    for (unsigned off = 0; off < 2; off++) {
        rig_start(&rig, 3, off << FL_RULE_PREVOTE_TERM);
        fl_engine_receive(rig.engine, 110, 2, &m);
        assert_int_equal(rig.last.term == 7, !off);
        assert_false(rig.last.is_granted);
        fl_engine_free(rig.engine);
    }
}

/* A vote's result that comes when nobody stands any more changes nothing. */
static void late_vote_is_not_heard(void **state)
{
    struct fl_raft_message m = {.type = FL_RAFT_VOTE_RESULT, .term = 9};
    struct rig rig;

    (void)state;
    for (unsigned off = 0; off < 2; off++) {
        rig_start(&rig, 3, off << FL_RULE_LATE_VOTE);
        fl_engine_receive(rig.engine, 110, 2, &m);
        assert_int_equal(fl_engine_term(rig.engine) == 7, !off);
        fl_engine_free(rig.engine);
    }
}

/* The only voter leads a term of its own. */
static void single_voter_raises_its_term(void **state)
{
    struct rig rig;

    (void)state;
    for (unsigned off = 0; off < 2; off++) {
        rig_start(&rig, 1, off << FL_RULE_SINGLE_VOTER);
        assert_int_equal(fl_engine_role(rig.engine), FL_ROLE_LEADER);
        assert_int_equal(fl_engine_term(rig.engine), off ? 7 : 8);
        fl_engine_free(rig.engine);
    }
}

/* An append whose entry is newer than the append is dropped and counted. */
static void contradictory_append_is_dropped(void **state)
{
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 8, "x", 1);
    struct fl_raft_message m = {.type = FL_RAFT_APPEND,
                                .term = 7,
                                .log_index = 1,
                                .log_term = 1,
                                .entries = &entry,
                                .n = 1};
    struct rig rig;

    (void)state;
    for (unsigned off = 0; off < 2; off++) {
        rig_start(&rig, 3, off << FL_RULE_CHECK_MESSAGE);
        fl_engine_receive(rig.engine, 110, 2, &m);
        assert_int_equal(fl_engine_last_index(rig.engine), off ? 2 : 1);
        assert_int_equal(fl_engine_rule_count(rig.engine, FL_RULE_CHECK_MESSAGE), !off);
        fl_engine_free(rig.engine);
    }
    fl_entry_unref(entry);
}

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
        cmocka_unit_test(old_term_is_answered_as_old),
        cmocka_unit_test(prevote_refusal_tells_the_term),
        cmocka_unit_test(late_vote_is_not_heard),
        cmocka_unit_test(single_voter_raises_its_term),
        cmocka_unit_test(contradictory_append_is_dropped),
        cmocka_unit_test(message_survives_its_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
