/* Answers that change nothing: DESCRIBE, LIST, SESSIONS, RESUME. The caller saw to it that they may
 * be given (confirmed and applied, or stale_ok). */
#include <stdlib.h>

#include "base/alloc.h"
#include "node/internal.h"

/* Elements of one reply: a page that is encoded in well under a tick. */
#define PAGE_MAX 1000

const char *fl_node__read_fault(const struct fl_request *request, const char **ret_why)
{
    bool is_paged = request->type == FL_REQ_LIST || request->type == FL_REQ_SESSIONS ||
                    request->type == FL_REQ_WAITS;

    bool has_name =
        request->type == FL_REQ_DESCRIBE || (request->type == FL_REQ_WATCH && !request->is_prefix);

    if (has_name && (*ret_why = fl_name_fault(request->name)) != NULL)
        return "name";
    *ret_why = "is longer than 512 bytes";
    if (request->name.len > FL_NAME_MAX)
        return "prefix";
    if (request->after.len > FL_NAME_MAX)
        return "after";
    *ret_why = "is not between 1 and 1000";
    if (is_paged && request->max == 0)
        return "max";
    if (request->max > PAGE_MAX)
        return "max";
    return NULL;
}

/* --- Holds and waits --- */

struct requests {
    const struct fl_node *node;
    struct fl_reply *reply;
    size_t capacity;
};

static uint32_t lease_left_ms(const struct fl_node *node, struct fl_session_id session)
{
    const struct live *live = fl_node__live(node, session);
    uint64_t now = fl_node__judged_now(node);

    if (live == NULL || live->deadline <= now)
        return 0;
    return (uint32_t)(live->deadline - now);
}

static void add_request(void *ctx, const struct fl_request_info *info)
{
    struct requests *requests = ctx;
    struct fl_reply *reply = requests->reply;

    if (reply->n_requests == requests->capacity) {
        requests->capacity =
            fl_grow_capacity(requests->capacity, reply->n_requests + 1, sizeof *reply->requests);
        reply->requests =
            fl_xrealloc(reply->requests, requests->capacity * sizeof *reply->requests);
    }
    reply->requests[reply->n_requests++] = (struct fl_reply_request){
        .session = info->session,
        .client = info->client,
        .name = info->name,
        .request_id = info->request_id,
        .mode = info->mode,
        .token = info->token,
        .for_ms = fl_node__since_ms(requests->node, info->since_ms),
        .lease_left_ms = info->token != 0 ? lease_left_ms(requests->node, info->session) : 0,
    };
}

static void describe(struct fl_node *node, const struct fl_request *request, struct fl_reply *reply)
{
    struct requests requests = {node, reply, 0};
    uint64_t now = fl_node__log_now(node);

    fl_machine_describe(node->machine, request->name, request->max, &reply->name_info, add_request,
                        &requests);
    if (reply->name_info.closed_until_ms > now)
        reply->closed_for_ms = (uint32_t)(reply->name_info.closed_until_ms - now);
}

static void resume(struct fl_node *node, struct link *link, const struct fl_request *request,
                   struct fl_reply *reply)
{
    struct requests requests = {node, reply, 0};
    struct fl_session_info info;
    struct live *live = fl_node__live(node, request->session);

    reply->session = request->session;
    if (!fl_machine_session(node->machine, request->session, &info)) {
        reply->answer = FL_ANS_SESSION_NOT_FOUND;
        return;
    }
    if (live != NULL)
        fl_node__live_carry(live, link);
    reply->ttl_ms = info.ttl_ms;
    fl_machine_each_request(node->machine, request->session, add_request, &requests);
}

/* --- Pages --- */

struct names {
    const struct fl_node *node;
    struct fl_reply *reply;
    size_t max;
};

static void name_holder(void *ctx, const struct fl_request_info *info)
{
    struct names *names = ctx;
    struct fl_reply_name *name = &names->reply->names[names->reply->n_names];

    name->holder_client = info->client;
    name->token = info->token;
    name->held_for_ms = fl_node__since_ms(names->node, info->since_ms);
}

static bool add_name(void *ctx, const struct fl_name_info *info)
{
    struct names *names = ctx;

    if (names->reply->n_names == names->max) {
        names->reply->more = true;
        return false;
    }
    names->reply->names[names->reply->n_names] = (struct fl_reply_name){
        .name = info->name,
        .mode = info->mode,
        .limit = info->limit,
        .holders = info->holders,
        .waiters = info->waiters,
    };
    fl_machine_each_holder(names->node->machine, info->name, 1, name_holder, names);
    names->reply->n_names++;
    return true;
}

static void list(const struct fl_node *node, const struct fl_request *request,
                 struct fl_reply *reply)
{
    struct names names = {node, reply, request->max};

    reply->names = fl_xcalloc(request->max, sizeof *reply->names);
    fl_machine_list(node->machine, request->name, request->after, (size_t)request->max + 1,
                    add_name, &names);
}

struct sessions {
    const struct fl_node *node;
    struct fl_reply *reply;
    struct fl_session_id after;
    size_t max;
};

static bool is_after(struct fl_session_id id, struct fl_session_id after)
{
    return id.high != after.high ? id.high > after.high : id.low > after.low;
}

static void add_session(void *ctx, const struct fl_session_info *info)
{
    struct sessions *sessions = ctx;
    const struct fl_node *node = sessions->node;
    struct fl_reply *reply = sessions->reply;
    const struct live *live;
    uint64_t now = fl_node__log_now(node);

    if (!is_after(info->id, sessions->after))
        return;
    if (reply->n_sessions == sessions->max) {
        reply->more = true;
        return;
    }
    live = fl_node__live(node, info->id);
    reply->sessions[reply->n_sessions++] = (struct fl_reply_session){
        .id = info->id,
        .client = info->client,
        .ttl_ms = info->ttl_ms,
        .holds = info->holds,
        .waits = info->waits,
        .silent_ms = live != NULL ? fl_node__live_silence_ms(node, live) : info->silence_ms,
        .age_ms = now > info->opened_ms ? now - info->opened_ms : 0,
    };
}

static void list_sessions(const struct fl_node *node, const struct fl_request *request,
                          struct fl_reply *reply)
{
    struct sessions sessions = {node, reply, request->session, request->max};

    reply->sessions = fl_xcalloc(request->max, sizeof *reply->sessions);
    fl_machine_each_session(node->machine, add_session, &sessions);
}

/* --- Who waits for whom --- */

struct waits {
    struct fl_str *names; /* of the waits; one may stand there often */
    size_t n;
};

static void note_wait(void *ctx, const struct fl_request_info *info)
{
    struct waits *waits = ctx;

    waits->names[waits->n++] = info->name;
}

static int compare_names(const void *a, const void *b)
{
    return fl_str_compare(*(const struct fl_str *)a, *(const struct fl_str *)b);
}

static void list_waits(const struct fl_node *node, const struct fl_request *request,
                       struct fl_reply *reply)
{
    struct waits waits = {fl_xcalloc((size_t)request->max + 1, sizeof *waits.names), 0};
    struct requests requests = {node, reply, 0};

    fl_machine_each_wait(node->machine, (size_t)request->max + 1, note_wait, &waits);
    if (waits.n > request->max) {
        waits.n = request->max;
        reply->more = true;
    }
    qsort(waits.names, waits.n, sizeof *waits.names, compare_names);
    for (size_t i = 0; i < waits.n; i++) {
        struct fl_name_info info;

        if (i > 0 && fl_str_equal(waits.names[i], waits.names[i - 1]))
            continue;
        if (reply->n_requests > 4 * (size_t)request->max) { /* names that very many hold */
            reply->more = true;
            break;
        }
        fl_machine_describe(node->machine, waits.names[i], request->max, &info, add_request,
                            &requests);
    }
    free(waits.names);
}

void fl_node__read_answer(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct fl_reply reply = {
        .tag = request->tag, .request_type = request->type, .index = node->applied_index};

    if (request->type == FL_REQ_WATCH) {
        fl_node__watch_begin(node, link, request);
        return;
    }
    switch (request->type) {
    case FL_REQ_DESCRIBE:
        describe(node, request, &reply);
        break;
    case FL_REQ_LIST:
        list(node, request, &reply);
        break;
    case FL_REQ_SESSIONS:
        list_sessions(node, request, &reply);
        break;
    case FL_REQ_WAITS:
        list_waits(node, request, &reply);
        break;
    default:
        resume(node, link, request, &reply);
        break;
    }
    fl_node__send_reply(node, link, &reply);
    fl_reply_deinit(&reply);
}
