#include "raft_rules.h"

#include "base/error.h"

static int add(struct rig *rig, uint64_t at, uint64_t id)
{
    return fl_engine_add(rig_engine(rig, at), rig->now_ms, id, rig_address(id));
}

static int promote(struct rig *rig, uint64_t at, uint64_t id)
{
    return fl_engine_promote(rig_engine(rig, at), rig->now_ms, id);
}

static int remove_server(struct rig *rig, uint64_t at, uint64_t id)
{
    return fl_engine_remove(rig_engine(rig, at), rig->now_ms, id);
}

/* A follower that got a change behind a command in one append knows, once it is committed, that it
 * is: as leader it makes the next one. */
bool story_split_change(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 1, rules_off);
    rig_cut(&rig, 1, 2);
    rig_submit(&rig, 1, 1);
    assert_int_equal(add(&rig, 1, 4), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 2); /* node 2 is silent: it is sent all that it lacks at once */
    rig_heal(&rig);
    rig_beats(&rig, 3);
    assert_true(rig_is_member(&rig, 2, 4));
    rig_isolate(&rig, 1);
    rig_elect(&rig, 2);
    rig_heal(&rig);
    rig_beats(&rig, 3);
    kept = remove_server(&rig, 2, 4) == FL_OK;
    rig_stop(&rig);
    return kept;
}

/* When a change is replaced, the one before it, which is committed, stays in force. */
bool story_confirm_change(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 5, 2, rules_off);
    assert_int_equal(add(&rig, 1, 6), FL_OK);
    rig_run(&rig); /* committed; the followers hear of it with the next append */
    for (unsigned i = 3; i <= 6; i++)
        rig_cut(&rig, 1, i);
    assert_int_equal(add(&rig, 1, 7), FL_OK);
    rig_run(&rig); /* node 2 alone has this one */
    assert_true(rig_is_member(&rig, 2, 7));

    rig_isolate(&rig, 1);
    rig_isolate(&rig, 2);
    rig_elect(&rig, 3);
    rig_beats(&rig, 2);
    rig_heal(&rig);
    rig_beats(&rig, 3);
    assert_false(rig_is_member(&rig, 2, 7));
    kept = rig_is_member(&rig, 2, 6);
    rig_stop(&rig);
    return kept;
}

/* Two leaders, each with a change that the other has not seen, never make majorities of different
 * servers: no index has two committed entries. */
bool story_own_entry(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 4, 0, rules_off);
    rig_isolate(&rig, 1);
    assert_int_equal(remove_server(&rig, 1, 4), FL_OK); /* 1, 2 and 3 are left, says node 1 */
    rig_lose_mail(&rig);

    rig_elect(&rig, 3);
    rig_beats(&rig, 2);
    rig_cut(&rig, 3, 2);
    rig_cut(&rig, 2, 3);
    assert_int_equal(remove_server(&rig, 3, 1), FL_OK); /* 2, 3 and 4 are left, says node 3 */
    rig_beats(&rig, 3);                                 /* and has a majority with node 4 */

    rig_heal(&rig);
    rig_isolate(&rig, 3);
    rig_isolate(&rig, 4);
    rig_pass(&rig, 5000); /* may node 1 lead, with node 2? */
    kept = rig_agrees(&rig);
    rig_stop(&rig);
    return kept;
}

/* The configuration changes again only when every voter that is heard of has the last change. */
bool story_last_change(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 5, 1, rules_off);
    rig.nodes[5].is_slow = true; /* it answers, but stores nothing */
    assert_int_equal(add(&rig, 1, 6), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 2);
    kept = remove_server(&rig, 1, 4) == FL_E_BUSY;
    rig.nodes[5].is_slow = false;
    rig_beats(&rig, 2);
    if (kept)
        assert_int_equal(remove_server(&rig, 1, 4), FL_OK);
    rig_stop(&rig);
    return kept;
}

/* No term has two leaders, not even when a change would leave a single voter, who may not know
 * that it never came to be. */
bool story_single_voter(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 2, 0, rules_off);
    (void)remove_server(&rig, 1, 1);
    rig_cut(&rig, 2, 1);
    rig_run(&rig);
    rig_crash(&rig, 2);
    rig_restart(&rig, 2);
    kept = !rig.had_two_leaders;
    rig_stop(&rig);
    return kept;
}

/* A single voter leads a term of its own. */
bool story_single_voter_term(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start(&rig, 1, 0, rules_off);
    assert_int_equal(rig_leader(&rig), 1);
    kept = fl_engine_term(rig_engine(&rig, 1)) == 2 && rig.nodes[1].term == 2;
    rig_stop(&rig);
    return kept;
}

/* A standby that has everything becomes a voter, though nothing is written. */
bool story_catch_up(uint32_t rules_off)
{
    struct rig rig;
    bool kept;

    rig_start_led(&rig, 3, 1, rules_off);
    assert_int_equal(add(&rig, 1, 4), FL_OK);
    rig_run(&rig);
    rig_beats(&rig, 3);
    assert_int_equal(promote(&rig, 1, 4), FL_OK);
    rig_beats(&rig, 200); /* ten seconds */
    kept = rig_is_voter(&rig, 1, 4);
    rig_stop(&rig);
    return kept;
}
