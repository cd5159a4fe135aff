/* Watch: the loop's thread takes events in, the caller's thread hands them out. After a break the
 * next call goes on behind the last event. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/client.h"
#include "client/clock.h"
#include "client/unpack.h"
#include "client/why.h"
#include "lock.pb-c.h"
#include "rpc/server.h" /* message blocks */

#include <fencelock/admin.h>

/* A caller that is slower than the changes may not grow our memory past this. */
#define EVENTS_MAX 100000
#define RETRY_MS   200

struct item {
    struct fl_list link;
    Fencelock__V1__WatchResponse *response;
};

struct watch {
    struct fl_op start, stop;
    struct fl_client *client;
    Fencelock__V1__WatchRequest request;
    struct fl_rpc_client_call *call;
    struct fl_timer retry;
    uint64_t last_news_ms;
    bool is_stopped; /* the loop's thread: nothing more is begun */

    /* Under the client's mutex. */
    struct fl_list items;
    size_t n_items;
    bool is_over;
    struct fl_why why;
    pthread_cond_t changed;
};

/* ---- The loop's thread ---- */

static void end(struct watch *watch, const struct fl_why *why)
{
    watch->is_stopped = true;
    pthread_mutex_lock(&watch->client->mutex);
    watch->is_over = true;
    watch->why = *why;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->client->mutex);
}

static bool append(struct watch *watch, Fencelock__V1__WatchResponse *response)
{
    struct item *item = malloc(sizeof *item);
    bool has_room;

    if (item == NULL)
        return false;
    item->response = response;
    pthread_mutex_lock(&watch->client->mutex);
    has_room = watch->n_items < EVENTS_MAX;
    if (has_room) {
        fl_list_append(&watch->items, &item->link);
        watch->n_items++;
        pthread_cond_signal(&watch->changed);
    }
    pthread_mutex_unlock(&watch->client->mutex);
    if (!has_room)
        free(item);
    return has_room;
}

static void hear_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data,
                         size_t len)
{
    struct watch *watch = ctx;
    Fencelock__V1__WatchResponse *response;
    struct fl_why why;
    int r;

    (void)call;
    if (watch->is_stopped)
        return;
    response = fl_unpack(&fencelock__v1__watch_response__descriptor, data, len, &r, &why);
    if (response == NULL) {
        end(watch, &why);
        return;
    }
    watch->last_news_ms = fl_client_now_ms();
    if (response->index != 0) {
        watch->request.has_from_index_case =
            FENCELOCK__V1__WATCH_REQUEST__HAS_FROM_INDEX_FROM_INDEX;
        watch->request.from_index = response->index;
    }
    if (!append(watch, response)) {
        fl_unpacked_free(response);
        fl_why_set(&why, FL_E_LIMITED, "TOO_SLOW", "more than %d events wait to be read",
                   EVENTS_MAX);
        end(watch, &why);
    }
}

static void hear_done(struct fl_rpc_client_call *call, void *ctx,
                      const struct fl_rpc_status *status, bool was_sent)
{
    struct watch *watch = ctx;
    struct fl_client *client = watch->client;
    uint64_t now_ms = fl_client_now_ms();
    struct fl_why why;

    (void)call, (void)was_sent;
    watch->call = NULL;
    if (watch->is_stopped)
        return;
    fl_wire_why(status, &why);
    if (strcmp(why.reason, "WATCH_INTERRUPTED") == 0) /* told anew from the present holders */
        watch->request.has_from_index_case = FENCELOCK__V1__WATCH_REQUEST__HAS_FROM_INDEX__NOT_SET;
    if ((why.code == 0 || why.code == FL_E_UNREACHABLE || why.code == FL_E_NO_LEADER) &&
        now_ms < watch->last_news_ms + client->timeout_ms)
        fl_timer_set(client->loop, &watch->retry, now_ms + RETRY_MS);
    else
        end(watch, &why);
}

static void attempt(struct watch *watch)
{
    static const struct fl_rpc_call_handler handler = {.on_message = hear_message,
                                                       .on_done = hear_done};
    size_t len = fencelock__v1__watch_request__get_packed_size(&watch->request);
    uint8_t *message = fl_rpc_message_new(len);
    struct fl_why why;

    if (message != NULL)
        watch->call = fl_rpc_channel_call(watch->client->calls, "/fencelock.v1.LockService/Watch",
                                          0, false, &handler, watch);
    if (message == NULL || watch->call == NULL) {
        fl_rpc_message_free(message);
        fl_why_set_nomem(&why);
        end(watch, &why);
        return;
    }
    fencelock__v1__watch_request__pack(&watch->request, message);
    if (fl_rpc_client_call_send(watch->call, message, len) == 0)
        fl_rpc_client_call_half_close(watch->call);
}

static void retry(struct fl_timer *timer, uint64_t now_ms)
{
    (void)now_ms;
    attempt(FL_CONTAINER_OF(timer, struct watch, retry));
}

static void start(struct fl_op *op, struct fl_client *client)
{
    struct watch *watch = FL_CONTAINER_OF(op, struct watch, start);

    watch->last_news_ms = fl_client_now_ms();
    attempt(watch);
    fl_client__finish(client, op, NULL);
}

static void stop(struct fl_op *op, struct fl_client *client)
{
    struct watch *watch = FL_CONTAINER_OF(op, struct watch, stop);

    watch->is_stopped = true;
    fl_timer_clear(client->loop, &watch->retry);
    if (watch->call != NULL)
        fl_rpc_client_call_cancel(watch->call);
    fl_client__finish(client, op, NULL);
}

/* ---- The caller's thread ---- */

/* NULL: it is over. */
static struct item *next_item(struct watch *watch)
{
    struct fl_list *link;

    pthread_mutex_lock(&watch->client->mutex);
    while (fl_list_is_empty(&watch->items) && !watch->is_over)
        pthread_cond_wait(&watch->changed, &watch->client->mutex);
    link = fl_list_first(&watch->items);
    if (link != NULL) {
        fl_list_remove(link);
        watch->n_items--;
    }
    pthread_mutex_unlock(&watch->client->mutex);
    return link != NULL ? FL_CONTAINER_OF(link, struct item, link) : NULL;
}

static void free_item(struct item *item)
{
    fl_unpacked_free(item->response);
    free(item);
}

static const char *cause_text(Fencelock__V1__Cause cause)
{
    switch (cause) {
    case FENCELOCK__V1__CAUSE__RELEASED:
        return "released";
    case FENCELOCK__V1__CAUSE__CANCELLED:
        return "cancelled";
    case FENCELOCK__V1__CAUSE__TIMED_OUT:
        return "timed out";
    case FENCELOCK__V1__CAUSE__SESSION_CLOSED:
        return "session closed";
    case FENCELOCK__V1__CAUSE__SESSION_EXPIRED:
        return "session expired";
    case FENCELOCK__V1__CAUSE__SESSION_ENDED:
        return "session ended by an operator";
    case FENCELOCK__V1__CAUSE__FORCE_RELEASED:
        return "taken by an operator";
    default:
        return "";
    }
}

static bool hand_out(const struct item *item,
                     bool (*on_event)(void *ctx, const struct fl_watch_event *event), void *ctx)
{
    const Fencelock__V1__WatchResponse *response = item->response;
    struct fl_watch_event event = {.kind = (int)response->kind,
                                   .name = response->name,
                                   .client = response->client,
                                   .cause = cause_text(response->cause),
                                   .token = response->token,
                                   .index = response->index,
                                   .mode = (int)response->mode};

    return on_event(ctx, &event);
}

int fl_watch(struct fl_client *client, const char *name, bool is_prefix,
             bool (*on_event)(void *ctx, const struct fl_watch_event *event), void *ctx,
             struct fl_why *why)
{
    struct watch watch = {.start = {.start = start},
                          .stop = {.start = stop},
                          .client = client,
                          .request = FENCELOCK__V1__WATCH_REQUEST__INIT,
                          .retry = FL_TIMER_INIT(retry),
                          .changed = PTHREAD_COND_INITIALIZER};
    struct item *item;
    bool goes_on = true;
    int r;

    if (fl_client__is_forked(client))
        return fl_client__forked_why(why);
    watch.request.name = (char *)name;
    watch.request.is_prefix = is_prefix;
    fl_list_init(&watch.items);
    r = fl_client__run(client, &watch.start);
    while (r == 0 && goes_on && (item = next_item(&watch)) != NULL) {
        goes_on = hand_out(item, on_event, ctx);
        free_item(item);
    }
    if (r == 0 && goes_on) {
        r = watch.why.code != 0 ? watch.why.code : FL_E_CLOSED;
        if (why != NULL)
            *why = watch.why;
    }
    fl_client__run(client, &watch.stop);
    while (!fl_list_is_empty(&watch.items)) {
        item = FL_CONTAINER_OF(fl_list_first(&watch.items), struct item, link);
        fl_list_remove(&item->link);
        free_item(item);
    }
    pthread_cond_destroy(&watch.changed);
    return r;
}
