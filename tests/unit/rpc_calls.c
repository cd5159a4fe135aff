/* A server and a channel of ours in one loop, over loopback. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "net/conn.h"
#include "rpc/channel.h"
#include "rpc/server.h"

struct bed {
    struct fl_loop *loop;
    struct fl_rpc_server *server;
    struct fl_rpc_channel *channel;
    char endpoints[128];
    struct fl_rpc_call *held; /* a call that the server keeps */
    unsigned gone, last_gone; /* server side */
    unsigned heard;           /* messages of streams */
};

/* --- The server: 'h' holds the call, 'x' fails it, 'n' has no memory for the answer, '!' frees the
 * server, anything else comes back --- */

static struct bed *bed_of(struct fl_rpc_call *call)
{
    return fl_rpc_call_method_ctx(call);
}

static void echo(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    uint8_t *message = fl_rpc_message_new(len);

    memcpy(message, data, len);
    fl_rpc_call_send(call, message, len);
}

static void finish(struct fl_rpc_call *call, enum fl_rpc_code code)
{
    const struct fl_rpc_status status = {.code = code,
                                         .message =
                                             code != FL_RPC_OK ? "no, \xc3\xa9 is 100%" : NULL,
                                         .reason = code != FL_RPC_OK ? "WHY" : NULL,
                                         .retry_after_ms = 7};

    fl_rpc_call_finish(call, &status);
}

static void unary_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    if (len != 0 && data[0] == 'h') {
        bed_of(call)->held = call;
    } else if (len != 0 && data[0] == 'x') {
        finish(call, FL_RPC_FAILED_PRECONDITION);
    } else if (len != 0 && data[0] == 'n') {
        assert_false(fl_rpc_call_send(call, NULL, 0));
    } else if (len != 0 && data[0] == '!') {
        fl_rpc_server_free(bed_of(call)->server);
        bed_of(call)->server = NULL;
    } else {
        echo(call, data, len);
        finish(call, FL_RPC_OK);
    }
}

static void stream_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    bed_of(call)->heard++;
    if (len != 0 && data[0] == 'x')
        finish(call, FL_RPC_FAILED_PRECONDITION);
    else
        echo(call, data, len);
}

static void on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    bed_of(call)->gone++;
    bed_of(call)->last_gone = why;
    if (bed_of(call)->held == call)
        bed_of(call)->held = NULL;
}

static void stream_on_half_close(struct fl_rpc_call *call)
{
    finish(call, FL_RPC_OK);
}

static const struct fl_rpc_handler unary = {.on_message = unary_on_message, .on_gone = on_gone};
static const struct fl_rpc_handler stream = {
    .on_message = stream_on_message, .on_half_close = stream_on_half_close, .on_gone = on_gone};

static struct fl_rpc_server *start_server(struct bed *bed, unsigned port)
{
    static struct fl_rpc_method methods[2];
    struct fl_rpc_server_config config = {0};
    struct fl_rpc_server *server;
    char address[32], why[256];

    methods[0] = (struct fl_rpc_method){"/t.T/Unary", false, &unary, bed};
    methods[1] = (struct fl_rpc_method){"/t.T/Stream", true, &stream, bed};
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    config.address = address;
    assert_int_equal(fl_rpc_server_new(bed->loop, &config, methods, 2, &server, why), FL_OK);
    return server;
}

/* --- The client's side of a call --- */

struct result {
    struct fl_rpc_client_call *call;
    void (*then)(void *ctx); /* what its end sets off */
    void *then_ctx;
    unsigned messages, done;
    size_t bytes;
    enum fl_rpc_code code;
    bool was_sent;
    uint32_t retry_after_ms;
    char message[256], reason[32], last[64];
};

static void on_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data, size_t len)
{
    struct result *result = ctx;

    (void)call;
    result->messages++;
    result->bytes += len;
    snprintf(result->last, sizeof result->last, "%.*s", (int)len, (const char *)data);
}

static void on_done(struct fl_rpc_client_call *call, void *ctx, const struct fl_rpc_status *status,
                    bool was_sent)
{
    struct result *result = ctx;

    assert_ptr_equal(call, result->call);
    result->call = NULL;
    result->done++;
    result->code = status->code;
    result->was_sent = was_sent;
    result->retry_after_ms = status->retry_after_ms;
    snprintf(result->message, sizeof result->message, "%s",
             status->message != NULL ? status->message : "");
    snprintf(result->reason, sizeof result->reason, "%s",
             status->reason != NULL ? status->reason : "");
    if (result->then != NULL)
        result->then(result->then_ctx);
}

static const struct fl_rpc_call_handler client = {.on_message = on_message, .on_done = on_done};

static void say(struct result *result, const char *text)
{
    size_t len = strlen(text);
    uint8_t *message = fl_rpc_message_new(len);

    memcpy(message, text, len);
    assert_int_equal(fl_rpc_client_call_send(result->call, message, len), FL_OK);
}

static void begin(struct bed *bed, struct result *result, const char *path, const char *text,
                  unsigned deadline_ms, bool wait_for_ready)
{
    memset(result, 0, sizeof *result);
    result->call =
        fl_rpc_channel_call(bed->channel, path, deadline_ms, wait_for_ready, &client, result);
    assert_non_null(result->call);
    if (text == NULL)
        return;
    say(result, text);
    fl_rpc_client_call_half_close(result->call);
}

static void turn(struct bed *bed)
{
    uv_run(fl_loop_uv(bed->loop), UV_RUN_ONCE);
}

static void run_until_done(struct bed *bed, const struct result *result)
{
    while (result->done == 0)
        turn(bed);
    assert_int_equal(result->done, 1);
}

static void open_channel(struct bed *bed)
{
    struct fl_rpc_channel_config config = {
        .endpoints = bed->endpoints, .backoff_min_ms = 1, .backoff_max_ms = 10};
    char why[256];

    assert_int_equal(fl_rpc_channel_new(bed->loop, &config, &bed->channel, why), FL_OK);
}

static int set_up(void **state)
{
    struct bed *bed = calloc(1, sizeof *bed);

    bed->loop = fl_loop_new();
    bed->server = start_server(bed, 0);
    snprintf(bed->endpoints, sizeof bed->endpoints, "127.0.0.1:%u",
             fl_rpc_server_port(bed->server));
    open_channel(bed);
    *state = bed;
    return 0;
}

static int tear_down(void **state)
{
    struct bed *bed = *state;

    fl_rpc_channel_free(bed->channel);
    fl_rpc_server_free(bed->server);
    fl_loop_free(bed->loop);
    free(bed);
    return 0;
}

/* --- Promises --- */

static void a_call_gets_its_answer_and_its_status(void **state)
{
    struct bed *bed = *state;
    struct result ok, bad, missing;

    begin(bed, &ok, "/t.T/Unary", "echo", 5000, false);
    begin(bed, &bad, "/t.T/Unary", "x", 5000, false);
    begin(bed, &missing, "/t.T/None", "", 5000, false);
    run_until_done(bed, &ok);
    run_until_done(bed, &bad);
    run_until_done(bed, &missing);
    assert_int_equal(ok.code, FL_RPC_OK);
    assert_string_equal(ok.last, "echo");
    assert_int_equal(bad.code, FL_RPC_FAILED_PRECONDITION);
    assert_string_equal(bad.message, "no, \xc3\xa9 is 100%");
    assert_string_equal(bad.reason, "WHY");
    assert_int_equal(bad.retry_after_ms, 7);
    assert_int_equal(missing.code, FL_RPC_UNIMPLEMENTED);
}

static void a_stream_carries_many_messages_both_ways(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Stream", NULL, 0, false);
    for (int i = 0; i < 1000; i++)
        say(&result, "ping");
    while (result.messages < 1000)
        turn(bed);
    say(&result, "last");
    fl_rpc_client_call_half_close(result.call);
    run_until_done(bed, &result);
    assert_int_equal(result.code, FL_RPC_OK);
    assert_int_equal(result.messages, 1001);
    assert_string_equal(result.last, "last");
}

static void a_deadline_ends_both_sides(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Unary", "hold", 30, false);
    run_until_done(bed, &result);
    assert_int_equal(result.code, FL_RPC_DEADLINE_EXCEEDED);
    while (bed->gone == 0)
        turn(bed);
    assert_null(bed->held);
}

static void a_cancel_reaches_the_server(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Unary", "hold", 0, false);
    while (bed->held == NULL)
        turn(bed);
    fl_rpc_client_call_cancel(result.call);
    assert_int_equal(result.done, 1);
    assert_int_equal(result.code, FL_RPC_CANCELLED);
    while (bed->gone == 0)
        turn(bed);
    assert_int_equal(bed->last_gone, FL_RPC_GONE_CANCELLED);
}

/* An endpoint that is not there costs one step to the next. */
static void the_channel_walks_its_endpoints(void **state)
{
    struct bed *bed = *state;
    struct result result;

    for (int i = 0; i < 4; i++) { /* wherever it begins */
        fl_rpc_channel_free(bed->channel);
        snprintf(bed->endpoints, sizeof bed->endpoints, "127.0.0.1:1,127.0.0.1:%u,localhost:1",
                 fl_rpc_server_port(bed->server));
        open_channel(bed);
        begin(bed, &result, "/t.T/Unary", "found", 5000, false);
        run_until_done(bed, &result);
        assert_string_equal(result.last, "found");
    }
}

static void without_a_server_a_call_fails_at_once_or_waits(void **state)
{
    struct bed *bed = *state;
    struct result fast, patient;
    unsigned port = fl_rpc_server_port(bed->server);

    fl_rpc_server_free(bed->server);
    begin(bed, &fast, "/t.T/Unary", "now", 0, false);
    begin(bed, &patient, "/t.T/Unary", "later", 0, true);
    run_until_done(bed, &fast);
    assert_int_equal(fast.code, FL_RPC_UNAVAILABLE);
    assert_false(fast.was_sent);
    assert_int_equal(patient.done, 0);
    bed->server = start_server(bed, port);
    run_until_done(bed, &patient);
    assert_int_equal(patient.code, FL_RPC_OK);
}

static void a_lost_connection_is_told_and_dialled_again(void **state)
{
    struct bed *bed = *state;
    struct result held, next;

    begin(bed, &held, "/t.T/Unary", "hold", 0, true);
    while (bed->held == NULL)
        turn(bed);
    fl_rpc_channel_move_on(bed->channel, "the test says so");
    run_until_done(bed, &held);
    assert_int_equal(held.code, FL_RPC_UNAVAILABLE);
    assert_true(held.was_sent);
    begin(bed, &next, "/t.T/Unary", "again", 5000, false);
    run_until_done(bed, &next);
    assert_string_equal(next.last, "again");
}

static void note_drained(void *ctx)
{
    *(bool *)ctx = true;
}

/* A drain lets waiting calls end, and new ones go to the successor. */
static void a_drain_loses_no_call(void **state)
{
    struct bed *bed = *state;
    struct fl_rpc_server *old = bed->server;
    struct result held, next;
    unsigned port = fl_rpc_server_port(old);
    bool is_drained = false;

    begin(bed, &held, "/t.T/Unary", "hold", 0, true);
    while (bed->held == NULL)
        turn(bed);
    fl_rpc_server_drain(old, 10000, note_drained, &is_drained);
    bed->server = start_server(bed, port);
    begin(bed, &next, "/t.T/Unary", "successor", 5000, true);
    run_until_done(bed, &next);
    assert_string_equal(next.last, "successor");
    assert_false(is_drained);
    finish(bed->held, FL_RPC_OK);
    run_until_done(bed, &held);
    assert_int_equal(held.code, FL_RPC_OK);
    while (!is_drained)
        turn(bed);
    fl_rpc_server_free(old);
}

/* Streams are many and the connection is one. */
static void a_thousand_calls_share_a_connection(void **state)
{
    enum { N = 1000 };
    struct bed *bed = *state;
    static struct result results[N];

    for (int i = 0; i < N; i++)
        begin(bed, &results[i], "/t.T/Unary", "together", 20000, false);
    for (int i = 0; i < N; i++) {
        run_until_done(bed, &results[i]);
        assert_int_equal(results[i].code, FL_RPC_OK);
    }
}

static void wait_until_held(struct bed *bed)
{
    while (bed->held == NULL)
        turn(bed);
}

/* The server lets go of what was waited for at once, not when it misses the client. */
static void a_freed_channel_says_that_its_calls_are_cancelled(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Unary", "hold", 0, false);
    wait_until_held(bed);
    fl_rpc_channel_free(bed->channel);
    bed->channel = NULL;
    assert_int_equal(result.code, FL_RPC_CANCELLED);
    while (bed->gone == 0)
        turn(bed);
    assert_int_equal(bed->last_gone, FL_RPC_GONE_CANCELLED);
}

/* What a channel has to say as its last word goes out though nobody runs the loop any more. */
static void freeing_the_loop_lets_last_words_out(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Unary", "hold", 0, false);
    wait_until_held(bed);
    fl_rpc_channel_free(bed->channel);
    fl_rpc_server_free(bed->server);
    fl_loop_free(bed->loop);
    assert_int_equal(bed->gone, 1);
    bed->loop = fl_loop_new();
    bed->server = start_server(bed, 0);
    bed->channel = NULL;
}

static void a_finished_call_hears_nothing_more(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Stream", NULL, 0, false);
    say(&result, "x");
    say(&result, "more");
    say(&result, "and more");
    fl_rpc_client_call_half_close(result.call);
    run_until_done(bed, &result);
    while (bed->gone == 0)
        turn(bed);
    assert_int_equal(result.code, FL_RPC_FAILED_PRECONDITION);
    assert_int_equal(bed->heard, 1);
    assert_int_equal(bed->gone, 1);
}

static void an_answer_without_memory_is_a_failure(void **state)
{
    struct bed *bed = *state;
    struct result result;

    begin(bed, &result, "/t.T/Unary", "no memory", 5000, false);
    run_until_done(bed, &result);
    assert_int_equal(result.code, FL_RPC_RESOURCE_EXHAUSTED);
    assert_int_equal(result.messages, 0);
}

struct sequel {
    struct bed *bed;
    struct result result;
};

static void begin_sequel(void *ctx)
{
    struct sequel *sequel = ctx;

    begin(sequel->bed, &sequel->result, "/t.T/Unary", "sequel", 5000, true);
}

/* The answer and the GOAWAY come in one read: what the answer sets off is not allowed on that
 * connection any more, and has not been sent either. */
static void a_call_begun_as_the_server_leaves_goes_to_its_successor(void **state)
{
    struct bed *bed = *state;
    struct fl_rpc_server *old = bed->server;
    unsigned port = fl_rpc_server_port(old);
    struct sequel sequel = {.bed = bed};
    struct result held;
    bool is_drained = false;

    begin(bed, &held, "/t.T/Unary", "hold", 0, true);
    held.then = begin_sequel;
    held.then_ctx = &sequel;
    wait_until_held(bed);
    finish(bed->held, FL_RPC_FAILED_PRECONDITION);
    fl_rpc_server_drain(old, 10000, note_drained, &is_drained);
    bed->server = start_server(bed, port);
    run_until_done(bed, &held);
    run_until_done(bed, &sequel.result);
    assert_int_equal(sequel.result.code, FL_RPC_OK);
    assert_string_equal(sequel.result.last, "sequel");
    while (!is_drained)
        turn(bed);
    fl_rpc_server_free(old);
}

static void free_channel(void *ctx)
{
    struct bed *bed = ctx;

    fl_rpc_channel_free(bed->channel);
    bed->channel = NULL;
}

static void a_channel_may_be_freed_by_a_call_that_ends(void **state)
{
    struct bed *bed = *state;
    struct result first, second;

    begin(bed, &first, "/t.T/Unary", "hold", 0, true);
    wait_until_held(bed);
    bed->held = NULL;
    begin(bed, &second, "/t.T/Unary", "hold", 0, true);
    wait_until_held(bed);
    first.then = free_channel;
    first.then_ctx = bed;
    fl_rpc_channel_move_on(bed->channel, "the test says so");
    run_until_done(bed, &first);
    run_until_done(bed, &second);
    assert_null(bed->channel);
}

static void a_server_may_be_freed_by_its_handler(void **state)
{
    struct bed *bed = *state;
    struct result first, second;

    begin(bed, &first, "/t.T/Unary", "!", 5000, false);
    begin(bed, &second, "/t.T/Stream", "behind it", 5000, false);
    run_until_done(bed, &first);
    run_until_done(bed, &second);
    assert_int_equal(first.code, FL_RPC_UNAVAILABLE);
    assert_int_equal(second.code, FL_RPC_UNAVAILABLE);
    assert_int_equal(bed->gone, 2);
    assert_int_equal(bed->heard, 0);
}

static void faulty_endpoints_are_named(void **state)
{
    struct bed *bed = *state;
    struct fl_rpc_channel_config config = {.endpoints = "127.0.0.1:1,nonsense"};
    struct fl_rpc_channel *channel;
    char why[256];

    assert_int_equal(fl_rpc_channel_new(bed->loop, &config, &channel, why), FL_E_INVALID);
    assert_string_equal(why, "the endpoint \"nonsense\" is not HOST:PORT");
    config.endpoints = " , ";
    assert_int_equal(fl_rpc_channel_new(bed->loop, &config, &channel, why), FL_E_INVALID);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_call_gets_its_answer_and_its_status),
        CASE(a_stream_carries_many_messages_both_ways),
        CASE(a_deadline_ends_both_sides),
        CASE(a_cancel_reaches_the_server),
        CASE(the_channel_walks_its_endpoints),
        CASE(without_a_server_a_call_fails_at_once_or_waits),
        CASE(a_lost_connection_is_told_and_dialled_again),
        CASE(a_drain_loses_no_call),
        CASE(a_thousand_calls_share_a_connection),
        CASE(a_freed_channel_says_that_its_calls_are_cancelled),
        CASE(freeing_the_loop_lets_last_words_out),
        CASE(a_finished_call_hears_nothing_more),
        CASE(an_answer_without_memory_is_a_failure),
        CASE(a_call_begun_as_the_server_leaves_goes_to_its_successor),
        CASE(a_channel_may_be_freed_by_a_call_that_ends),
        CASE(a_server_may_be_freed_by_its_handler),
        CASE(faulty_endpoints_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
