/* The tables between clients and nodes: reasons, arguments, answers, page tokens, strings. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gateway/answers.h"
#include "gateway/arguments.h"
#include "gateway/outcome.h"
#include "gateway/page.h"
#include "gateway/rates.h"
#include "gateway/wire.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

#define SESSION "s_0123456789abcdef0123456789abcdef"

struct reading {
    struct fl_arena arena;
    struct fl_outcome outcome;
    struct fl_request request;
    struct fl_arguments args;
};

static void reading_init(struct reading *r)
{
    fl_arena_init(&r->arena);
    r->request = (struct fl_request){0};
    r->args = (struct fl_arguments){&r->arena, &r->outcome, &r->request};
}

static void assert_fault(const struct reading *r, const char *field)
{
    assert_int_equal(r->outcome.status.code, FL_RPC_INVALID_ARGUMENT);
    assert_string_equal(r->outcome.status.reason, "BAD_ARGUMENT");
    assert_string_equal(r->outcome.status.field, field);
    assert_non_null(strstr(r->outcome.status.message, field));
}

static Fencelock__V1__AcquireRequest good_acquire(void)
{
    Fencelock__V1__AcquireRequest q = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;

    q.session_id = (char *)SESSION;
    q.name = (char *)"invoice/1";
    return q;
}

static void assert_acquire_fault(const Fencelock__V1__AcquireRequest *q, const char *field)
{
    struct reading r;

    reading_init(&r);
    assert_false(fl_arguments_acquire(&r.args, &q->base));
    assert_fault(&r, field);
    fl_arena_deinit(&r.arena);
}

/* C29: absent is the default, and zero is zero. */
static void absent_fields_of_an_acquire_are_its_documented_defaults(void **state)
{
    Fencelock__V1__AcquireRequest q = good_acquire();
    struct reading r;

    (void)state;
    reading_init(&r);
    assert_true(fl_arguments_acquire(&r.args, &q.base));
    assert_int_equal(r.request.mode, FL_MODE_EXCLUSIVE);
    assert_int_equal(r.request.wait_ms, 0);
    assert_int_equal(r.request.request_id, 0);
    assert_true(r.request.session.high == 0x0123456789abcdef);
    assert_true(fl_str_equal(r.request.name, FL_STR("invoice/1")));
}

static void every_bad_field_of_an_acquire_is_named(void **state)
{
    char long_name[FL_NAME_MAX + 2];
    Fencelock__V1__AcquireRequest q = good_acquire();

    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    q.name = (char *)"";
    assert_acquire_fault(&q, "name");
    q.name = long_name;
    assert_acquire_fault(&q, "name");
    q.name = (char *)"a\nb";
    assert_acquire_fault(&q, "name");
    q = good_acquire();
    q.session_id = (char *)"";
    assert_acquire_fault(&q, "session_id");
    q = good_acquire();
    q.mode = (Fencelock__V1__Mode)9;
    assert_acquire_fault(&q, "mode");
    q.mode = FENCELOCK__V1__MODE__COUNTED;
    assert_acquire_fault(&q, "limit");
    q.has_limit_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_LIMIT_LIMIT;
    q.limit = 0;
    assert_acquire_fault(&q, "limit");
    q.limit = FL_LIMIT_MAX + 1;
    assert_acquire_fault(&q, "limit");
    q.limit = 3;
    q.mode = FENCELOCK__V1__MODE__SHARED;
    assert_acquire_fault(&q, "limit");
    q = good_acquire();
    q.tier = (Fencelock__V1__Tier)7;
    assert_acquire_fault(&q, "tier");
    q = good_acquire();
    q.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    q.wait_ms = FL_WAIT_MS_MAX + 1;
    assert_acquire_fault(&q, "wait_ms");
    q = good_acquire();
    q.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    q.request_id = 0;
    assert_acquire_fault(&q, "request_id");
}

static void a_session_id_that_is_none_of_ours_is_an_unknown_session(void **state)
{
    Fencelock__V1__AcquireRequest q = good_acquire();
    struct reading r;

    (void)state;
    q.session_id = (char *)"s_nobody";
    reading_init(&r);
    assert_false(fl_arguments_acquire(&r.args, &q.base));
    assert_int_equal(r.outcome.status.code, FL_RPC_NOT_FOUND);
    assert_string_equal(r.outcome.status.reason, "SESSION_NOT_FOUND");
}

static void a_ttl_of_zero_is_refused_and_an_absent_one_is_ten_seconds(void **state)
{
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    struct reading r;

    (void)state;
    reading_init(&r);
    assert_true(fl_arguments_options(&r.args, NULL));
    assert_int_equal(r.request.ttl_ms, FL_TTL_MS_DEFAULT);
    options.has_ttl_ms_case = FENCELOCK__V1__SESSION_OPTIONS__HAS_TTL_MS_TTL_MS;
    options.ttl_ms = 0;
    assert_false(fl_arguments_options(&r.args, &options));
    assert_fault(&r, "ttl_ms");
    options.ttl_ms = FL_TTL_MS_MIN;
    options.has_lock_delay_ms_case =
        FENCELOCK__V1__SESSION_OPTIONS__HAS_LOCK_DELAY_MS_LOCK_DELAY_MS;
    options.lock_delay_ms = 0;
    assert_true(fl_arguments_options(&r.args, &options));
    options.lock_delay_ms = FL_LOCK_DELAY_MS_MAX + 1;
    assert_false(fl_arguments_options(&r.args, &options));
    assert_fault(&r, "lock_delay_ms");
}

static void tokens_of_zero_and_beyond_the_highest_are_refused(void **state)
{
    Fencelock__V1__ReleaseRequest q = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    struct reading r;

    (void)state;
    q.session_id = (char *)SESSION;
    q.name = (char *)"invoice/1";
    reading_init(&r);
    assert_false(fl_arguments_release(&r.args, &q.base));
    assert_fault(&r, "token");
    q.token = FL_TOKEN_MAX + 1;
    assert_false(fl_arguments_release(&r.args, &q.base));
    assert_fault(&r, "token");
    q.token = FL_TOKEN_MAX;
    assert_true(fl_arguments_release(&r.args, &q.base));
}

static void a_force_release_needs_a_reason(void **state)
{
    Fencelock__V1__ForceReleaseRequest q = FENCELOCK__V1__FORCE_RELEASE_REQUEST__INIT;
    struct reading r;

    (void)state;
    q.name = (char *)"invoice/1";
    q.token = 5;
    reading_init(&r);
    assert_false(fl_arguments_force_release(&r.args, &q.base));
    assert_fault(&r, "reason");
    q.reason = (char *)"stuck";
    assert_true(fl_arguments_force_release(&r.args, &q.base));
}

/* --- Outcomes --- */

static const char *const code_names[] = {
    [FL_RPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [FL_RPC_NOT_FOUND] = "NOT_FOUND",
    [FL_RPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [FL_RPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [FL_RPC_ABORTED] = "ABORTED",
    [FL_RPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [FL_RPC_INTERNAL] = "INTERNAL",
    [FL_RPC_UNAVAILABLE] = "UNAVAILABLE",
};

static const struct {
    struct fl_reply reply;
    const char *reason; /* NULL: no error */
    enum fl_rpc_code code;
} outcomes[] = {
    {{.answer = FL_ANS_OK}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_GRANTED}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_HELD}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_TIMED_OUT}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_CANCELLED}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_NOT_WAITING}, NULL, FL_RPC_OK},
    {{.answer = FL_ANS_SESSION_NOT_FOUND}, "SESSION_NOT_FOUND", FL_RPC_NOT_FOUND},
    {{.answer = FL_ANS_STALE_TOKEN}, "STALE_TOKEN", FL_RPC_FAILED_PRECONDITION},
    {{.answer = FL_ANS_MODE_CONFLICT}, "MODE_CONFLICT", FL_RPC_FAILED_PRECONDITION},
    {{.answer = FL_ANS_REQUEST_REUSED}, "REQUEST_REUSED", FL_RPC_FAILED_PRECONDITION},
    {{.answer = FL_ANS_ENDED}, "REQUEST_ENDED", FL_RPC_FAILED_PRECONDITION},
    {{.answer = FL_ANS_TOKENS_EXHAUSTED}, "TOKENS_EXHAUSTED", FL_RPC_RESOURCE_EXHAUSTED},
    {{.answer = FL_ANS_QUEUED}, "INTERNAL", FL_RPC_INTERNAL},
    {{.status = FL_REPLY_NOT_LEADER}, "NO_LEADER", FL_RPC_UNAVAILABLE},
    {{.status = FL_REPLY_NOT_READY}, "NODE_STARTING", FL_RPC_UNAVAILABLE},
    {{.status = FL_REPLY_CHANGING}, "CHANGE_RUNNING", FL_RPC_UNAVAILABLE},
    {{.status = FL_REPLY_BUSY}, "BUSY", FL_RPC_RESOURCE_EXHAUSTED},
    {{.status = FL_REPLY_DISK_FULL}, "DISK_FULL", FL_RPC_RESOURCE_EXHAUSTED},
    {{.status = FL_REPLY_INVALID, .field = {"name", 4}, .text = {"is empty", 8}},
     "BAD_ARGUMENT",
     FL_RPC_INVALID_ARGUMENT},
};

static bool read_node(struct reading *r, uint64_t node_id, const char *address)
{
    Fencelock__V1__AddNodeRequest q = FENCELOCK__V1__ADD_NODE_REQUEST__INIT;

    q.node_id = node_id;
    q.address = (char *)address;
    reading_init(r);
    return fl_arguments_add_node(&r->args, &q.base);
}

static void a_new_node_has_an_id_and_an_address_to_dial(void **state)
{
    static const char *const bad[] = {"",
                                      "host",
                                      "host:",
                                      ":3363",
                                      "host:0",
                                      "h:65536",
                                      "h:33x",
                                      "a,b:1",
                                      "a b:1",
                                      "h:1 ",
                                      "\n:1",
                                      "6=h:3363",
                                      "h:99999999999999999999"};
    struct reading r;

    (void)state;
    assert_true(read_node(&r, 6, "10.0.0.6:3363"));
    assert_int_equal(r.request.type, FL_REQ_ADD_NODE);
    assert_int_equal(r.request.node_id, 6);
    assert_true(fl_str_equal(r.request.name, FL_STR("10.0.0.6:3363")));
    assert_true(read_node(&r, 6, "[fd00::6]:3363"));
    for (size_t i = 0; i < FL_ARRAY_LEN(bad); i++) {
        assert_false(read_node(&r, 6, bad[i]));
        assert_fault(&r, "address");
    }
    assert_false(read_node(&r, 0, "h:1"));
    assert_fault(&r, "node_id");
}

static void every_answer_of_a_node_has_its_code_and_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(outcomes); i++) {
        struct fl_outcome outcome = {{.code = FL_RPC_OK}, "", ""};

        assert_int_equal(fl_outcome_of(&outcome, FL_ASK_REPLIED, &outcomes[i].reply),
                         outcomes[i].reason == NULL);
        assert_int_equal(outcome.status.code, outcomes[i].code);
        if (outcomes[i].reason != NULL)
            assert_string_equal(outcome.status.reason, outcomes[i].reason);
    }
}

static void what_can_be_repeated_later_says_when(void **state)
{
    struct fl_reply busy = {.status = FL_REPLY_BUSY, .retry_ms = 250};
    struct fl_outcome outcome;

    (void)state;
    fl_outcome_of(&outcome, FL_ASK_REPLIED, &busy);
    assert_int_equal(outcome.status.retry_after_ms, 250);
    fl_outcome_of_error(&outcome, FL_E_BUSY);
    assert_true(outcome.status.retry_after_ms > 0);
}

/* C32, C75: the sentence says what is, so that the reader need not ask. */
static void a_mode_conflict_says_the_present_mode(void **state)
{
    struct fl_reply shared = {.answer = FL_ANS_MODE_CONFLICT, .mode = FL_MODE_SHARED};
    struct fl_reply counted = {
        .answer = FL_ANS_MODE_CONFLICT, .mode = FL_MODE_COUNTED, .limit = 17};
    struct fl_outcome outcome;

    (void)state;
    fl_outcome_of(&outcome, FL_ASK_REPLIED, &shared);
    assert_non_null(strstr(outcome.status.message, "shared"));
    fl_outcome_of(&outcome, FL_ASK_REPLIED, &counted);
    assert_non_null(strstr(outcome.status.message, "17"));
}

static void reasons_are_distinct_and_their_sentences_fit_a_trailer(void **state)
{
    (void)state;
    for (int i = 0; i < FL_REASON_COUNT; i++) {
        assert_true(strlen(fl_reason_sentence((enum fl_reason)i)) < 500);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(fl_reason_text((enum fl_reason)i),
                                    fl_reason_text((enum fl_reason)j));
    }
}

/* docs/api.md is where users look a reason up. */
static void every_reason_stands_in_the_documentation_with_its_code(void **state)
{
    FILE *file = fopen(API_DOCUMENTATION, "r");
    static char text[65536];
    size_t len;

    (void)state;
    assert_non_null(file);
    len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    for (int i = 0; i < FL_REASON_COUNT; i++) {
        char row[128];

        snprintf(row, sizeof row, "| `%s` | %s |", fl_reason_text((enum fl_reason)i),
                 code_names[fl_reason_code((enum fl_reason)i)]);
        if (strstr(text, row) == NULL)
            fail_msg("docs/api.md lacks: %s", row);
    }
}

static void a_grants_answer_has_the_lease_both_ways_and_a_miss_the_holder(void **state)
{
    struct fl_reply granted = {.answer = FL_ANS_GRANTED, .token = 9, .ttl_ms = 10000};
    struct fl_reply held = {.answer = FL_ANS_HELD,
                            .holder_client = FL_STR("payouts"),
                            .holder_token = 8,
                            .holder_for_ms = 1500,
                            .mode = FL_MODE_EXCLUSIVE};
    struct fl_answer_context context = {.request_id = 3, .wall_ms = 1000000};
    const Fencelock__V1__AcquireResponse *response;
    struct fl_arena arena;

    (void)state;
    fl_arena_init(&arena);
    response =
        (const Fencelock__V1__AcquireResponse *)fl_answer_acquire(&arena, &granted, &context);
    assert_true(response->granted);
    assert_int_equal(response->token, 9);
    assert_int_equal(response->lease_ms, 10000);
    assert_int_equal(response->lease_until_ms, 1010000);
    assert_int_equal(response->request_id, 3);
    response = (const Fencelock__V1__AcquireResponse *)fl_answer_acquire(&arena, &held, &context);
    assert_false(response->granted);
    assert_int_equal(response->cause, FENCELOCK__V1__CAUSE__TIMED_OUT);
    assert_string_equal(response->holder->client, "payouts");
    assert_int_equal(response->holder->token, 8);
    assert_int_equal(response->holder->held_for_ms, 1500);
    fl_arena_deinit(&arena);
}

/* --- Page tokens, strings --- */

static void page_tokens_come_back_and_others_are_refused(void **state)
{
    static const char *const bad[] = {"a1", "b41", "aXY", "a4", "41"};
    char out[FL_NAME_MAX];
    struct fl_arena arena;
    struct fl_str last;

    (void)state;
    fl_arena_init(&arena);
    assert_int_equal(fl_page_parse(fl_page_token(&arena, FL_STR("r\xc3\xa9/1")), out, &last),
                     FL_OK);
    assert_true(fl_str_equal(last, FL_STR("r\xc3\xa9/1")));
    assert_int_equal(fl_page_parse("", out, &last), FL_OK);
    assert_int_equal(last.len, 0);
    for (size_t i = 0; i < FL_ARRAY_LEN(bad); i++)
        assert_int_equal(fl_page_parse(bad[i], out, &last), FL_E_INVALID);
    fl_arena_deinit(&arena);
}

/* C30: a zero byte must not make one name of another. */
static void strings_with_zero_bytes_or_bad_utf8_are_refused_with_their_field(void **state)
{
    /* AcquireRequest: name (2) */
    static const uint8_t zero[] = {0x12, 3, 'a', 0, 'b'}, bad[] = {0x12, 2, 0xc3, 0x28},
                         good[] = {0x12, 1, 'a'}, cut[] = {0x12, 9, 'a'};
    /* CreateSessionRequest: options (1) { client (1) } */
    static const uint8_t nested[] = {0x0a, 4, 0x0a, 2, 'x', 0};
    const ProtobufCMessageDescriptor *acquire = &fencelock__v1__acquire_request__descriptor;
    ProtobufCMessage *message;
    const char *field;

    (void)state;
    assert_null(fl_wire_unpack(acquire, zero, sizeof zero, &field));
    assert_string_equal(field, "name");
    assert_null(fl_wire_unpack(acquire, bad, sizeof bad, &field));
    assert_string_equal(field, "name");
    assert_null(fl_wire_unpack(&fencelock__v1__create_session_request__descriptor, nested,
                               sizeof nested, &field));
    assert_string_equal(field, "client");
    assert_null(fl_wire_unpack(acquire, cut, sizeof cut, &field));
    assert_null(field);
    message = fl_wire_unpack(acquire, good, sizeof good, &field);
    assert_non_null(message);
    protobuf_c_message_free_unpacked(message, NULL);
}

/* --- Rate rates --- */

static void a_rate_allows_a_burst_then_its_share_and_says_when(void **state)
{
    static const uint64_t key[2] = {1, 2};
    struct fl_rates_config config = {.per_s = {[FL_RATE_SESSION] = 10}};
    struct fl_rates *rates = fl_rates_new(&config, key);
    uint32_t retry_ms = 0;
    uint64_t now_ms = 5000;

    (void)state;
    for (unsigned i = 0; i < 10 * FL_RATES_BURST_S; i++)
        assert_int_equal(fl_rates_take(rates, now_ms, FL_RATE_SESSION, FL_STR("a")), 0);
    retry_ms = fl_rates_take(rates, now_ms, FL_RATE_SESSION, FL_STR("a"));
    assert_int_equal(retry_ms, 100);
    assert_int_equal(fl_rates_take(rates, now_ms, FL_RATE_SESSION, FL_STR("b")), 0);
    assert_int_equal(fl_rates_take(rates, now_ms, FL_RATE_NAME, FL_STR("a")), 0);
    now_ms += retry_ms;
    assert_int_equal(fl_rates_take(rates, now_ms, FL_RATE_SESSION, FL_STR("a")), 0);
    assert_int_not_equal(fl_rates_take(rates, now_ms, FL_RATE_SESSION, FL_STR("a")), 0);
    fl_rates_free(rates);
}

static void the_buckets_of_many_askers_stay_bounded(void **state)
{
    static const uint64_t key[2] = {1, 2};
    struct fl_rates_config config = {.per_s = {[FL_RATE_NAME] = 1}};
    struct fl_rates *rates = fl_rates_new(&config, key);

    (void)state;
    for (unsigned i = 0; i < FL_RATES_BURST_S; i++)
        fl_rates_take(rates, 1, FL_RATE_NAME, FL_STR("first"));
    assert_int_not_equal(fl_rates_take(rates, 1, FL_RATE_NAME, FL_STR("first")), 0);
    for (uint32_t i = 0; i < FL_RATES_BUCKETS_MAX; i++)
        fl_rates_take(rates, 1, FL_RATE_NAME, (struct fl_str){(char *)&i, sizeof i});
    /* It made room. */
    assert_int_equal(fl_rates_take(rates, 1, FL_RATE_NAME, FL_STR("first")), 0);
    fl_rates_free(rates);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(absent_fields_of_an_acquire_are_its_documented_defaults),
    cmocka_unit_test(every_bad_field_of_an_acquire_is_named),
    cmocka_unit_test(a_session_id_that_is_none_of_ours_is_an_unknown_session),
    cmocka_unit_test(a_ttl_of_zero_is_refused_and_an_absent_one_is_ten_seconds),
    cmocka_unit_test(tokens_of_zero_and_beyond_the_highest_are_refused),
    cmocka_unit_test(a_force_release_needs_a_reason),
    cmocka_unit_test(a_new_node_has_an_id_and_an_address_to_dial),
    cmocka_unit_test(every_answer_of_a_node_has_its_code_and_reason),
    cmocka_unit_test(what_can_be_repeated_later_says_when),
    cmocka_unit_test(a_mode_conflict_says_the_present_mode),
    cmocka_unit_test(reasons_are_distinct_and_their_sentences_fit_a_trailer),
    cmocka_unit_test(every_reason_stands_in_the_documentation_with_its_code),
    cmocka_unit_test(a_grants_answer_has_the_lease_both_ways_and_a_miss_the_holder),
    cmocka_unit_test(a_rate_allows_a_burst_then_its_share_and_says_when),
    cmocka_unit_test(the_buckets_of_many_askers_stay_bounded),
    cmocka_unit_test(page_tokens_come_back_and_others_are_refused),
    cmocka_unit_test(strings_with_zero_bytes_or_bad_utf8_are_refused_with_their_field),
};

int main(void)
{
#ifdef FL_BUGS
    static const enum fl_bug bugs[] = {
        FL_BUG_GATEWAY_ZERO_MEANS_ABSENT,
        FL_BUG_GATEWAY_NAME_ENDS_AT_ZERO_BYTE,
    };

    return RUN_SEEDED(tests, bugs);
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
