/* A server for strangers to call: /test.Echo/Unary and /test.Echo/Stream give back what they get.
 * The first byte of a message may ask for something else:
 *
 *     'w'  wait: no answer until the client cancels or its deadline comes
 *     'e'  end with FAILED_PRECONDITION, a reason, a field, a message with blanks, percent and
 * UTF-8 'm'  answer with the value of the metadata "x-echo" 'b'  answer with 100,000 bytes
 *
 * Prints its port; drains on SIGTERM, and ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "net/loop.h"
#include "rpc/server.h"

static struct fl_loop *loop;
static struct fl_rpc_server *server;

static void send_bytes(struct fl_rpc_call *call, const void *data, size_t len)
{
    uint8_t *message = fl_rpc_message_new(len);

    if (message != NULL && len != 0)
        memcpy(message, data, len);
    if (!fl_rpc_call_send(call, message, len))
        fl_rpc_call_pause(call);
}

/* True: the call goes on. */
static bool answer(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    static const struct fl_rpc_status failure = {
        .code = FL_RPC_FAILED_PRECONDITION,
        .message = " 100% bl\xc3\xb6"
                   "d ",
        .reason = "STALE_TOKEN",
        .field = "token",
        .retry_after_ms = 1500,
    };
    static uint8_t big[100000];
    const char *value;

    switch (len != 0 ? data[0] : 0) {
    case 'w':
        return false;
    case 'e':
        fl_rpc_call_finish(call, &failure);
        return false;
    case 'm':
        value = fl_rpc_call_metadata(call, "x-echo");
        send_bytes(call, value != NULL ? value : "", value != NULL ? strlen(value) : 0);
        return true;
    case 'b':
        send_bytes(call, big, sizeof big);
        return true;
    default:
        send_bytes(call, data, len);
        return true;
    }
}

static void finish_ok(struct fl_rpc_call *call)
{
    static const struct fl_rpc_status ok = {.code = FL_RPC_OK};

    fl_rpc_call_finish(call, &ok);
}

static void unary_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    if (answer(call, data, len))
        finish_ok(call);
}

static void stream_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    (void)answer(call, data, len);
}

static void stream_on_writable(struct fl_rpc_call *call)
{
    fl_rpc_call_resume(call);
}

static const struct fl_rpc_handler unary = {.on_message = unary_on_message};
static const struct fl_rpc_handler stream = {
    .on_message = stream_on_message,
    .on_half_close = finish_ok,
    .on_writable = stream_on_writable,
};
static const struct fl_rpc_method methods[] = {
    {"/test.Echo/Unary", false, &unary, NULL},
    {"/test.Echo/Stream", true, &stream, NULL},
};

static void on_drained(void *ctx)
{
    (void)ctx;
    fl_rpc_server_free(server);
    fl_loop_stop(loop);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    uv_signal_stop(handle);
    fl_rpc_server_drain(server, 10000, on_drained, NULL);
}

int main(void)
{
    /* Short, so that a test can see a stalled stream end. */
    struct fl_rpc_server_config config = {
        .address = "*:0", .message_bytes_max = 256 * 1024, .stall_ms = 3000};
    uv_signal_t term;
    char why[256];

    signal(SIGPIPE, SIG_IGN);
    loop = fl_loop_new();
    if (fl_rpc_server_new(loop, &config, methods, 2, &server, why) < 0) {
        fprintf(stderr, "echo_server: %s\n", why);
        return EXIT_FAILURE;
    }
    uv_signal_init(fl_loop_uv(loop), &term);
    uv_signal_start(&term, on_signal, SIGTERM);
    printf("%u\n", fl_rpc_server_port(server));
    fflush(stdout);
    fl_loop_run(loop);
    uv_close((uv_handle_t *)&term, NULL);
    fl_loop_free(loop);
    return EXIT_SUCCESS;
}
