#include "rpc/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "net/address.h"
#include "rpc/channel_parts.h"

#define CONNECT_TIMEOUT_MS   2000
#define BACKOFF_MIN_MS       50
#define BACKOFF_MAX_MS       2000
#define KEEPALIVE_MS         10000
#define KEEPALIVE_TIMEOUT_MS 5000
#define MESSAGE_BYTES_MAX    (4u * 1024 * 1024)

static void dial(struct fl_rpc_channel *ch);
static void start_waiting(struct fl_rpc_channel *ch);

static void tell_state(const struct fl_rpc_channel *ch, bool is_connected, const char *endpoint,
                       const char *why)
{
    if (ch->config.on_state != NULL && !ch->is_freed)
        ch->config.on_state(ch->config.ctx, is_connected, endpoint, why);
}

/* --- Dialling --- */

/* The first waiting call that gives up now, or NULL. */
static struct fl_rpc_client_call *find_hopeless(const struct fl_rpc_channel *ch)
{
    FL_LIST_EACH(link, &ch->waiting)
    {
        struct fl_rpc_client_call *call = FL_CONTAINER_OF(link, struct fl_rpc_client_call, link);

        if (call->dials_left == 0 && !call->wait_for_ready)
            return call;
    }
    return NULL;
}

/* A dial failed: calls that must not wait give up once every endpoint has. */
static void count_failure(struct fl_rpc_channel *ch)
{
    struct fl_rpc_client_call *hopeless;
    char text[224];

    snprintf(text, sizeof text, "no endpoint can be reached: %s", ch->why);
    FL_LIST_EACH(link, &ch->waiting)
    {
        struct fl_rpc_client_call *call = FL_CONTAINER_OF(link, struct fl_rpc_client_call, link);

        if (call->dials_left > 0)
            call->dials_left--;
    }
    /* Looked for anew each time: whoever is told may cancel others. */
    while ((hopeless = find_hopeless(ch)) != NULL)
        fl_channel__call_done(hopeless, FL_RPC_UNAVAILABLE, text);
}

/* Straight on to the next endpoint, and with a growing, jittered pause after each full round. */
static void redial(struct fl_rpc_channel *ch)
{
    uint64_t wait_ms = 0;

    if (ch->is_freed || ch->current != NULL || fl_heap_contains(&ch->redial.node))
        return;
    if (ch->next_endpoint % ch->n_endpoints == 0 || ch->n_endpoints == 1) {
        ch->backoff_ms = ch->backoff_ms == 0 ? ch->config.backoff_min_ms : ch->backoff_ms * 2;
        if (ch->backoff_ms > ch->config.backoff_max_ms)
            ch->backoff_ms = ch->config.backoff_max_ms;
        wait_ms = fl_random_between(&ch->random, ch->backoff_ms / 2, ch->backoff_ms);
    }
    (void)fl_timer_set(ch->loop, &ch->redial, fl_loop_now_ms(ch->loop) + wait_ms);
}

static void on_redial(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_rpc_channel *ch = FL_CONTAINER_OF(timer, struct fl_rpc_channel, redial);

    (void)now_ms;
    if (ch->current != NULL && ch->current->is_ready)
        start_waiting(ch);
    else if (!fl_list_is_empty(&ch->waiting))
        dial(ch);
}

static void dial(struct fl_rpc_channel *ch)
{
    const char *endpoint = ch->endpoints[ch->next_endpoint % ch->n_endpoints];

    if (ch->current != NULL || ch->is_freed)
        return;
    ch->next_endpoint = (ch->next_endpoint + 1) % ch->n_endpoints;
    if (ch->next_endpoint == 0)
        ch->rounds++;
    ch->current = fl_channel__link_new(ch, endpoint);
    if (ch->current == NULL) {
        snprintf(ch->why, sizeof ch->why, "%s", fl_error_text(FL_E_NOMEM));
        redial(ch);
    }
}

/* --- Links --- */

void fl_channel__place(struct fl_rpc_client_call *call)
{
    struct fl_rpc_channel *ch = call->channel;

    fl_list_append(&ch->waiting, &call->link);
    if (ch->current != NULL && ch->current->is_ready)
        start_waiting(ch);
    else if (ch->current == NULL && !fl_heap_contains(&ch->redial.node))
        dial(ch);
}

static void start_waiting(struct fl_rpc_channel *ch)
{
    int r = FL_OK;

    FL_LIST_EACH(link, &ch->waiting)
    {
        r = fl_channel__call_start(FL_CONTAINER_OF(link, struct fl_rpc_client_call, link),
                                   ch->current);
        if (r < 0)
            break;
    }
    if (r == FL_E_CLOSED) /* its numbers for streams are used up */
        fl_channel__link_draining(ch->current);
    else if (r < 0) /* for memory, they wait */
        (void)fl_timer_set(ch->loop, &ch->redial, fl_loop_now_ms(ch->loop) + BACKOFF_MIN_MS);
}

void fl_channel__link_ready(struct fl_channel_link *link)
{
    struct fl_rpc_channel *ch = link->channel;

    if (link != ch->current)
        return;
    ch->backoff_ms = 0;
    tell_state(ch, true, link->endpoint, NULL);
    start_waiting(ch);
}

/* The server goes: its calls end there, new ones go elsewhere at once. */
void fl_channel__link_draining(struct fl_channel_link *link)
{
    struct fl_rpc_channel *ch = link->channel;

    if (link != ch->current)
        return;
    ch->current = NULL;
    tell_state(ch, false, link->endpoint, "the server is going away");
    if (!fl_list_is_empty(&ch->waiting) || !fl_list_is_empty(&link->calls))
        dial(ch);
}

static void free_channel(struct fl_rpc_channel *ch)
{
    if (ch->callbacks != NULL)
        nghttp2_session_callbacks_del(ch->callbacks);
    free(ch->endpoints_text);
    free(ch);
}

static void free_if_over(struct fl_rpc_channel *ch)
{
    if (ch->is_freed && !ch->is_pinned && fl_list_is_empty(&ch->links))
        free_channel(ch);
}

void fl_channel__link_gone(struct fl_channel_link *link, const char *why)
{
    struct fl_rpc_channel *ch = link->channel;
    bool was_current = link == ch->current, was_ready = link->is_ready;
    struct fl_list *first;
    char text[224];

    snprintf(ch->why, sizeof ch->why, "%.60s: %.90s", link->endpoint, why);
    snprintf(text, sizeof text, "the connection to %s broke: %s", link->endpoint, why);
    if (was_current)
        ch->current = NULL;
    ch->is_pinned = true;
    while ((first = fl_list_first(&link->calls)) != NULL) {
        struct fl_rpc_client_call *call = FL_CONTAINER_OF(first, struct fl_rpc_client_call, link);

        nghttp2_session_set_stream_user_data(link->session, call->stream_id, NULL);
        call->stream_id = 0;
        if (call->was_sent || call->has_headers)
            fl_channel__call_done(call, FL_RPC_UNAVAILABLE, text);
        else
            fl_channel__call_replay(call);
    }
    if (was_current) {
        if (!was_ready)
            count_failure(ch);
        tell_state(ch, false, link->endpoint, why);
        if (!fl_list_is_empty(&ch->waiting))
            redial(ch);
    }
    ch->is_pinned = false;
    free_if_over(ch);
}

/* --- The channel --- */

static int parse_endpoints(struct fl_rpc_channel *ch, char *why)
{
    char *at = ch->endpoints_text, *item;

    while ((item = strsep(&at, ",")) != NULL) {
        struct fl_address address;

        item += strspn(item, " ");
        item[strcspn(item, " ")] = '\0';
        if (item[0] == '\0')
            continue;
        if (fl_address_parse(item, &address) < 0 || address.host[0] == '\0' || address.port == 0) {
            snprintf(why, 256, "the endpoint \"%.100s\" is not HOST:PORT", item);
            return FL_E_INVALID;
        }
        if (ch->n_endpoints == FL_CHANNEL_ENDPOINTS_MAX) {
            snprintf(why, 256, "more than %d endpoints", FL_CHANNEL_ENDPOINTS_MAX);
            return FL_E_INVALID;
        }
        ch->endpoints[ch->n_endpoints++] = item;
    }
    if (ch->n_endpoints == 0) {
        snprintf(why, 256, "no endpoint is given: HOST:PORT,...");
        return FL_E_INVALID;
    }
    return FL_OK;
}

static void set_defaults(struct fl_rpc_channel_config *config)
{
    if (config->connect_timeout_ms == 0)
        config->connect_timeout_ms = CONNECT_TIMEOUT_MS;
    if (config->backoff_min_ms == 0)
        config->backoff_min_ms = BACKOFF_MIN_MS;
    if (config->backoff_max_ms == 0)
        config->backoff_max_ms = BACKOFF_MAX_MS;
    if (config->keepalive_ms == 0)
        config->keepalive_ms = KEEPALIVE_MS;
    if (config->keepalive_timeout_ms == 0)
        config->keepalive_timeout_ms = KEEPALIVE_TIMEOUT_MS;
    if (config->message_bytes_max == 0)
        config->message_bytes_max = MESSAGE_BYTES_MAX;
    if (config->user_agent == NULL)
        config->user_agent = "fencelock";
}

int fl_rpc_channel_new(struct fl_loop *loop, const struct fl_rpc_channel_config *config,
                       struct fl_rpc_channel **ret_channel, char *why)
{
    struct fl_rpc_channel *ch = calloc(1, sizeof *ch);
    int r = FL_E_NOMEM;

    snprintf(why, 256, "%s", fl_error_text(FL_E_NOMEM));
    if (ch == NULL)
        return FL_E_NOMEM;
    ch->loop = loop;
    ch->config = *config;
    set_defaults(&ch->config);
    ch->redial = FL_TIMER_INIT(on_redial);
    fl_list_init(&ch->links);
    fl_list_init(&ch->waiting);
    fl_random_init(&ch->random, config->random_seed);
    ch->endpoints_text = strdup(config->endpoints);
    ch->callbacks = fl_channel__callbacks();
    if (ch->endpoints_text != NULL && ch->callbacks != NULL)
        r = parse_endpoints(ch, why);
    if (r < 0) {
        free_channel(ch);
        return r;
    }
    /* Clients spread over the endpoints, and over the addresses of a name. */
    ch->next_endpoint = (unsigned)fl_random_below(&ch->random, ch->n_endpoints);
    ch->rounds = (unsigned)fl_random_below(&ch->random, UINT16_MAX);
    *ret_channel = ch;
    return FL_OK;
}

static void cancel_all(struct fl_list *calls)
{
    struct fl_list *first;

    while ((first = fl_list_first(calls)) != NULL)
        fl_rpc_client_call_cancel(FL_CONTAINER_OF(first, struct fl_rpc_client_call, link));
}

void fl_rpc_channel_free(struct fl_rpc_channel *ch)
{
    if (ch == NULL)
        return;
    ch->is_freed = true;
    fl_timer_clear(ch->loop, &ch->redial);
    cancel_all(&ch->waiting);
    FL_LIST_EACH(list_link, &ch->links)
    {
        struct fl_channel_link *link = FL_CONTAINER_OF(list_link, struct fl_channel_link, link);

        cancel_all(&link->calls);
        /* The cancels go out first: the server frees what was waited for at once. */
        if (link->session != NULL && fl_conn_is_open(link->conn))
            fl_conn_mark(link->conn);
        else
            fl_channel__link_close(link, "the client is done");
    }
    free_if_over(ch);
}

void fl_rpc_channel_move_on(struct fl_rpc_channel *ch, const char *why)
{
    if (ch->current != NULL)
        fl_channel__link_close(ch->current, why);
}

const char *fl_rpc_channel_endpoint(const struct fl_rpc_channel *ch)
{
    return ch->current != NULL && ch->current->is_ready ? ch->current->endpoint : NULL;
}
