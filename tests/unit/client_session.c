/* The session's judgement, told as stories: each line is an event or what came of it, and `now` is
 * a number of ours. ttl 10,000 unless said, so a heartbeat's sender may believe for 9,701 ms. */
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/session.h"
#include "client/why.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

#define TTL    10000u
#define BELIEF 9701u

struct sim {
    struct fl_session session;
    uint64_t now;
    uint64_t belief; /* what the owner was last told */
    bool is_up;      /* a stream that the network lets through */
    char said[4096]; /* effects since the last look, one a line */
    struct fl_bid bids[8];
    int n_bids;
};

static void say(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct sim *sim, const char *format, ...)
{
    size_t len = strlen(sim->said);
    va_list args;

    va_start(args, format);
    vsnprintf(sim->said + len, sizeof sim->said - len, format, args);
    va_end(args);
}

static void hear_stream(struct sim *sim, const struct fl_session_effect *fx)
{
    switch (fx->type) {
    case FL_SESSION_FX_CONNECT:
        break;
    case FL_SESSION_FX_DROP:
        say(sim, "drop%s\n", fx->move_on ? ", move on" : "");
        break;
    case FL_SESSION_FX_SEND_OPEN:
        say(sim, "open\n");
        break;
    case FL_SESSION_FX_SEND_RESUME:
        say(sim, "resume %s\n", fx->session_id);
        break;
    case FL_SESSION_FX_SEND_HEARTBEAT:
        say(sim, "heartbeat %" PRIu64 "\n", fx->seq);
        break;
    case FL_SESSION_FX_SEND_ACQUIRE:
        say(sim, "acquire %s wait %u\n", fx->bid->name, (unsigned)fx->wait_ms);
        break;
    case FL_SESSION_FX_SEND_RELEASE:
        say(sim, "release %s %" PRIu64 "\n", fx->name, fx->token);
        break;
    case FL_SESSION_FX_SEND_CANCEL:
        say(sim, "cancel\n");
        break;
    case FL_SESSION_FX_SEND_CLOSE:
        say(sim, "close\n");
        break;
    default:
        fail();
    }
}

static void hear(void *ctx, const struct fl_session_effect *fx)
{
    struct sim *sim = ctx;

    switch (fx->type) {
    case FL_SESSION_FX_BELIEF:
        sim->belief = fx->until_ms;
        break;
    case FL_SESSION_FX_GRANTED:
        say(sim, "%s granted %" PRIu64 "\n", fx->bid->name, fx->bid->token);
        break;
    case FL_SESSION_FX_REFUSED:
        say(sim, "%s refused %d\n", fx->bid->name, fx->why->code);
        break;
    case FL_SESSION_FX_RELEASED:
        say(sim, "%s released %d\n", fx->bid->name, fx->why->code);
        break;
    case FL_SESSION_FX_UNRELEASED:
        say(sim, "%s unreleased %d\n", fx->bid->name, fx->why->code);
        break;
    case FL_SESSION_FX_LOST:
        say(sim, "%s lost: %s\n", fx->bid->name, fl_lost_cause_text(fx->cause));
        break;
    case FL_SESSION_FX_DONE:
        break;
    default:
        hear_stream(sim, fx);
    }
}

static void expect(struct sim *sim, const char *said)
{
    assert_string_equal(sim->said, said);
    sim->said[0] = '\0';
}

static void step(struct sim *sim, struct fl_session_event event)
{
    event.now_ms = sim->now;
    fl_session_step(&sim->session, &event);
    assert_null(fl_session__check(&sim->session));
}

/* Time passes with its ticks. */
static void until(struct sim *sim, uint64_t now)
{
    while (fl_session_next_ms(&sim->session) <= now) {
        if (sim->now < fl_session_next_ms(&sim->session))
            sim->now = fl_session_next_ms(&sim->session);
        step(sim, (struct fl_session_event){.type = FL_SESSION_EV_TICK});
        assert_true(fl_session_next_ms(&sim->session) > sim->now); /* no tick leads to itself */
    }
    sim->now = now;
}

static struct fl_bid *acquire(struct sim *sim, const char *name, uint32_t wait_ms)
{
    struct fl_bid *bid = &sim->bids[sim->n_bids++];

    *bid = (struct fl_bid){.name = name, .mode = FL_EXCLUSIVE, .wait_ms = wait_ms};
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_ACQUIRE, .bid = bid});
    return bid;
}

static void release(struct sim *sim, struct fl_bid *bid)
{
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_RELEASE, .bid = bid});
}

static void opened(struct sim *sim, const struct fl_session_known *known, size_t n)
{
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_OPENED,
                                        .session_id = "s_1",
                                        .ttl_ms = sim->session.ttl_ms_wanted,
                                        .known = known,
                                        .n_known = n});
}

static void ack(struct sim *sim, uint64_t seq)
{
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_ACK, .seq = seq});
}

static void granted(struct sim *sim, struct fl_bid *bid, uint64_t token)
{
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_ACQUIRED,
                                        .request_id = bid->id,
                                        .is_granted = true,
                                        .token = token});
}

static void released(struct sim *sim, struct fl_bid *bid)
{
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_RELEASED, .request_id = bid->id});
}

static void down(struct sim *sim, int code, const char *reason)
{
    struct fl_why why;

    fl_why_set(&why, code, reason, "down");
    step(sim, (struct fl_session_event){.type = FL_SESSION_EV_DOWN, .why = &why});
}

static void failed(struct sim *sim, struct fl_bid *bid, int code)
{
    struct fl_why why;

    fl_why_set(&why, code, NULL, "failed");
    step(sim, (struct fl_session_event){
                  .type = FL_SESSION_EV_ERROR, .request_id = bid->id, .why = &why});
}

static int set_up_with(struct sim *sim, uint32_t ttl_ms)
{
    memset(sim, 0, sizeof *sim);
    sim->now = 1000;
    fl_session_init(&sim->session, ttl_ms, 5000, 7, hear, sim);
    return 0;
}

/* The same, and each heartbeat is answered. */
static void alive_until(struct sim *sim, uint64_t now)
{
    while (fl_session_next_ms(&sim->session) <= now) {
        until(sim, fl_session_next_ms(&sim->session));
        if (sim->session.is_heartbeat_out)
            ack(sim, sim->session.heartbeat_seq);
    }
    sim->now = now;
}

/* "L" is held with token 7 since 1,010; the session was opened at 1,000, answered at 1,005. */
static struct fl_bid *holding(struct sim *sim)
{
    struct fl_bid *bid;

    set_up_with(sim, TTL);
    bid = acquire(sim, "L", 0);
    sim->now = 1005;
    opened(sim, NULL, 0);
    sim->now = 1010;
    granted(sim, bid, 7);
    expect(sim, "open\nacquire L wait 0\nL granted 7\n");
    return bid;
}

static void belief_counts_from_the_send_with_room_for_clocks(void **state)
{
    struct sim sim;

    (void)state;
    assert_int_equal(fl_session_belief_ms(TTL), BELIEF);
    assert_int_equal(fl_session_belief_ms(1000), 930);
    holding(&sim);
    assert_int_equal(sim.belief, 1000 + BELIEF); /* not from 1,005 */
    until(&sim, 5000);
    expect(&sim, "heartbeat 1\n"); /* at 4,333 */
    sim.now = 5900;
    ack(&sim, 1);
    assert_int_equal(sim.belief, 4333 + BELIEF); /* T6: not from 5,900 */
}

/* T1: for every rate within 1 % of both clocks, belief ends before the server may expire. */
static void belief_ends_before_the_server_may_expire(void **state)
{
    static const uint32_t ttls[] = {1000, 1500, 10000, 60000, 3600000};

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(ttls); i++) {
        double client_ends = (double)fl_session_belief_ms(ttls[i]) / 0.99; /* slow client */
        double server_ends = (double)ttls[i] / 1.01;                       /* fast server */

        assert_true(client_ends < server_ends);
        /* And it is no more careful than three heartbeats can bear. */
        assert_true(fl_session_belief_ms(ttls[i]) > (uint64_t)ttls[i] * 9 / 10);
    }
}

static void an_acknowledgement_counts_for_its_own_heartbeat(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    until(&sim, 4400);
    ack(&sim, 99);
    ack(&sim, 0);
    assert_int_equal(sim.belief, 1000 + BELIEF);
    ack(&sim, 1);
    assert_int_equal(sim.belief, 4333 + BELIEF);
    sim.now = 4500;
    ack(&sim, 1); /* a second time says nothing new */
    assert_int_equal(sim.belief, 4333 + BELIEF);
}

/* T7: grants, releases and a resume leave the lease as it was. */
static void only_an_acknowledgement_extends_belief(void **state)
{
    struct fl_session_known known = {.name = "L", .token = 7};
    struct fl_bid *bid, *other;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    sim.now = 4000;
    other = acquire(&sim, "M", 0);
    granted(&sim, other, 8);
    release(&sim, other);
    released(&sim, other);
    down(&sim, FL_E_UNREACHABLE, NULL);
    until(&sim, 4600);
    known.request_id = bid->id;
    opened(&sim, &known, 1);
    assert_int_equal(sim.session.believe_until_ms, 1000 + BELIEF);
    assert_int_equal(sim.belief, 1000 + BELIEF);
    sim.said[0] = '\0';
    until(&sim, 1000 + BELIEF);
    assert_non_null(strstr(sim.said, "L lost: the lease ran out"));
}

static void heartbeats_come_every_third_of_the_ttl(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    for (uint64_t n = 1; n <= 20; n++) {
        until(&sim, 1000 + n * (TTL / 3));
        ack(&sim, n);
        assert_int_equal(sim.session.heartbeat_seq, n);
        assert_int_equal(sim.belief, 1000 + n * (TTL / 3) + BELIEF);
    }
}

/* T10, C11: with no answer to anything, by our own clock, once. */
static void loss_is_told_once_at_the_end_of_belief(void **state)
{
    struct fl_bid *bid;
    struct sim sim;
    const char *first;

    (void)state;
    bid = holding(&sim);
    until(&sim, 1000 + BELIEF - 1);
    assert_null(strstr(sim.said, "lost"));
    until(&sim, 1000 + BELIEF);
    first = strstr(sim.said, "L lost: the lease ran out");
    assert_non_null(first);
    assert_null(strstr(first + strlen("L lost"), "lost"));
    assert_int_equal(sim.belief, 0);
    sim.said[0] = '\0';
    until(&sim, 60000);
    release(&sim, bid);
    expect(&sim, "");
}

/* C01, T10: stopped for 20 s with the answers in the socket; the lease ended at 10,701. */
static void what_arrives_after_belief_is_no_grant(void **state)
{
    struct fl_bid *waiting;
    struct sim sim;

    (void)state;
    holding(&sim);
    waiting = acquire(&sim, "M", 60000);
    expect(&sim, "acquire M wait 60000\n");
    sim.now = 21000;
    granted(&sim, waiting, 9);
    expect(&sim, "drop\nL lost: the lease ran out: no heartbeat was acknowledged in time\n"
                 "M refused -21\n");
}

/* The same with the acknowledgement first: it was sent in time, but belief has ended already. */
static void a_late_acknowledgement_revives_nothing(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    until(&sim, 4333);
    sim.now = 12000;
    ack(&sim, 1);
    assert_int_equal(sim.belief, 0);
    assert_non_null(strstr(sim.said, "L lost"));
}

/* C09: an election under a holder: one endpoint after another has no answer, then one has. */
static void a_failed_heartbeat_is_tried_until_belief_ends(void **state)
{
    struct fl_session_known known = {.name = "L", .token = 7};
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    until(&sim, 4333);
    expect(&sim, "heartbeat 1\n");
    until(&sim, 4333 + TTL / 6 - 1);
    expect(&sim, "");
    until(&sim, 4333 + TTL / 6);
    expect(&sim, "drop, move on\n");
    until(&sim, 4333 + TTL / 6 + TTL / 20);
    expect(&sim, "resume s_1\n");
    down(&sim, FL_E_NO_LEADER, "NO_LEADER");
    expect(&sim, "drop, move on\n");
    until(&sim, sim.now + TTL / 6);
    assert_int_equal(strncmp(sim.said, "resume s_1\n", 11), 0);
    sim.said[0] = '\0';
    known.request_id = bid->id;
    if (sim.session.stream != FL_STREAM_ASKED)
        until(&sim, sim.session.connect_at_ms);
    opened(&sim, &known, 1);
    ack(&sim, sim.session.heartbeat_seq);
    assert_int_equal(sim.belief, sim.now + BELIEF);
    assert_null(strstr(sim.said, "lost"));
}

/* C10: the server does not know the session. */
static void a_session_that_is_gone_loses_everything_at_once(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    acquire(&sim, "M", 5000);
    expect(&sim, "acquire M wait 5000\n");
    down(&sim, FL_E_SESSION_GONE, "SESSION_NOT_FOUND");
    expect(&sim, "L lost: the session expired\nM refused -21\n");
    assert_int_equal(sim.belief, 0);
    until(&sim, 30000);
    expect(&sim, ""); /* nothing is opened anew by itself */
    release(&sim, bid);
    expect(&sim, "");
    acquire(&sim, "N", 0);
    expect(&sim, "open\n");
}

static void an_operator_takes_one_lock_and_says_why(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_LOST,
                                         .request_id = bid->id,
                                         .token = 6,
                                         .cause = FL_LOST_FORCED});
    expect(&sim, ""); /* about another grant */
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_LOST,
                                         .request_id = bid->id,
                                         .token = 7,
                                         .cause = FL_LOST_FORCED});
    expect(&sim, "L lost: the lock was taken by an operator\n");
    assert_int_equal(sim.belief, 1000 + BELIEF); /* the session lives */
}

/* C02: the reply of a grant is lost with its gateway. */
static void an_unanswered_request_is_repeated_with_its_id(void **state)
{
    struct fl_bid *bid;
    struct sim sim;
    uint64_t id;

    (void)state;
    holding(&sim);
    bid = acquire(&sim, "M", 5000);
    id = bid->id;
    expect(&sim, "acquire M wait 5000\n");
    sim.now = 2010;
    down(&sim, FL_E_UNREACHABLE, NULL);
    until(&sim, 2600);
    expect(&sim, "resume s_1\n");
    opened(&sim,
           (struct fl_session_known[]){{.name = "L", .token = 7, .request_id = sim.bids[0].id},
                                       {.name = "M", .request_id = id}},
           2);
    expect(&sim, "heartbeat 1\nacquire M wait 3410\n"); /* the same instant, not the same wait */
    assert_int_equal(bid->id, id);
    granted(&sim, bid, 8);
    granted(&sim, bid, 8);
    expect(&sim, "M granted 8\n");
}

/* After a reconnect the server knows one lock less, and one more that we had given up. */
static void a_resume_settles_what_each_side_holds(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    sim.now = 2000;
    down(&sim, FL_E_UNREACHABLE, NULL);
    until(&sim, 2600);
    sim.said[0] = '\0';
    opened(&sim, &(struct fl_session_known){.name = "Z", .token = 12, .request_id = 5}, 1);
    expect(&sim, "release Z 12\nL lost: the lock was gone after a reconnect\nheartbeat 1\n");
}

/* The gateway found a new leader while the stream stayed. The old one had ended M, and nobody had
 * told; what is unanswered the gateway sends again by itself. */
static void a_new_leader_tells_what_was_lost_meanwhile(void **state)
{
    struct fl_bid *bid, *other;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    other = acquire(&sim, "M", 0);
    granted(&sim, other, 8);
    acquire(&sim, "N", 5000);
    sim.said[0] = '\0';
    opened(&sim, &(struct fl_session_known){.name = "L", .token = 7, .request_id = bid->id}, 1);
    expect(&sim, "M lost: the lock was gone after a reconnect\n");
    assert_int_equal(sim.belief, 1000 + BELIEF);
}

/* The cancel is lost with its stream: on the next one the request is repeated, since only its own
 * answer can tell how it ended. */
static void a_cancel_is_repeated_until_its_request_has_ended(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    holding(&sim);
    bid = acquire(&sim, "M", 60000);
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_CANCEL, .bid = bid});
    down(&sim, FL_E_UNREACHABLE, NULL);
    until(&sim, sim.session.connect_at_ms);
    sim.said[0] = '\0';
    opened(&sim, &(struct fl_session_known){.name = "L", .token = 7, .request_id = sim.bids[0].id},
           1);
    expect(&sim, "heartbeat 1\nacquire M wait 0\ncancel\n");
    granted(&sim, bid, 9);
    expect(&sim, "release M 9\n");
}

/* C04: the caller gave up, and the grant crosses on the way. */
static void a_grant_that_nobody_waits_for_is_given_back(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    holding(&sim);
    bid = acquire(&sim, "M", 1000);
    sim.said[0] = '\0';
    alive_until(&sim, 1010 + 1000 + 5000);
    expect(&sim, "heartbeat 1\nM refused -16\ncancel\n");
    sim.said[0] = '\0';
    granted(&sim, bid, 9);
    expect(&sim, "release M 9\n");
    released(&sim, bid);
    expect(&sim, "M released 0\n");
}

static void a_cancelled_wait_leaves_the_queue(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    holding(&sim);
    bid = acquire(&sim, "M", 60000);
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_CANCEL, .bid = bid});
    expect(&sim, "acquire M wait 60000\nM refused -14\ncancel\n");
    step(&sim, (struct fl_session_event){
                   .type = FL_SESSION_EV_ACQUIRED, .request_id = bid->id, .is_cancelled = true});
    expect(&sim, "");
    assert_int_equal(bid->state, FL_BID_OVER);
}

/* C13: three times no leader, then the answer. C03: the id of the repeated release is the same. */
static void a_release_is_repeated_until_it_is_judged(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    release(&sim, bid);
    expect(&sim, "release L 7\n");
    for (int i = 0; i < 3; i++) {
        failed(&sim, bid, FL_E_NO_LEADER);
        until(&sim, sim.now + 200);
        expect(&sim, "release L 7\n");
    }
    released(&sim, bid);
    expect(&sim, "L released 0\n");
    assert_int_equal(bid->state, FL_BID_OVER);
}

static void a_release_that_is_not_answered_in_time_says_so_and_goes_on(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    release(&sim, bid);
    alive_until(&sim, 1010 + 5000);
    expect(&sim, "release L 7\nheartbeat 1\nL unreleased -16\n");
    assert_int_equal(bid->state, FL_BID_RELEASING);
}

static void a_stale_release_says_that_it_was_not_ours(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    bid = holding(&sim);
    release(&sim, bid);
    failed(&sim, bid, FL_E_STALE);
    expect(&sim, "release L 7\nL released -19\n");
}

static void nobody_is_kept_waiting_for_what_cannot_be_opened(void **state)
{
    struct sim sim;

    (void)state;
    set_up_with(&sim, TTL);
    acquire(&sim, "L", 60000);
    down(&sim, FL_E_DENIED, "DENIED");
    expect(&sim, "open\nL refused -17\ndrop, move on\n");
}

static void an_unreachable_cluster_is_said_after_the_timeout(void **state)
{
    struct sim sim;

    (void)state;
    set_up_with(&sim, TTL);
    acquire(&sim, "L", 0);
    until(&sim, 1000 + 4999);
    assert_null(strstr(sim.said, "refused"));
    until(&sim, 1000 + 5000);
    assert_non_null(strstr(sim.said, "L refused -16\n"));
    sim.said[0] = '\0';
    until(&sim, 60000);
    assert_null(strstr(sim.said, "open\n")); /* nobody asks for a session any more */
}

/* C26: a gateway with many clients goes down; they do not all come back at once. */
static void reconnects_are_spread(void **state)
{
    uint64_t low = UINT64_MAX, high = 0;
    struct sim sim;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        holding(&sim);
        fl_random_init(&sim.session.random, seed);
        down(&sim, FL_E_UNREACHABLE, NULL);
        low = sim.session.connect_at_ms < low ? sim.session.connect_at_ms : low;
        high = sim.session.connect_at_ms > high ? sim.session.connect_at_ms : high;
    }
    assert_true(low < 1010 + 50);
    assert_true(high > 1010 + 450 && high <= 1010 + TTL / 20);
}

/* A long ttl is for long outages; a short one of them ends in seconds. */
static void a_long_ttl_does_not_make_reconnects_slow(void **state)
{
    struct sim sim;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        set_up_with(&sim, 3600000);
        fl_random_init(&sim.session.random, seed);
        acquire(&sim, "L", 60000);
        down(&sim, FL_E_UNREACHABLE, NULL);
        assert_true(sim.session.connect_at_ms <= 1000 + 5000);
        until(&sim, 1000 + 5000);
        assert_non_null(strstr(sim.said, "open\n")); /* and who does not answer is left soon */
        sim.said[0] = '\0';
        until(&sim, 1000 + 5000 + 5000);
        assert_non_null(strstr(sim.said, "drop, move on\n"));
    }
}

static void closing_waits_for_the_server_and_tells_nobody_of_a_loss(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_CLOSE});
    expect(&sim, "close\n");
    assert_false(fl_session_is_closed(&sim.session));
    down(&sim, FL_OK, NULL);
    expect(&sim, "");
    assert_true(fl_session_is_closed(&sim.session));
    assert_int_equal(sim.bids[0].state, FL_BID_OVER);
}

/* It waits until the owner's patience ends, with an open heartbeat or without. */
static void a_close_that_stays_unanswered_is_waited_for_quietly(void **state)
{
    struct sim sim;

    (void)state;
    holding(&sim);
    until(&sim, 5000);
    step(&sim, (struct fl_session_event){.type = FL_SESSION_EV_CLOSE});
    expect(&sim, "heartbeat 1\nclose\n");
    until(&sim, 9000);
    expect(&sim, "");
    assert_false(fl_session_is_closed(&sim.session));
}

/* L11: it may wait in the cluster, whatever a gateway says about its load. */
static void a_repeated_request_that_finds_no_room_is_asked_again(void **state)
{
    struct fl_bid *bid;
    struct sim sim;

    (void)state;
    holding(&sim);
    bid = acquire(&sim, "M", 5000);
    expect(&sim, "acquire M wait 5000\n");
    sim.now = 2010;
    down(&sim, FL_E_UNREACHABLE, NULL);
    until(&sim, 2600);
    opened(&sim,
           (struct fl_session_known[]){{.name = "L", .token = 7, .request_id = sim.bids[0].id}}, 1);
    expect(&sim, "resume s_1\nheartbeat 1\nacquire M wait 3410\n");
    failed(&sim, bid, FL_E_LIMITED);
    expect(&sim, "");
    until(&sim, 2900);
    assert_int_equal(bid->state, FL_BID_WAITING);
    assert_non_null(strstr(sim.said, "acquire M wait"));
}

static const struct CMUnitTest stories[] = {
    cmocka_unit_test(belief_counts_from_the_send_with_room_for_clocks),
    cmocka_unit_test(belief_ends_before_the_server_may_expire),
    cmocka_unit_test(an_acknowledgement_counts_for_its_own_heartbeat),
    cmocka_unit_test(only_an_acknowledgement_extends_belief),
    cmocka_unit_test(heartbeats_come_every_third_of_the_ttl),
    cmocka_unit_test(loss_is_told_once_at_the_end_of_belief),
    cmocka_unit_test(what_arrives_after_belief_is_no_grant),
    cmocka_unit_test(a_late_acknowledgement_revives_nothing),
    cmocka_unit_test(a_failed_heartbeat_is_tried_until_belief_ends),
    cmocka_unit_test(a_session_that_is_gone_loses_everything_at_once),
    cmocka_unit_test(an_operator_takes_one_lock_and_says_why),
    cmocka_unit_test(an_unanswered_request_is_repeated_with_its_id),
    cmocka_unit_test(a_resume_settles_what_each_side_holds),
    cmocka_unit_test(a_new_leader_tells_what_was_lost_meanwhile),
    cmocka_unit_test(a_cancel_is_repeated_until_its_request_has_ended),
    cmocka_unit_test(a_grant_that_nobody_waits_for_is_given_back),
    cmocka_unit_test(a_cancelled_wait_leaves_the_queue),
    cmocka_unit_test(a_release_is_repeated_until_it_is_judged),
    cmocka_unit_test(a_release_that_is_not_answered_in_time_says_so_and_goes_on),
    cmocka_unit_test(a_stale_release_says_that_it_was_not_ours),
    cmocka_unit_test(nobody_is_kept_waiting_for_what_cannot_be_opened),
    cmocka_unit_test(an_unreachable_cluster_is_said_after_the_timeout),
    cmocka_unit_test(reconnects_are_spread),
    cmocka_unit_test(a_long_ttl_does_not_make_reconnects_slow),
    cmocka_unit_test(closing_waits_for_the_server_and_tells_nobody_of_a_loss),
    cmocka_unit_test(a_close_that_stays_unanswered_is_waited_for_quietly),
    cmocka_unit_test(a_repeated_request_that_finds_no_room_is_asked_again),
};

#ifdef FL_BUGS
/* Each seeded bug is seen by at least one story. */
int main(void)
{
    static const enum fl_bug bugs[] = {
        FL_BUG_CLIENT_BELIEF_FROM_RECEIPT, FL_BUG_CLIENT_ANY_ACK_COUNTS,
        FL_BUG_CLIENT_GRANT_RENEWS_BELIEF, FL_BUG_CLIENT_GRANT_AFTER_BELIEF,
        FL_BUG_CLIENT_REOPENS_SILENTLY,    FL_BUG_CLIENT_STOPS_ON_FIRST_ERROR,
        FL_BUG_CLIENT_LOSS_IS_SILENT,      FL_BUG_CLIENT_RELEASE_FORGOTTEN,
        FL_BUG_CLIENT_RECONNECTS_AT_ONCE,
    };

    return RUN_SEEDED(stories, bugs);
}
#else
int main(void)
{
    return cmocka_run_group_tests(stories, NULL, NULL);
}
#endif
