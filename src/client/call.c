/* Unary calls: one question, one answer, asked anew while nobody can answer. */
#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/client.h"
#include "client/clock.h"
#include "client/why.h"
#include "rpc/server.h" /* message blocks */

#define RETRY_MS_MIN 50
#define RETRY_MS_MAX 250

struct unary {
    struct fl_op op;
    struct fl_client *client;
    const char *path;
    const ProtobufCMessage *request; /* borrowed from the caller, who waits */
    bool is_repeatable;
    uint64_t deadline_ms;
    struct fl_timer retry;
    uint8_t *response; /* owned until the caller takes it */
    size_t response_len;
    int response_code; /* FL_E_NOMEM: the request or the response found no memory */
};

static void end(struct unary *unary, const struct fl_why *why)
{
    fl_client__finish(unary->client, &unary->op, why);
}

static void hear_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data,
                         size_t len)
{
    struct unary *unary = ctx;

    (void)call;
    free(unary->response);
    unary->response = malloc(len > 0 ? len : 1);
    unary->response_len = len;
    if (unary->response == NULL)
        unary->response_code = FL_E_NOMEM;
    else if (len > 0)
        memcpy(unary->response, data, len);
}

static bool may_retry(const struct unary *unary, const struct fl_why *why, bool was_sent)
{
    if (why->code != FL_E_UNREACHABLE && why->code != FL_E_NO_LEADER)
        return false;
    if (was_sent && !unary->is_repeatable)
        return false;
    return fl_client_now_ms() + RETRY_MS_MAX < unary->deadline_ms;
}

static void hear_done(struct fl_rpc_client_call *call, void *ctx,
                      const struct fl_rpc_status *status, bool was_sent)
{
    struct unary *unary = ctx;
    struct fl_client *client = unary->client;
    struct fl_why why;

    (void)call;
    fl_wire_why(status, &why);
    if (unary->response_code != 0)
        fl_why_set_nomem(&why);
    else if (why.code == 0 && unary->response == NULL)
        fl_why_set(&why, FL_E_PROTOCOL, NULL, "the answer had no message");
    if (why.code == 0) {
        end(unary, NULL);
        return;
    }
    if (may_retry(unary, &why, was_sent) && !client->is_stopping) {
        fl_timer_set(client->loop, &unary->retry,
                     fl_client_now_ms() +
                         fl_random_between(&client->session.random, RETRY_MS_MIN, RETRY_MS_MAX));
        return;
    }
    end(unary, &why);
}

static int send_request(struct unary *unary, struct fl_rpc_client_call *call)
{
    size_t len = protobuf_c_message_get_packed_size(unary->request);
    uint8_t *message = fl_rpc_message_new(len);
    int r;

    if (message == NULL)
        return FL_E_NOMEM;
    protobuf_c_message_pack(unary->request, message);
    r = fl_rpc_client_call_send(call, message, len);
    if (r == 0)
        fl_rpc_client_call_half_close(call);
    return r;
}

static void attempt(struct unary *unary)
{
    static const struct fl_rpc_call_handler handler = {.on_message = hear_message,
                                                       .on_done = hear_done};
    uint64_t now_ms = fl_client_now_ms();
    unsigned left_ms = now_ms < unary->deadline_ms ? (unsigned)(unary->deadline_ms - now_ms) : 1;
    struct fl_rpc_client_call *call;
    struct fl_why why;

    call = fl_rpc_channel_call(unary->client->calls, unary->path, left_ms, false, &handler, unary);
    if (call == NULL) {
        fl_why_set_nomem(&why);
        end(unary, &why);
    } else if (send_request(unary, call) == FL_E_NOMEM) {
        unary->response_code = FL_E_NOMEM;
        fl_rpc_client_call_cancel(call); /* ends it */
    }
}

static void retry(struct fl_timer *timer, uint64_t now_ms)
{
    (void)now_ms;
    attempt(FL_CONTAINER_OF(timer, struct unary, retry));
}

static void start(struct fl_op *op, struct fl_client *client)
{
    struct unary *unary = FL_CONTAINER_OF(op, struct unary, op);

    unary->deadline_ms = fl_client_now_ms() + client->timeout_ms;
    attempt(unary);
}

int fl_call__unary(struct fl_client *client, const char *path, bool is_repeatable,
                   const struct ProtobufCMessage *request, uint8_t **ret_data, size_t *ret_len,
                   struct fl_why *why)
{
    struct unary unary = {.op = {.start = start, .why = why},
                          .client = client,
                          .path = path,
                          .request = request,
                          .is_repeatable = is_repeatable,
                          .retry = FL_TIMER_INIT(retry)};
    int r;

    if (fl_client__is_forked(client))
        return fl_client__forked_why(why);
    r = fl_client__run(client, &unary.op);
    if (r < 0) {
        free(unary.response);
        return r;
    }
    *ret_data = unary.response;
    *ret_len = unary.response_len;
    return FL_OK;
}
