#include "raft_rules.h"

#include "base/error.h"

/* One node has the longer log, another the higher term: they find a leader. */
bool story_prevote_term(uint32_t rules_off)
{
    struct fl_raft_message *m;
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig_isolate(&rig, 1);
    rig_submit(&rig, 1, 1); /* the longer log */

    rig.now_ms += (uint64_t)RIG_ELECTION_MS * 2;
    rig_tick(&rig, 3); /* it knows no leader any more */
    rig_lose_mail(&rig);
    rig_tick(&rig, 2);
    rig_deliver(&rig, rig_take(&rig, 2, 3, FL_RAFT_VOTE));
    m = rig_take(&rig, 3, 2, FL_RAFT_VOTE_RESULT);
    assert_true(m->is_pre_vote && m->is_granted);
    rig_deliver(&rig, m); /* node 2 stands, and is cut off: its term rises */
    rig_lose_mail(&rig);
    rig_isolate(&rig, 2);
    rig_isolate(&rig, 3);
    rig_pass(&rig, 5000);
    assert_true(fl_engine_term(rig_engine(&rig, 2)) > fl_engine_term(rig_engine(&rig, 1)) + 1);

    rig_crash(&rig, 2);
    rig_restart(&rig, 2); /* a follower, in its high term */
    rig_heal(&rig);
    rig_isolate(&rig, 3);
    rig_pass(&rig, 20000);
    kept = rig_leader(&rig) != 0;
    rig_stop(&rig);
    return kept;
}

/* The answer to a question that was asked before a restart does not depose a healthy leader. */
bool story_late_vote(uint32_t rules_off)
{
    struct fl_raft_message *late;
    uint64_t term;
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    term = fl_engine_term(rig_engine(&rig, 1));
    rig_cut(&rig, 1, 2); /* node 2 hears nothing, and asks */
    rig_beats(&rig, 20);
    rig_tick(&rig, 2);
    rig_deliver(&rig, rig_take(&rig, 2, 3, FL_RAFT_VOTE));
    late = rig_take(&rig, 3, 2, FL_RAFT_VOTE_RESULT);
    rig_crash(&rig, 2);
    rig_restart(&rig, 2);
    rig_deliver(&rig, late);
    rig_heal(&rig);
    rig_beats(&rig, 3);
    kept = rig_leader(&rig) == 1 && fl_engine_term(rig_engine(&rig, 1)) == term;
    rig_stop(&rig);
    return kept;
}

/* A voter that was never told that it is one helps the others to a leader. */
bool story_unaware_voter(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 1, rules_off);
    assert_int_equal(fl_engine_add(rig_engine(&rig, 1), rig.now_ms, 4, "n4"), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 3);
    rig_cut(&rig, 1, 4);
    assert_int_equal(fl_engine_promote(rig_engine(&rig, 1), rig.now_ms, 4), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 2);
    assert_true(rig_is_voter(&rig, 2, 4));
    assert_false(rig_is_voter(&rig, 4, 4));

    rig_isolate(&rig, 1); /* 2, 3 and 4 are a majority of four */
    rig_pass(&rig, 20000);
    kept = fl_engine_role(rig_engine(&rig, 2)) == FL_ROLE_LEADER ||
           fl_engine_role(rig_engine(&rig, 3)) == FL_ROLE_LEADER;
    rig_stop(&rig);
    return kept;
}

/* A successor that lags is waited for, and leads. */
bool story_transfer_wait(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig.nodes[2].is_slow = true;
    rig_submit(&rig, 1, 2);
    rig_run(&rig);
    assert_int_equal(fl_engine_transfer(rig_engine(&rig, 1), rig.now_ms, 2), FL_OK);
    rig_write(&rig, 2); /* the first of two: it acknowledges something */
    rig_run(&rig);
    rig.nodes[2].is_slow = false;
    rig_beats(&rig, 10);
    kept = rig_leader(&rig) == 2;
    rig_stop(&rig);
    return kept;
}

/* A follower that was quiet gets a new entry at once, and not with the next heartbeat. */
bool story_own_tick(uint32_t rules_off)
{
    struct rig rig;
    uint64_t index;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig_isolate(&rig, 2);
    rig_beats(&rig, 2);
    rig_heal(&rig);
    rig_beat(&rig);
    rig.now_ms += RIG_TICK_MS / 5;
    index = rig_submit(&rig, 1, 1);
    rig_run(&rig);
    kept = fl_engine_last_index(rig_engine(&rig, 2)) == index;
    rig_stop(&rig);
    return kept;
}
