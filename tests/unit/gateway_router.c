/* The router by itself: nodes are this test, time is a number. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gateway/router.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

#define SENT_MAX 64

struct sent {
    unsigned link;
    enum fl_request_type type;
    uint64_t tag, request_id, session;
    uint32_t wait_ms;
};

struct world {
    struct fl_router *router;
    uint64_t now_ms;
    struct sent sent[SENT_MAX];
    unsigned n_sent, n_resets, n_leader_up, n_pushes;
    unsigned last_reset;
    uint64_t members_index; /* as told last */
    char members[64];
};

struct asked {
    struct fl_ask ask;
    unsigned n_done, n_pushed;
    enum fl_ask_end how;
    enum fl_answer answer;
    fl_token token;
    uint64_t pushed_index;
};

static void on_send(void *ctx, unsigned link, const void *data, size_t len)
{
    struct world *w = ctx;
    struct fl_request q;

    assert_int_equal(((const uint8_t *)data)[0], FL_LINK_REQUEST);
    assert_int_equal(fl_request_decode((const uint8_t *)data + 1, len - 1, &q), FL_OK);
    assert_true(w->n_sent < SENT_MAX);
    w->sent[w->n_sent++] =
        (struct sent){link, q.type, q.tag, q.request_id, q.session.low, q.wait_ms};
}

static void on_reset(void *ctx, unsigned link, const char *why)
{
    struct world *w = ctx;

    assert_non_null(why);
    w->n_resets++;
    w->last_reset = link;
}

static void on_push(void *ctx, const struct fl_push *push)
{
    (void)push;
    ((struct world *)ctx)->n_pushes++;
}

static void on_leader_up(void *ctx)
{
    ((struct world *)ctx)->n_leader_up++;
}

static void on_members(void *ctx, uint64_t index, struct fl_str members)
{
    struct world *w = ctx;

    w->members_index = index;
    snprintf(w->members, sizeof w->members, "%.*s", FL_STR_ARGS(members));
}

static const struct fl_router_ops ops = {on_send, on_reset, on_push, on_leader_up, on_members};

static void on_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct asked *asked = FL_CONTAINER_OF(ask, struct asked, ask);

    asked->n_done++;
    asked->how = how;
    if (reply != NULL) {
        asked->answer = reply->answer;
        asked->token = reply->token;
    }
}

static void on_pushed(struct fl_ask *ask, const struct fl_push *push)
{
    struct asked *asked = FL_CONTAINER_OF(ask, struct asked, ask);

    asked->n_pushed++;
    asked->pushed_index = push->index;
}

static struct asked new_asked(void)
{
    return (struct asked){.ask = {.done = on_done, .pushed = on_pushed}};
}

/* Links 0, 1, 2 lead to nodes 1, 2, 3; node 1 is in this process. */
static void world_init(struct world *w, const struct fl_router_config *config)
{
    *w = (struct world){.now_ms = 1000};
    w->router = fl_router_new(config, &ops, w);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fl_router_add_link(w->router, i + 1, i == 0), i);
        fl_router_link_up(w->router, w->now_ms, i);
    }
    fl_router_tick(w->router, w->now_ms);
}

static void push(struct world *w, unsigned link, const struct fl_push *message)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_buf_put_u8(&buf, FL_LINK_PUSH);
    fl_push_encode(&buf, message);
    assert_int_equal(fl_router_frame(w->router, w->now_ms, link, buf.data, buf.len), FL_OK);
    fl_buf_deinit(&buf);
}

static void push_leader(struct world *w, unsigned link, uint64_t leader_id, uint64_t term)
{
    struct fl_push message = {.type = FL_PUSH_LEADER, .leader_id = leader_id, .term = term};

    push(w, link, &message);
}

static void reply(struct world *w, unsigned link, const struct fl_reply *message)
{
    struct fl_buf buf = FL_BUF_INIT;

    fl_buf_put_u8(&buf, FL_LINK_REPLY);
    fl_reply_encode(&buf, message);
    assert_int_equal(fl_router_frame(w->router, w->now_ms, link, buf.data, buf.len), FL_OK);
    fl_buf_deinit(&buf);
}

static void reply_granted(struct world *w, const struct sent *to, fl_token token)
{
    struct fl_reply message = {
        .tag = to->tag, .request_type = FL_REQ_ACQUIRE, .answer = FL_ANS_GRANTED, .token = token};

    reply(w, to->link, &message);
}

static void reply_not_leader(struct world *w, const struct sent *to, uint64_t leader_id,
                             uint64_t term)
{
    struct fl_reply message = {.tag = to->tag,
                               .request_type = to->type,
                               .status = FL_REPLY_NOT_LEADER,
                               .leader_id = leader_id,
                               .term = term};

    reply(w, to->link, &message);
}

static int ask(struct world *w, struct asked *asked, const struct fl_request *request,
               enum fl_route route)
{
    return fl_router_ask(w->router, w->now_ms, &asked->ask, request, route, 0);
}

static int ask_acquire(struct world *w, struct asked *asked, uint64_t request_id, uint32_t wait_ms)
{
    struct fl_request request = {.type = FL_REQ_ACQUIRE,
                                 .session = {1, 7},
                                 .request_id = request_id,
                                 .name = FL_STR("invoice/1"),
                                 .mode = FL_MODE_EXCLUSIVE,
                                 .wait_ms = wait_ms};

    *asked = new_asked();
    return ask(w, asked, &request, FL_ROUTE_LEADER);
}

static const struct sent *last_sent(const struct world *w)
{
    assert_true(w->n_sent > 0);
    return &w->sent[w->n_sent - 1];
}

static void pass(struct world *w, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;

    while (w->now_ms < until_ms) {
        w->now_ms += 100;
        fl_router_tick(w->router, w->now_ms);
    }
}

/* The nodes answer pings, so that silence is not the subject. */
static void answer_pings(struct world *w)
{
    unsigned n = w->n_sent;

    for (unsigned i = 0; i < n; i++) {
        struct fl_reply message = {.tag = w->sent[i].tag, .request_type = FL_REQ_STATUS};

        if (w->sent[i].type == FL_REQ_STATUS)
            reply(w, w->sent[i].link, &message);
    }
    w->n_sent = 0;
}

/* --- Stories --- */

static void a_request_goes_to_the_leader_and_its_answer_comes_back_once(void **state)
{
    static const struct fl_router_config config;
    struct world w;
    struct asked a;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    assert_int_equal(w.n_leader_up, 1);
    assert_int_equal(ask_acquire(&w, &a, 11, 0), FL_OK);
    assert_int_equal(last_sent(&w)->link, 1);
    reply_granted(&w, last_sent(&w), 42);
    assert_int_equal(a.n_done, 1);
    assert_int_equal(a.how, FL_ASK_REPLIED);
    assert_int_equal(a.token, 42);
    reply_granted(&w, last_sent(&w), 43); /* twice: nobody's */
    assert_int_equal(a.n_done, 1);
    assert_int_equal(fl_router_asked(w.router), 0);
    fl_router_free(w.router);
}

/* V10, C02: what the lost leader had not answered is asked of the next one: the same request, in
 * the same order, with the rest of its wait. */
static void what_a_lost_leader_left_unanswered_goes_to_the_next(void **state)
{
    static const struct fl_router_config config;
    struct world w;
    struct asked a, b;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    ask_acquire(&w, &a, 11, 5000);
    ask_acquire(&w, &b, 12, 0);
    w.n_sent = 0;
    w.now_ms += 300;
    fl_router_link_down(w.router, w.now_ms, 1);
    assert_int_equal(w.n_sent, 0);
    assert_false(fl_router_has_leader(w.router));
    w.now_ms += 200;
    push_leader(&w, 0, 3, 6);
    assert_int_equal(w.n_sent, 2);
    assert_int_equal(w.sent[0].link, 2);
    assert_int_equal(w.sent[0].request_id, 11);
    assert_int_equal(w.sent[0].session, 7);
    assert_int_equal(w.sent[0].wait_ms, 4500);
    assert_int_equal(w.sent[1].request_id, 12);
    assert_int_equal(w.sent[1].wait_ms, 0);
    reply_granted(&w, &w.sent[0], 42);
    reply_granted(&w, &w.sent[1], 43);
    assert_int_equal(a.token, 42);
    assert_int_equal(b.token, 43);
    assert_int_equal(w.n_leader_up, 2);
    fl_router_free(w.router);
}

static void an_old_leaders_late_answer_is_not_passed_on(void **state)
{
    static const struct fl_router_config config;
    struct world w;
    struct asked a;
    struct sent first;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    ask_acquire(&w, &a, 11, 5000);
    first = *last_sent(&w);
    push_leader(&w, 0, 3, 6);
    assert_int_equal(last_sent(&w)->link, 2);
    assert_true(last_sent(&w)->tag != first.tag);
    reply_granted(&w, &first, 41);
    assert_int_equal(a.n_done, 0);
    reply_granted(&w, last_sent(&w), 42);
    assert_int_equal(a.token, 42);
    fl_router_free(w.router);
}

static void not_leader_with_a_hint_is_followed_at_once(void **state)
{
    static const struct fl_router_config config;
    struct world w;
    struct asked a;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    ask_acquire(&w, &a, 11, 0);
    reply_not_leader(&w, last_sent(&w), 3, 6);
    assert_int_equal(w.n_sent, 2);
    assert_int_equal(last_sent(&w)->link, 2);
    assert_int_equal(fl_router_leader(w.router), 3);
    fl_router_forget(w.router, &a.ask);
    fl_router_free(w.router);
}

/* A leader that hands over refuses: it is not asked again and again in one turn, and the time
 * without a leader is bounded all the same. */
static void a_leader_that_only_refuses_ends_in_no_leader(void **state)
{
    static const struct fl_router_config config;
    struct world w;
    struct asked a;
    unsigned n = 0;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    ask_acquire(&w, &a, 11, 0);
    while (a.n_done == 0) {
        assert_true(n++ < 100);
        if (w.n_sent > 0 && last_sent(&w)->type == FL_REQ_ACQUIRE)
            reply_not_leader(&w, last_sent(&w), 2, 5);
        answer_pings(&w);
        pass(&w, 100);
    }
    assert_int_equal(a.how, FL_ASK_NO_LEADER);
    fl_router_free(w.router);
}

static void without_a_leader_a_request_fails_after_the_bound_and_not_before(void **state)
{
    static const struct fl_router_config config = {.no_leader_ms = 2000};
    struct world w;
    struct asked a;

    (void)state;
    world_init(&w, &config);
    ask_acquire(&w, &a, 11, 60000);
    pass(&w, 1900);
    assert_int_equal(a.n_done, 0);
    pass(&w, 200);
    assert_int_equal(a.n_done, 1);
    assert_int_equal(a.how, FL_ASK_NO_LEADER);
    assert_true(fl_router_leaderless_ms(w.router, w.now_ms) >= 2000);
    fl_router_free(w.router);
}

/* G4: a node that is cut off from the others says that nobody leads; that is its own trouble. */
static void only_the_leader_itself_is_believed_to_have_stepped_down(void **state)
{
    static const struct fl_router_config config;
    struct world w;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    push_leader(&w, 2, 0, 9);
    assert_int_equal(fl_router_leader(w.router), 2);
    push_leader(&w, 2, 3, 4); /* of an older term */
    assert_int_equal(fl_router_leader(w.router), 2);
    push_leader(&w, 1, 0, 5);
    assert_int_equal(fl_router_leader(w.router), 0);
    push_leader(&w, 2, 2, 5); /* told again, of the same term: led on */
    assert_int_equal(fl_router_leader(w.router), 2);
    fl_router_free(w.router);
}

/* C22: half open. */
static void a_silent_link_is_given_up_and_a_slow_answer_keeps_it(void **state)
{
    static const struct fl_router_config config = {.ping_ms = 500, .silence_ms = 1000};
    struct world w;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 1, 1);
    pass(&w, 600); /* pings go out to nodes 2 and 3 */
    answer_pings(&w);
    assert_int_equal(w.n_resets, 0);
    pass(&w, 600);
    for (unsigned i = 0; i < w.n_sent; i++) {
        struct fl_reply message = {.tag = w.sent[i].tag, .request_type = FL_REQ_STATUS};

        assert_int_not_equal(w.sent[i].link, 0);
        if (w.sent[i].link == 1)
            reply(&w, 1, &message);
    }
    pass(&w, 1000);
    assert_true(w.n_resets > 0);
    assert_int_equal(w.last_reset, 2);
    fl_router_free(w.router);
}

static void the_time_that_we_were_stopped_is_not_the_nodes_silence(void **state)
{
    static const struct fl_router_config config;
    struct world w;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 1, 1);
    pass(&w, 600);
    assert_int_equal(w.n_sent, 2);
    w.now_ms += 30000; /* SIGSTOP, SIGCONT */
    fl_router_tick(w.router, w.now_ms);
    assert_int_equal(w.n_resets, 0);
    answer_pings(&w);
    fl_router_free(w.router);
}

/* G6 */
static void a_full_router_refuses_acquires_but_never_what_keeps_alive_or_gives_back(void **state)
{
    static const struct fl_router_config config = {.requests_max = 1};
    static const enum fl_request_type free_types[] = {FL_REQ_KEEP_ALIVE, FL_REQ_RELEASE,
                                                      FL_REQ_CLOSE_SESSION, FL_REQ_CANCEL};
    struct asked a, b, others[FL_ARRAY_LEN(free_types)];
    struct world w;

    (void)state;
    world_init(&w, &config);
    assert_int_equal(ask_acquire(&w, &a, 1, 0), FL_OK);
    assert_int_equal(ask_acquire(&w, &b, 2, 0), FL_E_BUSY);
    for (size_t i = 0; i < FL_ARRAY_LEN(free_types); i++) {
        struct fl_request request = {.type = free_types[i], .session = {1, 7}};

        others[i] = new_asked();
        assert_int_equal(ask(&w, &others[i], &request, FL_ROUTE_LEADER), FL_OK);
    }
    fl_router_stop(w.router);
    assert_int_equal(a.how, FL_ASK_STOPPED);
    assert_int_equal(b.n_done, 0);
    fl_router_free(w.router);
}

static void a_stale_read_goes_to_the_local_node_and_past_it_when_it_is_down(void **state)
{
    static const struct fl_router_config config;
    struct fl_request request = {
        .type = FL_REQ_DESCRIBE, .name = FL_STR("invoice/1"), .stale_ok = true};
    struct asked a = new_asked(), b = new_asked();
    struct world w;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 3, 5);
    assert_int_equal(ask(&w, &a, &request, FL_ROUTE_NEAREST), FL_OK);
    assert_int_equal(last_sent(&w)->link, 0);
    fl_router_link_down(w.router, w.now_ms, 0);
    assert_int_equal(last_sent(&w)->link, 2); /* asked again, of the leader */
    fl_router_link_down(w.router, w.now_ms, 1);
    fl_router_link_down(w.router, w.now_ms, 2);
    assert_int_equal(a.how, FL_ASK_UNREACHABLE);
    assert_int_equal(ask(&w, &b, &request, FL_ROUTE_NEAREST), FL_E_UNREACHABLE);
    fl_router_free(w.router);
}

static void a_watch_gets_its_pushes_and_is_told_to_begin_again_elsewhere(void **state)
{
    static const struct fl_router_config config;
    struct fl_request request = {.type = FL_REQ_WATCH, .name = FL_STR("invoice/")};
    struct fl_reply begun = {.request_type = FL_REQ_WATCH, .answer = FL_ANS_OK};
    struct fl_push event = {.type = FL_PUSH_WATCH, .index = 9, .name = FL_STR("invoice/1")};
    struct asked a = new_asked();
    struct world w;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 5);
    ask(&w, &a, &request, FL_ROUTE_LEADER);
    begun.tag = event.tag = last_sent(&w)->tag;
    reply(&w, 1, &begun);
    assert_int_equal(a.n_done, 0);
    push(&w, 1, &event);
    assert_int_equal(a.n_pushed, 1);
    assert_int_equal(a.pushed_index, 9);
    push_leader(&w, 2, 3, 6);
    assert_int_equal(a.n_done, 1);
    assert_int_equal(a.how, FL_ASK_MOVED);
    assert_int_equal(last_sent(&w)->type, FL_REQ_UNWATCH); /* the old node need not go on */
    assert_int_equal(last_sent(&w)->request_id, event.tag);
    push(&w, 1, &event);
    assert_int_equal(a.n_pushed, 1);
    fl_router_free(w.router);
}

/* C05: the cancel of a call that is gone must arrive, however long the election takes. */
static void a_posted_cancel_outlives_a_time_without_leader(void **state)
{
    static const struct fl_router_config config;
    struct fl_request cancel = {
        .type = FL_REQ_CANCEL, .session = {1, 7}, .request_id = 11, .abandon = true};
    struct world w;

    (void)state;
    world_init(&w, &config);
    fl_router_post(w.router, w.now_ms, &cancel);
    for (int i = 0; i < 50; i++) {
        pass(&w, 200);
        answer_pings(&w);
    }
    push_leader(&w, 0, 2, 5);
    assert_int_equal(last_sent(&w)->type, FL_REQ_CANCEL);
    assert_int_equal(last_sent(&w)->request_id, 11);
    fl_router_free(w.router);
}

/* A gateway that was told a wrong leader of the present term, whose link then breaks: the right one
 * is told only once, and was not believed. */
static void a_gateway_without_a_leader_asks_until_it_knows(void **state)
{
    static const struct fl_router_config config;
    struct fl_reply status = {.request_type = FL_REQ_STATUS, .info = {.leader_id = 1, .term = 6}};
    struct world w;
    struct asked a;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 0, 2, 6);
    push_leader(&w, 2, 1, 6); /* not believed: the leader itself does not say so */
    fl_router_link_down(w.router, w.now_ms, 1);
    ask_acquire(&w, &a, 11, 0);
    w.n_sent = 0;
    pass(&w, 600);
    assert_true(w.n_sent > 0);
    assert_int_equal(w.sent[0].type, FL_REQ_STATUS);
    status.tag = w.sent[0].tag;
    reply(&w, w.sent[0].link, &status);
    assert_int_equal(fl_router_leader(w.router), 1);
    assert_int_equal(last_sent(&w)->request_id, 11);
    assert_int_equal(a.n_done, 0);
    fl_router_free(w.router);
}

/* A node that is removed while it leads: what it was asked goes to the next, and its number may be
 * another node's. */
static void a_retired_link_gives_its_requests_to_the_next_leader(void **state)
{
    static const struct fl_router_config config;
    struct fl_push members = {.type = FL_PUSH_MEMBERS, .index = 9, .text = FL_STR("1=a:1,3=c:3")};
    struct world w;
    struct asked a, b;

    (void)state;
    world_init(&w, &config);
    push_leader(&w, 1, 2, 5);
    ask_acquire(&w, &a, 11, 0);
    assert_int_equal(last_sent(&w)->link, 1);
    push(&w, 0, &members);
    assert_int_equal(w.members_index, 9);
    assert_string_equal(w.members, "1=a:1,3=c:3");
    fl_router_retire_link(w.router, w.now_ms, 1);
    assert_int_equal(fl_router_link_node(w.router, 1), 0);
    assert_false(fl_router_link_is_up(w.router, 1));
    push_leader(&w, 2, 3, 6);
    assert_int_equal(last_sent(&w)->link, 2);
    assert_int_equal(last_sent(&w)->request_id, 11);
    reply_granted(&w, last_sent(&w), 42);
    assert_int_equal(a.token, 42);
    pass(&w, 2000); /* nothing is sent to a link that is gone */
    for (unsigned i = 0; i < w.n_sent; i++)
        assert_true(w.sent[i].link != 1 || w.sent[i].request_id == 11);
    assert_int_equal(fl_router_add_link(w.router, 6, false), 1);
    fl_router_link_up(w.router, w.now_ms, 1);
    push_leader(&w, 1, 6, 7);
    ask_acquire(&w, &b, 12, 0);
    assert_int_equal(last_sent(&w)->link, 1);
    fl_router_free(w.router);
}

static void what_is_no_message_closes_the_link(void **state)
{
    static const struct fl_router_config config;
    static const uint8_t bad[] = {FL_LINK_REPLY, 0xff, 0xff, 0xff};
    struct world w;

    (void)state;
    world_init(&w, &config);
    assert_true(fl_router_frame(w.router, w.now_ms, 1, bad, sizeof bad) < 0);
    assert_true(fl_router_frame(w.router, w.now_ms, 1, bad, 0) < 0);
    assert_true(fl_router_frame(w.router, w.now_ms, 1, "\x09", 1) < 0);
    fl_router_free(w.router);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_request_goes_to_the_leader_and_its_answer_comes_back_once),
    cmocka_unit_test(what_a_lost_leader_left_unanswered_goes_to_the_next),
    cmocka_unit_test(an_old_leaders_late_answer_is_not_passed_on),
    cmocka_unit_test(not_leader_with_a_hint_is_followed_at_once),
    cmocka_unit_test(a_leader_that_only_refuses_ends_in_no_leader),
    cmocka_unit_test(without_a_leader_a_request_fails_after_the_bound_and_not_before),
    cmocka_unit_test(only_the_leader_itself_is_believed_to_have_stepped_down),
    cmocka_unit_test(a_silent_link_is_given_up_and_a_slow_answer_keeps_it),
    cmocka_unit_test(the_time_that_we_were_stopped_is_not_the_nodes_silence),
    cmocka_unit_test(a_full_router_refuses_acquires_but_never_what_keeps_alive_or_gives_back),
    cmocka_unit_test(a_stale_read_goes_to_the_local_node_and_past_it_when_it_is_down),
    cmocka_unit_test(a_watch_gets_its_pushes_and_is_told_to_begin_again_elsewhere),
    cmocka_unit_test(a_posted_cancel_outlives_a_time_without_leader),
    cmocka_unit_test(a_gateway_without_a_leader_asks_until_it_knows),
    cmocka_unit_test(a_retired_link_gives_its_requests_to_the_next_leader),
    cmocka_unit_test(what_is_no_message_closes_the_link),
};

#ifdef FL_BUGS
/* Each seeded bug of this layer is seen by at least one story. */
int main(void)
{
    static const enum fl_bug bugs[] = {
        FL_BUG_GATEWAY_RESENDS_WHOLE_WAIT,
        FL_BUG_GATEWAY_RESENDS_AS_NEW,
        FL_BUG_GATEWAY_FORGETS_ON_LOSS,
        FL_BUG_GATEWAY_KEEPS_SILENT_LINK,
    };

    return RUN_SEEDED(tests, bugs);
}
#else
int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
