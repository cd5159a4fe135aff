#include "client/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/why.h"

#define TTL_MS_MIN         1000u
#define TTL_MS_MAX         3600000u
#define TTL_MS_DEFAULT     10000u
#define DELAY_MS_MAX       600000u
#define TIMEOUT_MS_DEFAULT 5000u
#define NAME_BYTES_MAX     128
#define ENDPOINTS_DEFAULT  "127.0.0.1:3362"

bool fl_client__is_forked(const struct fl_client *client)
{
    return client->owner_pid != getpid();
}

int fl_client__forked_why(struct fl_why *why)
{
    return fl_why_set(why, FL_E_FORKED, "FORKED",
                      "this client belongs to the parent process: open one after fork()");
}

void fl_client__ref(struct fl_client *client)
{
    atomic_fetch_add(&client->refs, 1);
}

static void destroy(struct fl_client *client)
{
    if (client == NULL)
        return;
    pthread_mutex_destroy(&client->mutex);
    pthread_cond_destroy(&client->callbacks_changed);
    free(client->name);
    free(client->endpoints);
    free(client);
}

void fl_client__unref(struct fl_client *client)
{
    if (atomic_fetch_sub(&client->refs, 1) == 1)
        destroy(client);
}

int fl_client__start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, old;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    r = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r == 0 ? FL_OK : FL_E_NOMEM;
}

/* ---- Operations ---- */

int fl_client__post(struct fl_client *client, struct fl_op *op)
{
    bool is_taken;

    pthread_mutex_lock(&client->mutex);
    is_taken = !client->is_stopped;
    if (is_taken) {
        fl_list_append(&client->inbox, &op->link);
        uv_async_send(&client->wake); /* under the mutex: the loop is not stopped yet */
    }
    pthread_mutex_unlock(&client->mutex);
    return is_taken ? FL_OK : FL_E_CLOSED;
}

void fl_client__wake_waiter(struct fl_op *op, struct fl_client *client)
{
    pthread_mutex_lock(&client->mutex);
    op->is_done = true;
    pthread_cond_signal(op->done);
    pthread_mutex_unlock(&client->mutex);
}

int fl_client__run(struct fl_client *client, struct fl_op *op)
{
    pthread_cond_t done = PTHREAD_COND_INITIALIZER;
    int r;

    op->done = &done;
    op->finished = fl_client__wake_waiter;
    r = fl_client__post(client, op);
    if (r < 0)
        return fl_why_set(op->why, r, "CLOSED", "the client is being freed");
    pthread_mutex_lock(&client->mutex);
    while (!op->is_done)
        pthread_cond_wait(&done, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
    pthread_cond_destroy(&done);
    return op->code;
}

void fl_client__finish(struct fl_client *client, struct fl_op *op, const struct fl_why *why)
{
    op->code = why != NULL ? why->code : FL_OK;
    if (op->why != NULL) {
        if (why != NULL)
            *op->why = *why;
        else
            *op->why = (struct fl_why){0};
    }
    op->finished(op, client);
}

static void take_inbox(uv_async_t *wake)
{
    struct fl_client *client = wake->data;
    struct fl_list taken;

    fl_list_init(&taken);
    pthread_mutex_lock(&client->mutex);
    while (!fl_list_is_empty(&client->inbox)) {
        struct fl_list *link = fl_list_first(&client->inbox);

        fl_list_remove(link);
        fl_list_append(&taken, link);
    }
    pthread_mutex_unlock(&client->mutex);
    while (!fl_list_is_empty(&taken)) {
        struct fl_op *op = FL_CONTAINER_OF(fl_list_first(&taken), struct fl_op, link);

        fl_list_remove(&op->link);
        op->start(op, client);
    }
}

/* ---- The loop's thread ---- */

static void *run_loop(void *arg)
{
    struct fl_client *client = arg;

    fl_loop_run(client->loop);
    fl_loop_free(client->loop);
    return NULL;
}

static void note_connection(void *ctx, bool is_connected, const char *endpoint, const char *why)
{
    struct fl_client *client = ctx;

    client->connect_why[0] = '\0';
    if (!is_connected)
        snprintf(client->connect_why, sizeof client->connect_why, "%.100s: %.140s", endpoint, why);
}

static int start_channels(struct fl_client *client, uint64_t seed, struct fl_why *why)
{
    struct fl_rpc_channel_config config = {.endpoints = client->endpoints,
                                           .user_agent = "libfencelock/" FL_VERSION,
                                           .random_seed = seed,
                                           .on_state = note_connection,
                                           .ctx = client};
    char fault[256] = "";
    int r = fl_rpc_channel_new(client->loop, &config, &client->channel, fault);

    if (r == 0)
        r = fl_rpc_channel_new(client->loop, &config, &client->calls, fault);
    if (r == FL_E_NOMEM)
        return fl_why_set_nomem(why);
    if (r < 0) {
        fl_why_set(why, r, "INVALID_ARGUMENT", "endpoints \"%s\": %s", client->endpoints,
                   fault[0] != '\0' ? fault : fl_error_text(r));
        if (why != NULL)
            fl_why_copy_text(why->field, sizeof why->field, "endpoints");
    }
    return r;
}

/* Ends the loop of a client whose thread never ran. */
static void abort_loop(struct fl_client *client)
{
    fl_rpc_channel_free(client->channel); /* NULL is fine */
    fl_rpc_channel_free(client->calls);
    uv_close((uv_handle_t *)&client->wake, NULL);
    fl_loop_free(client->loop);
}

static int start(struct fl_client *client, struct fl_why *why)
{
    uint64_t seed;
    int r;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)getpid() ^ (uint64_t)(uintptr_t)client;
    client->loop = fl_loop_new();
    if (client->loop == NULL)
        return fl_why_set_nomem(why);
    if (uv_async_init(fl_loop_uv(client->loop), &client->wake, take_inbox) != 0) {
        fl_loop_free(client->loop);
        return fl_why_set_nomem(why);
    }
    client->wake.data = client;
    fl_stream__init(client, seed);
    r = start_channels(client, seed, why);
    if (r == 0 && client->on_lost != NULL && fl_client__need_callbacks(client) < 0)
        r = fl_why_set_nomem(why);
    if (r == 0 && fl_client__start_thread(&client->thread, run_loop, client) < 0)
        r = fl_why_set_nomem(why);
    if (r < 0) {
        fl_client__stop_callbacks(client);
        abort_loop(client);
    }
    return r;
}

/* ---- Public ---- */

static char *own_name(const char *name)
{
    char text[NAME_BYTES_MAX + 1], host[65] = "";

    if (name != NULL)
        return strdup(name);
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s/%ld", host[0] != '\0' ? host : "client", (long)getpid());
    return strdup(text);
}

static const char *endpoints_or_default(const char *endpoints)
{
    if (endpoints == NULL)
        endpoints = getenv("FENCELOCK_ENDPOINTS");
    return endpoints != NULL && endpoints[0] != '\0' ? endpoints : ENDPOINTS_DEFAULT;
}

static int check_options(const struct fl_client_options *options, struct fl_why *why)
{
    if (options->name != NULL && strlen(options->name) > NAME_BYTES_MAX)
        return fl_why_set_invalid(why, "name", "is longer than 128 bytes");
    if (options->ttl_ms != 0 && (options->ttl_ms < TTL_MS_MIN || options->ttl_ms > TTL_MS_MAX))
        return fl_why_set_invalid(why, "ttl_ms", "is not between 1,000 and 3,600,000");
    if (options->lock_delay_ms > DELAY_MS_MAX)
        return fl_why_set_invalid(why, "lock_delay_ms", "is more than 600,000");
    for (size_t i = 0; i < FL_ARRAY_LEN(options->reserved); i++)
        if (options->reserved[i] != 0)
            return fl_why_set_invalid(why, "reserved", "is not zero: begin with {0}");
    return FL_OK;
}

static struct fl_client *allocate(const char *endpoints, const struct fl_client_options *options)
{
    struct fl_client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return NULL;
    client->owner_pid = getpid();
    client->dispatch_fd = -1;
    client->timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    client->on_lost = options->on_lost;
    client->on_lost_ctx = options->ctx;
    client->name = own_name(options->name);
    client->endpoints = strdup(endpoints_or_default(endpoints));
    client->wire =
        (struct fl_wire_options){.name = client->name,
                                 .ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : TTL_MS_DEFAULT,
                                 .lock_delay_ms = options->lock_delay_ms,
                                 .release_on_disconnect = options->release_on_disconnect};
    atomic_init(&client->refs, 1);
    atomic_init(&client->lease_until_ms, 0);
    atomic_init(&client->lease_session, 1);
    fl_list_init(&client->inbox);
    fl_list_init(&client->callbacks);
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->callbacks_changed, NULL);
    if (client->name != NULL && client->endpoints != NULL)
        return client;
    destroy(client);
    return NULL;
}

int fl_client_new(const char *endpoints, const struct fl_client_options *options,
                  struct fl_client **ret_client, struct fl_why *why)
{
    static const struct fl_client_options defaults;
    struct fl_client *client;
    int r;

    if (options == NULL)
        options = &defaults;
    r = check_options(options, why);
    if (r < 0)
        return r;
    client = allocate(endpoints, options);
    if (client == NULL)
        return fl_why_set_nomem(why);
    if (options->dispatch) {
        client->dispatch_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (client->dispatch_fd < 0) {
            destroy(client);
            return fl_why_set_nomem(why);
        }
    }
    r = start(client, why);
    if (r < 0) {
        destroy(client);
        return r;
    }
    *ret_client = client;
    return FL_OK;
}

static void stop(struct fl_op *op, struct fl_client *client)
{
    (void)op;
    fl_stream__stop(client);
}

void fl_client_free(struct fl_client *client)
{
    struct fl_op op = {.start = stop};

    if (client == NULL || fl_client__is_forked(client))
        return; /* after a fork the thread and the sockets are the parent's; they close on exec */
    pthread_mutex_lock(&client->mutex);
    fl_list_append(&client->inbox, &op.link);
    client->is_stopped = true;
    uv_async_send(&client->wake);
    pthread_mutex_unlock(&client->mutex);
    pthread_join(client->thread, NULL);
    fl_client__stop_callbacks(client);
    fl_client__unref(client);
}

const char *fl_client_session_id(struct fl_client *client, char *out)
{
    out[0] = '\0';
    if (fl_client__is_forked(client))
        return out;
    pthread_mutex_lock(&client->mutex);
    memcpy(out, client->session_id, FL_CLIENT_SESSION_ID_SIZE);
    pthread_mutex_unlock(&client->mutex);
    return out;
}
