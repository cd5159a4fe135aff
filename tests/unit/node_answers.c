/* What a gateway is told: outcomes, pushes, refusals, reads. The rules of time and leadership are
 * in node_stories.c. */
#include "test.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "node_rig.h"

#define TTL                 10000u
#define assert_str(s, text) assert_true(fl_str_equal((s), FL_STR(text)))

static int setup(void **state)
{
    struct rig *rig = rig_new(0);

    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_open(rig, 2, TTL);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

static uint64_t waits_for_x(struct rig *rig)
{
    uint64_t tag;

    rig_acquire(rig, 1, 1, "x", 0);
    tag = rig_acquire(rig, 2, 1, "x", 5000);
    rig_settle(rig);
    assert_null(rig_reply(rig, tag));
    return tag;
}

static fl_token last_token(const struct rig *rig)
{
    return fl_machine_token(fl_node_machine(rig->node));
}

static void release(struct rig *rig, uint64_t session, fl_token token)
{
    rig_ask(rig, 1,
            (struct fl_request){.type = FL_REQ_RELEASE,
                                .session = rig_session(session),
                                .name = FL_STR("x"),
                                .token = token});
    rig_settle(rig);
}

/* --- Outcomes --- */

static void a_grant_carries_token_index_and_lease(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = rig_acquire(rig, 1, 1, "x", 0);
    const struct fl_reply *reply;

    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    reply = rig_reply(rig, tag);
    assert_true(reply->token > 0);
    assert_int_equal(reply->index, rig->last);
    assert_int_equal(reply->ttl_ms, TTL);
    assert_int_equal(reply->mode, FL_MODE_EXCLUSIVE);
    assert_int_equal(reply->request_id, 1);
}

static void a_miss_names_the_holder_and_for_how_long_it_holds(void **state)
{
    struct rig *rig = *state;
    uint64_t tag;

    rig_acquire(rig, 1, 1, "x", 0);
    rig_settle(rig);
    rig_live(rig, 300);
    tag = rig_acquire(rig, 2, 1, "x", 0);
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_HELD));
    assert_str(rig_reply(rig, tag)->holder_client, "client");
    assert_true(rig_reply(rig, tag)->holder_token > 0);
    assert_in_range(rig_reply(rig, tag)->holder_for_ms, 300, 400);
}

static void a_waiting_acquire_is_answered_when_it_is_granted(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = waits_for_x(rig);

    release(rig, 1, last_token(rig));
    assert_true(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    assert_int_equal(rig_reply(rig, tag)->index, rig->last);
    assert_int_equal(rig_reply(rig, tag)->ttl_ms, TTL);
}

/* The gateway's link broke, or the client moved: both places are answered. */
static void a_repeated_acquire_is_answered_at_both_places(void **state)
{
    struct rig *rig = *state;
    uint64_t first = waits_for_x(rig), second;
    struct fl_request again = {.type = FL_REQ_ACQUIRE,
                               .session = rig_session(2),
                               .request_id = 1,
                               .name = FL_STR("x"),
                               .mode = FL_MODE_EXCLUSIVE,
                               .wait_ms = 5000};

    second = rig_ask(rig, 2, again);
    rig_settle(rig);
    assert_null(rig_reply(rig, second));
    release(rig, 1, last_token(rig));
    assert_true(rig_has_reply(rig, first, FL_ANS_GRANTED));
    assert_true(rig_has_reply(rig, second, FL_ANS_GRANTED));
    assert_int_equal(rig_reply(rig, first)->token, rig_reply(rig, second)->token);
}

static void a_wait_that_times_out_names_the_holder(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = waits_for_x(rig);

    rig_live(rig, 4900);
    assert_null(rig_reply(rig, tag));
    rig_live(rig, 200);
    assert_true(rig_has_reply(rig, tag, FL_ANS_TIMED_OUT));
    assert_str(rig_reply(rig, tag)->holder_client, "client");
    assert_in_range(rig_reply(rig, tag)->holder_for_ms, 5000, 5200);
}

static void a_cancelled_wait_is_answered(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = waits_for_x(rig);
    uint64_t cancel = rig_ask(
        rig, 1,
        (struct fl_request){.type = FL_REQ_CANCEL, .session = rig_session(2), .request_id = 1});

    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_CANCELLED));
    assert_true(rig_has_reply(rig, cancel, FL_ANS_CANCELLED));
}

/* C01: not at the deadline of the wait, and never as granted. */
static void a_wait_ends_with_its_session(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = waits_for_x(rig);

    rig_ask(rig, 1,
            (struct fl_request){.type = FL_REQ_END_SESSION,
                                .session = rig_session(2),
                                .actor = FL_STR("ada"),
                                .reason = FL_STR("stuck")});
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_SESSION_NOT_FOUND));
}

static void a_link_that_breaks_takes_no_wait_and_no_session_with_it(void **state)
{
    struct rig *rig = *state;
    struct fl_machine_stats stats;
    uint64_t tag = waits_for_x(rig);

    fl_node_link_down(rig->node, rig->now_ms, 1);
    rig_settle(rig);
    fl_machine_stats(fl_node_machine(rig->node), &stats);
    assert_int_equal(stats.waits, 1);
    assert_int_equal(stats.sessions, 2);
    assert_null(rig_reply(rig, tag));
    tag = rig_ask(rig, 2,
                  (struct fl_request){.type = FL_REQ_RELEASE,
                                      .session = rig_session(1),
                                      .name = FL_STR("x"),
                                      .token = last_token(rig)});
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
}

/* --- Pushes --- */

static void a_forced_release_is_told_to_the_old_holder(void **state)
{
    struct rig *rig = *state;
    const struct rig_frame *frame;

    rig_acquire(rig, 1, 4, "x", 0);
    rig_settle(rig);
    rig_ask(rig, 2,
            (struct fl_request){.type = FL_REQ_FORCE_RELEASE,
                                .name = FL_STR("x"),
                                .token = last_token(rig),
                                .actor = FL_STR("ada"),
                                .reason = FL_STR("stuck")});
    rig_settle(rig);
    frame = rig_push(rig, FL_PUSH_LOST, 0);
    assert_non_null(frame);
    assert_int_equal(frame->link, 1);
    assert_str(frame->push.name, "x");
    assert_str(frame->push.actor, "ada");
    assert_int_equal(frame->push.cause, FL_CAUSE_FORCED);
    assert_int_equal(frame->push.request_id, 4);
}

static void the_end_of_a_session_is_told_where_it_was_resumed_last(void **state)
{
    struct rig *rig = *state;
    const struct rig_frame *frame;

    rig_ask(rig, 2, (struct fl_request){.type = FL_REQ_RESUME_SESSION, .session = rig_session(1)});
    rig_settle(rig);
    rig_live(rig, TTL + 200);
    frame = rig_push(rig, FL_PUSH_SESSION_END, 0);
    assert_non_null(frame);
    assert_int_equal(frame->push.cause, FL_CAUSE_EXPIRED);
    for (size_t n = 0; (frame = rig_push(rig, FL_PUSH_SESSION_END, n)) != NULL; n++)
        assert_int_equal(frame->link, frame->push.session.low == 1 ? 2 : 1);
}

static void a_holder_learns_that_somebody_waits(void **state)
{
    struct rig *rig = *state;
    const struct rig_frame *frame;

    waits_for_x(rig);
    frame = rig_push(rig, FL_PUSH_CONTENDED, 0);
    assert_non_null(frame);
    assert_true(fl_session_id_equal(frame->push.session, rig_session(1)));
    assert_str(frame->push.name, "x");
    assert_int_equal(frame->push.waiters, 1);
    assert_null(rig_push(rig, FL_PUSH_CONTENDED, 1));
}

/* --- Detach --- */

static uint64_t detach(struct rig *rig, uint64_t link, bool releases)
{
    uint64_t tag = rig_ask(rig, link,
                           (struct fl_request){.type = FL_REQ_DETACH,
                                               .session = rig_session(1),
                                               .release_on_disconnect = releases});

    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    return tag;
}

static void a_stream_that_ends_closes_its_session_only_if_asked_to(void **state)
{
    struct rig *rig = *state;

    detach(rig, 1, false);
    assert_true(rig_is_alive(rig, 1));
    rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_RESUME_SESSION, .session = rig_session(1)});
    rig_settle(rig);
    detach(rig, 1, true);
    assert_false(rig_is_alive(rig, 1));
}

/* The client is at link 2 already when link 1's gateway notices that its stream is dead. */
static void a_stream_that_was_left_does_not_close_the_session(void **state)
{
    struct rig *rig = *state;

    rig_ask(rig, 2, (struct fl_request){.type = FL_REQ_RESUME_SESSION, .session = rig_session(1)});
    rig_settle(rig);
    detach(rig, 1, true);
    assert_true(rig_is_alive(rig, 1));
}

/* --- Refusals --- */

static void a_value_out_of_range_is_answered_with_its_field(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = rig_ask(rig, 1,
                           (struct fl_request){.type = FL_REQ_OPEN_SESSION,
                                               .session = rig_session(3),
                                               .client = FL_STR("c"),
                                               .ttl_ms = 1});

    assert_true(rig_has_status(rig, tag, FL_REPLY_INVALID));
    assert_str(rig_reply(rig, tag)->field, "ttl_ms");
    tag = rig_acquire(rig, 1, 1, "", 0);
    assert_str(rig_reply(rig, tag)->field, "name");
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_LIST, .max = 0});
    assert_str(rig_reply(rig, tag)->field, "max");
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_DESCRIBE, .name = FL_STR("\n")});
    assert_str(rig_reply(rig, tag)->field, "name");
}

static void a_full_disk_refuses_grants_but_not_releases(void **state)
{
    struct rig *rig = *state;
    uint64_t tag;

    rig_acquire(rig, 1, 1, "x", 0);
    rig_settle(rig);
    fl_node_set_disk_full(rig->node, true);
    tag = rig_acquire(rig, 1, 2, "y", 0);
    assert_true(rig_has_status(rig, tag, FL_REPLY_DISK_FULL));
    release(rig, 1, last_token(rig));
    assert_true(rig_has_reply(rig, tag + 1, FL_ANS_OK));
    tag = rig_beat(rig, 1);
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
}

static void over_its_limit_a_node_still_takes_heartbeats_and_releases(void **state)
{
    struct rig *rig = rig_new(2);
    uint64_t tag;

    (void)state;
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_acquire(rig, 1, 2, "y", 0);
    tag = rig_acquire(rig, 1, 3, "z", 0);
    assert_true(rig_has_status(rig, tag, FL_REPLY_BUSY));
    assert_true(rig_reply(rig, tag)->retry_ms > 0);
    tag = rig_beat(rig, 1);
    release(rig, 1, 1);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    assert_true(rig_has_status(rig, tag + 1, FL_REPLY_ANSWER));
    tag = rig_acquire(rig, 1, 3, "z", 0);
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    rig_free(rig);
}

/* L11: refused, its client would take it for over, and it would be granted to nobody. */
static void what_waits_already_is_not_refused_for_load(void **state)
{
    struct rig *rig = rig_new(2);
    uint64_t tag;

    (void)state;
    rig_lead(rig);
    rig_open(rig, 1, TTL);
    rig_open(rig, 2, TTL);
    rig_acquire(rig, 1, 1, "x", 0);
    rig_settle(rig);
    rig_acquire(rig, 2, 1, "x", 5000);
    rig_settle(rig);
    rig_follow(rig);
    rig_lead(rig);
    rig_acquire(rig, 1, 2, "x", 5000);
    rig_acquire(rig, 1, 3, "x", 5000);
    rig_settle(rig);
    tag = rig_acquire(rig, 2, 2, "x", 5000);
    assert_true(rig_has_status(rig, tag, FL_REPLY_BUSY));
    tag = rig_acquire(rig, 2, 1, "x", 5000);
    rig_settle(rig);
    assert_null(rig_reply(rig, tag)); /* waits on */
    fl_node_set_disk_full(rig->node, true);
    release(rig, 1, last_token(rig));
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    tag = rig_acquire(rig, 2, 1, "x", 5000);
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_GRANTED));
    rig_free(rig);
}

static void a_follower_names_the_leader_and_answers_status_and_stale_reads(void **state)
{
    struct rig *rig = *state;
    uint64_t tag;

    rig_follow(rig);
    tag = rig_acquire(rig, 1, 1, "x", 0);
    assert_true(rig_has_status(rig, tag, FL_REPLY_NOT_LEADER));
    assert_int_equal(rig_reply(rig, tag)->leader_id, 2);
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_SESSIONS, .max = 9, .stale_ok = true});
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    assert_int_equal(rig_reply(rig, tag)->n_sessions, 2);
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_STATUS});
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    assert_int_equal(rig_reply(rig, tag)->info.leader_id, 2);
    assert_int_equal(rig_reply(rig, tag)->info.stats.sessions, 2);
    assert_int_equal(rig_reply(rig, tag)->info.applied_index, rig->applied);
}

static void what_is_no_request_is_malformed(void **state)
{
    struct rig *rig = *state;

    assert_true(fl_node_request(rig->node, rig->now_ms, 1, "\1", 1) < 0);
    assert_true(fl_node_request(rig->node, rig->now_ms, 1, NULL, 0) < 0);
}

/* --- Reads --- */

static void a_resumed_session_is_told_its_holds_and_waits(void **state)
{
    struct rig *rig = *state;
    const struct fl_reply *reply;
    uint64_t tag;

    waits_for_x(rig);
    rig_acquire(rig, 2, 2, "y", 0);
    rig_settle(rig);
    tag = rig_ask(rig, 2,
                  (struct fl_request){.type = FL_REQ_RESUME_SESSION, .session = rig_session(2)});
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    reply = rig_reply(rig, tag);
    assert_int_equal(reply->ttl_ms, TTL);
    assert_int_equal(reply->n_requests, 2);
    assert_str(reply->requests[0].name, "y");
    assert_true(reply->requests[0].token > 0 && reply->requests[0].request_id == 2);
    assert_str(reply->requests[1].name, "x");
    assert_true(reply->requests[1].token == 0 && reply->requests[1].request_id == 1);
}

static void describe_shows_holders_with_their_lease_then_waiters(void **state)
{
    struct rig *rig = *state;
    const struct fl_reply *reply;
    uint64_t tag;

    waits_for_x(rig);
    rig_live(rig, 1000);
    tag = rig_ask(rig, 1,
                  (struct fl_request){.type = FL_REQ_DESCRIBE, .name = FL_STR("x"), .max = 5});
    rig_settle(rig);
    reply = rig_reply(rig, tag);
    assert_non_null(reply);
    assert_int_equal(reply->name_info.holders, 1);
    assert_int_equal(reply->name_info.waiters, 1);
    assert_int_equal(reply->n_requests, 2);
    assert_in_range(reply->requests[0].lease_left_ms, TTL - 1200, TTL - 900);
    assert_in_range(reply->requests[0].for_ms, 1000, 1100);
    assert_int_equal(reply->requests[1].token, 0);
}

static void lists_come_in_pages(void **state)
{
    struct rig *rig = *state;
    const struct fl_reply *reply;
    uint64_t tag;

    rig_acquire(rig, 1, 1, "a/1", 0);
    rig_acquire(rig, 1, 2, "a/2", 0);
    rig_acquire(rig, 1, 3, "a/3", 0);
    rig_acquire(rig, 1, 4, "b", 0);
    rig_settle(rig);
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_LIST, .name = FL_STR("a/"), .max = 2});
    rig_settle(rig);
    reply = rig_reply(rig, tag);
    assert_int_equal(reply->n_names, 2);
    assert_true(reply->more);
    assert_str(reply->names[1].name, "a/2");
    assert_str(reply->names[1].holder_client, "client");
    assert_true(reply->names[1].token > 0);
    tag = rig_ask(rig, 1,
                  (struct fl_request){
                      .type = FL_REQ_LIST, .name = FL_STR("a/"), .after = FL_STR("a/2"), .max = 2});
    rig_settle(rig);
    reply = rig_reply(rig, tag);
    assert_int_equal(reply->n_names, 1);
    assert_false(reply->more);
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_SESSIONS, .max = 1});
    rig_settle(rig);
    assert_true(rig_reply(rig, tag)->more);
    tag = rig_ask(rig, 1,
                  (struct fl_request){.type = FL_REQ_SESSIONS,
                                      .session = rig_reply(rig, tag)->sessions[0].id,
                                      .max = 1});
    rig_settle(rig);
    assert_false(rig_reply(rig, tag)->more);
    assert_true(fl_session_id_equal(rig_reply(rig, tag)->sessions[0].id, rig_session(2)));
}

static void a_transfer_is_begun_or_refused_with_the_field(void **state)
{
    struct rig *rig = *state;
    uint64_t tag =
        rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_TRANSFER_LEADER, .node_id = 3});

    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    assert_int_equal(rig->transfer_to, 3);
    tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_TRANSFER_LEADER, .node_id = 99});
    assert_true(rig_has_status(rig, tag, FL_REPLY_INVALID));
    assert_str(rig_reply(rig, tag)->field, "node_id");
}

static void a_change_of_members_is_begun_or_refused_with_the_reason(void **state)
{
    static const struct {
        int error;
        enum fl_reply_status status;
    } refusals[] = {{FL_E_NOT_LEADER, FL_REPLY_NOT_LEADER},
                    {FL_E_BUSY, FL_REPLY_CHANGING},
                    {FL_E_EXISTS, FL_REPLY_INVALID},
                    {FL_E_NOT_FOUND, FL_REPLY_INVALID},
                    {FL_E_INVALID, FL_REPLY_INVALID}};
    struct rig *rig = *state;
    uint64_t tag = rig_ask(
        rig, 1,
        (struct fl_request){.type = FL_REQ_ADD_NODE, .node_id = 6, .name = FL_STR("ten:3363")});

    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    assert_int_equal(rig->change, FL_REQ_ADD_NODE);
    assert_int_equal(rig->change_id, 6);
    assert_string_equal(rig->change_address, "ten:3363");
    for (size_t i = 0; i < FL_ARRAY_LEN(refusals); i++) {
        rig->change_result = refusals[i].error;
        tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_REMOVE_NODE, .node_id = 3});
        assert_true(rig_has_status(rig, tag, refusals[i].status));
    }
    assert_str(rig_reply(rig, tag)->field, "node_id");
}

/* Gateways dial whoever is a member. */
static void every_link_is_told_who_the_members_are(void **state)
{
    struct rig *rig = *state;

    fl_node_set_members(rig->node, 7, FL_STR("1=a:1,2=b:2"));
    assert_int_equal(rig_push(rig, FL_PUSH_MEMBERS, 0)->link, 1);
    assert_int_equal(rig_push(rig, FL_PUSH_MEMBERS, 1)->link, 2);
    assert_str(rig_push(rig, FL_PUSH_MEMBERS, 1)->push.text, "1=a:1,2=b:2");
    assert_int_equal(rig_push(rig, FL_PUSH_MEMBERS, 1)->push.index, 7);
    fl_node_link_up(rig->node, rig->now_ms, 3);
    assert_int_equal(rig_push(rig, FL_PUSH_MEMBERS, 2)->link, 3);
}

/* --- Work that is due --- */

/* The deadline asks for a tick when a wait ends, not at the next heartbeat. */
static void the_node_wakes_when_a_wait_is_due(void **state)
{
    struct rig *rig = *state;
    uint64_t tag;

    rig_acquire(rig, 1, 1, "x", 0);
    tag = rig_acquire(rig, 2, 1, "x", 33);
    rig_settle(rig);
    while (rig_reply(rig, tag) == NULL) {
        uint64_t at = fl_node_deadline(rig->node);

        assert_in_range(at, rig->now_ms, rig->now_ms + 50);
        rig->now_ms = at > rig->now_ms ? at : rig->now_ms + 1;
        fl_node_tick(rig->node, rig->now_ms);
        rig_settle(rig);
        assert_true(rig->now_ms < 1000 + 100);
    }
    assert_true(rig_has_reply(rig, tag, FL_ANS_TIMED_OUT));
    assert_int_equal(rig->now_ms, 1000 + 33);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_grant_carries_token_index_and_lease),
        TEST(a_miss_names_the_holder_and_for_how_long_it_holds),
        TEST(a_waiting_acquire_is_answered_when_it_is_granted),
        TEST(a_repeated_acquire_is_answered_at_both_places),
        TEST(a_wait_that_times_out_names_the_holder),
        TEST(a_cancelled_wait_is_answered),
        TEST(a_wait_ends_with_its_session),
        TEST(a_link_that_breaks_takes_no_wait_and_no_session_with_it),
        TEST(a_forced_release_is_told_to_the_old_holder),
        TEST(the_end_of_a_session_is_told_where_it_was_resumed_last),
        TEST(a_holder_learns_that_somebody_waits),
        TEST(a_stream_that_ends_closes_its_session_only_if_asked_to),
        TEST(a_stream_that_was_left_does_not_close_the_session),
        TEST(a_value_out_of_range_is_answered_with_its_field),
        TEST(a_full_disk_refuses_grants_but_not_releases),
        TEST(over_its_limit_a_node_still_takes_heartbeats_and_releases),
        TEST(what_waits_already_is_not_refused_for_load),
        TEST(a_follower_names_the_leader_and_answers_status_and_stale_reads),
        TEST(what_is_no_request_is_malformed),
        TEST(a_resumed_session_is_told_its_holds_and_waits),
        TEST(describe_shows_holders_with_their_lease_then_waiters),
        TEST(lists_come_in_pages),
        TEST(a_transfer_is_begun_or_refused_with_the_field),
        TEST(every_link_is_told_who_the_members_are),
        TEST(a_change_of_members_is_begun_or_refused_with_the_reason),
        TEST(the_node_wakes_when_a_wait_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
