#include "rpc/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rpc/server_parts.h"

/* --- Methods --- */

static int compare_methods(const void *a, const void *b)
{
    const struct fl_rpc_method *x = *(const struct fl_rpc_method *const *)a;
    const struct fl_rpc_method *y = *(const struct fl_rpc_method *const *)b;

    return strcmp(x->path, y->path);
}

static int compare_path(const void *key, const void *element)
{
    return strcmp(key, (*(const struct fl_rpc_method *const *)element)->path);
}

const struct fl_rpc_method *fl_rpc__find_method(const struct fl_rpc_server *s, const char *path)
{
    const struct fl_rpc_method **found =
        bsearch(path, s->methods, s->n_methods, sizeof *s->methods, compare_path);

    return found != NULL ? *found : NULL;
}

static int take_methods(struct fl_rpc_server *s, const struct fl_rpc_method *methods, size_t n)
{
    size_t extra = FL_ARRAY_LEN(fl_rpc__health_methods) + FL_ARRAY_LEN(fl_rpc__reflect_methods);

    s->methods = calloc(n + extra, sizeof *s->methods);
    if (s->methods == NULL)
        return FL_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        s->methods[s->n_methods++] = &methods[i];
    for (size_t i = 0; i < FL_ARRAY_LEN(fl_rpc__health_methods); i++)
        s->methods[s->n_methods++] = &fl_rpc__health_methods[i];
    for (size_t i = 0; i < FL_ARRAY_LEN(fl_rpc__reflect_methods); i++)
        s->methods[s->n_methods++] = &fl_rpc__reflect_methods[i];
    qsort(s->methods, s->n_methods, sizeof *s->methods, compare_methods);
    return FL_OK;
}

/* --- Life --- */

static void free_memory(struct fl_rpc_server *s)
{
    fl_rpc__health_deinit(s);
    if (s->callbacks != NULL)
        nghttp2_session_callbacks_del(s->callbacks);
    free(s->methods);
    free(s);
}

static void on_grace_over(struct fl_timer *timer, uint64_t now_ms);

int fl_rpc_server_new(struct fl_loop *loop, const struct fl_rpc_server_config *config,
                      const struct fl_rpc_method *methods, size_t n_methods,
                      struct fl_rpc_server **ret_server, char *why)
{
    struct fl_rpc_server *s = calloc(1, sizeof *s);
    int r;

    if (s == NULL) {
        strcpy(why, fl_error_text(FL_E_NOMEM));
        return FL_E_NOMEM;
    }
    s->loop = loop;
    s->config = *config;
    if (s->config.message_bytes_max == 0)
        s->config.message_bytes_max = FL_RPC_MESSAGE_BYTES_MAX;
    if (s->config.stall_ms == 0)
        s->config.stall_ms = FL_RPC_STREAM_STALL_MS;
    s->grace = FL_TIMER_INIT(on_grace_over);
    fl_list_init(&s->connections);
    fl_list_init(&s->health);
    fl_list_init(&s->health_watches);
    s->callbacks = fl_rpc__server_callbacks();
    strcpy(why, fl_error_text(FL_E_NOMEM));
    r = s->callbacks == NULL ? FL_E_NOMEM : take_methods(s, methods, n_methods);
    if (r == FL_OK)
        r = fl_conn_listen(loop, config->address, &fl_rpc__door, s, &s->listener, why);
    if (r < 0) {
        free_memory(s);
        return r;
    }
    fl_rpc_server_set_serving(s, "", true);
    *ret_server = s;
    return FL_OK;
}

unsigned fl_rpc_server_port(const struct fl_rpc_server *s)
{
    return fl_conn_listener_port(s->listener);
}

void fl_rpc_server_stats(const struct fl_rpc_server *s, struct fl_rpc_server_stats *ret_stats)
{
    *ret_stats = s->stats;
}

static void stop_listening(struct fl_rpc_server *s)
{
    fl_conn_listener_close(s->listener);
    s->listener = NULL;
}

static void close_connections(struct fl_rpc_server *s, const char *why)
{
    FL_LIST_EACH(link, &s->connections)
    {
        fl_rpc__connection_close(FL_CONTAINER_OF(link, struct fl_rpc_connection, link), why);
    }
}

/* --- Draining --- */

void fl_rpc__check_drained(struct fl_rpc_server *s)
{
    void (*drained)(void *ctx) = s->drained;

    if (!fl_list_is_empty(&s->connections))
        return;
    if (s->is_freed) {
        free_memory(s);
        return;
    }
    if (!s->is_draining || drained == NULL)
        return;
    s->drained = NULL;
    fl_timer_clear(s->loop, &s->grace);
    drained(s->drained_ctx);
}

static void on_grace_over(struct fl_timer *timer, uint64_t now_ms)
{
    (void)now_ms;
    close_connections(FL_CONTAINER_OF(timer, struct fl_rpc_server, grace),
                      "draining took too long");
}

void fl_rpc_server_drain(struct fl_rpc_server *s, unsigned grace_ms, void (*done)(void *ctx),
                         void *ctx)
{
    s->is_draining = true;
    s->drained = done;
    s->drained_ctx = ctx;
    stop_listening(s);
    if (fl_timer_set(s->loop, &s->grace, fl_loop_now_ms(s->loop) + grace_ms) < 0)
        close_connections(s, fl_error_text(FL_E_NOMEM));
    FL_LIST_EACH(link, &s->connections)
    {
        fl_rpc__connection_drain(FL_CONTAINER_OF(link, struct fl_rpc_connection, link));
    }
    fl_rpc__check_drained(s);
}

void fl_rpc_server_free(struct fl_rpc_server *s)
{
    if (s == NULL)
        return;
    s->is_freed = true;
    fl_timer_clear(s->loop, &s->grace);
    stop_listening(s);
    /* Handlers are told now; connections go with the loop's next turns, and the server after the
     * last. */
    FL_LIST_EACH(link, &s->connections)
    {
        struct fl_rpc_connection *c = FL_CONTAINER_OF(link, struct fl_rpc_connection, link);

        FL_LIST_EACH(call_link, &c->calls)
        {
            fl_rpc__call_gone(FL_CONTAINER_OF(call_link, struct fl_rpc_call, link),
                              FL_RPC_GONE_LOST);
        }
        fl_rpc__connection_close(c, "the server stops");
    }
    if (fl_list_is_empty(&s->connections))
        free_memory(s);
}
