/* The rules N1 to N8, each as a story that holds, and that is seen to break when the rule is
 * switched off. Linked to the node with seeded bugs in it. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "node_rig.h"

enum fl_bug fl_bug_on = FL_BUG_NONE;

/* A story stops at its first claim that does not hold. */
#define CLAIM(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (fl_bug_on == FL_BUG_NONE)                                                          \
                print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

#define TTL 10000u

/* --- N1 --- */

static bool a_heartbeat_is_acknowledged_after_a_confirmation(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    tag = rig_beat(rig, 1);
    rig_flush(rig);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    CLAIM(rig_reply(rig, tag)->ttl_ms == TTL);
    return true;
}

/* Between the beginning of a round and a heartbeat after it, another node may have been elected by
 * those who answered. */
static bool a_round_that_began_before_a_heartbeat_does_not_count(struct rig *rig)
{
    uint64_t early, late;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    early = rig_beat(rig, 1);
    rig_flush(rig);
    late = rig_beat(rig, 1);
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, early, FL_ANS_OK));
    CLAIM(rig_reply(rig, late) == NULL);
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, late, FL_ANS_OK));
    return true;
}

static bool one_round_covers_all_who_came_before_it(struct rig *rig)
{
    uint64_t first = 0, round;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    round = rig->round;
    for (int i = 0; i < 100; i++) {
        uint64_t tag = rig_beat(rig, 1);

        first = first == 0 ? tag : first;
    }
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig->round == round + 1);
    for (uint64_t i = 0; i < 100; i++)
        CLAIM(rig_has_reply(rig, first + i, FL_ANS_OK));
    return true;
}

static bool a_round_that_is_lost_is_followed_by_another(struct rig *rig)
{
    uint64_t tag, round;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    tag = rig_beat(rig, 1);
    rig_flush(rig);
    round = rig->round;
    rig_pass(rig, 500);
    CLAIM(rig->round > round);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    return true;
}

static bool an_unknown_session_is_told_so_and_only_after_a_confirmation(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    tag = rig_beat(rig, 7);
    rig_flush(rig);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_SESSION_NOT_FOUND));
    return true;
}

/* --- N2 --- */

static bool a_new_leader_gives_every_session_a_full_ttl(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_live(rig, 4000);
    rig_follow(rig);
    rig_pass(rig, 20000);
    rig_lead(rig);
    rig_live(rig, TTL - 200);
    CLAIM(rig_is_alive(rig, 1));
    rig_live(rig, 300);
    CLAIM(!rig_is_alive(rig, 1));
    return true;
}

static bool deadlines_die_with_the_term(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_live(rig, 4000);
    rig_follow(rig);
    rig_pass(rig, 5000);
    rig_lead(rig);
    rig_live(rig, 3000);
    CLAIM(rig_is_alive(rig, 1));
    return true;
}

static bool a_healthy_session_is_never_noted(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    for (int i = 0; i < 10; i++) {
        rig_live(rig, TTL / 3);
        rig_beat(rig, 1);
        rig_settle(rig);
    }
    CLAIM(rig_count(rig, FL_CMD_NOTE_SILENCE, 0) == 0);
    CLAIM(rig_is_alive(rig, 1));
    return true;
}

static bool a_new_leader_gives_the_silent_only_the_rest(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_live(rig, TTL / 2 + 500);
    CLAIM(rig_count(rig, FL_CMD_NOTE_SILENCE, 0) == 1);
    rig_follow(rig);
    rig_pass(rig, 1000);
    rig_lead(rig);
    rig_live(rig, TTL / 2 - 200);
    CLAIM(rig_is_alive(rig, 1));
    rig_live(rig, 300);
    CLAIM(!rig_is_alive(rig, 1));
    return true;
}

static bool elections_without_end_do_not_keep_the_dead_alive(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    for (int i = 0; i < 3; i++) {
        rig_live(rig, TTL / 2 + 1000);
        rig_follow(rig);
        rig_pass(rig, 500);
        rig_lead(rig);
    }
    CLAIM(!rig_is_alive(rig, 1));
    return true;
}

/* Else the next leader would give only the rest to a client that believes in the whole. */
static bool a_heartbeat_after_a_note_waits_until_the_log_forgets_it(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_live(rig, TTL / 2 + 500);
    tag = rig_beat(rig, 1);
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_commit(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    rig_follow(rig);
    rig_lead(rig);
    rig_live(rig, TTL - 200);
    CLAIM(rig_is_alive(rig, 1));
    return true;
}

/* --- N3, N4 --- */

static bool only_the_leader_proposes_an_expiry_and_names_its_term(struct rig *rig)
{
    struct fl_batch batch;
    const struct rig_entry *entry;

    rig_lead(rig);
    rig_follow(rig);
    rig_lead(rig);
    rig_open(rig, 1, 1000);
    rig_follow(rig);
    rig_pass(rig, 5000);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 0);
    rig_lead(rig);
    rig_live(rig, 1200);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 1);
    entry = &rig->log[rig->last];
    CLAIM(fl_batch_decode(entry->data, entry->len, &batch) == 0);
    bool is_right = batch.n == 1 && batch.commands[0].term == rig->term;
    fl_batch_deinit(&batch);
    CLAIM(is_right);
    return true;
}

static void let_it_come_due(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, 1000);
    rig_live(rig, 950);
    rig_pass(rig, 60);
    rig_flush(rig);
}

static bool nothing_is_acknowledged_between_expiry_and_outcome(struct rig *rig)
{
    uint64_t tag;

    let_it_come_due(rig);
    rig_commit(rig);
    rig_confirm(rig);
    rig_flush(rig);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, rig->applied) == 1);
    tag = rig_beat(rig, 1);
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_commit(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_SESSION_NOT_FOUND));
    return true;
}

static bool a_heartbeat_before_the_proposal_saves_the_session(struct rig *rig)
{
    uint64_t tag;

    let_it_come_due(rig);
    tag = rig_beat(rig, 1);
    rig_settle(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 0);
    CLAIM(rig_is_alive(rig, 1));
    return true;
}

/* A note that is taken back while its session falls due again does not make it due twice. */
static bool a_session_is_expired_once(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, 1000);
    rig_live(rig, 600);
    rig_beat(rig, 1);
    rig_flush(rig);
    rig_pass(rig, 1050);
    rig_commit(rig);
    rig_pass(rig, 50);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 0);
    rig_live(rig, 8000);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 1);
    CLAIM(!rig_is_alive(rig, 1));
    return true;
}

/* --- N5 --- */

static bool the_leaders_own_stall_is_not_held_against_sessions(struct rig *rig)
{
    rig_lead(rig);
    rig_open(rig, 1, 1000);
    rig_live(rig, 500);
    rig_stall(rig, 5000);
    rig_live(rig, 450);
    CLAIM(rig_is_alive(rig, 1));
    rig_live(rig, 200);
    CLAIM(!rig_is_alive(rig, 1));
    return true;
}

static bool an_expiry_waits_for_a_confirmation(struct rig *rig)
{
    let_it_come_due(rig);
    rig_commit(rig);
    rig_pass(rig, 300);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 0);
    rig_confirm(rig);
    rig_flush(rig);
    CLAIM(rig_count(rig, FL_CMD_EXPIRE_SESSION, 0) == 1);
    return true;
}

/* --- N6 --- */

static uint64_t describe(struct rig *rig, const char *name, bool stale_ok)
{
    return rig_ask(
        rig, 1,
        (struct fl_request){
            .type = FL_REQ_DESCRIBE, .name = fl_str_from(name), .max = 10, .stale_ok = stale_ok});
}

static bool a_read_is_answered_after_a_confirmation(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    tag = describe(rig, "x", false);
    rig_flush(rig);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_confirm(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    return true;
}

static bool a_read_sees_all_that_was_committed_when_it_came(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_flush(rig);
    tag = describe(rig, "x", false);
    rig_flush(rig);
    fl_node_confirmed(rig->node, rig->now_ms, rig->round, rig->last);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_commit(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    CLAIM(rig_reply(rig, tag)->name_info.holders == 1);
    CLAIM(rig_reply(rig, tag)->index == rig->last);
    return true;
}

static bool a_new_leader_answers_nothing_before_its_first_entry(struct rig *rig)
{
    uint64_t beat, read;

    rig_elect(rig);
    beat = rig_beat(rig, 1);
    read = describe(rig, "x", false);
    rig_flush(rig);
    fl_node_confirmed(rig->node, rig->now_ms, rig->round, 0);
    CLAIM(rig_reply(rig, beat) == NULL && rig_reply(rig, read) == NULL);
    CLAIM(rig->last == 0);
    rig_append_empty(rig);
    rig_commit(rig);
    CLAIM(rig_has_reply(rig, beat, FL_ANS_SESSION_NOT_FOUND));
    CLAIM(rig_has_reply(rig, read, FL_ANS_OK));
    return true;
}

/* --- N7 --- */

static bool what_arrives_during_an_entry_goes_into_the_next(struct rig *rig)
{
    uint64_t before;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    before = rig->last;
    rig_acquire(rig, 1, 1, "a", 0);
    rig_flush(rig);
    rig_acquire(rig, 1, 2, "b", 0);
    rig_flush(rig);
    rig_acquire(rig, 1, 3, "c", 0);
    rig_flush(rig);
    CLAIM(rig->last == before + 1);
    rig_commit(rig);
    rig_flush(rig);
    CLAIM(rig->last == before + 2);
    CLAIM(rig_count(rig, FL_CMD_ACQUIRE, before + 1) == 2);
    return true;
}

/* Our entry at that index was lost; the one that came in its place decided other requests. */
static bool another_leaders_entry_answers_none_of_ours(struct rig *rig)
{
    struct fl_command theirs = {.type = FL_CMD_ACQUIRE,
                                .session = rig_session(1),
                                .request_id = 9,
                                .name = FL_STR("theirs"),
                                .mode = FL_MODE_EXCLUSIVE};
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    tag = rig_acquire(rig, 1, 1, "ours", 0);
    rig_flush(rig);
    rig_follow(rig);
    rig_lose_tail(rig);
    rig_append(rig, 2000, &theirs, 1);
    rig_commit(rig);
    CLAIM(rig_has_status(rig, tag, FL_REPLY_NOT_LEADER));
    CLAIM(rig_reply(rig, tag)->leader_id == 2);
    return true;
}

static bool who_loses_leadership_sends_everyone_to_the_next(struct rig *rig)
{
    uint64_t tags[5];

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_open(rig, 2, TTL);
    rig_acquire(rig, 1, 1, "x", 0);
    tags[0] = rig_acquire(rig, 2, 1, "x", 60000);
    rig_settle(rig);
    tags[1] = rig_acquire(rig, 1, 2, "y", 0);
    rig_flush(rig);
    tags[2] = rig_acquire(rig, 1, 3, "z", 0);
    tags[3] = rig_beat(rig, 1);
    tags[4] = describe(rig, "x", false);
    rig_flush(rig);
    rig_follow(rig);
    for (size_t i = 0; i < FL_ARRAY_LEN(tags); i++)
        CLAIM(rig_has_status(rig, tags[i], FL_REPLY_NOT_LEADER));
    CLAIM(rig_push(rig, FL_PUSH_LEADER, 0) != NULL);
    return true;
}

static bool what_consensus_refuses_is_answered_not_leader(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig->refuses = true;
    tag = rig_acquire(rig, 1, 1, "x", 0);
    rig_flush(rig);
    CLAIM(rig_has_status(rig, tag, FL_REPLY_NOT_LEADER));
    CLAIM(rig_reply(rig, tag)->leader_id == 0);
    rig->refuses = false;
    tag = rig_acquire(rig, 1, 1, "x", 0);
    rig_settle(rig);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    return true;
}

/* --- N8 --- */

static bool a_heartbeat_does_not_wait_for_the_entry_in_flight(struct rig *rig)
{
    uint64_t tag;

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_flush(rig);
    tag = rig_beat(rig, 1);
    rig_flush(rig);
    rig_confirm(rig);
    CLAIM(rig->applied < rig->last);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_OK));
    return true;
}

/* --- Log time (L14) --- */

static bool a_wait_ends_at_one_instant_whoever_leads(struct rig *rig)
{
    uint64_t tag;

    rig_append(rig, 1000000, NULL, 0); /* a log whose time is far ahead of this node's clock */
    rig_commit(rig);
    rig_lead(rig);
    rig_open(rig, 1, 60000);
    rig_open(rig, 2, 60000);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_acquire(rig, 2, 1, "x", 3000);
    rig_settle(rig);
    rig_pass(rig, 1000); /* nothing is written meanwhile */
    rig_follow(rig);
    rig_pass(rig, 500);
    rig_lead(rig);
    tag = rig_acquire(rig, 2, 1, "x", 3000); /* the gateway asks again */
    rig_live(rig, 1350);
    CLAIM(rig_reply(rig, tag) == NULL);
    rig_live(rig, 250);
    CLAIM(rig_has_reply(rig, tag, FL_ANS_TIMED_OUT));
    return true;
}

/* --- Rest --- */

/* C74: no entry, no round, no frame, as long as nobody's time comes. */
static bool those_who_wait_cost_nothing(struct rig *rig)
{
    uint64_t last, round;
    size_t n_frames;

    rig_lead(rig);
    rig_open(rig, 1, 60000);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_settle(rig);
    rig_open(rig, 2, 60000);
    for (uint64_t i = 1; i <= 1000; i++)
        rig_acquire(rig, 2, i, "x", 50000);
    rig_settle(rig);
    last = rig->last;
    round = rig->round;
    n_frames = rig->n_frames;
    rig_live(rig, 8000);
    CLAIM(rig->last == last && rig->round == round && rig->n_frames == n_frames);
    return true;
}

/* --- The table --- */

static const struct {
    const char *name;
    bool (*holds)(struct rig *rig);
} stories[] = {
#define STORY(name)                                                                                \
    {                                                                                              \
#name, name                                                                                \
    }
    STORY(a_heartbeat_is_acknowledged_after_a_confirmation),
    STORY(a_round_that_began_before_a_heartbeat_does_not_count),
    STORY(one_round_covers_all_who_came_before_it),
    STORY(a_round_that_is_lost_is_followed_by_another),
    STORY(an_unknown_session_is_told_so_and_only_after_a_confirmation),
    STORY(a_new_leader_gives_every_session_a_full_ttl),
    STORY(deadlines_die_with_the_term),
    STORY(a_healthy_session_is_never_noted),
    STORY(a_new_leader_gives_the_silent_only_the_rest),
    STORY(elections_without_end_do_not_keep_the_dead_alive),
    STORY(a_heartbeat_after_a_note_waits_until_the_log_forgets_it),
    STORY(only_the_leader_proposes_an_expiry_and_names_its_term),
    STORY(nothing_is_acknowledged_between_expiry_and_outcome),
    STORY(a_heartbeat_before_the_proposal_saves_the_session),
    STORY(a_session_is_expired_once),
    STORY(the_leaders_own_stall_is_not_held_against_sessions),
    STORY(an_expiry_waits_for_a_confirmation),
    STORY(a_read_is_answered_after_a_confirmation),
    STORY(a_read_sees_all_that_was_committed_when_it_came),
    STORY(a_new_leader_answers_nothing_before_its_first_entry),
    STORY(what_arrives_during_an_entry_goes_into_the_next),
    STORY(another_leaders_entry_answers_none_of_ours),
    STORY(who_loses_leadership_sends_everyone_to_the_next),
    STORY(what_consensus_refuses_is_answered_not_leader),
    STORY(a_heartbeat_does_not_wait_for_the_entry_in_flight),
    STORY(a_wait_ends_at_one_instant_whoever_leads),
    STORY(those_who_wait_cost_nothing),
#undef STORY
};

static const struct {
    enum fl_bug bug;
    bool (*breaks)(struct rig *rig);
} seeded[] = {
    {FL_BUG_NODE_ACK_WITHOUT_CONFIRM, a_heartbeat_is_acknowledged_after_a_confirmation},
    {FL_BUG_NODE_CONFIRM_BEGUN_BEFORE_RECEIPT,
     a_round_that_began_before_a_heartbeat_does_not_count},
    {FL_BUG_NODE_NO_GRACE, a_new_leader_gives_every_session_a_full_ttl},
    {FL_BUG_NODE_GRACE_HALVED, a_new_leader_gives_every_session_a_full_ttl},
    {FL_BUG_NODE_NOTE_IGNORED, a_new_leader_gives_the_silent_only_the_rest},
    {FL_BUG_NODE_NOTE_IGNORED, elections_without_end_do_not_keep_the_dead_alive},
    {FL_BUG_NODE_ACK_BEFORE_NOTE_CLEARED, a_heartbeat_after_a_note_waits_until_the_log_forgets_it},
    {FL_BUG_NODE_TABLE_KEPT, deadlines_die_with_the_term},
    {FL_BUG_NODE_ACK_AFTER_EXPIRE_PROPOSED, nothing_is_acknowledged_between_expiry_and_outcome},
    {FL_BUG_NODE_STALL_NOT_ADDED, the_leaders_own_stall_is_not_held_against_sessions},
    {FL_BUG_NODE_EXPIRY_UNCONFIRMED, an_expiry_waits_for_a_confirmation},
    {FL_BUG_NODE_READ_WITHOUT_CONFIRM, a_read_is_answered_after_a_confirmation},
    {FL_BUG_NODE_READ_BEFORE_APPLIED, a_read_sees_all_that_was_committed_when_it_came},
    {FL_BUG_NODE_REPLY_MATCHED_BY_INDEX, another_leaders_entry_answers_none_of_ours},
    {FL_BUG_NODE_HEARTBEAT_BEHIND_BATCH, a_heartbeat_does_not_wait_for_the_entry_in_flight},
    {FL_BUG_NODE_LOG_TIME_OF_OWN_CLOCK, a_wait_ends_at_one_instant_whoever_leads},
    {FL_BUG_NODE_WORKS_WITHOUT_CAUSE, those_who_wait_cost_nothing},
};

static bool tell(bool (*story)(struct rig *rig), enum fl_bug bug)
{
    struct rig *rig = rig_new(0);
    bool holds;

    fl_bug_on = bug;
    holds = story(rig);
    rig_free(rig);
    fl_bug_on = FL_BUG_NONE;
    return holds;
}

static void every_story_holds(void **state)
{
    int broken = 0;

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(stories); i++) {
        if (!tell(stories[i].holds, FL_BUG_NONE)) {
            print_error("does not hold: %s\n", stories[i].name);
            broken++;
        }
    }
    assert_int_equal(broken, 0);
}

static void every_seeded_bug_breaks_its_story(void **state)
{
    int survived = 0;

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(seeded); i++) {
        if (tell(seeded[i].breaks, seeded[i].bug)) {
            print_error("bug %d survives its story\n", (int)seeded[i].bug);
            survived++;
        }
    }
    assert_int_equal(survived, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_story_holds),
        cmocka_unit_test(every_seeded_bug_breaks_its_story),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
