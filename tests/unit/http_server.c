/* The HTTP server over loopback, spoken to in bytes: what a careless or hostile client sends. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "http/limits.h"
#include "http/server.h"
#include "net/conn.h"

struct bed {
    struct fl_loop *loop;
    struct fl_http_server *server;
    struct fl_http_exchange *held; /* of /hold */
    unsigned handled, gone;
    char last_body[256], last_query[64];
    bool is_drained;
};

/* --- The server: says what it was asked; /hold waits, /stream streams --- */

static void on_gone(void *data)
{
    struct bed *bed = data;

    bed->gone++;
    bed->held = NULL;
}

static void handle(void *ctx, struct fl_http_exchange *x)
{
    const struct fl_http_request *request = fl_http_request(x);
    struct fl_http_answer answer = {.status = 200, .type = "text/plain"};
    struct bed *bed = ctx;
    char text[128];

    bed->handled++;
    snprintf(bed->last_body, sizeof bed->last_body, "%.*s", FL_STR_ARGS(request->body));
    snprintf(bed->last_query, sizeof bed->last_query, "%.*s", FL_STR_ARGS(request->query));
    if (fl_str_equal(request->path, FL_STR("/hold"))) {
        bed->held = x;
        fl_http_on_gone(x, on_gone, bed);
        return;
    }
    if (fl_str_equal(request->path, FL_STR("/stream"))) {
        fl_http_stream_begin(x, "text/plain");
        fl_http_stream(x, FL_STR("one"));
        fl_http_stream(x, FL_STR("two"));
        fl_http_stream_end(x);
        return;
    }
    snprintf(text, sizeof text, "%u %.*s", bed->handled, FL_STR_ARGS(request->path));
    answer.body = fl_str_from(text);
    fl_http_reply(x, &answer);
}

static void bed_init(struct bed *bed)
{
    struct fl_http_config config = {.address = "127.0.0.1:0", .handle = handle, .ctx = bed};
    char why[256];

    memset(bed, 0, sizeof *bed);
    bed->loop = fl_loop_new();
    assert_int_equal(fl_http_server_new(bed->loop, &config, &bed->server, why), FL_OK);
}

static void bed_deinit(struct bed *bed)
{
    fl_http_server_free(bed->server);
    fl_loop_free(bed->loop);
}

/* --- A client that sends bytes and keeps what comes back --- */

struct client {
    struct bed *bed;
    struct fl_conn *conn;
    struct fl_buf got;
    bool is_open, is_closed;
};

static void client_on_open(struct fl_conn *c, void *ctx)
{
    (void)c;
    ((struct client *)ctx)->is_open = true;
}

static int client_on_read(struct fl_conn *c, void *ctx, const uint8_t *data, size_t len)
{
    (void)c;
    fl_buf_put(&((struct client *)ctx)->got, data, len);
    return FL_OK;
}

static void client_on_close(struct fl_conn *c, void *ctx, int error, const char *why)
{
    (void)c, (void)error, (void)why;
    ((struct client *)ctx)->is_closed = true;
}

static const struct fl_conn_handler client_handler = {
    .on_open = client_on_open, .on_read = client_on_read, .on_close = client_on_close};

static void turn(struct bed *bed)
{
    uv_run(fl_loop_uv(bed->loop), UV_RUN_NOWAIT);
}

/* Turns the loop until `condition`; fails after ten seconds. */
#define UNTIL(bed, condition)                                                                      \
    do {                                                                                           \
        uint64_t until_ = fl_loop_update_now_ms((bed)->loop) + 10000;                              \
        while (!(condition) && fl_loop_update_now_ms((bed)->loop) < until_)                        \
            turn(bed);                                                                             \
        assert_true(condition);                                                                    \
    } while (0)

static void client_init(struct client *client, struct bed *bed)
{
    char address[32];

    memset(client, 0, sizeof *client);
    client->bed = bed;
    snprintf(address, sizeof address, "127.0.0.1:%u", fl_http_server_port(bed->server));
    client->conn = fl_conn_connect(bed->loop, address, 5000, &client_handler, client);
    UNTIL(bed, client->is_open);
}

static void client_deinit(struct client *client)
{
    if (!client->is_closed)
        fl_conn_close(client->conn, FL_E_CLOSED, "done");
    UNTIL(client->bed, client->is_closed);
    fl_buf_deinit(&client->got);
}

static void client_send(struct client *client, const void *data, size_t len)
{
    if (!client->is_closed)
        (void)fl_conn_write(client->conn, data, len);
}

/* How often `text` stands in what came back. */
static unsigned count(struct client *client, const char *text)
{
    unsigned n = 0;

    fl_buf_put(&client->got, "", 1);
    client->got.len--;
    for (const char *at = (char *)client->got.data; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static bool has_status(struct client *client, unsigned status)
{
    char line[32];

    snprintf(line, sizeof line, "HTTP/1.1 %u ", status);
    return client->got.len >= strlen(line) && memcmp(client->got.data, line, strlen(line)) == 0;
}

/* --- Tests --- */

#define HOST "Host: x\r\n"

static const struct {
    const char *bytes;
    unsigned status;
} requests[] = {
    {"GET / HTTP/1.1\r\n" HOST "\r\n", 200},
    {"GET / HTTP/1.0\r\n\r\n", 200},
    {"\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 200},
    {"GET http://x/y?z HTTP/1.1\r\n" HOST "\r\n", 200},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 200},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200},
    {"GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200},
    /* Without Host, or with two, nobody knows whom it is for. */
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
    /* Two ways to tell where a request ends smuggle a second one in. */
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1x\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 65537\r\n\r\n", 413},
    {"POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\n" HOST "Expect: the worst\r\n\r\n", 417},
    {"GET / HTTP/2.0\r\n" HOST "\r\n", 505},
    {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n" HOST "X: a\x01z\r\n\r\n", 400},
    {"GET /\x01 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GARBAGE\r\n\r\n", 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},             /* gRPC at the wrong port */
    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400}, /* TLS at a plain port */
};

/* Whatever the bytes are, they are answered, whole or one by one, and bad ones end the connection.
 */
static void every_byte_stream_is_answered(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed);
    for (size_t i = 0; i < 2 * FL_ARRAY_LEN(requests); i++) {
        const char *bytes = requests[i / 2].bytes;
        size_t step = i % 2 == 0 ? strlen(bytes) : 1;
        struct client client;

        client_init(&client, &bed);
        for (size_t at = 0; at < strlen(bytes); at += step) {
            client_send(&client, bytes + at, step);
            turn(&bed);
        }
        UNTIL(&bed, client.got.len > 0);
        if (!has_status(&client, requests[i / 2].status))
            fail_msg("\"%s\" got \"%.40s\"", bytes, (char *)client.got.data);
        if (requests[i / 2].status != 200)
            assert_int_equal(count(&client, "Connection: close"), 1);
        client_deinit(&client);
    }
    bed_deinit(&bed);
}

static void send_repeated(struct client *client, const char *text, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        client_send(client, text, strlen(text));
}

static void too_much_of_anything_is_refused(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);

    client_init(&client, &bed);
    send_repeated(&client, "GET / HTTP/1.1\r\n", 1);
    send_repeated(&client, "X-Many: 1\r\n", FL_HTTP_HEADERS_MAX + 1);
    UNTIL(&bed, has_status(&client, 431));
    client_deinit(&client);

    client_init(&client, &bed);
    send_repeated(&client, "GET / HTTP/1.1\r\nX-Long: ", 1);
    send_repeated(&client, "0123456789abcdef", FL_HTTP_HEAD_BYTES_MAX / 16);
    UNTIL(&bed, has_status(&client, 431));
    client_deinit(&client);

    client_init(&client, &bed);
    send_repeated(&client, "GET /", 1);
    send_repeated(&client, "0123456789abcdef", FL_HTTP_URL_BYTES_MAX / 16);
    UNTIL(&bed, has_status(&client, 414));
    client_deinit(&client);

    client_init(&client, &bed);
    send_repeated(&client, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 1);
    send_repeated(&client, "400\r\n", 1);
    for (unsigned i = 0; i < FL_HTTP_BODY_BYTES_MAX / 1024; i++) {
        send_repeated(&client, "0123456789abcdef", 64);
        send_repeated(&client, "\r\n400\r\n", 1);
    }
    send_repeated(&client, "x", 1);
    UNTIL(&bed, has_status(&client, 413));
    client_deinit(&client);

    /* One byte a chunk, or extensions without end, cost more than the body has. */
    client_init(&client, &bed);
    send_repeated(&client, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 1);
    send_repeated(&client, "1;x=0123456789abcdef\r\na\r\n", FL_HTTP_REQUEST_BYTES_MAX / 24 + 100);
    UNTIL(&bed, has_status(&client, 413) || has_status(&client, 400));
    client_deinit(&client);

    assert_int_equal(bed.handled, 0);
    bed_deinit(&bed);
}

/* Answers come in the order of the requests, also when the first takes its time. */
static void pipelined_requests_wait_for_their_turn(void **state)
{
    struct bed bed;
    struct client client;
    struct fl_http_answer answer = {.status = 200, .body = FL_STR("at last")};

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    send_repeated(&client, "POST /a HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi", 1);
    send_repeated(&client, "GET /b HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    for (int i = 0; i < 20; i++)
        turn(&bed);
    assert_int_equal(bed.handled, 1);
    assert_int_equal(client.got.len, 0);
    fl_http_reply(bed.held, &answer);
    UNTIL(&bed, count(&client, "3 /b") == 1);
    assert_int_equal(count(&client, "HTTP/1.1 200"), 3);
    assert_true(strstr((char *)client.got.data, "at last") <
                strstr((char *)client.got.data, "2 /a"));
    client_deinit(&client);
    bed_deinit(&bed);
}

static void a_flood_behind_a_slow_request_ends_the_connection(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    send_repeated(&client, "GET /b HTTP/1.1\r\n" HOST "\r\n", FL_HTTP_PIPELINE_BYTES_MAX / 20);
    UNTIL(&bed, client.is_closed);
    assert_int_equal(bed.gone, 1);
    client_deinit(&client);
    bed_deinit(&bed);
}

/* A wait whose client left is told so, and only once. */
static void a_client_that_leaves_gives_its_request_up(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    client_deinit(&client);
    UNTIL(&bed, bed.gone == 1);
    bed_deinit(&bed);
    assert_int_equal(bed.gone, 1);
}

static void a_server_that_stops_gives_every_request_up(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    fl_http_server_free(bed.server);
    assert_int_equal(bed.gone, 1);
    client_deinit(&client);
    fl_loop_free(bed.loop);
}

static void on_drained(void *ctx)
{
    ((struct bed *)ctx)->is_drained = true;
}

/* Those that idle are closed at once, what is in hand is answered first. */
static void draining_answers_what_is_in_hand(void **state)
{
    struct fl_http_answer answer = {.status = 200, .body = FL_STR("late")};
    struct client idle, busy;
    struct bed bed;

    (void)state;
    bed_init(&bed);
    client_init(&idle, &bed);
    client_init(&busy, &bed);
    send_repeated(&busy, "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    fl_http_server_drain(bed.server, 60000, on_drained, &bed);
    UNTIL(&bed, idle.is_closed);
    assert_false(bed.is_drained);
    fl_http_reply(bed.held, &answer);
    UNTIL(&bed, count(&busy, "late") == 1);
    assert_int_equal(count(&busy, "Connection: close"), 1);
    client_deinit(&busy);
    UNTIL(&bed, bed.is_drained);
    client_deinit(&idle);
    bed_deinit(&bed);
}

static void a_stream_goes_out_in_chunks_or_ends_with_its_connection(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "GET /stream HTTP/1.1\r\n" HOST "\r\nGET /n HTTP/1.1\r\n" HOST "\r\n",
                  1);
    UNTIL(&bed, count(&client, "2 /n") == 1);
    assert_int_equal(count(&client, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200"), 1);
    client_deinit(&client);

    client_init(&client, &bed);
    send_repeated(&client, "GET /stream HTTP/1.0\r\n\r\n", 1);
    UNTIL(&bed, client.is_closed);
    assert_int_equal(count(&client, "onetwo"), 1);
    client_deinit(&client);
    bed_deinit(&bed);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(&client, "HEAD /a HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, count(&client, "\r\n\r\n") == 1);
    assert_int_equal(count(&client, "Content-Length: 4"), 1);
    assert_int_equal(count(&client, "1 /a"), 0);
    client_deinit(&client);
    bed_deinit(&bed);
}

static void a_body_may_wait_to_be_asked_for(void **state)
{
    struct bed bed;
    struct client client;

    (void)state;
    bed_init(&bed);
    client_init(&client, &bed);
    send_repeated(
        &client, "POST /?q=1 HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        1);
    UNTIL(&bed, has_status(&client, 100));
    send_repeated(&client, "body", 1);
    UNTIL(&bed, count(&client, "HTTP/1.1 200") == 1);
    assert_string_equal(bed.last_body, "body");
    assert_string_equal(bed.last_query, "q=1");
    client_deinit(&client);
    bed_deinit(&bed);
}

/* Over the limit those that idle make room; the busy stay. */
static void a_full_house_closes_who_idles(void **state)
{
    struct client *clients = fl_xcalloc(FL_HTTP_CONNECTIONS_MAX + 1, sizeof *clients);
    struct fl_http_server_stats stats;
    struct bed bed;

    (void)state;
    bed_init(&bed);
    client_init(&clients[0], &bed);
    send_repeated(&clients[0], "GET /hold HTTP/1.1\r\n" HOST "\r\n", 1);
    UNTIL(&bed, bed.held != NULL);
    for (unsigned i = 1; i <= FL_HTTP_CONNECTIONS_MAX; i++)
        client_init(&clients[i], &bed);
    UNTIL(&bed, clients[1].is_closed);
    assert_false(clients[0].is_closed);
    fl_http_server_stats(bed.server, &stats);
    assert_true(stats.connections <= FL_HTTP_CONNECTIONS_MAX);
    for (unsigned i = 0; i <= FL_HTTP_CONNECTIONS_MAX; i++)
        client_deinit(&clients[i]);
    free(clients);
    bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_stream_is_answered),
        cmocka_unit_test(too_much_of_anything_is_refused),
        cmocka_unit_test(pipelined_requests_wait_for_their_turn),
        cmocka_unit_test(a_flood_behind_a_slow_request_ends_the_connection),
        cmocka_unit_test(a_client_that_leaves_gives_its_request_up),
        cmocka_unit_test(a_server_that_stops_gives_every_request_up),
        cmocka_unit_test(draining_answers_what_is_in_hand),
        cmocka_unit_test(a_stream_goes_out_in_chunks_or_ends_with_its_connection),
        cmocka_unit_test(head_has_the_length_and_no_body),
        cmocka_unit_test(a_body_may_wait_to_be_asked_for),
        cmocka_unit_test(a_full_house_closes_who_idles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
