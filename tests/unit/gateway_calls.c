/* Unary calls from the client's message to the node's request, and back. */
#include "gateway_rig.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

#define LOCK(name)  "/fencelock.v1.LockService/" name
#define ADMIN(name) "/fencelock.v1.AdminService/" name

static const struct fl_gateway_config config;

static struct fl_rpc_call *acquire(struct rig *rig, uint64_t request_id, uint32_t wait_ms)
{
    Fencelock__V1__AcquireRequest q = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;
    struct fl_rpc_call *call = call_open(rig, LOCK("Acquire"));

    q.session_id = (char *)SESSION_TEXT;
    q.name = (char *)"invoice/1";
    q.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    q.wait_ms = wait_ms;
    if (request_id != 0) {
        q.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
        q.request_id = request_id;
    }
    call_send(call, &q.base);
    return call;
}

static void an_acquire_reaches_the_leader_and_its_grant_the_client(void **state)
{
    const Fencelock__V1__AcquireResponse *response;
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = acquire(&rig, 11, 3000);
    assert_int_equal(rig_last(&rig, FL_REQ_ACQUIRE)->link, 1);
    assert_int_equal(rig_last(&rig, FL_REQ_ACQUIRE)->request.wait_ms, 3000);
    assert_int_equal(rig_last(&rig, FL_REQ_ACQUIRE)->request.request_id, 11);
    rig_reply(
        &rig, rig_last(&rig, FL_REQ_ACQUIRE),
        (struct fl_reply){.answer = FL_ANS_GRANTED, .token = 42, .ttl_ms = 10000, .index = 7});
    assert_ended(call, FL_RPC_OK, "");
    response = call_read(call, &fencelock__v1__acquire_response__descriptor);
    assert_true(response->granted);
    assert_int_equal(response->token, 42);
    assert_int_equal(response->lease_ms, 10000);
    assert_true(response->lease_until_ms > 1600000000000u);
    assert_int_equal(response->request_id, 11);
    assert_int_equal(response->log_index, 7);
    assert_false(call_has_message(call));
    rig_deinit(&rig);
}

static void an_acquire_without_request_id_is_told_the_one_that_was_chosen(void **state)
{
    const Fencelock__V1__AcquireResponse *response;
    struct fl_rpc_call *call;
    struct rig rig;
    uint64_t chosen;

    (void)state;
    rig_init(&rig, &config);
    call = acquire(&rig, 0, 0);
    chosen = rig_last(&rig, FL_REQ_ACQUIRE)->request.request_id;
    assert_true(chosen != 0 && chosen < UINT64_C(1) << 53);
    rig_reply(&rig, rig_last(&rig, FL_REQ_ACQUIRE),
              (struct fl_reply){.answer = FL_ANS_HELD,
                                .holder_client = FL_STR("payouts"),
                                .holder_token = 8,
                                .mode = FL_MODE_EXCLUSIVE});
    response = call_read(call, &fencelock__v1__acquire_response__descriptor);
    assert_false(response->granted);
    assert_int_equal(response->request_id, chosen);
    assert_string_equal(response->holder->client, "payouts");
    acquire(&rig, 0, 0);
    assert_true(rig_last(&rig, FL_REQ_ACQUIRE)->request.request_id != chosen);
    rig_deinit(&rig);
}

/* C04, C05: no orphan, in the queue or as a grant. */
static void a_call_that_is_given_up_is_abandoned_at_the_leader(void **state)
{
    static const enum fl_rpc_gone whys[] = {FL_RPC_GONE_CANCELLED, FL_RPC_GONE_DEADLINE};

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(whys); i++) {
        struct fl_rpc_call *call;
        struct rig rig;

        rig_init(&rig, &config);
        call = acquire(&rig, 11, 60000);
        call_gone(call, whys[i]);
        assert_true(rig_last(&rig, FL_REQ_CANCEL)->request.abandon);
        assert_int_equal(rig_last(&rig, FL_REQ_CANCEL)->request.request_id, 11);
        assert_int_not_equal(rig_last(&rig, FL_REQ_CANCEL)->request.asker, 0);
        assert_int_equal(rig_last(&rig, FL_REQ_CANCEL)->request.asker,
                         rig.requests[0].request.asker);
        assert_true(
            fl_session_id_equal(rig_last(&rig, FL_REQ_CANCEL)->request.session, SESSION_ID));
        /* The grant that crosses it finds nobody. */
        rig_reply(&rig, &rig.requests[0], (struct fl_reply){.answer = FL_ANS_GRANTED, .token = 42});
        assert_false(call_has_message(call));
        rig_deinit(&rig);
    }
}

/* C02: after a broken connection the client asks again with its request_id, here or elsewhere, and
 * must find its grant. One that did not choose an id cannot. */
static void a_call_that_was_cut_off_is_abandoned_only_if_it_cannot_be_repeated(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call_gone(acquire(&rig, 11, 60000), FL_RPC_GONE_LOST);
    assert_int_equal(rig_count(&rig, FL_REQ_CANCEL), 0);
    call_gone(acquire(&rig, 0, 60000), FL_RPC_GONE_LOST);
    assert_int_equal(rig_count(&rig, FL_REQ_CANCEL), 1);
    rig_deinit(&rig);
}

static void a_call_that_never_went_out_leaves_nothing_to_cancel(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    rig_push_leader(&rig, 1, 0, 5);
    call_gone(acquire(&rig, 11, 60000), FL_RPC_GONE_CANCELLED);
    rig_push_leader(&rig, 1, 3, 6);
    assert_int_equal(rig.n_requests, 0);
    rig_deinit(&rig);
}

static void a_session_whose_id_nobody_learned_is_closed(void **state)
{
    Fencelock__V1__CreateSessionRequest q = FENCELOCK__V1__CREATE_SESSION_REQUEST__INIT;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = call_open(&rig, LOCK("CreateSession"));
    call_send(call, &q.base);
    id = rig_last(&rig, FL_REQ_OPEN_SESSION)->request.session;
    call_gone(call, FL_RPC_GONE_LOST);
    assert_true(fl_session_id_equal(rig_last(&rig, FL_REQ_CLOSE_SESSION)->request.session, id));
    rig_deinit(&rig);
}

static void sessions_are_created_kept_and_closed(void **state)
{
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__CreateSessionRequest create = FENCELOCK__V1__CREATE_SESSION_REQUEST__INIT;
    Fencelock__V1__KeepAliveRequest keep = FENCELOCK__V1__KEEP_ALIVE_REQUEST__INIT;
    Fencelock__V1__CloseSessionRequest close = FENCELOCK__V1__CLOSE_SESSION_REQUEST__INIT;
    const Fencelock__V1__CreateSessionResponse *created;
    const Fencelock__V1__KeepAliveResponse *kept_alive;
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    options.client = (char *)"payouts";
    create.options = &options;
    call = call_open(&rig, LOCK("CreateSession"));
    call_send(call, &create.base);
    assert_true(
        fl_str_equal(rig_last(&rig, FL_REQ_OPEN_SESSION)->request.client, FL_STR("payouts")));
    assert_int_equal(rig_last(&rig, FL_REQ_OPEN_SESSION)->request.ttl_ms, 10000);
    rig_reply(&rig, rig_last(&rig, FL_REQ_OPEN_SESSION),
              (struct fl_reply){.session = SESSION_ID, .ttl_ms = 10000});
    created = call_read(call, &fencelock__v1__create_session_response__descriptor);
    assert_string_equal(created->session_id, SESSION_TEXT);

    keep.session_id = created->session_id;
    call = call_open(&rig, LOCK("KeepAlive"));
    call_send(call, &keep.base);
    assert_false(call->is_finished); /* T11: only a node acknowledges */
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE), (struct fl_reply){.ttl_ms = 10000});
    kept_alive = call_read(call, &fencelock__v1__keep_alive_response__descriptor);
    assert_int_equal(kept_alive->ttl_ms, 10000);

    close.session_id = created->session_id;
    call = call_open(&rig, LOCK("CloseSession"));
    call_send(call, &close.base);
    rig_reply(&rig, rig_last(&rig, FL_REQ_CLOSE_SESSION), (struct fl_reply){0});
    assert_ended(call, FL_RPC_OK, "");

    /* C10: distinct from an outage. */
    call = call_open(&rig, LOCK("KeepAlive"));
    call_send(call, &keep.base);
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE),
              (struct fl_reply){.answer = FL_ANS_SESSION_NOT_FOUND});
    assert_ended(call, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    rig_deinit(&rig);
}

static void a_release_with_a_stale_token_is_a_failed_precondition(void **state)
{
    Fencelock__V1__ReleaseRequest q = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    q.session_id = (char *)SESSION_TEXT;
    q.name = (char *)"invoice/1";
    q.token = 5;
    call = call_open(&rig, LOCK("Release"));
    call_send(call, &q.base);
    assert_int_equal(rig_last(&rig, FL_REQ_RELEASE)->request.token, 5);
    rig_reply(&rig, rig_last(&rig, FL_REQ_RELEASE),
              (struct fl_reply){.answer = FL_ANS_STALE_TOKEN, .token = 9});
    assert_ended(call, FL_RPC_FAILED_PRECONDITION, "STALE_TOKEN");
    assert_non_null(strstr(call->message, "9"));
    rig_deinit(&rig);
}

static void bad_arguments_cost_the_cluster_nothing(void **state)
{
    Fencelock__V1__DescribeRequest q = FENCELOCK__V1__DESCRIBE_REQUEST__INIT;
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = call_open(&rig, LOCK("Describe"));
    call_send(call, &q.base);
    assert_ended(call, FL_RPC_INVALID_ARGUMENT, "BAD_ARGUMENT");
    assert_string_equal(call->field, "name");
    call = call_open(&rig, LOCK("Describe"));
    call_send_bytes(call, "\x0a\x7f", 2);
    assert_ended(call, FL_RPC_INVALID_ARGUMENT, "BAD_MESSAGE");
    assert_int_equal(rig.n_requests, 0);
    rig_deinit(&rig);
}

static void describe_shows_holders_and_waiters(void **state)
{
    Fencelock__V1__DescribeRequest q = FENCELOCK__V1__DESCRIBE_REQUEST__INIT;
    const Fencelock__V1__DescribeResponse *response;
    struct fl_reply_request requests[] = {
        {.client = FL_STR("a"), .token = 5, .for_ms = 100, .mode = FL_MODE_EXCLUSIVE},
        {.client = FL_STR("b"), .for_ms = 50, .mode = FL_MODE_SHARED}};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    q.name = (char *)"invoice/1";
    q.stale_ok = true;
    call = call_open(&rig, LOCK("Describe"));
    call_send(call, &q.base);
    assert_int_equal(rig_last(&rig, FL_REQ_DESCRIBE)->link, 0); /* stale: the local node */
    rig_reply(
        &rig, rig_last(&rig, FL_REQ_DESCRIBE),
        (struct fl_reply){.name_info = {.mode = FL_MODE_EXCLUSIVE, .holders = 1, .waiters = 1},
                          .requests = requests,
                          .n_requests = 2});
    response = call_read(call, &fencelock__v1__describe_response__descriptor);
    assert_string_equal(response->name, "invoice/1");
    assert_true(response->held);
    assert_int_equal(response->n_holders, 1);
    assert_int_equal(response->holders[0]->token, 5);
    assert_string_equal(response->holders[0]->session_id, ""); /* it would be a credential */
    assert_int_equal(response->waiter_count, 1);
    assert_string_equal(response->waiters[0]->client, "b");
    rig_deinit(&rig);
}

static void a_list_goes_on_where_its_page_token_says(void **state)
{
    Fencelock__V1__ListRequest q = FENCELOCK__V1__LIST_REQUEST__INIT;
    const Fencelock__V1__ListResponse *response;
    struct fl_reply_name names[] = {{.name = FL_STR("invoice/1")}, {.name = FL_STR("invoice/2")}};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    q.prefix = (char *)"invoice/";
    q.page_size = 2;
    call = call_open(&rig, LOCK("List"));
    call_send(call, &q.base);
    assert_int_equal(rig_last(&rig, FL_REQ_LIST)->request.max, 2);
    rig_reply(&rig, rig_last(&rig, FL_REQ_LIST),
              (struct fl_reply){.names = names, .n_names = 2, .more = true});
    response = call_read(call, &fencelock__v1__list_response__descriptor);
    assert_int_equal(response->n_items, 2);
    q.page_token = response->next_page_token;
    call = call_open(&rig, LOCK("List"));
    call_send(call, &q.base);
    assert_true(fl_str_equal(rig_last(&rig, FL_REQ_LIST)->request.after, FL_STR("invoice/2")));
    rig_reply(&rig, rig_last(&rig, FL_REQ_LIST), (struct fl_reply){0});
    response = call_read(call, &fencelock__v1__list_response__descriptor);
    assert_string_equal(response->next_page_token, "");
    q.page_token = (char *)"garbage";
    call = call_open(&rig, LOCK("List"));
    call_send(call, &q.base);
    assert_string_equal(call->field, "page_token");
    rig_deinit(&rig);
}

static bool is_finished(void *ctx)
{
    return ((struct fl_rpc_call *)ctx)->is_finished;
}

static void without_a_leader_a_call_ends_unavailable(void **state)
{
    static const struct fl_gateway_config quick = {.router = {.no_leader_ms = 50}};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &quick);
    rig_push_leader(&rig, 1, 0, 5);
    call = acquire(&rig, 11, 60000);
    rig_wait(&rig, is_finished, call);
    assert_ended(call, FL_RPC_UNAVAILABLE, "NO_LEADER");
    rig_deinit(&rig);
}

static void a_full_gateway_says_when_to_come_again(void **state)
{
    static const struct fl_gateway_config small = {.router = {.requests_max = 1}};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &small);
    acquire(&rig, 11, 60000);
    call = acquire(&rig, 12, 60000);
    assert_ended(call, FL_RPC_RESOURCE_EXHAUSTED, "BUSY");
    assert_true(call->retry_after_ms > 0);
    rig_deinit(&rig);
}

/* --- AdminService --- */

static void status_of_all_nodes_names_those_that_cannot_be_asked(void **state)
{
    Fencelock__V1__StatusRequest q = FENCELOCK__V1__STATUS_REQUEST__INIT;
    const Fencelock__V1__StatusResponse *response;
    struct fl_status_info info = {.node_id = 1, .role = 2, .version = FL_STR("0.1.0")};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    fl_gateway_link_down(rig.gateway, 2);
    q.all_nodes = true;
    call = call_open(&rig, ADMIN("Status"));
    call_send(call, &q.base);
    assert_int_equal(rig_count(&rig, FL_REQ_STATUS), 2);
    rig_reply(&rig, &rig.requests[0], (struct fl_reply){.info = info});
    assert_false(call->is_finished);
    fl_gateway_link_down(rig.gateway, 1); /* while it is asked */
    assert_ended(call, FL_RPC_OK, "");
    response = call_read(call, &fencelock__v1__status_response__descriptor);
    assert_int_equal(response->n_nodes, 3);
    assert_string_equal(response->nodes[0]->role, "leader");
    assert_string_equal(response->nodes[0]->error, "");
    assert_int_equal(response->nodes[1]->node_id, 2);
    assert_string_not_equal(response->nodes[1]->error, "");
    assert_string_not_equal(response->nodes[2]->error, "");
    rig_deinit(&rig);
}

static void status_is_answered_by_the_local_node_without_a_leader(void **state)
{
    Fencelock__V1__StatusRequest q = FENCELOCK__V1__STATUS_REQUEST__INIT;
    struct fl_rpc_call *call, *given_up;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    rig_push_leader(&rig, 1, 0, 5);
    call = call_open(&rig, ADMIN("Status"));
    call_send(call, &q.base);
    assert_int_equal(rig_last(&rig, FL_REQ_STATUS)->link, 0);
    rig_reply(&rig, rig_last(&rig, FL_REQ_STATUS), (struct fl_reply){.info = {.node_id = 1}});
    assert_ended(call, FL_RPC_OK, "");
    q.all_nodes = true;
    given_up = call_open(&rig, ADMIN("Status"));
    call_send(given_up, &q.base);
    call_gone(given_up, FL_RPC_GONE_CANCELLED);
    rig_deinit(&rig);
}

static void an_operator_is_named_to_those_who_lose(void **state)
{
    Fencelock__V1__ForceReleaseRequest q = FENCELOCK__V1__FORCE_RELEASE_REQUEST__INIT;
    const struct fl_request *request;
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    q.name = (char *)"invoice/1";
    q.token = 5;
    q.reason = (char *)"stuck";
    call = call_open(&rig, ADMIN("ForceRelease"));
    call_send(call, &q.base);
    request = &rig_last(&rig, FL_REQ_FORCE_RELEASE)->request;
    assert_true(fl_str_equal(request->actor, FL_STR("192.0.2.1:5000")));
    assert_true(fl_str_equal(request->reason, FL_STR("stuck")));
    rig_reply(&rig, rig_last(&rig, FL_REQ_FORCE_RELEASE), (struct fl_reply){0});
    assert_ended(call, FL_RPC_OK, "");
    rig_deinit(&rig);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_acquire_reaches_the_leader_and_its_grant_the_client),
    cmocka_unit_test(an_acquire_without_request_id_is_told_the_one_that_was_chosen),
    cmocka_unit_test(a_call_that_is_given_up_is_abandoned_at_the_leader),
    cmocka_unit_test(a_call_that_was_cut_off_is_abandoned_only_if_it_cannot_be_repeated),
    cmocka_unit_test(a_call_that_never_went_out_leaves_nothing_to_cancel),
    cmocka_unit_test(a_session_whose_id_nobody_learned_is_closed),
    cmocka_unit_test(sessions_are_created_kept_and_closed),
    cmocka_unit_test(a_release_with_a_stale_token_is_a_failed_precondition),
    cmocka_unit_test(bad_arguments_cost_the_cluster_nothing),
    cmocka_unit_test(describe_shows_holders_and_waiters),
    cmocka_unit_test(a_list_goes_on_where_its_page_token_says),
    cmocka_unit_test(without_a_leader_a_call_ends_unavailable),
    cmocka_unit_test(a_full_gateway_says_when_to_come_again),
    cmocka_unit_test(status_of_all_nodes_names_those_that_cannot_be_asked),
    cmocka_unit_test(status_is_answered_by_the_local_node_without_a_leader),
    cmocka_unit_test(an_operator_is_named_to_those_who_lose),
};

#ifdef FL_BUGS
int main(void)
{
    static const enum fl_bug bugs[] = {FL_BUG_GATEWAY_KEEPS_ABANDONED};

    return RUN_SEEDED(tests, bugs);
}
#else
int main(void)
{
    int failed = cmocka_run_group_tests_name("gone later", tests, NULL, NULL);

    rig_is_gone_at_once = true;
    return failed + cmocka_run_group_tests_name("gone at once", tests, NULL, NULL);
}
#endif
