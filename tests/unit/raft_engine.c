/* What engines do that no single rule stands for. */
#include "test.h"

#include "base/error.h"
#include "engine_rig.h"

/* A dead voter is not waited for: it can be removed, though it never has the last change. */
static void silent_voter_can_be_removed(void **state)
{
    struct rig rig;

    (void)state;
    rig_start_led(&rig, 5, 1, 0);
    rig_crash(&rig, 5);
    assert_int_equal(fl_engine_add(rig_engine(&rig, 1), rig.now_ms, 6, "n6"), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 2);
    assert_int_equal(fl_engine_remove(rig_engine(&rig, 1), rig.now_ms, 4), FL_E_BUSY);
    rig_beats(&rig, 2 * RIG_ELECTION_MS / RIG_TICK_MS);
    assert_int_equal(fl_engine_remove(rig_engine(&rig, 1), rig.now_ms, 4), FL_OK);
    rig_run(&rig);
    assert_false(rig_is_member(&rig, 1, 4));
    rig_stop(&rig);
}

/* A leader that is removed leads until that is committed, and not longer. */
static void removed_leader_steps_down(void **state)
{
    struct rig rig;

    (void)state;
    rig_start_led(&rig, 4, 0, 0);
    assert_int_equal(fl_engine_remove(rig_engine(&rig, 1), rig.now_ms, 1), FL_OK);
    assert_int_equal(fl_engine_role(rig_engine(&rig, 1)), FL_ROLE_LEADER);
    rig_run(&rig);
    assert_int_not_equal(fl_engine_role(rig_engine(&rig, 1)), FL_ROLE_LEADER);
    rig_pass(&rig, 5000);
    assert_int_not_equal(rig_leader(&rig), 0);
    assert_int_not_equal(rig_leader(&rig), 1);
    assert_false(rig_is_member(&rig, rig_leader(&rig), 1));
    rig_stop(&rig);
}

/* Whoever leads hears no other leader of the same term: libraft would write over what it knows of
 * its followers. */
static void leader_hears_no_second_leader(void **state)
{
    struct fl_raft_message m = {.type = FL_RAFT_APPEND, .log_index = 1, .log_term = 1};
    struct rig rig;

    (void)state;
    rig_start_led(&rig, 3, 0, 0);
    m.term = fl_engine_term(rig_engine(&rig, 1));
    fl_engine_receive(rig_engine(&rig, 1), rig.now_ms, 2, &m);
    assert_int_equal(fl_engine_rule_count(rig_engine(&rig, 1), FL_RULE_CHECK_MESSAGE), 1);
    assert_int_equal(fl_engine_leader(rig_engine(&rig, 1)), 1);
    rig_stop(&rig);
}

/* Whoever asks for a vote raises the term; until the winner writes, nobody is known to lead it. A
 * gateway that was told the old leader with the new term would never believe the new one. */
static void the_leader_of_a_term_is_never_that_of_the_term_before(void **state)
{
    struct fl_raft_message vote = {.type = FL_RAFT_VOTE, .disrupts = true};
    struct fl_engine *follower;
    struct rig rig;

    (void)state;
    rig_start_led(&rig, 3, 0, 0);
    follower = rig_engine(&rig, 3);
    assert_int_equal(fl_engine_leader(follower), 1);
    vote.term = fl_engine_term(follower) + 1;
    vote.log_index = fl_engine_last_index(follower);
    vote.log_term = fl_engine_term(follower);
    fl_engine_receive(follower, rig.now_ms, 2, &vote);
    assert_int_equal(fl_engine_term(follower), vote.term);
    assert_int_equal(fl_engine_leader(follower), 0);
    rig_pass(&rig, 5000);
    assert_int_not_equal(rig_leader(&rig), 0);
    assert_int_equal(fl_engine_leader(follower), rig_leader(&rig));
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_voter_can_be_removed),
        cmocka_unit_test(removed_leader_steps_down),
        cmocka_unit_test(leader_hears_no_second_leader),
        cmocka_unit_test(the_leader_of_a_term_is_never_that_of_the_term_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
