#include "gateway/unary.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "gateway/internal.h"

struct fl_unary {
    struct fl_ask ask;
    struct fl_gateway *gateway;
    const struct fl_unary_method *method;
    const struct fl_unary_sink *sink;
    void *ctx;
    char *name; /* owned; DESCRIBE */
    struct fl_session_id session;
    uint64_t request_id;
    uint16_t asker; /* ACQUIRE: tells this call from others for the same request */
    uint8_t type;
    bool is_own_request_id;
    struct gather *gather; /* STATUS of all nodes */
};

/* STATUS of all nodes: one ask for each link; the answer goes out when the last has ended. */
struct gather {
    struct fl_arena arena;
    struct fl_unary *unary;
    size_t n, n_open;
    Fencelock__V1__StatusResponse__Node **nodes;
    struct gather_ask {
        struct fl_ask ask;
        struct gather *gather;
        size_t place;
        uint64_t node_id;
    } asks[];
};

#define LOCK(name)  "/fencelock.v1.LockService/" name
#define ADMIN(name) "/fencelock.v1.AdminService/" name

const struct fl_unary_method fl_unary_methods[] = {
    {LOCK("Acquire"), &fencelock__v1__acquire_request__descriptor, fl_arguments_acquire,
     fl_answer_acquire},
    {LOCK("Release"), &fencelock__v1__release_request__descriptor, fl_arguments_release,
     fl_answer_release},
    {LOCK("KeepAlive"), &fencelock__v1__keep_alive_request__descriptor, fl_arguments_keep_alive,
     fl_answer_keep_alive},
    {LOCK("CreateSession"), &fencelock__v1__create_session_request__descriptor,
     fl_arguments_create_session, fl_answer_create_session},
    {LOCK("CloseSession"), &fencelock__v1__close_session_request__descriptor,
     fl_arguments_close_session, fl_answer_close_session},
    {LOCK("Describe"), &fencelock__v1__describe_request__descriptor, fl_arguments_describe,
     fl_answer_describe},
    {LOCK("List"), &fencelock__v1__list_request__descriptor, fl_arguments_list, fl_answer_list},
    {ADMIN("Status"), &fencelock__v1__status_request__descriptor, fl_arguments_status,
     fl_answer_status},
    {ADMIN("ListSessions"), &fencelock__v1__list_sessions_request__descriptor,
     fl_arguments_list_sessions, fl_answer_list_sessions},
    {ADMIN("ListWaits"), &fencelock__v1__list_waits_request__descriptor, fl_arguments_list_waits,
     fl_answer_list_waits},
    {ADMIN("EndSession"), &fencelock__v1__end_session_request__descriptor, fl_arguments_end_session,
     fl_answer_end_session},
    {ADMIN("ForceRelease"), &fencelock__v1__force_release_request__descriptor,
     fl_arguments_force_release, fl_answer_force_release},
    {ADMIN("TransferLeader"), &fencelock__v1__transfer_leader_request__descriptor,
     fl_arguments_transfer_leader, fl_answer_transfer_leader},
    {ADMIN("BeginBackup"), &fencelock__v1__begin_backup_request__descriptor,
     fl_arguments_begin_backup, fl_answer_begin_backup},
    {ADMIN("ReadBackup"), &fencelock__v1__read_backup_request__descriptor, fl_arguments_read_backup,
     fl_answer_read_backup},
    {ADMIN("AddNode"), &fencelock__v1__add_node_request__descriptor, fl_arguments_add_node,
     fl_answer_add_node},
    {ADMIN("PromoteNode"), &fencelock__v1__promote_node_request__descriptor,
     fl_arguments_promote_node, fl_answer_promote_node},
    {ADMIN("RemoveNode"), &fencelock__v1__remove_node_request__descriptor, fl_arguments_remove_node,
     fl_answer_remove_node},
};
const size_t fl_unary_n_methods = FL_ARRAY_LEN(fl_unary_methods);

const struct fl_unary_method *fl_unary_find(const char *path)
{
    for (size_t i = 0; i < fl_unary_n_methods; i++)
        if (strcmp(fl_unary_methods[i].path, path) == 0)
            return &fl_unary_methods[i];
    return NULL;
}

static uint64_t now_ms(const struct fl_unary *unary)
{
    return fl_loop_now_ms(unary->gateway->loop);
}

static void unary_free(struct fl_unary *unary)
{
    free(unary->name);
    free(unary);
}

/* What nobody will ask for again must not stay: an acquire may be in a queue or granted, a session
 * open whose id nobody learned. */
static void abandon(struct fl_unary *unary)
{
    struct fl_request request = {.session = unary->session};

    if (unary->type == FL_REQ_OPEN_SESSION) {
        request.type = FL_REQ_CLOSE_SESSION;
    } else {
        request.type = FL_REQ_CANCEL;
        request.request_id = unary->request_id;
        request.abandon = true;
        request.asker = unary->asker;
    }
    if (!FL_BUG(GATEWAY_KEEPS_ABANDONED))
        fl_router_post(unary->gateway->router, now_ms(unary), &request);
}

/* Whether its client cannot ask for it again: we chose what names it. */
static bool is_unrepeatable(const struct fl_unary *unary)
{
    return unary->type == FL_REQ_OPEN_SESSION || unary->is_own_request_id;
}

static void respond(struct fl_unary *unary, const struct fl_reply *reply)
{
    struct fl_answer_context context = {
        .name = unary->name, .request_id = unary->request_id, .wall_ms = fl_gateway__wall_ms()};
    struct fl_arena arena;

    fl_arena_init(&arena);
    unary->sink->reply(unary->ctx, unary->method->write(&arena, reply, &context));
    fl_arena_deinit(&arena);
}

static void on_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct fl_unary *unary = FL_CONTAINER_OF(ask, struct fl_unary, ask);
    struct fl_outcome outcome;

    if (fl_outcome_of(&outcome, how, reply)) {
        respond(unary, reply);
    } else {
        if (how == FL_ASK_NO_LEADER && ask->was_sent && is_unrepeatable(unary))
            abandon(unary);
        unary->sink->fail(unary->ctx, &outcome.status);
    }
    unary_free(unary);
}

/* --- STATUS of all nodes --- */

static void gather_free(struct gather *gather)
{
    fl_arena_deinit(&gather->arena);
    free(gather);
}

static void gathered(struct gather_ask *part, const struct fl_reply *reply, const char *error)
{
    struct gather *gather = part->gather;
    struct fl_unary *unary = gather->unary;

    gather->nodes[part->place] = fl_answer_node(&gather->arena, reply, part->node_id, error);
    if (--gather->n_open > 0)
        return;
    unary->sink->reply(unary->ctx, fl_answer_nodes(&gather->arena, gather->nodes, gather->n));
    gather_free(gather);
    unary_free(unary);
}

static void on_part_done(struct fl_ask *ask, enum fl_ask_end how, const struct fl_reply *reply)
{
    struct gather_ask *part = FL_CONTAINER_OF(ask, struct gather_ask, ask);
    struct fl_outcome outcome;
    bool is_good = fl_outcome_of(&outcome, how, reply);

    gathered(part, reply, is_good ? NULL : outcome.status.message);
}

/* Whether it is answered already: `unary` is then gone. */
static bool gather_start(struct fl_unary *unary, const struct fl_request *request)
{
    struct fl_router *router = unary->gateway->router;
    size_t n = fl_router_links(router), place = 0;
    struct gather *gather = fl_xcalloc(1, sizeof *gather + n * sizeof gather->asks[0]);
    bool is_last = false;

    for (size_t i = 0; i < fl_router_links(router); i++)
        n -= fl_router_link_node(router, (unsigned)i) == 0;

    fl_arena_init(&gather->arena);
    gather->unary = unary;
    gather->n = n;
    gather->n_open = n + 1;
    gather->nodes = fl_arena_alloc(&gather->arena, n * sizeof gather->nodes[0]);
    unary->gather = gather;
    for (size_t i = 0; i < fl_router_links(router); i++) {
        struct gather_ask *part = &gather->asks[place];

        if (fl_router_link_node(router, (unsigned)i) == 0)
            continue;
        part->ask.done = on_part_done;
        part->gather = gather;
        part->place = place++;
        part->node_id = fl_router_link_node(router, (unsigned)i);
        if (fl_router_ask(router, now_ms(unary), &part->ask, request, FL_ROUTE_LINK, (unsigned)i) <
            0)
            gathered(part, NULL, "the node cannot be reached from this gateway");
    }
    is_last = --gather->n_open == 0;
    if (is_last) {
        unary->sink->reply(unary->ctx, fl_answer_nodes(&gather->arena, gather->nodes, gather->n));
        gather_free(gather);
        unary_free(unary);
    }
    return is_last;
}

static void gather_stop(struct gather *gather, struct fl_router *router)
{
    for (size_t i = 0; i < gather->n; i++)
        fl_router_forget(router, &gather->asks[i].ask);
    gather_free(gather);
}

/* --- Life --- */

static bool asks_all_nodes(const struct fl_unary_method *method, const ProtobufCMessage *message)
{
    return method->write == fl_answer_status &&
           ((const Fencelock__V1__StatusRequest *)message)->all_nodes;
}

/* What the gateway itself decides of a request. */
static void complete(struct fl_unary *unary, struct fl_request *request, const char *peer)
{
    if (request->type == FL_REQ_OPEN_SESSION)
        request->session = fl_gateway__new_session_id();
    if (request->type == FL_REQ_ACQUIRE)
        request->asker = unary->asker = (uint16_t)(1 + fl_gateway__new_request_id() % UINT16_MAX);
    if (request->type == FL_REQ_ACQUIRE && request->request_id == 0) {
        request->request_id = fl_gateway__new_request_id();
        unary->is_own_request_id = true;
    }
    if ((request->type == FL_REQ_FORCE_RELEASE || request->type == FL_REQ_END_SESSION) &&
        request->actor.len == 0 && fl_client_name_fault(fl_str_from(peer)) == NULL)
        request->actor = fl_str_from(peer);
    if (request->type == FL_REQ_DESCRIBE)
        unary->name = fl_xstrdup(request->name.data);
    unary->type = (uint8_t)request->type;
    unary->session = request->session;
    unary->request_id = request->request_id;
}

/* The node's link, or an error. */
static int link_of(const struct fl_router *router, uint64_t node_id)
{
    for (unsigned i = 0; i < fl_router_links(router); i++)
        if (fl_router_link_node(router, i) == node_id)
            return (int)i;
    return FL_E_UNREACHABLE;
}

static int ask(struct fl_unary *unary, const struct fl_request *request)
{
    struct fl_gateway *gateway = unary->gateway;
    enum fl_route route = request->stale_ok ? FL_ROUTE_NEAREST : FL_ROUTE_LEADER;
    int link = 0;

    if (request->type == FL_REQ_BACKUP_READ) { /* only that node has it */
        route = FL_ROUTE_LINK;
        link = link_of(gateway->router, request->node_id);
    }
    return link < 0 ? link
                    : fl_router_ask(gateway->router, fl_loop_now_ms(gateway->loop), &unary->ask,
                                    request, route, (unsigned)link);
}

static struct fl_unary *start(struct fl_unary *unary, const struct fl_request *request,
                              bool is_for_all)
{
    struct fl_outcome outcome;
    int r;

    if (is_for_all)
        return gather_start(unary, request) ? NULL : unary;
    r = ask(unary, request);
    if (r == FL_OK)
        return unary;
    fl_outcome_of_error(&outcome, r);
    fl_gateway_meter_refused(&unary->gateway->meter, request->type, &outcome);
    unary->sink->fail(unary->ctx, &outcome.status);
    unary_free(unary);
    return NULL;
}

struct fl_unary *fl_unary_start(struct fl_gateway *gateway, const struct fl_unary_method *method,
                                const ProtobufCMessage *message, const char *peer,
                                const struct fl_unary_sink *sink, void *ctx)
{
    struct fl_request request = {0};
    struct fl_outcome outcome;
    struct fl_arena arena;
    struct fl_arguments args = {&arena, &outcome, &request};
    struct fl_unary *unary = NULL;

    fl_arena_init(&arena);
    if (!method->read(&args, message) ||
        fl_gateway__is_limited(gateway, &request, peer, &outcome)) {
        fl_gateway_meter_refused(&gateway->meter, request.type, &outcome);
        sink->fail(ctx, &outcome.status);
    } else {
        unary = fl_xcalloc(1, sizeof *unary);
        unary->ask.done = on_done;
        unary->gateway = gateway;
        unary->method = method;
        unary->sink = sink;
        unary->ctx = ctx;
        complete(unary, &request, peer);
        unary = start(unary, &request, asks_all_nodes(method, message));
    }
    fl_arena_deinit(&arena);
    return unary;
}

void fl_unary_gone(struct fl_unary *unary, enum fl_unary_gone why)
{
    struct fl_router *router = unary->gateway->router;
    bool was_sent = false;

    if (unary->gather != NULL)
        gather_stop(unary->gather, router);
    else
        was_sent = fl_router_forget(router, &unary->ask);
    if (was_sent &&
        (is_unrepeatable(unary) || (unary->type == FL_REQ_ACQUIRE && why == FL_UNARY_CANCELLED)))
        abandon(unary);
    unary_free(unary);
}
