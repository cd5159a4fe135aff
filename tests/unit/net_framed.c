#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "net/address.h"
#include "net/framed.h"
#include "net/handshake.h"
#include "net/loop.h"
#include "net/mailbox.h"

/* Two ends in one loop: what each of them saw. */
struct end {
    struct fl_loop *loop;
    struct fl_framed *connection;
    size_t frames, bytes;
    uint32_t last;
    int error;
    bool is_closed;
    size_t stop_after; /* frames */
};

static void on_open(struct fl_framed *c, void *ctx)
{
    struct end *end = ctx;

    end->connection = c;
}

static int on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct end *end = ctx;

    end->frames++;
    end->bytes += len;
    if (len >= 4)
        memcpy(&end->last, data, 4);
    if (end->frames == end->stop_after)
        fl_framed_close(c, "seen enough");
    return FL_OK;
}

static void on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct end *end = ctx;

    (void)c;
    (void)why;
    assert_false(end->is_closed);
    end->is_closed = true;
    end->error = error;
    end->connection = NULL;
}

static const struct fl_framed_handler handler = {
    .on_open = on_open, .on_frame = on_frame, .on_close = on_close};

static struct fl_framed_listener *listen_free(struct fl_loop *loop, struct end *server,
                                              char address[32])
{
    struct fl_framed_listener *listener;
    char why[256];

    assert_int_equal(fl_framed_listen(loop, "127.0.0.1:0", &handler, server, &listener, why),
                     FL_OK);
    snprintf(address, 32, "127.0.0.1:%u", fl_framed_listener_port(listener));
    return listener;
}

static void run_until(struct fl_loop *loop, const bool *condition)
{
    while (!*condition)
        uv_run(fl_loop_uv(loop), UV_RUN_ONCE);
}

/* 2,000 frames of up to 64 KiB arrive whole and in order, whatever the kernel takes at a time. */
static void frames_arrive_whole_and_in_order(void **state)
{
    enum { N = 2000 };
    struct fl_loop *loop = fl_loop_new();
    struct end server = {.loop = loop, .stop_after = N}, client = {.loop = loop};
    char address[32];
    struct fl_framed_listener *listener = listen_free(loop, &server, address);
    static uint8_t data[65536];
    size_t sent_bytes = 0;

    (void)state;
    fl_framed_connect(loop, address, 1000, &handler, &client);
    while (client.connection == NULL)
        uv_run(fl_loop_uv(loop), UV_RUN_ONCE);
    fl_framed_set_limit(client.connection, SIZE_MAX);
    for (uint32_t i = 0; i < N; i++) {
        size_t len = 4 + i * 37 % 65000;

        memcpy(data, &i, 4);
        assert_int_equal(fl_framed_send(client.connection, data, len), FL_OK);
        sent_bytes += len;
    }
    run_until(loop, &server.is_closed);
    assert_int_equal(server.frames, N);
    assert_int_equal(server.bytes, sent_bytes);
    assert_int_equal(server.last, N - 1);
    run_until(loop, &client.is_closed);
    assert_int_equal(client.error, FL_E_CLOSED);
    fl_framed_listener_close(listener);
    fl_loop_free(loop);
}

/* A peer that does not read costs no more memory than its limit. */
static void output_is_bounded(void **state)
{
    struct fl_loop *loop = fl_loop_new();
    struct end server = {.loop = loop}, client = {.loop = loop};
    char address[32];
    struct fl_framed_listener *listener = listen_free(loop, &server, address);
    static uint8_t data[60000];
    int r = FL_OK;

    (void)state;
    fl_framed_connect(loop, address, 1000, &handler, &client);
    while (client.connection == NULL)
        uv_run(fl_loop_uv(loop), UV_RUN_ONCE);
    fl_framed_set_limit(client.connection, 1000000);
    for (int i = 0; i < 1000 && r == FL_OK; i++)
        r = fl_framed_send(client.connection, data, sizeof data);
    assert_int_equal(r, FL_E_BUSY);
    /* What a client makes us answer may be long, but never ends the process. */
    assert_int_equal(fl_framed_send(client.connection, data, (size_t)FL_FRAME_BYTES_MAX + 1),
                     FL_E_TOO_BIG);
    assert_true(fl_framed_queued(client.connection) <= 1000000);
    fl_framed_close(client.connection, "done");
    run_until(loop, &client.is_closed);
    run_until(loop, &server.is_closed);
    fl_framed_listener_close(listener);
    fl_loop_free(loop);
}

static void write_raw(struct fl_loop *loop, const char *address, const void *bytes, size_t len)
{
    uv_os_sock_t fd = socket(AF_INET, SOCK_STREAM, 0);
    struct fl_address parsed;
    struct sockaddr_storage addr;

    (void)loop;
    assert_int_equal(fl_address_parse(address, &parsed), FL_OK);
    assert_int_equal(fl_address_numeric(&parsed, &addr), FL_OK);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(struct sockaddr_in)), 0);
    assert_int_equal(send(fd, bytes, len, 0), (ssize_t)len);
    shutdown(fd, SHUT_WR);
    close(fd);
}

/* Bytes that are no frames close the connection, and nothing else. */
static void garbage_closes_only_its_connection(void **state)
{
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0};
    static const uint8_t bad_sum[] = {2, 0, 0, 0, 1, 2, 3, 4, 'h', 'i'};
    static const struct {
        const void *bytes;
        size_t len;
        int error;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, FL_E_PROTOCOL},
        {huge, sizeof huge, FL_E_PROTOCOL},
        {bad_sum, sizeof bad_sum, FL_E_PROTOCOL},
        {bad_sum, 5, FL_E_CLOSED},
    };
    struct fl_loop *loop = fl_loop_new();

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(cases); i++) {
        struct end server = {.loop = loop};
        char address[32];
        struct fl_framed_listener *listener = listen_free(loop, &server, address);

        write_raw(loop, address, cases[i].bytes, cases[i].len);
        run_until(loop, &server.is_closed);
        assert_int_equal(server.error, cases[i].error);
        assert_int_equal(server.frames, 0);
        fl_framed_listener_close(listener);
    }
    fl_loop_free(loop);
}

static void an_absent_peer_is_told(void **state)
{
    struct fl_loop *loop = fl_loop_new();
    struct end server = {.loop = loop}, client = {.loop = loop}, bad = {.loop = loop};
    char address[32];

    (void)state;
    /* A port that was free a moment ago. */
    fl_framed_listener_close(listen_free(loop, &server, address));
    uv_run(fl_loop_uv(loop), UV_RUN_NOWAIT);
    fl_framed_connect(loop, address, 1000, &handler, &client);
    fl_framed_connect(loop, "no port here", 1000, &handler, &bad);
    run_until(loop, &client.is_closed);
    run_until(loop, &bad.is_closed);
    assert_int_equal(client.error, FL_E_UNREACHABLE);
    assert_int_equal(bad.error, FL_E_INVALID);
    fl_loop_free(loop);
}

/* A silent connection is closed when it must not be silent. */
static void silence_is_noticed(void **state)
{
    struct fl_loop *loop = fl_loop_new();
    struct end server = {.loop = loop}, client = {.loop = loop};
    char address[32];
    struct fl_framed_listener *listener = listen_free(loop, &server, address);

    (void)state;
    fl_framed_connect(loop, address, 1000, &handler, &client);
    while (client.connection == NULL)
        uv_run(fl_loop_uv(loop), UV_RUN_ONCE);
    fl_framed_set_idle_timeout(client.connection, 20);
    run_until(loop, &client.is_closed);
    assert_int_equal(client.error, FL_E_TIMEOUT);
    run_until(loop, &server.is_closed);
    fl_framed_listener_close(listener);
    fl_loop_free(loop);
}

static void handshakes_tell_strangers_apart(void **state)
{
    struct fl_handshake ours = {
        .version = FL_HANDSHAKE_VERSION,
        .role = FL_SPEAKS_RAFT,
        .from = 2,
        .to = 1,
        .life = 77,
        .level = 3,
        .verdict = 1,
        .address = "ten:3363",
        .n_known = 1,
        .known = {{5, 55}},
    };
    struct fl_handshake back;
    uint8_t other[16];
    struct fl_buf buf = FL_BUF_INIT;

    (void)state;
    fl_handshake_cluster_id("a", ours.cluster_id);
    fl_handshake_cluster_id("b", other);
    fl_handshake_encode(&buf, &ours);
    assert_int_equal(fl_handshake_decode(buf.data, buf.len, &back), FL_OK);
    assert_null(fl_handshake_fault(&back, ours.cluster_id, 1, 2));
    assert_true(back.life == 77 && back.level == 3 && back.verdict == 1);
    assert_string_equal(back.address, "ten:3363");
    assert_true(back.n_known == 1 && back.known[0].id == 5 && back.known[0].life == 55);
    assert_non_null(fl_handshake_fault(&back, other, 1, 2));
    assert_non_null(fl_handshake_fault(&back, ours.cluster_id, 3, 2));
    assert_non_null(fl_handshake_fault(&back, ours.cluster_id, 1, 4));
    for (size_t len = 0; len < buf.len; len++)
        assert_int_equal(fl_handshake_decode(buf.data, len, &back), FL_E_PROTOCOL);
    buf.data[4]++;
    assert_int_equal(fl_handshake_decode(buf.data, buf.len, &back), FL_E_VERSION);
    fl_buf_deinit(&buf);
}

static void addresses_are_parsed_strictly(void **state)
{
    static const char *const bad[] = {
        "", "host", ":1", "host:", "host:99999", "host:1x", "::1:80", "[::1:80"};
    struct fl_address address;

    (void)state;
    for (size_t i = 0; i < FL_ARRAY_LEN(bad); i++)
        assert_int_equal(fl_address_parse(bad[i], &address), FL_E_INVALID);
    assert_int_equal(fl_address_parse("[::1]:80", &address), FL_OK);
    assert_string_equal(address.host, "::1");
    assert_int_equal(address.port, 80);
    assert_int_equal(fl_address_parse("*:0", &address), FL_OK);
    assert_string_equal(address.host, "");
}

struct letters {
    struct fl_mailbox *mailbox;
    uint32_t next[2];
    size_t batches;
    bool is_done;
};

enum { LETTERS = 20000 };

static void on_letter(void *ctx, const uint8_t *data, size_t len)
{
    struct letters *letters = ctx;
    uint32_t number;

    assert_int_equal(len, 5);
    memcpy(&number, data + 1, 4);
    assert_int_equal(number, letters->next[data[0]]++);
    letters->is_done = letters->next[0] == LETTERS && letters->next[1] == LETTERS;
}

static void on_batch(void *ctx)
{
    ((struct letters *)ctx)->batches++;
}

struct sender {
    struct letters *letters;
    uint8_t id;
};

static void *send_letters(void *ctx)
{
    const struct sender *sender = ctx;

    for (uint32_t i = 0; i < LETTERS; i++) {
        uint8_t letter[5] = {sender->id};

        memcpy(letter + 1, &i, 4);
        fl_mailbox_send(sender->letters->mailbox, letter, sizeof letter);
    }
    return NULL;
}

/* Two threads send; each one's letters arrive in its order, and none is lost. */
static void letters_of_each_sender_arrive_in_order(void **state)
{
    struct fl_loop *loop = fl_loop_new();
    struct letters letters = {0};
    struct sender senders[2] = {{&letters, 0}, {&letters, 1}};
    pthread_t threads[2];

    (void)state;
    letters.mailbox = fl_mailbox_new(loop, on_letter, on_batch, &letters);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, send_letters, &senders[i]);
    run_until(loop, &letters.is_done);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(letters.batches > 0);
    fl_mailbox_free(letters.mailbox);
    fl_loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_whole_and_in_order),
        cmocka_unit_test(output_is_bounded),
        cmocka_unit_test(garbage_closes_only_its_connection),
        cmocka_unit_test(an_absent_peer_is_told),
        cmocka_unit_test(silence_is_noticed),
        cmocka_unit_test(handshakes_tell_strangers_apart),
        cmocka_unit_test(addresses_are_parsed_strictly),
        cmocka_unit_test(letters_of_each_sender_arrive_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
