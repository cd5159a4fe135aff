#include "fake_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/list.h"
#include "lock.pb-c.h"
#include "rpc/channel.h"

#define NAMES_MAX 16
#define QUEUE_MAX 64

struct fake fake;

struct fl_rpc_client_call {
    struct fl_rpc_channel *channel;
    const struct fl_rpc_call_handler *handler;
    void *ctx;
    bool is_stream, is_over;
    enum fl_rpc_code ends_with; /* with is_over */
    const char *reason;
    struct fl_list link;
    struct fl_list answers;
};

struct answer {
    struct fl_list link;
    size_t len;
    uint8_t data[];
};

struct fl_rpc_channel {
    struct fl_loop *loop;
    struct fl_timer turn;
    struct fl_list calls;
};

/* One per name: first the holder, then who waits. */
struct name {
    char name[64];
    struct {
        uint64_t request_id, token;
    } queue[QUEUE_MAX];
    size_t n;
    uint64_t released; /* the last token: a repeated release gets the first outcome */
};
static struct name names[NAMES_MAX];
static uint64_t last_token;

void fake_reset(void)
{
    memset(names, 0, sizeof names);
    memset(&fake, 0, sizeof fake);
}

/* ---- Answers go out in a turn of their own, as from a socket ---- */

static void end_call(struct fl_rpc_client_call *call)
{
    struct fl_rpc_status status = {
        .code = call->ends_with, .reason = call->reason, .message = "over"};

    fl_list_remove(&call->link);
    while (!fl_list_is_empty(&call->answers)) {
        struct fl_list *link = fl_list_first(&call->answers);

        fl_list_remove(link);
        free(FL_CONTAINER_OF(link, struct answer, link));
    }
    call->handler->on_done(call, call->ctx, &status, true);
    free(call);
}

static void deliver(struct fl_rpc_client_call *call)
{
    struct fl_list *link;

    while ((link = fl_list_first(&call->answers)) != NULL) {
        struct answer *answer = FL_CONTAINER_OF(link, struct answer, link);

        fl_list_remove(link);
        call->handler->on_message(call, call->ctx, answer->data, answer->len);
        free(answer);
    }
    if (call->is_over)
        end_call(call);
}

static void run_turn(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_rpc_channel *channel = FL_CONTAINER_OF(timer, struct fl_rpc_channel, turn);

    (void)now_ms;
    FL_LIST_EACH(link, &channel->calls)
    deliver(FL_CONTAINER_OF(link, struct fl_rpc_client_call, link));
}

static void wake(struct fl_rpc_channel *channel)
{
    fl_timer_set(channel->loop, &channel->turn, fl_loop_now_ms(channel->loop));
}

static void end_later(struct fl_rpc_client_call *call, enum fl_rpc_code code, const char *reason)
{
    call->is_over = true;
    call->ends_with = code;
    call->reason = reason;
    wake(call->channel);
}

static void answer_with(struct fl_rpc_client_call *call, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    struct answer *answer = malloc(sizeof *answer + len);

    if (answer == NULL || fake.is_silent) { /* lost on the way */
        free(answer);
        return;
    }
    answer->len = protobuf_c_message_pack(message, answer->data);
    fl_list_append(&call->answers, &answer->link);
    wake(call->channel);
}

static void answer_stream(struct fl_rpc_client_call *call,
                          Fencelock__V1__OpenSessionResponse__MessageCase kind, void *part)
{
    Fencelock__V1__OpenSessionResponse response = FENCELOCK__V1__OPEN_SESSION_RESPONSE__INIT;

    response.message_case = kind;
    response.opened = part; /* any member of the union */
    answer_with(call, &response.base);
}

/* ---- The lock service ---- */

static struct name *find_name(const char *text)
{
    for (size_t i = 0; i < NAMES_MAX; i++) {
        if (names[i].name[0] == '\0')
            snprintf(names[i].name, sizeof names[i].name, "%s", text);
        if (strcmp(names[i].name, text) == 0)
            return &names[i];
    }
    abort();
}

static void say_acquired(struct fl_rpc_client_call *call, uint64_t request_id, uint64_t token)
{
    Fencelock__V1__OpenSessionResponse__Acquired acquired =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__ACQUIRED__INIT;
    Fencelock__V1__AcquireResponse response = FENCELOCK__V1__ACQUIRE_RESPONSE__INIT;

    response.granted = token != 0;
    response.token = token;
    acquired.request_id = request_id;
    acquired.response = &response;
    answer_stream(call, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ACQUIRED, &acquired);
}

static void grant_first(struct fl_rpc_client_call *call, struct name *name)
{
    if (name->n == 0 || name->queue[0].token != 0)
        return;
    name->queue[0].token = ++last_token;
    say_acquired(call, name->queue[0].request_id, name->queue[0].token);
}

static void acquire(struct fl_rpc_client_call *call, const Fencelock__V1__AcquireRequest *request)
{
    struct name *name = find_name(request->name);

    for (size_t i = 0; i < name->n; i++) {
        if (name->queue[i].request_id != request->request_id)
            continue;
        if (name->queue[i].token != 0)
            say_acquired(call, request->request_id, name->queue[i].token);
        return;
    }
    if (name->n > 0 && request->wait_ms == 0) {
        say_acquired(call, request->request_id, 0);
        return;
    }
    name->queue[name->n].token = 0;
    name->queue[name->n++].request_id = request->request_id;
    grant_first(call, name);
}

static bool take_out(struct name *name, uint64_t request_id, uint64_t token)
{
    for (size_t i = 0; i < name->n; i++) {
        if (name->queue[i].request_id != request_id && name->queue[i].token != token)
            continue;
        memmove(&name->queue[i], &name->queue[i + 1], (name->n - i - 1) * sizeof name->queue[0]);
        name->n--;
        return true;
    }
    return false;
}

static void release(struct fl_rpc_client_call *call, const Fencelock__V1__ReleaseRequest *request)
{
    Fencelock__V1__OpenSessionResponse__Released released =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__RELEASED__INIT;
    Fencelock__V1__OpenSessionResponse__Error error =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__ERROR__INIT;
    struct name *name = find_name(request->name);

    if (take_out(name, 0, request->token) || request->token == name->released) {
        name->released = request->token;
        released.request_id = request->request_id;
        answer_stream(call, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_RELEASED, &released);
    } else {
        error.request_id = request->request_id;
        error.code = FL_RPC_FAILED_PRECONDITION;
        error.reason = "STALE_TOKEN";
        answer_stream(call, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ERROR, &error);
    }
    grant_first(call, name);
}

static void cancel(struct fl_rpc_client_call *call, uint64_t request_id)
{
    for (size_t i = 0; i < NAMES_MAX; i++)
        if (take_out(&names[i], request_id, UINT64_MAX))
            grant_first(call, &names[i]);
    say_acquired(call, request_id, 0);
}

static void open_session(struct fl_rpc_client_call *call, bool is_new, uint32_t ttl_ms)
{
    Fencelock__V1__OpenSessionResponse__Opened opened =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__OPENED__INIT;
    Fencelock__V1__OpenSessionResponse__Hold holds[NAMES_MAX], *pointers[NAMES_MAX];

    atomic_fetch_add(is_new ? &fake.opened : &fake.resumed, 1);
    opened.session_id = "s_fake";
    opened.ttl_ms = ttl_ms;
    opened.holds = pointers;
    for (size_t i = 0; !is_new && i < NAMES_MAX; i++) {
        if (names[i].n == 0)
            continue;
        fencelock__v1__open_session_response__hold__init(&holds[opened.n_holds]);
        holds[opened.n_holds].name = names[i].name;
        holds[opened.n_holds].token = names[i].queue[0].token;
        holds[opened.n_holds].request_id = names[i].queue[0].request_id;
        pointers[opened.n_holds] = &holds[opened.n_holds];
        opened.n_holds++;
    }
    answer_stream(call, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_OPENED, &opened);
}

static void beat(struct fl_rpc_client_call *call, uint64_t seq)
{
    Fencelock__V1__OpenSessionResponse__KeepAliveAck ack =
        FENCELOCK__V1__OPEN_SESSION_RESPONSE__KEEP_ALIVE_ACK__INIT;

    atomic_fetch_add(&fake.heartbeats, 1);
    ack.seq = seq;
    if (atomic_exchange(&fake.is_session_gone, false))
        end_later(call, FL_RPC_NOT_FOUND, "SESSION_NOT_FOUND");
    else
        answer_stream(call, FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_KEEP_ALIVE_ACK, &ack);
}

static void handle(struct fl_rpc_client_call *call,
                   const Fencelock__V1__OpenSessionRequest *request)
{
    switch (request->message_case) {
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_OPEN:
        memset(names, 0, sizeof names);
        open_session(call, true, request->open->options->ttl_ms);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RESUME:
        open_session(call, false, 1000);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_KEEP_ALIVE:
        beat(call, request->keep_alive->seq);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_ACQUIRE:
        acquire(call, request->acquire);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_RELEASE:
        release(call, request->release);
        break;
    case FENCELOCK__V1__OPEN_SESSION_REQUEST__MESSAGE_CANCEL:
        cancel(call, request->cancel->request_id);
        break;
    default:
        atomic_fetch_add(&fake.closed, 1);
        end_later(call, FL_RPC_OK, NULL);
    }
}

/* ---- rpc/channel.h ---- */

int fl_rpc_channel_new(struct fl_loop *loop, const struct fl_rpc_channel_config *config,
                       struct fl_rpc_channel **ret_channel, char *why)
{
    struct fl_rpc_channel *channel;

    if (strchr(config->endpoints, ':') == NULL) {
        snprintf(why, 256, "has no port");
        return FL_E_INVALID;
    }
    channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return FL_E_NOMEM;
    channel->loop = loop;
    channel->turn = FL_TIMER_INIT(run_turn);
    fl_list_init(&channel->calls);
    *ret_channel = channel;
    return FL_OK;
}

static void end_all(struct fl_rpc_channel *channel, enum fl_rpc_code code)
{
    while (!fl_list_is_empty(&channel->calls)) {
        struct fl_rpc_client_call *call =
            FL_CONTAINER_OF(fl_list_first(&channel->calls), struct fl_rpc_client_call, link);

        call->ends_with = code;
        call->reason = NULL;
        end_call(call);
    }
}

void fl_rpc_channel_free(struct fl_rpc_channel *channel)
{
    if (channel == NULL)
        return;
    end_all(channel, FL_RPC_CANCELLED);
    fl_timer_clear(channel->loop, &channel->turn);
    free(channel);
}

void fl_rpc_channel_move_on(struct fl_rpc_channel *channel, const char *why)
{
    (void)why;
    end_all(channel, FL_RPC_UNAVAILABLE);
}

struct fl_rpc_client_call *fl_rpc_channel_call(struct fl_rpc_channel *channel, const char *path,
                                               unsigned deadline_ms, bool wait_for_ready,
                                               const struct fl_rpc_call_handler *handler, void *ctx)
{
    struct fl_rpc_client_call *call = calloc(1, sizeof *call);

    (void)deadline_ms, (void)wait_for_ready;
    if (call == NULL)
        return NULL;
    call->channel = channel;
    call->handler = handler;
    call->ctx = ctx;
    call->is_stream = strstr(path, "OpenSession") != NULL;
    fl_list_init(&call->answers);
    fl_list_append(&channel->calls, &call->link);
    if (fake.is_down && !call->is_stream)
        end_later(call, FL_RPC_UNAVAILABLE, NULL);
    return call;
}

int fl_rpc_client_call_send(struct fl_rpc_client_call *call, uint8_t *message, size_t len)
{
    Fencelock__V1__OpenSessionRequest *request;

    if (fake.is_down) {
        /* it goes nowhere */
    } else if (call->is_stream) {
        request = fencelock__v1__open_session_request__unpack(NULL, len, message);
        if (request != NULL) {
            handle(call, request);
            fencelock__v1__open_session_request__free_unpacked(request, NULL);
        }
    } else if (!call->is_over) {
        Fencelock__V1__DescribeResponse response = FENCELOCK__V1__DESCRIBE_RESPONSE__INIT;

        atomic_fetch_add(&fake.unary_calls, 1);
        response.waiter_count = 5;
        answer_with(call, &response.base);
        end_later(call, FL_RPC_OK, NULL);
    }
    fl_rpc_message_free(message);
    return FL_OK;
}

void fl_rpc_client_call_half_close(struct fl_rpc_client_call *call)
{
    (void)call;
}

void fl_rpc_client_call_cancel(struct fl_rpc_client_call *call)
{
    call->ends_with = FL_RPC_CANCELLED;
    call->reason = NULL;
    end_call(call);
}

uint8_t *fl_rpc_message_new(size_t size)
{
    return malloc(size > 0 ? size : 1);
}

void fl_rpc_message_free(uint8_t *message)
{
    free(message);
}

/* ---- rpc/status.h: this double stands for the whole layer ---- */

const char *fl_rpc_code_text(enum fl_rpc_code code)
{
    return code == FL_RPC_OK ? "OK" : "an error";
}

enum fl_rpc_code fl_rpc_code_from_number(long number)
{
    return number >= 0 && number <= FL_RPC_UNAUTHENTICATED ? (enum fl_rpc_code)number
                                                           : FL_RPC_UNKNOWN;
}
