#include "raft_rules.h"

#include "base/error.h"

/* A request of an older term gets an answer that whoever leads the present term cannot take for a
 * success. */
bool story_old_term(uint32_t rules_off)
{
    struct fl_raft_message request = {.type = FL_RAFT_APPEND, .from = 2, .to = 3, .term = 1};
    struct fl_raft_message *answer;
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    assert_int_equal(fl_engine_term(rig_engine(&rig, 3)), 2);
    fl_engine_receive(rig_engine(&rig, 3), rig.now_ms, 2, &request);
    answer = rig_take(&rig, 3, 2, FL_RAFT_APPEND_RESULT);
    kept = answer->is_old && answer->rejected != 0;
    fl_raft_message_free(answer);
    rig_stop(&rig);
    return kept;
}

/* A write that ends after its entry was replaced says nothing about the new one: only what is on
 * the disks of a majority is committed. */
bool story_stale_write(uint32_t rules_off)
{
    struct rig rig;
    uint64_t index;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig_isolate(&rig, 1);
    rig.nodes[1].is_slow = true;
    index = rig_submit(&rig, 1, 1); /* nobody else ever sees it */

    rig_elect(&rig, 2);
    rig.nodes[3].is_slow = true;
    rig_beat(&rig); /* node 2 has its own entry at the same index, and needs one more */
    assert_int_equal(fl_engine_last_index(rig_engine(&rig, 2)), index);
    rig_heal(&rig);
    rig_beat(&rig);
    rig_beat(&rig);
    assert_int_equal(fl_engine_term(rig_engine(&rig, 1)), fl_engine_term(rig_engine(&rig, 2)));
    rig_write(&rig, 1); /* the old entry */
    rig_run(&rig);
    kept = fl_engine_commit_index(rig_engine(&rig, 2)) < index;
    rig_stop(&rig);
    return kept;
}

/* A follower that has compacted what its leader takes for its place gets entries all the same. */
bool story_trim(uint32_t rules_off)
{
    struct rig rig;
    uint64_t index;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig_cut(&rig, 2, 1); /* its acknowledgements are lost */
    rig_submit(&rig, 1, 7);
    rig_run(&rig);
    rig_beats(&rig, 3); /* the last two find it silent, and probe */
    rig_snapshot(&rig, 2);
    rig_heal(&rig);
    index = rig_submit(&rig, 1, 1);
    rig_beats(&rig, 20);
    kept = fl_engine_match_index(rig_engine(&rig, 1), 2) == index;
    rig_stop(&rig);
    return kept;
}

/* A refusal that comes again, after what it refused was acknowledged, stops nothing. */
bool story_stale_rejection(uint32_t rules_off)
{
    struct fl_raft_message *refusal, *again;
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 1, rules_off);
    rig_cut(&rig, 1, 3);
    assert_int_equal(fl_engine_add(rig_engine(&rig, 1), rig.now_ms, 4, "n4"), FL_OK);
    rig_run(&rig); /* node 2 has the change, node 3 does not */
    rig_isolate(&rig, 1);
    rig_elect(&rig, 2);
    rig_deliver(&rig, rig_take(&rig, 2, 3, FL_RAFT_APPEND));
    refusal = rig_take(&rig, 3, 2, FL_RAFT_APPEND_RESULT);
    assert_int_not_equal(refusal->rejected, 0);
    again = fl_raft_message_copy(refusal);
    rig_deliver(&rig, refusal);
    rig_deliver(&rig, rig_take(&rig, 2, 3, FL_RAFT_APPEND));
    rig_write(&rig, 3); /* the change, which is acknowledged; nothing that follows is */
    rig_deliver(&rig, rig_take(&rig, 3, 2, FL_RAFT_APPEND_RESULT));
    assert_int_equal(fl_engine_match_index(rig_engine(&rig, 2), 3), again->rejected);

    rig_isolate(&rig, 3);
    rig_lose_mail(&rig);
    rig_beats(&rig, 2); /* the second finds it silent, and probes */
    rig_deliver(&rig, again);
    rig_heal(&rig);
    rig_beats(&rig, 20);
    kept =
        fl_engine_match_index(rig_engine(&rig, 2), 3) == fl_engine_last_index(rig_engine(&rig, 2));
    rig_stop(&rig);
    return kept;
}

/* A log that conflicts is mended in as many round trips as it has terms, not entries. */
bool story_conflict_hint(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig_isolate(&rig, 1);
    rig_submit(&rig, 1, 20);
    rig_elect(&rig, 2);
    rig_run(&rig);
    rig_submit(&rig, 2, 25);
    rig_run(&rig);
    assert_int_equal(fl_engine_transfer(rig_engine(&rig, 2), rig.now_ms, 3), FL_OK);
    rig_run(&rig);
    rig_beat(&rig);
    assert_int_equal(rig_leader(&rig), 3);
    rig_heal(&rig);
    rig_beats(&rig, 3);
    assert_int_equal(fl_engine_match_index(rig_engine(&rig, 3), 1),
                     fl_engine_last_index(rig_engine(&rig, 3)));
    kept = rig.nodes[1].refusals <= 3;
    rig_stop(&rig);
    return kept;
}

/* An entry that is newer than the append that brings it is not taken. */
bool story_check_message(uint32_t rules_off)
{
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 8, "x", 1);
    struct fl_raft_message m = {.type = FL_RAFT_APPEND,
                                .term = 7,
                                .log_index = 1,
                                .log_term = 1,
                                .entries = &entry,
                                .n = 1};
    struct rig rig;
    bool kept;

    rig_start(&rig, 3, 0, rules_off);
    fl_engine_receive(rig_engine(&rig, 2), rig.now_ms, 1, &m);
    kept = fl_engine_last_index(rig_engine(&rig, 2)) == 1;
    fl_entry_unref(entry);
    rig_stop(&rig);
    return kept;
}
