/* grpc.health.v1.Health: Check and Watch.
 * https://github.com/grpc/grpc/blob/master/doc/health-checking.md */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "rpc/server_parts.h"
#include "rpc/wire.h"

enum serving { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

struct service {
    struct fl_list link;
    char *name; /* owned */
    bool is_serving;
};

struct watch {
    struct fl_list link;
    struct fl_rpc_call *call;
    char *name; /* owned */
    enum serving told;
};

static struct service *find_service(const struct fl_rpc_server *s, const char *name)
{
    FL_LIST_EACH(link, &s->health)
    {
        struct service *service = FL_CONTAINER_OF(link, struct service, link);

        if (strcmp(service->name, name) == 0)
            return service;
    }
    return NULL;
}

static enum serving serving_of(const struct fl_rpc_server *s, const char *name)
{
    const struct service *service = find_service(s, name);

    if (service == NULL)
        return SERVICE_UNKNOWN;
    return service->is_serving ? SERVING : NOT_SERVING;
}

static void send_status(struct fl_rpc_call *call, enum serving serving)
{
    uint8_t *message = fl_rpc_message_new(2);

    if (message == NULL)
        return;
    message[0] = 1 << 3; /* status, a varint */
    message[1] = (uint8_t)serving;
    fl_rpc_call_send(call, message, 2);
}

static void push(struct watch *watch)
{
    enum serving serving = serving_of(fl_rpc__call_server(watch->call), watch->name);

    if (serving == watch->told)
        return;
    watch->told = serving;
    send_status(watch->call, serving);
}

void fl_rpc_server_set_serving(struct fl_rpc_server *s, const char *name, bool is_serving)
{
    struct service *service = find_service(s, name);

    if (service == NULL) {
        service = calloc(1, sizeof *service);
        if (service == NULL || (service->name = strdup(name)) == NULL) {
            free(service);
            return;
        }
        fl_list_append(&s->health, &service->link);
    }
    service->is_serving = is_serving;
    FL_LIST_EACH(link, &s->health_watches)
    {
        push(FL_CONTAINER_OF(link, struct watch, link));
    }
}

void fl_rpc__health_deinit(struct fl_rpc_server *s)
{
    struct fl_list *link;

    while ((link = fl_list_first(&s->health)) != NULL) {
        struct service *service = FL_CONTAINER_OF(link, struct service, link);

        fl_list_remove(link);
        free(service->name);
        free(service);
    }
}

/* The name asked for, as a string of its own; NULL: out of memory. */
static char *read_name(const uint8_t *data, size_t len)
{
    struct fl_str name = fl_wire_find((struct fl_str){(const char *)data, len}, 1);

    return strndup(name.data != NULL ? name.data : "", name.len);
}

static void check_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    char *name = read_name(data, len);
    enum serving serving =
        name != NULL ? serving_of(fl_rpc__call_server(call), name) : SERVICE_UNKNOWN;

    free(name);
    if (serving == SERVICE_UNKNOWN) {
        fl_rpc__call_finish_plain(call, FL_RPC_NOT_FOUND, "this server has no such service");
        return;
    }
    send_status(call, serving);
    fl_rpc__call_finish_plain(call, FL_RPC_OK, NULL);
}

static void watch_on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    struct watch *watch;

    if (fl_rpc_call_data(call) != NULL)
        return;
    watch = calloc(1, sizeof *watch);
    if (watch == NULL || (watch->name = read_name(data, len)) == NULL) {
        free(watch);
        fl_rpc__call_finish_plain(call, FL_RPC_RESOURCE_EXHAUSTED, "the server is out of memory");
        return;
    }
    watch->call = call;
    fl_rpc_call_set_data(call, watch);
    fl_list_append(&fl_rpc__call_server(call)->health_watches, &watch->link);
    push(watch);
}

static void watch_on_gone(struct fl_rpc_call *call, enum fl_rpc_gone why)
{
    struct watch *watch = fl_rpc_call_data(call);

    (void)why;
    if (watch == NULL)
        return;
    fl_list_remove(&watch->link);
    free(watch->name);
    free(watch);
}

static const struct fl_rpc_handler check_handler = {
    .on_message = check_on_message,
};

static const struct fl_rpc_handler watch_handler = {
    .on_message = watch_on_message,
    .on_gone = watch_on_gone,
};

const struct fl_rpc_method fl_rpc__health_methods[2] = {
    {"/grpc.health.v1.Health/Check", false, &check_handler, NULL},
    {"/grpc.health.v1.Health/Watch", true, &watch_handler, NULL},
};
