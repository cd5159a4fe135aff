/* A gateway and a real node behind one local link: what clients see of the lock service. */
#include "gateway_rig.h"

#include <stdlib.h>

#include "solo_node.h"

#define LOCK(name)  "/fencelock.v1.LockService/" name
#define ADMIN(name) "/fencelock.v1.AdminService/" name

static const struct fl_gateway_config config;

struct service {
    struct rig rig;
    struct solo *node;
};

static void to_gateway(void *ctx, const void *data, size_t len)
{
    struct service *service = ctx;

    assert_int_equal(fl_gateway_link_frame(service->rig.gateway, 0, data, len), FL_OK);
}

static void to_node(void *ctx, const void *data, size_t len)
{
    solo_send(((struct service *)ctx)->node, data, len);
}

static void pump(struct service *service)
{
    solo_pump(service->node, fl_loop_update_now_ms(service->rig.loop));
}

static void service_init(struct service *service)
{
    struct fl_gateway_link link = {.node_id = 1, .is_local = true, .send = to_node, .ctx = service};
    uint64_t now_ms;

    rig_init_bare(&service->rig, &config);
    now_ms = fl_loop_update_now_ms(service->rig.loop);
    service->node = solo_new(now_ms, to_gateway, service);
    fl_gateway_add_link(service->rig.gateway, &link);
    fl_gateway_link_up(service->rig.gateway, 0);
    solo_set_leader(service->node, now_ms, true);
    pump(service);
}

static void service_deinit(struct service *service)
{
    rig_deinit(&service->rig);
    solo_free(service->node);
}

/* --- Calls that have ended when these return, but for waits --- */

static struct fl_rpc_call *call_with(struct service *service, const char *path,
                                     const ProtobufCMessage *message)
{
    struct fl_rpc_call *call = call_open(&service->rig, path);

    call_send(call, message);
    pump(service);
    return call;
}

static char *create_session(struct service *service, const char *client)
{
    Fencelock__V1__SessionOptions options = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    Fencelock__V1__CreateSessionRequest q = FENCELOCK__V1__CREATE_SESSION_REQUEST__INIT;
    const Fencelock__V1__CreateSessionResponse *response;
    struct fl_rpc_call *call;

    options.client = (char *)client;
    q.options = &options;
    call = call_with(service, LOCK("CreateSession"), &q.base);
    assert_ended(call, FL_RPC_OK, "");
    response = call_read(call, &fencelock__v1__create_session_response__descriptor);
    return response->session_id;
}

static struct fl_rpc_call *acquire(struct service *service, const char *session,
                                   uint64_t request_id, uint32_t wait_ms)
{
    Fencelock__V1__AcquireRequest q = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;

    q.session_id = (char *)session;
    q.name = (char *)"invoice/1";
    q.has_wait_ms_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS_WAIT_MS;
    q.wait_ms = wait_ms;
    q.has_request_id_case = FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID_REQUEST_ID;
    q.request_id = request_id;
    return call_with(service, LOCK("Acquire"), &q.base);
}

static const Fencelock__V1__AcquireResponse *acquired(struct fl_rpc_call *call)
{
    assert_ended(call, FL_RPC_OK, "");
    return call_read(call, &fencelock__v1__acquire_response__descriptor);
}

static struct fl_rpc_call *release(struct service *service, const char *session, uint64_t token)
{
    Fencelock__V1__ReleaseRequest q = FENCELOCK__V1__RELEASE_REQUEST__INIT;

    q.session_id = (char *)session;
    q.name = (char *)"invoice/1";
    q.token = token;
    return call_with(service, LOCK("Release"), &q.base);
}

static const Fencelock__V1__DescribeResponse *describe(struct service *service)
{
    Fencelock__V1__DescribeRequest q = FENCELOCK__V1__DESCRIBE_REQUEST__INIT;
    struct fl_rpc_call *call;

    q.name = (char *)"invoice/1";
    call = call_with(service, LOCK("Describe"), &q.base);
    assert_ended(call, FL_RPC_OK, "");
    return call_read(call, &fencelock__v1__describe_response__descriptor);
}

/* --- Stories --- */

static void a_release_hands_the_name_to_the_waiter_with_a_higher_token(void **state)
{
    const Fencelock__V1__AcquireResponse *first, *second;
    struct fl_rpc_call *waits, *tries;
    struct service s;
    char *a, *b;

    (void)state;
    service_init(&s);
    a = create_session(&s, "a");
    b = create_session(&s, "b");
    first = acquired(acquire(&s, a, 1, 0));
    assert_true(first->granted);
    assert_int_equal(first->lease_ms, 10000);
    tries = acquire(&s, b, 1, 0);
    assert_string_equal(acquired(tries)->holder->client, "a");
    waits = acquire(&s, b, 2, 60000);
    assert_false(waits->is_finished);
    assert_int_equal(describe(&s)->waiter_count, 1);
    assert_ended(release(&s, a, first->token), FL_RPC_OK, "");
    second = acquired(waits);
    assert_true(second->granted);
    assert_true(second->token > first->token);
    assert_ended(release(&s, a, first->token), FL_RPC_OK, ""); /* repeated */
    assert_ended(release(&s, a, second->token), FL_RPC_FAILED_PRECONDITION, "STALE_TOKEN");
    service_deinit(&s);
}

/* C02 */
static void a_repeated_acquire_finds_its_first_grant(void **state)
{
    const Fencelock__V1__AcquireResponse *first, *again;
    struct service s;
    char *a;

    (void)state;
    service_init(&s);
    a = create_session(&s, "a");
    first = acquired(acquire(&s, a, 1, 0));
    again = acquired(acquire(&s, a, 1, 0));
    assert_true(again->granted);
    assert_int_equal(again->token, first->token);
    service_deinit(&s);
}

/* C04, C05 */
static void a_cancelled_wait_leaves_the_queue_and_a_grant_nobody_took_is_given_back(void **state)
{
    struct fl_rpc_call *waits;
    struct service s;
    char *a, *b;

    (void)state;
    service_init(&s);
    a = create_session(&s, "a");
    b = create_session(&s, "b");
    acquired(acquire(&s, a, 1, 0));
    waits = acquire(&s, b, 1, 60000);
    assert_int_equal(describe(&s)->waiter_count, 1);
    call_gone(waits, FL_RPC_GONE_CANCELLED);
    pump(&s);
    assert_int_equal(describe(&s)->waiter_count, 0);
    assert_true(describe(&s)->held);
    service_deinit(&s);
}

/* V10 */
static void a_wait_survives_a_change_of_the_leader(void **state)
{
    const Fencelock__V1__AcquireResponse *first;
    struct fl_rpc_call *waits;
    struct service s;
    char *a, *b;

    (void)state;
    service_init(&s);
    a = create_session(&s, "a");
    b = create_session(&s, "b");
    first = acquired(acquire(&s, a, 1, 0));
    waits = acquire(&s, b, 1, 60000);
    solo_set_leader(s.node, fl_loop_now_ms(s.rig.loop), false);
    pump(&s);
    assert_false(waits->is_finished);
    solo_set_leader(s.node, fl_loop_now_ms(s.rig.loop), true);
    pump(&s);
    assert_false(waits->is_finished);
    assert_int_equal(describe(&s)->waiter_count, 1); /* once */
    assert_ended(release(&s, a, first->token), FL_RPC_OK, "");
    assert_true(acquired(waits)->granted);
    service_deinit(&s);
}

static struct fl_rpc_call *open_stream(struct service *service)
{
    Fencelock__V1__OpenSessionRequest__Open open = FENCELOCK__V1__OPEN_SESSION_REQUEST__OPEN__INIT;
    Fencelock__V1__OpenSessionRequest q = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;

    q.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_OPEN;
    q.open = &open;
    return call_with(service, LOCK("OpenSession"), &q.base);
}

static const Fencelock__V1__OpenSessionResponse *hear(struct fl_rpc_call *call)
{
    return call_read(call, &fencelock__v1__open_session_response__descriptor);
}

static void an_operators_force_release_reaches_the_holder_with_its_reason(void **state)
{
    Fencelock__V1__ForceReleaseRequest force = FENCELOCK__V1__FORCE_RELEASE_REQUEST__INIT;
    const Fencelock__V1__OpenSessionResponse *heard;
    struct fl_rpc_call *stream;
    struct service s;
    uint64_t token;

    (void)state;
    service_init(&s);
    stream = open_stream(&s);
    token = acquired(acquire(&s, hear(stream)->opened->session_id, 1, 0))->token;
    force.name = (char *)"invoice/1";
    force.token = token + 1;
    force.by = (char *)"ops";
    force.reason = (char *)"stuck";
    assert_ended(call_with(&s, ADMIN("ForceRelease"), &force.base), FL_RPC_FAILED_PRECONDITION,
                 "STALE_TOKEN");
    force.token = token;
    assert_ended(call_with(&s, ADMIN("ForceRelease"), &force.base), FL_RPC_OK, "");
    heard = hear(stream);
    assert_int_equal(heard->message_case, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_LOST);
    assert_int_equal(heard->lost->token, token);
    assert_string_equal(heard->lost->by, "ops");
    assert_string_equal(heard->lost->reason, "stuck");
    assert_false(describe(&s)->held);
    service_deinit(&s);
}

static void a_heartbeat_is_acknowledged_by_a_leader_only(void **state)
{
    Fencelock__V1__OpenSessionRequest__Heartbeat heartbeat =
        FENCELOCK__V1__OPEN_SESSION_REQUEST__HEARTBEAT__INIT;
    Fencelock__V1__OpenSessionRequest q = FENCELOCK__V1__OPEN_SESSION_REQUEST__INIT;
    struct fl_rpc_call *stream;
    struct service s;

    (void)state;
    service_init(&s);
    stream = open_stream(&s);
    hear(stream);
    q.message_case = FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE;
    q.keep_alive = &heartbeat;
    heartbeat.seq = 1;
    call_send(stream, &q.base);
    pump(&s);
    assert_int_equal(hear(stream)->keep_alive_ack->seq, 1);
    solo_set_leader(s.node, fl_loop_now_ms(s.rig.loop), false);
    heartbeat.seq = 2;
    call_send(stream, &q.base);
    pump(&s);
    assert_false(call_has_message(stream));
    solo_set_leader(s.node, fl_loop_now_ms(s.rig.loop), true);
    pump(&s);
    assert_int_equal(hear(stream)->keep_alive_ack->seq, 2);
    assert_int_equal(hear(stream)->message_case,
                     FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_OPENED);
    service_deinit(&s);
}

static void an_ended_session_is_told_and_listed_no_more(void **state)
{
    Fencelock__V1__EndSessionRequest end = FENCELOCK__V1__END_SESSION_REQUEST__INIT;
    Fencelock__V1__ListSessionsRequest list = FENCELOCK__V1__LIST_SESSIONS_REQUEST__INIT;
    const Fencelock__V1__ListSessionsResponse *listed;
    struct fl_rpc_call *stream, *call;
    struct service s;

    (void)state;
    service_init(&s);
    stream = open_stream(&s);
    call = call_with(&s, ADMIN("ListSessions"), &list.base);
    listed = call_read(call, &fencelock__v1__list_sessions_response__descriptor);
    assert_int_equal(listed->n_sessions, 1);
    end.session_id = hear(stream)->opened->session_id;
    end.by = (char *)"ops";
    assert_ended(call_with(&s, ADMIN("EndSession"), &end.base), FL_RPC_OK, "");
    assert_string_equal(hear(stream)->lost->by, "ops");
    assert_ended(stream, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    call = call_with(&s, ADMIN("ListSessions"), &list.base);
    listed = call_read(call, &fencelock__v1__list_sessions_response__descriptor);
    assert_int_equal(listed->n_sessions, 0);
    service_deinit(&s);
}

static void names_are_listed_by_page(void **state)
{
    Fencelock__V1__AcquireRequest q = FENCELOCK__V1__ACQUIRE_REQUEST__INIT;
    Fencelock__V1__ListRequest list = FENCELOCK__V1__LIST_REQUEST__INIT;
    const Fencelock__V1__ListResponse *page;
    struct service s;
    char name[32];

    (void)state;
    service_init(&s);
    q.session_id = create_session(&s, "a");
    q.name = name;
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "invoice/%d", i);
        call_with(&s, LOCK("Acquire"), &q.base);
    }
    list.prefix = (char *)"invoice/";
    list.page_size = 3;
    page = call_read(call_with(&s, LOCK("List"), &list.base),
                     &fencelock__v1__list_response__descriptor);
    assert_int_equal(page->n_items, 3);
    assert_string_equal(page->items[2]->client, "a");
    list.page_token = page->next_page_token;
    page = call_read(call_with(&s, LOCK("List"), &list.base),
                     &fencelock__v1__list_response__descriptor);
    assert_int_equal(page->n_items, 2);
    assert_string_equal(page->items[1]->name, "invoice/4");
    assert_string_equal(page->next_page_token, "");
    service_deinit(&s);
}

static void status_tells_of_the_state(void **state)
{
    Fencelock__V1__StatusRequest q = FENCELOCK__V1__STATUS_REQUEST__INIT;
    const Fencelock__V1__StatusResponse *response;
    struct service s;

    (void)state;
    service_init(&s);
    acquired(acquire(&s, create_session(&s, "a"), 1, 0));
    response = call_read(call_with(&s, ADMIN("Status"), &q.base),
                         &fencelock__v1__status_response__descriptor);
    assert_int_equal(response->n_nodes, 1);
    assert_int_equal(response->nodes[0]->sessions, 1);
    assert_int_equal(response->nodes[0]->holds, 1);
    service_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_hands_the_name_to_the_waiter_with_a_higher_token),
        cmocka_unit_test(a_repeated_acquire_finds_its_first_grant),
        cmocka_unit_test(a_cancelled_wait_leaves_the_queue_and_a_grant_nobody_took_is_given_back),
        cmocka_unit_test(a_wait_survives_a_change_of_the_leader),
        cmocka_unit_test(an_operators_force_release_reaches_the_holder_with_its_reason),
        cmocka_unit_test(a_heartbeat_is_acknowledged_by_a_leader_only),
        cmocka_unit_test(an_ended_session_is_told_and_listed_no_more),
        cmocka_unit_test(names_are_listed_by_page),
        cmocka_unit_test(status_tells_of_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
