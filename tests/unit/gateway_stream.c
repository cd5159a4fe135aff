/* The session stream and the watch, told as stories between one client and the nodes. */
#include "gateway_rig.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

typedef Fencelock__V1__OpenSessionRequest request_t;
typedef Fencelock__V1__OpenSessionResponse response_t;

#define REQUEST_INIT FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT
#define SAYS(name)   FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_##name
#define HEARS(name)  FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_##name

static const struct fl_gateway_config config;

/* --- What the client says --- */

static struct fl_rpc_call *say_open(struct rig *rig, bool release_on_disconnect)
{
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__OpenSessionRequest__Open open = FENCELOCK__V1__OPEN_SESSION_REQUEST__OPEN__INIT;
    struct fl_rpc_call *call = call_open(rig, "/fencelock.v1.LockService/OpenSession");
    request_t message = REQUEST_INIT;

    options.client = (char *)"payouts";
    options.release_on_disconnect = release_on_disconnect;
    open.options = &options;
    message.message_case = SAYS(OPEN);
    message.open = &open;
    call_send(call, &message.base);
    return call;
}

static struct fl_rpc_call *say_resume(struct rig *rig)
{
    Fencelock__V1__OpenSessionRequest__Resume resume =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__RESUME__INIT;
    struct fl_rpc_call *call = call_open(rig, "/fencelock.v1.LockService/OpenSession");
    request_t message = REQUEST_INIT;

    resume.session_id = (char *)SESSION_TEXT;
    message.message_case = SAYS(RESUME);
    message.resume = &resume;
    call_send(call, &message.base);
    return call;
}

static void say_heartbeat(struct fl_rpc_call *call, uint64_t seq)
{
    Fencelock__V1__OpenSessionRequest__Heartbeat heartbeat =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__HEARTBEAT__INIT;
    request_t message = REQUEST_INIT;

    heartbeat.seq = seq;
    message.message_case = SAYS(KEEP_ALIVE);
    message.keep_alive = &heartbeat;
    call_send(call, &message.base);
}

static void say_acquire(struct fl_rpc_call *call, uint64_t request_id, const char *name)
{
    Fencelock__V1__AcquireRequest acquire = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;
    request_t message = REQUEST_INIT;

    acquire.name = (char *)name;
    acquire.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    acquire.request_id = request_id;
    acquire.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    acquire.wait_ms = 60000;
    message.message_case = SAYS(ACQUIRE);
    message.acquire = &acquire;
    call_send(call, &message.base);
}

static void say_release(struct fl_rpc_call *call, uint64_t request_id, uint64_t token)
{
    Fencelock__V1__ReleaseRequest release = FENCELOCK__V1__RELEASE_REQUEST__INIT;
    request_t message = REQUEST_INIT;

    release.name = (char *)"invoice/1";
    release.token = token;
    release.request_id = request_id;
    message.message_case = SAYS(RELEASE);
    message.release = &release;
    call_send(call, &message.base);
}

static void say_cancel(struct fl_rpc_call *call, uint64_t request_id)
{
    Fencelock__V1__CancelRequest cancel = FENCELOCK__V1__CANCEL_REQUEST__INIT;
    request_t message = REQUEST_INIT;

    cancel.request_id = request_id;
    message.message_case = SAYS(CANCEL);
    message.cancel = &cancel;
    call_send(call, &message.base);
}

static void say_close(struct fl_rpc_call *call)
{
    Fencelock__V1__OpenSessionRequest__Close close =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__CLOSE__INIT;
    request_t message = REQUEST_INIT;

    message.message_case = SAYS(CLOSE);
    message.close = &close;
    call_send(call, &message.base);
}

static const response_t *hear(struct fl_rpc_call *call,
                              Fencelock__V1__OpenSessionResponse__MessageCase what)
{
    const response_t *response = call_read(call, &fencelock__v1__open_session_response__descriptor);

    assert_int_equal(response->message_case, what);
    return response;
}

/* A session that is open, its `opened` read. */
static struct fl_rpc_call *opened(struct rig *rig, bool release_on_disconnect,
                                  struct fl_session_id *ret_id)
{
    struct fl_rpc_call *call = say_open(rig, release_on_disconnect);
    const struct rig_request *open = rig_last(rig, FL_REQ_OPEN_SESSION);

    *ret_id = open->request.session;
    rig_reply(rig, open, (struct fl_reply){.session = *ret_id, .ttl_ms = 10000});
    hear(call, HEARS(OPENED));
    return call;
}

/* --- Stories --- */

static void a_session_opens_and_what_comes_earlier_waits(void **state)
{
    struct fl_rpc_call *call;
    const struct rig_request *open;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = say_open(&rig, false);
    open = rig_last(&rig, FL_REQ_OPEN_SESSION);
    assert_true(call->is_paused);
    say_acquire(call, 11, "invoice/1"); /* was on its way already */
    say_heartbeat(call, 1);
    assert_int_equal(rig.n_requests, 1);
    assert_true(fl_str_equal(open->request.client, FL_STR("payouts")));
    assert_true((open->request.session.high | open->request.session.low) != 0);
    rig_reply(&rig, open, (struct fl_reply){.session = SESSION_ID, .ttl_ms = 10000});
    assert_string_equal(hear(call, HEARS(OPENED))->opened->session_id, SESSION_TEXT);
    assert_false(call->is_paused);
    assert_int_equal(rig.requests[1].request.type, FL_REQ_ACQUIRE);
    assert_int_equal(rig_last(&rig, FL_REQ_KEEP_ALIVE)->request.type, FL_REQ_KEEP_ALIVE);
    rig_deinit(&rig);
}

static void a_bad_message_that_came_early_ends_the_stream_and_what_followed_it(void **state)
{
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = say_open(&rig, false);
    call_send_bytes(call, "\xff\xff", 2);
    say_heartbeat(call, 1);
    rig_reply(&rig, rig_last(&rig, FL_REQ_OPEN_SESSION),
              (struct fl_reply){.session = SESSION_ID, .ttl_ms = 10000});
    assert_ended(call, FL_RPC_INVALID_ARGUMENT, "BAD_MESSAGE");
    assert_int_equal(rig_count(&rig, FL_REQ_KEEP_ALIVE), 0);
    rig_deinit(&rig);
}

/* T11: an acknowledgement is a node's, never ours. */
static void a_heartbeat_is_acknowledged_when_the_node_did_and_not_before(void **state)
{
    const response_t *ack;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_heartbeat(call, 1);
    assert_false(call_has_message(call));
    say_heartbeat(call, 2);
    say_heartbeat(call, 3);
    assert_int_equal(rig_count(&rig, FL_REQ_KEEP_ALIVE), 1);
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE), (struct fl_reply){.ttl_ms = 10000});
    ack = hear(call, HEARS(KEEP_ALIVE_ACK));
    assert_int_equal(ack->keep_alive_ack->seq, 1);
    assert_int_equal(ack->keep_alive_ack->ttl_ms, 10000);
    assert_false(call_has_message(call));
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE), (struct fl_reply){.ttl_ms = 10000});
    assert_int_equal(hear(call, HEARS(KEEP_ALIVE_ACK))->keep_alive_ack->seq, 3);
    assert_int_equal(rig_count(&rig, FL_REQ_KEEP_ALIVE), 2);
    rig_deinit(&rig);
}

static void acquires_and_releases_are_pipelined_and_answered_by_their_ids(void **state)
{
    const response_t *response;
    const struct rig_request *first, *second;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_acquire(call, 11, "invoice/1");
    first = rig_last(&rig, FL_REQ_ACQUIRE);
    say_acquire(call, 12, "invoice/2");
    second = rig_last(&rig, FL_REQ_ACQUIRE);
    assert_true(fl_session_id_equal(second->request.session, id));
    rig_reply(&rig, second, (struct fl_reply){.answer = FL_ANS_GRANTED, .token = 42});
    response = hear(call, HEARS(ACQUIRED));
    assert_int_equal(response->acquired->request_id, 12);
    assert_int_equal(response->acquired->response->token, 42);
    rig_reply(&rig, first, (struct fl_reply){.answer = FL_ANS_TIMED_OUT});
    response = hear(call, HEARS(ACQUIRED));
    assert_int_equal(response->acquired->request_id, 11);
    assert_false(response->acquired->response->granted);
    say_release(call, 13, 42);
    rig_reply(&rig, rig_last(&rig, FL_REQ_RELEASE), (struct fl_reply){.index = 9});
    response = hear(call, HEARS(RELEASED));
    assert_int_equal(response->released->request_id, 13);
    assert_int_equal(response->released->response->log_index, 9);
    rig_deinit(&rig);
}

static void a_failed_request_is_told_and_the_stream_goes_on(void **state)
{
    const response_t *response;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_acquire(call, 11, "");
    response = hear(call, HEARS(ERROR));
    assert_int_equal(response->error->request_id, 11);
    assert_int_equal(response->error->code, FL_RPC_INVALID_ARGUMENT);
    assert_string_equal(response->error->field, "name");
    say_release(call, 12, 5);
    rig_reply(&rig, rig_last(&rig, FL_REQ_RELEASE),
              (struct fl_reply){.answer = FL_ANS_STALE_TOKEN});
    response = hear(call, HEARS(ERROR));
    assert_int_equal(response->error->request_id, 12);
    assert_string_equal(response->error->reason, "STALE_TOKEN");
    assert_false(call->is_finished);
    rig_deinit(&rig);
}

static void a_rate_limit_refuses_acquires_and_lets_heartbeats_and_releases_pass(void **state)
{
    static const struct fl_gateway_config limited = {.rates = {.per_s = {[FL_RATE_SESSION] = 1}}};
    const response_t *response;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &limited);
    call = opened(&rig, false, &id);
    for (uint64_t i = 1; i <= FL_RATES_BURST_S; i++)
        say_acquire(call, i, "invoice/1");
    assert_false(call_has_message(call));
    say_acquire(call, 9, "invoice/1");
    response = hear(call, HEARS(ERROR));
    assert_int_equal(response->error->request_id, 9);
    assert_string_equal(response->error->reason, "RATE_LIMITED");
    assert_true(response->error->retry_after_ms > 0);
    say_heartbeat(call, 1);
    say_release(call, 10, 5);
    assert_int_equal(rig_count(&rig, FL_REQ_KEEP_ALIVE), 1);
    assert_int_equal(rig_count(&rig, FL_REQ_RELEASE), 1);
    rig_deinit(&rig);
}

static void a_cancel_leaves_a_grant_that_came_first_and_the_acquires_answer_tells(void **state)
{
    const struct rig_request *acquire;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_acquire(call, 11, "invoice/1");
    acquire = rig_last(&rig, FL_REQ_ACQUIRE);
    say_cancel(call, 11);
    assert_false(rig_last(&rig, FL_REQ_CANCEL)->request.abandon);
    rig_reply(&rig, acquire, (struct fl_reply){.answer = FL_ANS_CANCELLED});
    assert_int_equal(hear(call, HEARS(ACQUIRED))->acquired->response->cause,
                     FENCELOCK__V1__CAUSE__CANCELLED);
    rig_reply(&rig, rig_last(&rig, FL_REQ_CANCEL), (struct fl_reply){.answer = FL_ANS_CANCELLED});
    assert_false(call_has_message(call));
    rig_deinit(&rig);
}

/* V10: the stream and the session survive; what was asked is asked again, and nothing else is. */
static void a_stream_survives_its_leader(void **state)
{
    struct fl_reply_request held = {
        .name = FL_STR("invoice/9"), .token = 7, .request_id = 3, .mode = FL_MODE_EXCLUSIVE};
    struct fl_rpc_call *call;
    struct fl_session_id id;
    const response_t *response;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_acquire(call, 11, "invoice/1");
    fl_gateway_link_down(rig.gateway, 1);
    say_heartbeat(call, 1);
    rig_forget_requests(&rig);
    rig_push_leader(&rig, 0, 3, 6);
    assert_int_equal(rig.n_requests, 3);
    assert_int_equal(rig.requests[0].request.type, FL_REQ_ACQUIRE);
    assert_int_equal(rig.requests[0].request.request_id, 11);
    assert_int_equal(rig.requests[1].request.type, FL_REQ_KEEP_ALIVE);
    assert_int_equal(rig.requests[2].request.type, FL_REQ_RESUME_SESSION);
    assert_true(fl_session_id_equal(rig.requests[2].request.session, id));
    rig_reply(&rig, &rig.requests[0], (struct fl_reply){.answer = FL_ANS_GRANTED, .token = 42});
    rig_reply(&rig, &rig.requests[1], (struct fl_reply){.ttl_ms = 10000});
    rig_reply(
        &rig, &rig.requests[2],
        (struct fl_reply){.session = id, .ttl_ms = 10000, .requests = &held, .n_requests = 1});
    assert_int_equal(hear(call, HEARS(ACQUIRED))->acquired->response->token, 42);
    assert_int_equal(hear(call, HEARS(KEEP_ALIVE_ACK))->keep_alive_ack->seq, 1);
    response = hear(call, HEARS(OPENED)); /* what the session has now */
    assert_int_equal(response->opened->n_holds, 1);
    assert_int_equal(response->opened->holds[0]->token, 7);
    assert_false(call->is_finished);
    rig_deinit(&rig);
}

static bool is_finished(void *ctx)
{
    return ((struct fl_rpc_call *)ctx)->is_finished;
}

/* C24 */
static void a_stream_ends_when_no_leader_comes_back(void **state)
{
    static const struct fl_gateway_config quick = {.leaderless_ms = 50};
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &quick);
    call = opened(&rig, true, &id);
    fl_gateway_link_down(rig.gateway, 1);
    rig_wait(&rig, is_finished, call);
    assert_ended(call, FL_RPC_UNAVAILABLE, "NO_LEADER");
    rig_push_leader(&rig, 0, 3, 6);
    /* We ended it, not its client: the session goes on. */
    assert_false(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    rig_deinit(&rig);
}

static void losses_are_pushed_to_the_stream_of_their_session_only(void **state)
{
    struct fl_push lost = {.type = FL_PUSH_LOST,
                           .name = FL_STR("invoice/1"),
                           .token = 42,
                           .request_id = 11,
                           .cause = FL_CAUSE_FORCED,
                           .actor = FL_STR("ops"),
                           .reason = FL_STR("stuck")};
    struct fl_push contended = {
        .type = FL_PUSH_CONTENDED, .name = FL_STR("invoice/1"), .token = 42, .waiters = 3};
    struct fl_rpc_call *call, *other;
    struct fl_session_id id, other_id;
    const response_t *response;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    other = opened(&rig, false, &other_id);
    lost.session = contended.session = id;
    rig_push(&rig, 1, &contended);
    assert_int_equal(hear(call, HEARS(CONTENDED))->contended->waiters, 3);
    rig_push(&rig, 1, &lost);
    response = hear(call, HEARS(LOST));
    assert_string_equal(response->lost->name, "invoice/1");
    assert_int_equal(response->lost->token, 42);
    assert_int_equal(response->lost->cause, FENCELOCK__V1__CAUSE__FORCE_RELEASED);
    assert_string_equal(response->lost->by, "ops");
    assert_string_equal(response->lost->reason, "stuck");
    assert_false(call_has_message(other));
    rig_deinit(&rig);
}

/* C10 */
static void the_end_of_a_session_is_told_and_ends_its_stream(void **state)
{
    struct fl_push end = {.type = FL_PUSH_SESSION_END, .cause = FL_CAUSE_EXPIRED};
    struct fl_rpc_call *call;
    const response_t *response;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &end.session);
    rig_push(&rig, 1, &end);
    response = hear(call, HEARS(LOST));
    assert_string_equal(response->lost->name, "");
    assert_int_equal(response->lost->cause, FENCELOCK__V1__CAUSE__SESSION_EXPIRED);
    assert_ended(call, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    rig_deinit(&rig);
}

static void a_heartbeat_of_an_unknown_session_ends_the_stream(void **state)
{
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, false, &id);
    say_heartbeat(call, 1);
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE),
              (struct fl_reply){.answer = FL_ANS_SESSION_NOT_FOUND});
    hear(call, HEARS(LOST));
    assert_ended(call, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    rig_deinit(&rig);
}

static void a_resume_shows_holds_and_waits_and_replaces_the_older_stream(void **state)
{
    struct fl_reply_request requests[] = {
        {.name = FL_STR("invoice/1"), .token = 42, .request_id = 11, .mode = FL_MODE_SHARED},
        {.name = FL_STR("invoice/2"), .request_id = 12, .mode = FL_MODE_EXCLUSIVE}};
    struct fl_reply reply = {
        .session = SESSION_ID, .ttl_ms = 10000, .requests = requests, .n_requests = 2};
    const Fencelock__V1__OpenSessionResponse__Opened *shown;
    struct fl_rpc_call *older, *newer;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    older = say_resume(&rig);
    rig_reply(&rig, rig_last(&rig, FL_REQ_RESUME_SESSION), reply);
    newer = say_resume(&rig);
    assert_false(older->is_finished); /* not before the node agreed */
    rig_reply(&rig, rig_last(&rig, FL_REQ_RESUME_SESSION), reply);
    assert_ended(older, FL_RPC_ABORTED, "STREAM_REPLACED");
    shown = hear(newer, HEARS(OPENED))->opened;
    assert_int_equal(shown->n_holds, 1);
    assert_int_equal(shown->holds[0]->token, 42);
    assert_int_equal(shown->n_waits, 1);
    assert_int_equal(shown->waits[0]->request_id, 12);
    call_gone(older, FL_RPC_GONE_DONE);
    assert_int_equal(rig_count(&rig, FL_REQ_DETACH), 0); /* it is carried on */
    rig_deinit(&rig);
}

static void a_resume_of_a_session_that_has_ended_is_refused_distinctly(void **state)
{
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = say_resume(&rig);
    rig_reply(&rig, rig_last(&rig, FL_REQ_RESUME_SESSION),
              (struct fl_reply){.answer = FL_ANS_SESSION_NOT_FOUND});
    assert_ended(call, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    rig_deinit(&rig);
}

static void a_broken_stream_detaches_and_releases_only_when_it_was_asked_to(void **state)
{
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call_gone(opened(&rig, false, &id), FL_RPC_GONE_LOST);
    assert_true(fl_session_id_equal(rig_last(&rig, FL_REQ_DETACH)->request.session, id));
    assert_false(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    call_gone(opened(&rig, true, &id), FL_RPC_GONE_LOST);
    assert_true(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    call_half_close(opened(&rig, true, &id));
    assert_true(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    rig_deinit(&rig);
}

static void a_stream_that_breaks_while_it_opens_closes_its_session(void **state)
{
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = say_open(&rig, false);
    call_gone(call, FL_RPC_GONE_LOST);
    assert_true(fl_session_id_equal(rig_last(&rig, FL_REQ_CLOSE_SESSION)->request.session,
                                    rig.requests[0].request.session));
    rig_deinit(&rig);
}

static void a_close_ends_the_stream_well_once_the_node_has_closed(void **state)
{
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, true, &id);
    say_close(call);
    call_half_close(call);
    assert_false(call->is_finished);
    rig_reply(&rig, rig_last(&rig, FL_REQ_CLOSE_SESSION), (struct fl_reply){0});
    assert_ended(call, FL_RPC_OK, "");
    call_gone(call, FL_RPC_GONE_DONE);
    assert_int_equal(rig_count(&rig, FL_REQ_DETACH), 0);
    rig_deinit(&rig);
}

static void a_reader_that_is_too_slow_loses_its_stream_and_keeps_its_session(void **state)
{
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, true, &id);
    say_heartbeat(call, 1);
    call->queued = 1 << 20;
    rig_reply(&rig, rig_last(&rig, FL_REQ_KEEP_ALIVE), (struct fl_reply){.ttl_ms = 10000});
    assert_ended(call, FL_RPC_RESOURCE_EXHAUSTED, "SLOW_READER");
    assert_false(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    rig_deinit(&rig);
}

static void a_client_that_says_nothing_for_its_ttl_loses_its_stream(void **state)
{
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = say_open(&rig, false);
    rig_reply(&rig, rig_last(&rig, FL_REQ_OPEN_SESSION),
              (struct fl_reply){.session = SESSION_ID, .ttl_ms = 20});
    rig_wait(&rig, is_finished, call);
    assert_ended(call, FL_RPC_ABORTED, "STREAM_SILENT");
    rig_deinit(&rig);
}

static void messages_out_of_sequence_end_the_stream(void **state)
{
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = call_open(&rig, "/fencelock.v1.LockService/OpenSession");
    say_heartbeat(call, 1);
    assert_ended(call, FL_RPC_FAILED_PRECONDITION, "BAD_SEQUENCE");
    call = opened(&rig, false, &id);
    call_send_bytes(call, "\xff\xff", 2);
    assert_ended(call, FL_RPC_INVALID_ARGUMENT, "BAD_MESSAGE");
    assert_int_equal(rig_count(&rig, FL_REQ_DETACH), 1);
    rig_deinit(&rig);
}

static void on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static void a_drain_ends_streams_and_watches_with_a_reason(void **state)
{
    bool is_drained = false;
    struct fl_rpc_call *call;
    struct fl_session_id id;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = opened(&rig, true, &id);
    fl_gateway_drain(rig.gateway, 1000, on_drained, &is_drained);
    assert_ended(call, FL_RPC_UNAVAILABLE, "SHUTTING_DOWN");
    assert_false(rig_last(&rig, FL_REQ_DETACH)->request.release_on_disconnect);
    assert_true(is_drained);
    rig_deinit(&rig);
}

/* --- Watch --- */

static struct fl_rpc_call *watch(struct rig *rig, uint64_t from_index)
{
    Fencelock__V1__WatchRequest q = FENCELOCK__V1__WATCH_REQUEST__INIT;
    struct fl_rpc_call *call = call_open(rig, "/fencelock.v1.LockService/Watch");

    q.name = (char *)"invoice/";
    q.is_prefix = true;
    if (from_index != 0) {
        q.has_from_index_case = FENCELOCK__V1__WATCH_REQUEST__HAS_FROM_INDEX_FROM_INDEX;
        q.from_index = from_index;
    }
    call_send(call, &q.base);
    rig_reply(rig, rig_last(rig, FL_REQ_WATCH), (struct fl_reply){0});
    return call;
}

static const Fencelock__V1__WatchResponse *see(struct fl_rpc_call *call,
                                               Fencelock__V1__WatchResponse__Kind kind)
{
    const Fencelock__V1__WatchResponse *event =
        call_read(call, &fencelock__v1__watch_response__descriptor);

    assert_int_equal(event->kind, kind);
    return event;
}

#define KIND(name) FENCELOCK__V1__WATCH_RESPONSE__KIND__##name

static void push_event(struct rig *rig, const struct rig_request *of, uint64_t index,
                       fl_token token, bool granted)
{
    struct fl_push push = {.type = FL_PUSH_WATCH,
                           .tag = of->request.tag,
                           .index = index,
                           .name = FL_STR("invoice/1"),
                           .token = token,
                           .granted = granted};

    rig_push(rig, of->link, &push);
}

static void push_caught_up(struct rig *rig, const struct rig_request *of, uint64_t index)
{
    struct fl_push push = {.type = FL_PUSH_CAUGHT_UP, .tag = of->request.tag, .index = index};

    rig_push(rig, of->link, &push);
}

static void a_watch_shows_who_is_there_then_what_changes(void **state)
{
    struct fl_push present = {.type = FL_PUSH_WATCH,
                              .index = 4,
                              .name = FL_STR("invoice/1"),
                              .client = FL_STR("payouts"),
                              .token = 40,
                              .granted = true,
                              .present = true};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = watch(&rig, 0);
    present.tag = rig_last(&rig, FL_REQ_WATCH)->request.tag;
    rig_push(&rig, 1, &present);
    push_caught_up(&rig, rig_last(&rig, FL_REQ_WATCH), 4);
    push_event(&rig, rig_last(&rig, FL_REQ_WATCH), 5, 40, false);
    push_event(&rig, rig_last(&rig, FL_REQ_WATCH), 5, 41, true);
    assert_string_equal(see(call, KIND(PRESENT))->client, "payouts");
    assert_int_equal(see(call, KIND(CAUGHT_UP))->index, 4);
    assert_int_equal(see(call, KIND(ENDED))->token, 40);
    assert_int_equal(see(call, KIND(GRANTED))->index, 5);
    call_gone(call, FL_RPC_GONE_CANCELLED);
    assert_int_equal(rig_last(&rig, FL_REQ_UNWATCH)->request.request_id, present.tag);
    rig_deinit(&rig);
}

/* C24: resumes without a gap, and without telling twice, in the middle of an entry. */
static void a_watch_goes_on_at_the_next_leader_where_it_stood(void **state)
{
    struct fl_rpc_call *call;
    const struct rig_request *again;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = watch(&rig, 0);
    push_caught_up(&rig, rig_last(&rig, FL_REQ_WATCH), 4);
    push_event(&rig, rig_last(&rig, FL_REQ_WATCH), 9, 41, false);
    fl_gateway_link_down(rig.gateway, 1);
    rig_push_leader(&rig, 0, 3, 6);
    again = rig_last(&rig, FL_REQ_WATCH);
    assert_int_equal(again->link, 2);
    assert_int_equal(again->request.from_index, 9);
    rig_reply(&rig, again, (struct fl_reply){0});
    push_event(&rig, again, 9, 41, false); /* the client has it */
    push_event(&rig, again, 9, 42, true);
    push_caught_up(&rig, again, 9);
    push_event(&rig, again, 10, 42, false);
    see(call, KIND(CAUGHT_UP));
    assert_int_equal(see(call, KIND(ENDED))->token, 41);
    assert_int_equal(see(call, KIND(GRANTED))->token, 42);
    assert_int_equal(see(call, KIND(ENDED))->index, 10);
    assert_false(call_has_message(call));
    rig_deinit(&rig);
}

/* A leader that steps down ends its watches; a place that is not known any more ends them too. */
static void a_watch_that_its_node_ended_is_tried_once_at_the_next(void **state)
{
    struct fl_push end = {.type = FL_PUSH_WATCH_END};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = watch(&rig, 0);
    push_caught_up(&rig, rig_last(&rig, FL_REQ_WATCH), 4);
    end.tag = rig_last(&rig, FL_REQ_WATCH)->request.tag;
    rig_push(&rig, 1, &end);
    assert_int_equal(rig_last(&rig, FL_REQ_WATCH)->request.from_index, 4);
    rig_reply(&rig, rig_last(&rig, FL_REQ_WATCH), (struct fl_reply){0});
    push_event(&rig, rig_last(&rig, FL_REQ_WATCH), 4, 40, true); /* of what was told */
    see(call, KIND(CAUGHT_UP));
    assert_false(call_has_message(call));
    end.tag = rig_last(&rig, FL_REQ_WATCH)->request.tag;
    rig_push(&rig, 1, &end);
    assert_ended(call, FL_RPC_ABORTED, "WATCH_INTERRUPTED");
    rig_deinit(&rig);
}

static void a_watch_that_cannot_go_on_says_so(void **state)
{
    struct fl_push end = {.type = FL_PUSH_WATCH_END};
    struct fl_rpc_call *call;
    struct rig rig;

    (void)state;
    rig_init(&rig, &config);
    call = watch(&rig, 77);
    assert_int_equal(rig_last(&rig, FL_REQ_WATCH)->request.from_index, 77);
    end.tag = rig_last(&rig, FL_REQ_WATCH)->request.tag;
    rig_push(&rig, 1, &end);
    assert_ended(call, FL_RPC_ABORTED, "WATCH_INTERRUPTED");
    call = watch(&rig, 0); /* and one that has not shown all who are there */
    rig_push_leader(&rig, 0, 3, 6);
    assert_ended(call, FL_RPC_ABORTED, "WATCH_INTERRUPTED");
    rig_deinit(&rig);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_session_opens_and_what_comes_earlier_waits),
    cmocka_unit_test(a_bad_message_that_came_early_ends_the_stream_and_what_followed_it),
    cmocka_unit_test(a_heartbeat_is_acknowledged_when_the_node_did_and_not_before),
    cmocka_unit_test(acquires_and_releases_are_pipelined_and_answered_by_their_ids),
    cmocka_unit_test(a_failed_request_is_told_and_the_stream_goes_on),
    cmocka_unit_test(a_rate_limit_refuses_acquires_and_lets_heartbeats_and_releases_pass),
    cmocka_unit_test(a_cancel_leaves_a_grant_that_came_first_and_the_acquires_answer_tells),
    cmocka_unit_test(a_stream_survives_its_leader),
    cmocka_unit_test(a_stream_ends_when_no_leader_comes_back),
    cmocka_unit_test(losses_are_pushed_to_the_stream_of_their_session_only),
    cmocka_unit_test(the_end_of_a_session_is_told_and_ends_its_stream),
    cmocka_unit_test(a_heartbeat_of_an_unknown_session_ends_the_stream),
    cmocka_unit_test(a_resume_shows_holds_and_waits_and_replaces_the_older_stream),
    cmocka_unit_test(a_resume_of_a_session_that_has_ended_is_refused_distinctly),
    cmocka_unit_test(a_broken_stream_detaches_and_releases_only_when_it_was_asked_to),
    cmocka_unit_test(a_stream_that_breaks_while_it_opens_closes_its_session),
    cmocka_unit_test(a_close_ends_the_stream_well_once_the_node_has_closed),
    cmocka_unit_test(a_reader_that_is_too_slow_loses_its_stream_and_keeps_its_session),
    cmocka_unit_test(a_client_that_says_nothing_for_its_ttl_loses_its_stream),
    cmocka_unit_test(messages_out_of_sequence_end_the_stream),
    cmocka_unit_test(a_drain_ends_streams_and_watches_with_a_reason),
    cmocka_unit_test(a_watch_shows_who_is_there_then_what_changes),
    cmocka_unit_test(a_watch_goes_on_at_the_next_leader_where_it_stood),
    cmocka_unit_test(a_watch_that_its_node_ended_is_tried_once_at_the_next),
    cmocka_unit_test(a_watch_that_cannot_go_on_says_so),
};

#ifdef FL_BUGS
int main(void)
{
    static const enum fl_bug bugs[] = {
        FL_BUG_GATEWAY_ACKS_BY_ITSELF,
        FL_BUG_GATEWAY_STAYS_WITHOUT_LEADER,
        FL_BUG_GATEWAY_SESSION_ENDS_WITH_STREAM,
    };

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
