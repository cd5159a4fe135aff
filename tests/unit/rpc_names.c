/* A channel whose endpoint is a name: which of its addresses is dialled, and when it is asked for
 * again. The resolver is this file's. */
#include "test.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/channel.h"
#include "rpc/server.h"

#define SERVERS 3u /* on 127.0.0.2, 127.0.0.3, ...; who is asked answers with the last number */

/* --- The resolver, which libuv finds in the place of the C library's --- */

static pthread_mutex_t names_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned answers[4], n_answers; /* last numbers of 127.0.0.x */

static void name_is(unsigned n, const unsigned *numbers)
{
    pthread_mutex_lock(&names_mutex);
    n_answers = n;
    memcpy(answers, numbers, n * sizeof *numbers);
    pthread_mutex_unlock(&names_mutex);
}

static struct addrinfo *new_answer(unsigned number, unsigned port, struct addrinfo *next)
{
    struct addrinfo *info = calloc(1, sizeof *info + sizeof(struct sockaddr_in));
    struct sockaddr_in *addr = (struct sockaddr_in *)(void *)(info + 1);

    addr->sin_family = AF_INET;
    addr->sin_port = htons((uint16_t)port);
    addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + number);
    info->ai_family = AF_INET;
    info->ai_socktype = SOCK_STREAM;
    info->ai_addr = (struct sockaddr *)addr;
    info->ai_addrlen = sizeof *addr;
    info->ai_next = next;
    return info;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    unsigned port = (unsigned)strtoul(service, NULL, 10);

    (void)hints;
    *ret = NULL;
    if (strcmp(node, "locks.test") != 0)
        return EAI_NONAME;
    pthread_mutex_lock(&names_mutex);
    for (unsigned i = n_answers; i > 0; i--)
        *ret = new_answer(answers[i - 1], port, *ret);
    pthread_mutex_unlock(&names_mutex);
    return *ret != NULL ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list != NULL) {
        struct addrinfo *next = list->ai_next;

        free(list);
        list = next;
    }
}

/* --- Servers and a channel --- */

struct bed {
    struct fl_loop *loop;
    struct fl_rpc_method methods[SERVERS];
    struct fl_rpc_server *servers[SERVERS];
    unsigned numbers[SERVERS]; /* of their addresses */
    struct fl_rpc_channel *channel;
};

static void tell_number(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    const struct fl_rpc_status status = {.code = FL_RPC_OK};
    const unsigned *number = fl_rpc_call_method_ctx(call);
    uint8_t *message = fl_rpc_message_new(1);

    (void)data, (void)len;
    message[0] = (uint8_t)*number;
    fl_rpc_call_send(call, message, 1);
    fl_rpc_call_finish(call, &status);
}

static const struct fl_rpc_handler who = {.on_message = tell_number};

/* Servers share a port, which the first one chooses. False: somebody else has it on another
 * address. */
static bool start_servers(struct bed *bed)
{
    unsigned port = 0;

    for (unsigned i = 0; i < SERVERS; i++) {
        char address[32], why[256];
        struct fl_rpc_server_config config = {.address = address};

        bed->numbers[i] = 2 + i;
        bed->methods[i] = (struct fl_rpc_method){"/t.T/Who", false, &who, &bed->numbers[i]};
        snprintf(address, sizeof address, "127.0.0.%u:%u", bed->numbers[i], port);
        if (fl_rpc_server_new(bed->loop, &config, &bed->methods[i], 1, &bed->servers[i], why) < 0)
            return false;
        port = fl_rpc_server_port(bed->servers[i]);
    }
    return true;
}

static void stop_servers(struct bed *bed)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        fl_rpc_server_free(bed->servers[i]);
        bed->servers[i] = NULL;
    }
}

static int set_up(void **state)
{
    struct fl_rpc_channel_config config = {.backoff_min_ms = 1, .backoff_max_ms = 10};
    struct bed *bed = calloc(1, sizeof *bed);
    char endpoint[64], why[256];

    bed->loop = fl_loop_new();
    while (!start_servers(bed))
        stop_servers(bed);
    snprintf(endpoint, sizeof endpoint, "locks.test:%u", fl_rpc_server_port(bed->servers[0]));
    config.endpoints = endpoint;
    assert_int_equal(fl_rpc_channel_new(bed->loop, &config, &bed->channel, why), FL_OK);
    *state = bed;
    return 0;
}

static int tear_down(void **state)
{
    struct bed *bed = *state;

    fl_rpc_channel_free(bed->channel);
    stop_servers(bed);
    fl_loop_free(bed->loop);
    free(bed);
    return 0;
}

struct answer {
    bool is_done;
    unsigned number; /* 0: nobody answered */
};

static void on_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data, size_t len)
{
    struct answer *answer = ctx;

    (void)call;
    if (len == 1)
        answer->number = data[0];
}

static void on_done(struct fl_rpc_client_call *call, void *ctx, const struct fl_rpc_status *status,
                    bool was_sent)
{
    struct answer *answer = ctx;

    (void)call, (void)status, (void)was_sent;
    answer->is_done = true;
}

/* The number of the server that answers, or 0. */
static unsigned ask(struct bed *bed, bool wait_for_ready)
{
    static const struct fl_rpc_call_handler handler = {.on_message = on_message,
                                                       .on_done = on_done};
    struct answer answer = {0};
    struct fl_rpc_client_call *call =
        fl_rpc_channel_call(bed->channel, "/t.T/Who", 0, wait_for_ready, &handler, &answer);

    assert_non_null(call);
    assert_int_equal(fl_rpc_client_call_send(call, fl_rpc_message_new(0), 0), FL_OK);
    fl_rpc_client_call_half_close(call);
    while (!answer.is_done)
        uv_run(fl_loop_uv(bed->loop), UV_RUN_ONCE);
    return answer.number;
}

static void await_disconnect(struct bed *bed)
{
    while (fl_rpc_channel_endpoint(bed->channel) != NULL)
        uv_run(fl_loop_uv(bed->loop), UV_RUN_ONCE);
}

/* --- Promises --- */

static void a_name_is_asked_for_again_when_its_server_is_gone(void **state)
{
    struct bed *bed = *state;

    name_is(1, (unsigned[]){2});
    assert_int_equal(ask(bed, true), 2);
    name_is(1, (unsigned[]){4});
    assert_int_equal(ask(bed, true), 2); /* what works is kept */
    fl_rpc_server_free(bed->servers[0]);
    bed->servers[0] = NULL;
    await_disconnect(bed);
    assert_int_equal(ask(bed, true), 4);
}

/* A gateway that accepts and cannot serve is left for the name's next address (C24). */
static void moving_on_comes_to_each_address_of_a_name(void **state)
{
    struct bed *bed = *state;
    bool seen[5] = {false};

    name_is(3, (unsigned[]){2, 3, 4});
    for (int i = 0; i < 3; i++) {
        seen[ask(bed, true)] = true;
        fl_rpc_channel_move_on(bed->channel, "it cannot serve us");
        await_disconnect(bed);
    }
    assert_true(seen[2] && seen[3] && seen[4]);
}

static void addresses_that_refuse_are_passed_by_wherever_it_begins(void **state)
{
    struct bed *bed = *state;

    name_is(4, (unsigned[]){9, 8, 3, 7}); /* only .3 listens */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(bed, false), 3);
        fl_rpc_channel_move_on(bed->channel, "again");
        await_disconnect(bed);
    }
    name_is(2, (unsigned[]){9, 8});
    assert_int_equal(ask(bed, false), 0);
    name_is(0, answers);
    assert_int_equal(ask(bed, false), 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_name_is_asked_for_again_when_its_server_is_gone),
        CASE(moving_on_comes_to_each_address_of_a_name),
        CASE(addresses_that_refuse_are_passed_by_wherever_it_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
