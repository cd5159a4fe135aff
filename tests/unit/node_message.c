#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "node/message.h"

static const struct fl_session_id SESSION = {0x0102030405060708u, 0x1112131415161718u};

/* Every field set, so that each type shows that it carries its own. */
static struct fl_request full_request(enum fl_request_type type)
{
    return (struct fl_request){
        .type = type,
        .tag = 77,
        .session = SESSION,
        .request_id = UINT64_MAX,
        .name = FL_STR("invoice/INV-55102"),
        .after = FL_STR("invoice/INV-1"),
        .token = FL_TOKEN_MAX,
        .mode = FL_MODE_COUNTED,
        .limit = FL_LIMIT_MAX,
        .wait_ms = UINT32_MAX,
        .ttl_ms = 10000,
        .lock_delay_ms = 15000,
        .max = 100,
        .abandon = true,
        .asker = 0xfe01,
        .stale_ok = true,
        .release_on_disconnect = true,
        .is_prefix = true,
        .from_index = 1234567,
        .node_id = 5,
        .client = FL_STR("payout-7"),
        .actor = FL_STR("ada"),
        .reason = FL_STR("stuck"),
    };
}

static struct fl_request travelled(enum fl_request_type type, struct fl_buf *buf)
{
    struct fl_request sent = full_request(type), got = {0};

    fl_request_encode(buf, &sent);
    assert_int_equal(fl_request_decode(buf->data, buf->len, &got), FL_OK);
    assert_int_equal(got.type, type);
    assert_int_equal(got.tag, 77);
    return got;
}

#define assert_str(s, text) assert_true(fl_str_equal((s), FL_STR(text)))

static void requests_about_sessions_arrive_as_sent(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_request q = travelled(FL_REQ_OPEN_SESSION, &buf);

    (void)state;
    assert_true(fl_session_id_equal(q.session, SESSION));
    assert_str(q.client, "payout-7");
    assert_int_equal(q.ttl_ms, 10000);
    assert_int_equal(q.lock_delay_ms, 15000);
    assert_true(q.release_on_disconnect);
    for (enum fl_request_type type = FL_REQ_RESUME_SESSION; type <= FL_REQ_DETACH; type++) {
        fl_buf_clear(&buf);
        q = travelled(type, &buf);
        assert_true(fl_session_id_equal(q.session, SESSION));
        assert_int_equal(q.release_on_disconnect, type == FL_REQ_DETACH);
    }
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_SESSIONS, &buf);
    assert_true(fl_session_id_equal(q.session, SESSION) && q.max == 100 && q.stale_ok);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_END_SESSION, &buf);
    assert_true(fl_session_id_equal(q.session, SESSION));
    assert_str(q.actor, "ada");
    assert_str(q.reason, "stuck");
    fl_buf_deinit(&buf);
}

static void requests_about_names_arrive_as_sent(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_request q = travelled(FL_REQ_ACQUIRE, &buf);

    (void)state;
    assert_true(fl_session_id_equal(q.session, SESSION));
    assert_true(q.request_id == UINT64_MAX && q.wait_ms == UINT32_MAX);
    assert_str(q.name, "invoice/INV-55102");
    assert_true(q.mode == FL_MODE_COUNTED && q.limit == FL_LIMIT_MAX && q.asker == 0xfe01);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_RELEASE, &buf);
    assert_true(fl_session_id_equal(q.session, SESSION) && q.token == FL_TOKEN_MAX);
    assert_str(q.name, "invoice/INV-55102");
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_CANCEL, &buf);
    assert_true(q.request_id == UINT64_MAX && q.abandon && q.asker == 0xfe01);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_LIST, &buf);
    assert_str(q.after, "invoice/INV-1");
    assert_true(q.max == 100 && q.stale_ok);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_FORCE_RELEASE, &buf);
    assert_true(q.token == FL_TOKEN_MAX && fl_session_id_is_none(q.session));
    assert_str(q.reason, "stuck");
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_WATCH, &buf);
    assert_true(q.is_prefix && q.from_index == 1234567);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_UNWATCH, &buf);
    assert_true(q.request_id == UINT64_MAX);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_TRANSFER_LEADER, &buf);
    assert_int_equal(q.node_id, 5);
    fl_buf_clear(&buf);
    q = travelled(FL_REQ_ADD_NODE, &buf);
    assert_int_equal(q.node_id, 5);
    assert_true(q.name.len > 0);
    fl_buf_deinit(&buf);
}

/* The bytes are an agreement between two releases: they change only with FL_LINK_VERSION. */
static void the_bytes_of_an_acquire_do_not_change(void **state)
{
    static const uint8_t golden[] = {6, 77,   8,    7,    6,    5,    4,    3,    2,
                                     1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
                                     9, 3,    'a',  '/',  'b',  2,    0,    0x88, 0x27};
    struct fl_request q = {.type = FL_REQ_ACQUIRE,
                           .tag = 77,
                           .session = SESSION,
                           .request_id = 9,
                           .name = FL_STR("a/b"),
                           .mode = FL_MODE_SHARED,
                           .wait_ms = 5000};
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    fl_request_encode(&buf, &q);
    assert_int_equal(buf.len, sizeof golden);
    assert_memory_equal(buf.data, golden, sizeof golden);
    fl_buf_deinit(&buf);
}

/* --- Replies --- */

static struct fl_reply_request two_requests[2] = {
    {{1, 2}, {"ann", 3}, {"x", 1}, 4, FL_MODE_EXCLUSIVE, 5, 6, 7},
    {{8, 9}, {"bob", 3}, {"yy", 2}, 10, FL_MODE_SHARED, 0, 11, 0},
};
static struct fl_reply_name two_names[2] = {
    {{"x", 1}, FL_MODE_COUNTED, 3, 2, 1, {"ann", 3}, 5, 60},
    {{"y", 1}, FL_MODE_NONE, 0, 0, 2, {NULL, 0}, 0, 0},
};
static struct fl_reply_session one_session[1] = {
    {{1, 2}, {"ann", 3}, 10000, 3, 4, 500, UINT64_C(1) << 40},
};

static struct fl_reply full_reply(enum fl_request_type type, enum fl_reply_status status)
{
    struct fl_reply reply = {
        .tag = 300,
        .request_type = type,
        .status = status,
        .leader_id = 3,
        .term = 9,
        .field = FL_STR("ttl_ms"),
        .text = FL_STR("is too short"),
        .retry_ms = 250,
        .answer = FL_ANS_HELD,
        .index = 4242,
        .session = SESSION,
        .request_id = 8,
        .token = FL_TOKEN_MAX,
        .mode = FL_MODE_COUNTED,
        .limit = 4,
        .ttl_ms = 10000,
        .position = 17,
        .holder_client = FL_STR("bob"),
        .holder_token = 12,
        .holder_for_ms = 1300,
        .name_info = {.mode = FL_MODE_COUNTED, .limit = 3, .holders = 2, .waiters = 1},
        .closed_for_ms = 99,
        .requests = two_requests,
        .n_requests = 2,
        .names = two_names,
        .n_names = 2,
        .sessions = one_session,
        .n_sessions = 1,
        .more = true,
    };

    reply.info = (struct fl_status_info){.node_id = 1,
                                         .leader_id = 2,
                                         .term = 3,
                                         .commit_index = 4,
                                         .applied_index = 5,
                                         .last_index = 6,
                                         .snapshot_index = 7,
                                         .history_hash = UINT64_MAX,
                                         .role = 2,
                                         .stats = {8, 9, 10, 11, 12, 13},
                                         .token = 14,
                                         .n_members = 2,
                                         .version = FL_STR("0.1.0")};
    reply.info.members[1] = (struct fl_status_member){4, FL_STR("h:1"), 1, true, 88};
    return reply;
}

static struct fl_reply arrived(enum fl_request_type type, enum fl_reply_status status,
                               struct fl_buf *buf)
{
    struct fl_reply sent = full_reply(type, status), got = {0};

    fl_buf_clear(buf);
    fl_reply_encode(buf, &sent);
    assert_int_equal(fl_reply_decode(buf->data, buf->len, &got), FL_OK);
    assert_int_equal(got.tag, 300);
    assert_int_equal(got.request_type, type);
    assert_int_equal(got.status, status);
    return got;
}

static void answers_to_an_acquire_carry_token_lease_and_holder(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_reply got = arrived(FL_REQ_ACQUIRE, FL_REPLY_ANSWER, &buf);

    (void)state;
    assert_int_equal(got.answer, FL_ANS_HELD);
    assert_int_equal(got.index, 4242);
    assert_true(fl_session_id_equal(got.session, SESSION));
    assert_true(got.request_id == 8 && got.token == FL_TOKEN_MAX && got.limit == 4);
    assert_true(got.mode == FL_MODE_COUNTED && got.ttl_ms == 10000 && got.position == 17);
    assert_str(got.holder_client, "bob");
    assert_true(got.holder_token == 12 && got.holder_for_ms == 1300);
    fl_reply_deinit(&got);
    fl_buf_deinit(&buf);
}

static void refusals_carry_what_to_do_next(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_reply got;

    (void)state;
    got = arrived(FL_REQ_ACQUIRE, FL_REPLY_NOT_LEADER, &buf);
    assert_true(got.leader_id == 3 && got.term == 9 && got.token == 0);
    got = arrived(FL_REQ_OPEN_SESSION, FL_REPLY_INVALID, &buf);
    assert_str(got.field, "ttl_ms");
    assert_str(got.text, "is too short");
    got = arrived(FL_REQ_ACQUIRE, FL_REPLY_BUSY, &buf);
    assert_int_equal(got.retry_ms, 250);
    fl_buf_deinit(&buf);
}

static void lists_arrive_whole(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_reply got = arrived(FL_REQ_DESCRIBE, FL_REPLY_ANSWER, &buf);

    (void)state;
    assert_true(got.name_info.holders == 2 && got.name_info.waiters == 1);
    assert_true(got.name_info.limit == 3 && got.closed_for_ms == 99 && got.n_requests == 2);
    assert_str(got.requests[0].client, "ann");
    assert_true(got.requests[0].token == 5 && got.requests[0].for_ms == 6);
    assert_true(got.requests[0].lease_left_ms == 7 && got.requests[1].request_id == 10);
    assert_str(got.requests[1].name, "yy");
    fl_reply_deinit(&got);
    got = arrived(FL_REQ_RESUME_SESSION, FL_REPLY_ANSWER, &buf);
    assert_true(got.ttl_ms == 10000 && got.n_requests == 2);
    fl_reply_deinit(&got);
    got = arrived(FL_REQ_LIST, FL_REPLY_ANSWER, &buf);
    assert_true(got.n_names == 2 && got.more && got.names[0].held_for_ms == 60);
    assert_true(got.names[0].holders == 2 && got.names[1].waiters == 2);
    fl_reply_deinit(&got);
    got = arrived(FL_REQ_SESSIONS, FL_REPLY_ANSWER, &buf);
    assert_true(got.n_sessions == 1 && got.sessions[0].age_ms == UINT64_C(1) << 40);
    assert_true(got.sessions[0].silent_ms == 500 && got.sessions[0].waits == 4);
    fl_reply_deinit(&got);
    got = arrived(FL_REQ_STATUS, FL_REPLY_ANSWER, &buf);
    assert_true(got.info.n_members == 2 && got.info.members[1].match_index == 88);
    assert_true(got.info.history_hash == UINT64_MAX && got.info.stats.memory == 13);
    assert_str(got.info.version, "0.1.0");
    fl_reply_deinit(&got);
    fl_buf_deinit(&buf);
}

/* --- Pushes --- */

static void pushes_arrive_as_sent(void **state)
{
    struct fl_push sent = {.type = FL_PUSH_LOST,
                           .index = 6,
                           .session = SESSION,
                           .request_id = 7,
                           .name = FL_STR("x"),
                           .token = 8,
                           .cause = FL_CAUSE_FORCED,
                           .actor = FL_STR("ada"),
                           .reason = FL_STR("stuck"),
                           .tag = 9,
                           .client = FL_STR("ann"),
                           .mode = FL_MODE_SHARED,
                           .granted = true,
                           .present = true,
                           .waiters = 3,
                           .leader_id = 4,
                           .term = 5,
                           .text = FL_STR("too old")};
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_push got;

    (void)state;
    fl_push_encode(&buf, &sent);
    assert_int_equal(fl_push_decode(buf.data, buf.len, &got), FL_OK);
    assert_true(got.index == 6 && got.request_id == 7 && got.token == 8);
    assert_true(got.cause == FL_CAUSE_FORCED && fl_session_id_equal(got.session, SESSION));
    assert_str(got.actor, "ada");
    sent.type = FL_PUSH_WATCH;
    fl_buf_clear(&buf);
    fl_push_encode(&buf, &sent);
    assert_int_equal(fl_push_decode(buf.data, buf.len, &got), FL_OK);
    assert_true(got.tag == 9 && got.granted && got.present && got.mode == FL_MODE_SHARED);
    assert_str(got.client, "ann");
    sent.type = FL_PUSH_LEADER;
    fl_buf_clear(&buf);
    fl_push_encode(&buf, &sent);
    assert_int_equal(fl_push_decode(buf.data, buf.len, &got), FL_OK);
    assert_true(got.leader_id == 4 && got.term == 5 && got.tag == 0);
    sent.type = FL_PUSH_CONTENDED;
    fl_buf_clear(&buf);
    fl_push_encode(&buf, &sent);
    assert_int_equal(fl_push_decode(buf.data, buf.len, &got), FL_OK);
    assert_int_equal(got.waiters, 3);
    fl_buf_deinit(&buf);
}

/* --- Hostile bytes --- */

enum message_kind { REQUEST, REPLY, PUSH, KINDS };

/* Decodes from a copy of exactly `len` bytes, so that a sanitizer sees any read beyond it. */
static int decode(enum message_kind kind, const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    struct fl_request request;
    struct fl_reply reply;
    struct fl_push push;
    int result = FL_E_INTERNAL;

    memcpy(copy, data, len);
    if (kind == REQUEST)
        result = fl_request_decode(copy, len, &request);
    else if (kind == PUSH)
        result = fl_push_decode(copy, len, &push);
    else if ((result = fl_reply_decode(copy, len, &reply)) == FL_OK)
        fl_reply_deinit(&reply);
    free(copy);
    return result;
}

static void sample(enum message_kind kind, unsigned type, struct fl_buf *buf)
{
    struct fl_request request = full_request((enum fl_request_type)type);
    struct fl_reply reply = full_reply((enum fl_request_type)type, FL_REPLY_ANSWER);
    struct fl_push push = {.type = (enum fl_push_type)type, .name = FL_STR("x"), .token = 9};

    fl_buf_clear(buf);
    if (kind == REQUEST)
        fl_request_encode(buf, &request);
    else if (kind == REPLY)
        fl_reply_encode(buf, &reply);
    else
        fl_push_encode(buf, &push);
}

static unsigned types_of(enum message_kind kind)
{
    return kind == PUSH ? FL_PUSH_LAST : FL_REQ_LAST;
}

static void a_cut_or_padded_message_is_malformed(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    for (enum message_kind kind = REQUEST; kind < KINDS; kind++) {
        for (unsigned type = 1; type <= types_of(kind); type++) {
            sample(kind, type, &buf);
            for (size_t len = 0; len < buf.len; len++)
                assert_int_equal(decode(kind, buf.data, len), FL_E_MALFORMED);
            fl_buf_put_u8(&buf, 0);
            assert_int_equal(decode(kind, buf.data, buf.len), FL_E_MALFORMED);
        }
    }
    fl_buf_deinit(&buf);
}

/* Any flip gives another message or an error, never a read outside or a large allocation. */
static void flipped_and_random_bytes_do_no_harm(void **state)
{
    struct fl_buf buf = FL_BUF_INIT;
    struct fl_random random;
    uint8_t noise[64];
    int refused = 0;

    (void)state;
    for (enum message_kind kind = REQUEST; kind < KINDS; kind++) {
        for (unsigned type = 1; type <= types_of(kind); type++) {
            sample(kind, type, &buf);
            for (size_t bit = 0; bit < buf.len * 8; bit++) {
                buf.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
                refused += decode(kind, buf.data, buf.len) != FL_OK;
                buf.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            }
        }
    }
    assert_true(refused > 0);
    fl_random_init(&random, 3);
    for (int i = 0; i < 100000; i++) {
        size_t len = fl_random_below(&random, sizeof noise);

        for (size_t at = 0; at < len; at++)
            noise[at] = (uint8_t)fl_random_below(&random, i % 2 ? 256 : 20);
        decode((enum message_kind)(i % KINDS), noise, len);
    }
    fl_buf_deinit(&buf);
}

static void types_of_a_later_release_are_told_apart(void **state)
{
    const uint8_t later[] = {200, 0, 0};

    (void)state;
    for (enum message_kind kind = REQUEST; kind < KINDS; kind++)
        assert_int_equal(decode(kind, later, sizeof later), FL_E_VERSION);
}

/* What is over a limit still arrives, so that the node can name the field. */
static void values_out_of_range_arrive_for_the_node_to_judge(void **state)
{
    char name[FL_NAME_MAX + 1];
    struct fl_request q = {.type = FL_REQ_ACQUIRE, .mode = (enum fl_mode)9}, got;
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    memset(name, 'n', sizeof name);
    q.name = (struct fl_str){name, sizeof name};
    fl_request_encode(&buf, &q);
    assert_int_equal(fl_request_decode(buf.data, buf.len, &got), FL_OK);
    assert_true(got.name.len == sizeof name && (int)got.mode == 9);
    fl_buf_deinit(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_about_sessions_arrive_as_sent),
        cmocka_unit_test(requests_about_names_arrive_as_sent),
        cmocka_unit_test(the_bytes_of_an_acquire_do_not_change),
        cmocka_unit_test(answers_to_an_acquire_carry_token_lease_and_holder),
        cmocka_unit_test(refusals_carry_what_to_do_next),
        cmocka_unit_test(lists_arrive_whole),
        cmocka_unit_test(pushes_arrive_as_sent),
        cmocka_unit_test(a_cut_or_padded_message_is_malformed),
        cmocka_unit_test(flipped_and_random_bytes_do_no_harm),
        cmocka_unit_test(types_of_a_later_release_are_told_apart),
        cmocka_unit_test(values_out_of_range_arrive_for_the_node_to_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
