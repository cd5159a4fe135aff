/* Watch: holder changes of a name or prefix, without a gap.
 *
 * The stream survives the leader: the next one tells the changes of the last entry again and what
 * came after; of that entry, what the client has is left out (replicas tell an entry's changes in
 * the same order). A watch that has not told yet who is there, or whose place a node does not know
 * any more, ends with WATCH_INTERRUPTED. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gateway/internal.h"
#include "gateway/watch.h"

/* A watcher that never reads may not grow our memory past this. */
#define WATCH_BACKLOG_MAX ((size_t)256 * 1024)

struct fl_watch {
    struct fl_list in_gateway;
    struct fl_gateway *gateway;
    const struct fl_watch_sink *sink;
    void *ctx;
    struct fl_ask ask;
    char *name; /* owned; NULL: nothing was asked yet */
    bool is_prefix, is_ended;
    bool is_standing;     /* the node that is asked now has caught up */
    bool was_caught_up;   /* ever: the client was told */
    uint64_t whole_index; /* everything up to here was told */
    uint64_t index;       /* of the entry being told; 0: none yet */
    unsigned n_told;      /* of its changes */
    unsigned n_skip;      /* told before the watch moved */
};

static void settle(struct fl_watch *watch)
{
    fl_router_forget(watch->gateway->router, &watch->ask);
    watch->is_ended = true;
}

static void finish(struct fl_watch *watch, const struct fl_rpc_status *status)
{
    settle(watch);
    watch->sink->end(watch->ctx, status);
}

static void finish_for(struct fl_watch *watch, enum fl_reason reason)
{
    struct fl_outcome outcome;

    fl_outcome_set(&outcome, reason);
    finish(watch, &outcome.status);
}

/* Where to go on; 0: it must begin. */
static uint64_t place(const struct fl_watch *watch)
{
    return watch->index > watch->whole_index ? watch->index : watch->whole_index;
}

static void ask(struct fl_watch *watch)
{
    struct fl_request request = {.type = FL_REQ_WATCH,
                                 .name = fl_str_from(watch->name),
                                 .is_prefix = watch->is_prefix,
                                 .from_index = place(watch)};
    struct fl_outcome outcome;
    int r = fl_router_ask(watch->gateway->router, fl_loop_now_ms(watch->gateway->loop), &watch->ask,
                          &request, FL_ROUTE_LEADER, 0);

    watch->is_standing = false;
    if (r == FL_OK)
        return;
    fl_outcome_of_error(&outcome, r);
    finish(watch, &outcome.status);
}

/* The watch ended at its node, for the leader's sake or for want of what came since: if it stood
 * before, the next node may know. */
static bool may_go_on(const struct fl_watch *watch, enum fl_ask_end how,
                      const struct fl_reply *reply)
{
    if (place(watch) == 0)
        return false;
    if (how == FL_ASK_MOVED)
        return true;
    return how == FL_ASK_REPLIED && reply->status == FL_REPLY_ANSWER &&
           reply->answer == FL_ANS_ENDED && watch->is_standing;
}

static void on_done(struct fl_ask *asked, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct fl_watch *watch = FL_CONTAINER_OF(asked, struct fl_watch, ask);
    struct fl_outcome outcome;

    if (may_go_on(watch, how, reply)) {
        watch->n_skip = watch->n_told;
        watch->n_told = 0;
        ask(watch);
        return;
    }
    if (fl_outcome_of(&outcome, how, reply))
        fl_outcome_set(&outcome, FL_REASON_INTERNAL);
    finish(watch, &outcome.status);
}

/* Whether the client has it already. */
static bool was_told(struct fl_watch *watch, const struct fl_push *push)
{
    if (push->index <= watch->whole_index)
        return true;
    if (push->index != watch->index) {
        watch->whole_index = push->index - 1;
        watch->index = push->index;
        watch->n_told = watch->n_skip = 0;
    }
    watch->n_told++;
    if (watch->n_skip == 0)
        return false;
    watch->n_skip--;
    return true;
}

static Fencelock__V1__WatchResponse__Kind kind_of(const struct fl_push *push)
{
    if (push->type == FL_PUSH_CAUGHT_UP)
        return FENCELOCK__V1__WATCH_RESPONSE__KIND__CAUGHT_UP;
    if (push->present)
        return FENCELOCK__V1__WATCH_RESPONSE__KIND__PRESENT;
    return push->granted ? FENCELOCK__V1__WATCH_RESPONSE__KIND__GRANTED
                         : FENCELOCK__V1__WATCH_RESPONSE__KIND__ENDED;
}

static void send_event(struct fl_watch *watch, const struct fl_push *push)
{
    Fencelock__V1__WatchResponse response = FENCELOCK__V1__WATCH_RESPONSE__INIT;
    struct fl_arena arena;

    if (watch->sink->queued(watch->ctx) > WATCH_BACKLOG_MAX) {
        finish_for(watch, FL_REASON_SLOW_READER);
        return;
    }
    fl_arena_init(&arena);
    response.kind = kind_of(push);
    response.name = fl_arena_text(&arena, push->name);
    response.token = push->token;
    response.client = fl_arena_text(&arena, push->client);
    response.mode = fl_answer_mode(push->mode);
    response.cause = fl_answer_cause(push->cause);
    response.index = push->index;
    if (!watch->sink->event(watch->ctx, &response.base))
        finish_for(watch, FL_REASON_OUT_OF_MEMORY);
    fl_arena_deinit(&arena);
}

static void on_pushed(struct fl_ask *asked, const struct fl_push *push)
{
    struct fl_watch *watch = FL_CONTAINER_OF(asked, struct fl_watch, ask);
    bool is_first = !watch->was_caught_up;

    if (push->type != FL_PUSH_CAUGHT_UP) {
        if (push->present || !was_told(watch, push))
            send_event(watch, push);
        return;
    }
    watch->is_standing = watch->was_caught_up = true;
    if (push->index > watch->whole_index)
        watch->whole_index = push->index;
    if (is_first)
        send_event(watch, push);
}

void fl_watch_begin(struct fl_watch *watch, const Fencelock__V1__WatchRequest *message,
                    const char *peer)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arguments args = {.outcome = &outcome, .request = &request};

    if (!fl_arguments_watch(&args, &message->base) ||
        fl_gateway__is_limited(watch->gateway, &request, peer, &outcome)) {
        finish(watch, &outcome.status);
        return;
    }
    watch->name = fl_xstrdup(message->name);
    watch->is_prefix = request.is_prefix;
    /* It may have seen a part of that entry: it gets all of it again. */
    watch->index = request.from_index;
    watch->whole_index = request.from_index != 0 ? request.from_index - 1 : 0;
    ask(watch);
}

struct fl_watch *fl_watch_new(struct fl_gateway *gateway, const struct fl_watch_sink *sink,
                              void *ctx)
{
    struct fl_watch *watch = fl_xcalloc(1, sizeof *watch);

    watch->gateway = gateway;
    watch->sink = sink;
    watch->ctx = ctx;
    watch->ask.done = on_done;
    watch->ask.pushed = on_pushed;
    fl_list_append(&gateway->watches, &watch->in_gateway);
    gateway->n_watches++;
    return watch;
}

void fl_watch_free(struct fl_watch *watch)
{
    settle(watch);
    fl_list_remove(&watch->in_gateway);
    watch->gateway->n_watches--;
    free(watch->name);
    free(watch);
}

/* --- By gRPC: the call's data is its watch until the call is gone --- */

static bool call_event(void *ctx, const ProtobufCMessage *event)
{
    return fl_gateway__send(ctx, event);
}

static size_t call_queued(void *ctx)
{
    return fl_rpc_call_queued(ctx);
}

static void call_end(void *ctx, const struct fl_rpc_status *status)
{
    fl_rpc_call_finish(ctx, status);
}

static const struct fl_watch_sink call_sink = {call_event, call_queued, call_end};

static void on_open(struct fl_rpc_call *call)
{
    const struct fl_gateway_method *method = fl_rpc_call_method_ctx(call);
    struct fl_watch *watch = fl_watch_new(method->gateway, &call_sink, call);

    fl_rpc_call_set_data(call, watch);
    if (watch->gateway->is_draining)
        finish_for(watch, FL_REASON_SHUTTING_DOWN);
}

static void on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    struct fl_watch *watch = fl_rpc_call_data(call);
    struct fl_outcome outcome;
    ProtobufCMessage *message;

    if (watch->is_ended)
        return;
    if (watch->name != NULL) {
        finish_for(watch, FL_REASON_BAD_MESSAGE);
        return;
    }
    message = fl_gateway__unpack(&fencelock__v1__watch_request__descriptor, data, len, &outcome);
    if (message == NULL) {
        finish(watch, &outcome.status);
        return;
    }
    fl_watch_begin(watch, (const Fencelock__V1__WatchRequest *)message, fl_rpc_call_peer(call));
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    (void)why;
    fl_watch_free(fl_rpc_call_data(call));
}

const struct fl_rpc_handler fl_gateway__watch_handler = {
    .on_open = on_open,
    .on_message = on_message,
    .on_gone = on_gone,
};

void fl_gateway__watches_end(struct fl_gateway *gateway, enum fl_reason reason)
{
    struct fl_list ending;

    fl_list_init(&ending);
    for (struct fl_list *at; (at = fl_list_first(&gateway->watches)) != NULL;) {
        struct fl_watch *watch = FL_CONTAINER_OF(at, struct fl_watch, in_gateway);

        fl_list_remove(at);
        fl_list_append(&ending, at);
        if (!watch->is_ended)
            finish_for(watch, reason);
    }
    for (struct fl_list *at; (at = fl_list_first(&ending)) != NULL;) {
        fl_list_remove(at);
        fl_list_append(&gateway->watches, at);
    }
}
