#include "http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "http/connection.h"
#include "net/address.h"

static bool is_loopback(const char *address)
{
    struct fl_address parsed;
    struct sockaddr_storage addr;

    if (fl_address_parse(address, &parsed) < 0 || fl_address_numeric(&parsed, &addr) < 0)
        return false;
    if (addr.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&addr)->sin_addr.s_addr) >> 24 == 127;
    return addr.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&addr)->sin6_addr);
}

static void close_all(struct fl_http_server *server, const char *why)
{
    FL_LIST_EACH(link, &server->connections)
    {
        fl_http__connection_close(FL_CONTAINER_OF(link, struct fl_http_connection, link), why);
    }
}

static void on_grace_over(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_http_server *server = FL_CONTAINER_OF(timer, struct fl_http_server, grace);

    (void)now_ms;
    close_all(server, "draining took too long");
}

int fl_http_server_new(struct fl_loop *loop, const struct fl_http_config *config,
                       struct fl_http_server **ret_server, char *why)
{
    struct fl_http_server *server = fl_xcalloc(1, sizeof *server);
    int r;

    server->loop = loop;
    server->handle = config->handle;
    server->ctx = config->ctx;
    server->grace = FL_TIMER_INIT(on_grace_over);
    server->is_loopback = is_loopback(config->address);
    fl_list_init(&server->connections);
    r = fl_conn_listen(loop, config->address, &fl_http__door, server, &server->listener, why);
    if (r < 0) {
        free(server);
        return r;
    }
    *ret_server = server;
    return FL_OK;
}

unsigned fl_http_server_port(const struct fl_http_server *server)
{
    return fl_conn_listener_port(server->listener);
}

bool fl_http_server_is_loopback(const struct fl_http_server *server)
{
    return server->is_loopback;
}

void fl_http_server_stats(const struct fl_http_server *server,
                          struct fl_http_server_stats *ret_stats)
{
    *ret_stats = server->stats;
}

static void stop_listening(struct fl_http_server *server)
{
    fl_conn_listener_close(server->listener);
    server->listener = NULL;
}

void fl_http__check_drained(struct fl_http_server *server)
{
    void (*drained)(void *ctx) = server->drained;

    if (!fl_list_is_empty(&server->connections))
        return;
    if (server->is_freed) {
        free(server);
        return;
    }
    if (drained == NULL)
        return;
    server->drained = NULL;
    fl_timer_clear(server->loop, &server->grace);
    drained(server->drained_ctx);
}

void fl_http_server_drain(struct fl_http_server *server, unsigned grace_ms, void (*done)(void *ctx),
                          void *ctx)
{
    server->is_draining = true;
    server->drained = done;
    server->drained_ctx = ctx;
    stop_listening(server);
    FL_REQUIRE(fl_timer_set(server->loop, &server->grace,
                            fl_loop_now_ms(server->loop) + grace_ms) == FL_OK);
    FL_LIST_EACH(link, &server->connections)
    {
        fl_http__connection_drain(FL_CONTAINER_OF(link, struct fl_http_connection, link));
    }
    fl_http__check_drained(server);
}

void fl_http_server_free(struct fl_http_server *server)
{
    if (server == NULL)
        return;
    server->is_draining = server->is_freed = true;
    fl_timer_clear(server->loop, &server->grace);
    stop_listening(server);
    FL_LIST_EACH(link, &server->connections)
    {
        struct fl_http_connection *c = FL_CONTAINER_OF(link, struct fl_http_connection, link);

        fl_http__connection_abandon(c);
        fl_http__connection_close(c, "the server stops");
    }
    fl_http__check_drained(server);
}
