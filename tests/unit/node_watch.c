/* Watches: nothing is missed, whatever breaks. */
#include "test.h"

#include <string.h>

#include "node_rig.h"

#define assert_str(s, text) assert_true(fl_str_equal((s), FL_STR(text)))

static int setup(void **state)
{
    struct rig *rig = rig_new(0);

    rig_lead(rig);
    rig_open(rig, 1, 60000);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

static uint64_t watch(struct rig *rig, uint64_t link, const char *name, bool is_prefix,
                      uint64_t from_index)
{
    uint64_t tag = rig_ask(rig, link,
                           (struct fl_request){.type = FL_REQ_WATCH,
                                               .name = fl_str_from(name),
                                               .is_prefix = is_prefix,
                                               .from_index = from_index});

    assert_null(rig_reply(rig, tag));
    rig_settle(rig);
    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    return tag;
}

static fl_token take(struct rig *rig, uint64_t request_id, const char *name)
{
    rig_acquire(rig, 1, request_id, name, 0);
    rig_settle(rig);
    return fl_machine_token(fl_node_machine(rig->node));
}

static void give_back(struct rig *rig, const char *name, fl_token token)
{
    rig_ask(rig, 1,
            (struct fl_request){.type = FL_REQ_RELEASE,
                                .session = rig_session(1),
                                .name = fl_str_from(name),
                                .token = token});
    rig_settle(rig);
}

/* The n-th push to a watch, of whatever type, or NULL. */
static const struct fl_push *told(const struct rig *rig, uint64_t tag, size_t n)
{
    for (size_t i = 0; i < rig->n_frames; i++) {
        const struct fl_push *push = &rig->frames[i].push;

        if (rig->frames[i].type == FL_LINK_PUSH && push->tag == tag &&
            push->type >= FL_PUSH_WATCH && n-- == 0)
            return push;
    }
    return NULL;
}

static void a_watch_begins_with_who_is_there(void **state)
{
    struct rig *rig = *state;
    fl_token token = take(rig, 1, "x");
    uint64_t tag = watch(rig, 1, "x", false, 0);

    assert_true(told(rig, tag, 0)->present && told(rig, tag, 0)->granted);
    assert_int_equal(told(rig, tag, 0)->token, token);
    assert_str(told(rig, tag, 0)->client, "client");
    assert_int_equal(told(rig, tag, 1)->type, FL_PUSH_CAUGHT_UP);
    assert_null(told(rig, tag, 2));
}

static void a_watch_is_told_each_change_and_no_other_names(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = watch(rig, 1, "x", false, 0);
    fl_token token;

    take(rig, 1, "y");
    token = take(rig, 2, "x");
    give_back(rig, "x", token);
    assert_int_equal(told(rig, tag, 0)->type, FL_PUSH_CAUGHT_UP);
    assert_true(told(rig, tag, 1)->granted && !told(rig, tag, 1)->present);
    assert_int_equal(told(rig, tag, 1)->token, token);
    assert_str(told(rig, tag, 1)->client, "client");
    assert_false(told(rig, tag, 2)->granted);
    assert_int_equal(told(rig, tag, 2)->cause, FL_CAUSE_RELEASED);
    assert_int_equal(told(rig, tag, 2)->index, rig->last);
    assert_null(told(rig, tag, 3));
}

static void a_prefix_is_watched_as_a_whole(void **state)
{
    struct rig *rig = *state;
    uint64_t tag;

    take(rig, 1, "a/1");
    tag = watch(rig, 1, "a/", true, 0);
    take(rig, 2, "a/2");
    take(rig, 3, "b");
    assert_str(told(rig, tag, 0)->name, "a/1");
    assert_str(told(rig, tag, 2)->name, "a/2");
    assert_null(told(rig, tag, 3));
}

/* Two changes in one entry, and the link broke between them: the index comes again, whole. */
static void a_watch_goes_on_from_an_index_without_a_gap(void **state)
{
    struct rig *rig = *state;
    uint64_t from, tag;

    take(rig, 1, "a/0");
    rig_acquire(rig, 1, 2, "a/1", 0);
    rig_acquire(rig, 1, 3, "a/2", 0);
    rig_settle(rig);
    from = rig->last;
    take(rig, 4, "a/3");
    tag = watch(rig, 2, "a/", true, from);
    assert_str(told(rig, tag, 0)->name, "a/1");
    assert_str(told(rig, tag, 1)->name, "a/2");
    assert_str(told(rig, tag, 2)->name, "a/3");
    assert_int_equal(told(rig, tag, 3)->type, FL_PUSH_CAUGHT_UP);
    assert_null(told(rig, tag, 4));
}

static void every_node_keeps_the_changes_for_when_it_leads(void **state)
{
    struct rig *rig = *state;
    uint64_t first = watch(rig, 1, "x", false, 0), from = rig->last, second;

    rig_follow(rig);
    assert_int_equal(told(rig, first, 1)->type, FL_PUSH_WATCH_END);
    rig_append(rig, 2000,
               &(struct fl_command){.type = FL_CMD_ACQUIRE,
                                    .session = rig_session(1),
                                    .request_id = 1,
                                    .name = FL_STR("x"),
                                    .mode = FL_MODE_EXCLUSIVE},
               1);
    rig_commit(rig);
    rig_lead(rig);
    second = watch(rig, 1, "x", false, from);
    assert_true(told(rig, second, 0)->granted);
    assert_int_equal(told(rig, second, 1)->type, FL_PUSH_CAUGHT_UP);
}

static int collect(void *ctx, const void *data, size_t len)
{
    fl_buf_put(ctx, data, len);
    return 0;
}

static long supply(void *ctx, void *data, size_t size)
{
    struct fl_reader *reader = ctx;
    size_t len = fl_reader_left(reader) < size ? fl_reader_left(reader) : size;

    if (len > 0)
        memcpy(data, fl_reader_bytes(reader, len), len);
    return (long)len;
}

/* After a snapshot nobody knows what led to it. */
static void a_watch_whose_changes_are_not_kept_is_told_to_begin_again(void **state)
{
    struct rig *rig = *state;
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_machine *machine;
    struct fl_reader reader;
    uint64_t tag;

    take(rig, 1, "x");
    rig_follow(rig);
    assert_int_equal(fl_machine_save(fl_node_machine(rig->node), collect, &buf), 0);
    reader = fl_reader_from(buf.data, buf.len);
    assert_int_equal(fl_machine_load((const uint64_t[2]){1, 2}, supply, &reader, &machine), 0);
    fl_node_take_machine(rig->node, rig->now_ms, machine);
    rig_lead(rig);
    tag = watch(rig, 1, "x", false, 1);
    assert_int_equal(told(rig, tag, 0)->type, FL_PUSH_WATCH_END);
    assert_true(told(rig, tag, 0)->text.len > 0);
    take(rig, 2, "y");
    assert_null(told(rig, tag, 1));
    tag = watch(rig, 1, "x", false, 0);
    assert_true(told(rig, tag, 0)->present);
    fl_buf_deinit(&buf);
}

static void an_ended_watch_is_told_nothing_and_its_twin_goes_on(void **state)
{
    struct rig *rig = *state;
    uint64_t first = watch(rig, 1, "x", false, 0), second = watch(rig, 2, "x", false, 0);
    uint64_t tag =
        rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_UNWATCH, .request_id = first});

    assert_true(rig_has_reply(rig, tag, FL_ANS_OK));
    take(rig, 1, "x");
    assert_null(told(rig, first, 1));
    assert_non_null(told(rig, second, 1));
    fl_node_link_down(rig->node, rig->now_ms, 2);
    take(rig, 2, "z");
    assert_null(told(rig, second, 2));
}

static void a_watch_waits_for_its_confirmation_and_can_be_ended_before(void **state)
{
    struct rig *rig = *state;
    uint64_t tag = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_WATCH, .name = FL_STR("x")});
    uint64_t end = rig_ask(rig, 1, (struct fl_request){.type = FL_REQ_UNWATCH, .request_id = tag});

    assert_true(rig_has_reply(rig, tag, FL_ANS_CANCELLED));
    assert_true(rig_has_reply(rig, end, FL_ANS_OK));
    rig_settle(rig);
    assert_null(told(rig, tag, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_watch_begins_with_who_is_there),
        TEST(a_watch_is_told_each_change_and_no_other_names),
        TEST(a_prefix_is_watched_as_a_whole),
        TEST(a_watch_goes_on_from_an_index_without_a_gap),
        TEST(every_node_keeps_the_changes_for_when_it_leads),
        TEST(a_watch_whose_changes_are_not_kept_is_told_to_begin_again),
        TEST(an_ended_watch_is_told_nothing_and_its_twin_goes_on),
        TEST(a_watch_waits_for_its_confirmation_and_can_be_ended_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
