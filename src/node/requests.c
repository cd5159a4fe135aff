/* What a gateway asks: each request becomes a command of the next entry, a question that waits for
 * a confirmation, or a refusal at once. */
#include "base/alloc.h"
#include "base/bugs.h"
#include "base/error.h"
#include "node/internal.h"

/* Never refused for load or want of space: they make room, or keep what is there alive. */
static bool is_always_taken(enum fl_request_type type)
{
    return type == FL_REQ_KEEP_ALIVE || type == FL_REQ_RELEASE || type == FL_REQ_CANCEL ||
           type == FL_REQ_CLOSE_SESSION || type == FL_REQ_DETACH;
}

/* An acquire that an earlier leader took comes again: refused, its client would think that it is
 * over, while it waits in the log and is granted to nobody (L11). Before the log is applied nobody
 * knows which those are. */
static bool is_repeated(const struct fl_node *node, const struct fl_request *request)
{
    if (request->type != FL_REQ_ACQUIRE || FL_BUG(NODE_REFUSES_WHAT_WAITS))
        return false;
    return !node->is_settled ||
           fl_machine_has_request(node->machine, request->session, request->request_id);
}

static bool may_grant(enum fl_request_type type)
{
    return type == FL_REQ_ACQUIRE || type == FL_REQ_OPEN_SESSION;
}

/* Only questions that carry nothing on may be answered from what a node happens to know. */
static bool may_be_stale(const struct fl_request *request)
{
    return request->stale_ok && (request->type == FL_REQ_DESCRIBE || request->type == FL_REQ_LIST ||
                                 request->type == FL_REQ_SESSIONS || request->type == FL_REQ_WAITS);
}

static enum fl_command_type command_type(enum fl_request_type type)
{
    switch (type) {
    case FL_REQ_OPEN_SESSION:
        return FL_CMD_OPEN_SESSION;
    case FL_REQ_ACQUIRE:
        return FL_CMD_ACQUIRE;
    case FL_REQ_RELEASE:
        return FL_CMD_RELEASE;
    case FL_REQ_CANCEL:
        return FL_CMD_CANCEL;
    case FL_REQ_FORCE_RELEASE:
        return FL_CMD_FORCE_RELEASE;
    case FL_REQ_END_SESSION:
        return FL_CMD_END_SESSION;
    default:
        return FL_CMD_CLOSE_SESSION;
    }
}

/* What the request's type does not have is zero already. */
static void submit(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct fl_command command = {
        .type = command_type(request->type),
        .session = request->session,
        .request_id = request->request_id,
        .name = request->name,
        .token = request->token,
        .mode = request->mode,
        .limit = request->limit,
        .wait_ms = request->wait_ms,
        .abandon = request->abandon,
        .asker = request->asker,
        .client = request->client,
        .ttl_ms = request->ttl_ms,
        .lock_delay_ms = request->lock_delay_ms,
        .actor = request->actor,
        .reason = request->reason,
    };
    const char *why = NULL, *field = fl_command_fault(&command, &why);

    if (field != NULL) {
        fl_node__refuse_invalid(node, link, request, field, why);
        return;
    }
    if (node->is_disk_full && may_grant(request->type) && !is_repeated(node, request)) {
        fl_node__refuse(node, link, request, FL_REPLY_DISK_FULL);
        return;
    }
    fl_node__draft_add(node, &command, fl_node__pending_new(node, link, request));
}

static void ask(struct fl_node *node, struct link *link, const struct fl_request *request,
                const void *data, size_t len)
{
    struct pending *p;
    const char *why = NULL, *field = fl_node__read_fault(request, &why);

    if (field != NULL) {
        fl_node__refuse_invalid(node, link, request, field, why);
        return;
    }
    if (request->type == FL_REQ_WATCH && !fl_node__watch_is_allowed(node, request)) {
        fl_node__refuse(node, link, request, FL_REPLY_BUSY);
        return;
    }
    if (may_be_stale(request)) {
        fl_node__read_answer(node, link, request);
        return;
    }
    p = fl_node__pending_new(node, link, request);
    p->message = fl_xmemdup(data, len);
    p->message_len = len;
    fl_node__rounds_ask(node, p);
}

/* The session counts as heard from now on, whether or not the confirmation comes. */
static void keep_alive(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct pending *p = fl_node__pending_new(node, link, request);
    struct live *live = fl_node__live(node, request->session);

    p->received_ms = fl_node__judged_now(node);
    if (live != NULL) {
        fl_node__live_heard(node, live, p->received_ms);
        if (live->carrier == NULL)
            fl_node__live_carry(live, link);
    }
    fl_node__rounds_ask(node, p);
}

/* Only the link that carries the session may end it so: a client that went to another gateway
 * before the old one noticed keeps its session. When nobody is known to carry it (a new leader), it
 * is left to its TTL. */
static void detach(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct live *live = fl_node__live(node, request->session);
    struct fl_reply reply = {.tag = request->tag,
                             .request_type = request->type,
                             .index = node->applied_index,
                             .session = request->session};

    if (live == NULL || live->carrier != link) {
        fl_node__send_reply(node, link, &reply);
        return;
    }
    fl_node__live_carry(live, NULL);
    if (request->release_on_disconnect)
        submit(node, link, request);
    else
        fl_node__send_reply(node, link, &reply);
}

/* Also for a watch that waits for its confirmation yet: that one is answered too. */
static void unwatch(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct fl_reply reply = {
        .tag = request->tag, .request_type = request->type, .index = node->applied_index};

    FL_LIST_EACH(at, &link->pendings)
    {
        struct pending *p = FL_CONTAINER_OF(at, struct pending, in_link);

        if (p->type == FL_REQ_WATCH && p->tag == request->request_id)
            fl_node__answer_plain(node, p, FL_ANS_CANCELLED);
    }
    fl_node__watch_end(node, link, request->request_id);
    fl_node__send_reply(node, link, &reply);
}

static void transfer(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    int r = node->ops.transfer != NULL ? node->ops.transfer(node->ctx, request->node_id)
                                       : FL_E_UNSUPPORTED;
    struct fl_reply reply = {
        .tag = request->tag, .request_type = request->type, .index = node->applied_index};

    if (r == FL_OK)
        fl_node__send_reply(node, link, &reply);
    else if (r == FL_E_NOT_LEADER)
        fl_node__refuse(node, link, request, FL_REPLY_NOT_LEADER);
    else if (r == FL_E_BUSY)
        fl_node__refuse(node, link, request, FL_REPLY_BUSY);
    else
        fl_node__refuse_invalid(node, link, request, "node_id", "is no voter that could lead");
}

static const char *change_fault(enum fl_request_type type, int error)
{
    switch (error) {
    case FL_E_EXISTS:
        return type == FL_REQ_ADD_NODE
                   ? "is or was a member: ids are never used again, so choose a new one"
                   : "votes already";
    case FL_E_NOT_FOUND:
        return "is no member";
    default:
        return type == FL_REQ_REMOVE_NODE
                   ? "is one of the last three that vote: add and promote another one first"
                   : "cannot be added: give an id from 1 up and HOST:PORT of its peer port, to a "
                     "cluster with room";
    }
}

static void change_members(struct fl_node *node, struct link *link,
                           const struct fl_request *request)
{
    int r =
        node->ops.change_members != NULL
            ? node->ops.change_members(node->ctx, request->type, request->node_id, request->name)
            : FL_E_UNSUPPORTED;
    struct fl_reply reply = {
        .tag = request->tag, .request_type = request->type, .index = node->applied_index};

    if (r == FL_OK)
        fl_node__send_reply(node, link, &reply);
    else if (r == FL_E_NOT_LEADER)
        fl_node__refuse(node, link, request, FL_REPLY_NOT_LEADER);
    else if (r == FL_E_BUSY)
        fl_node__refuse(node, link, request, FL_REPLY_CHANGING);
    else
        fl_node__refuse_invalid(node, link, request, "node_id", change_fault(request->type, r));
}

void fl_node__request(struct fl_node *node, struct link *link, const struct fl_request *request,
                      const void *data, size_t len)
{
    if (request->type == FL_REQ_STATUS) {
        fl_node__status_answer(node, link, request);
        return;
    }
    if (!node->is_leader && !may_be_stale(request)) {
        fl_node__refuse(node, link, request, FL_REPLY_NOT_LEADER);
        return;
    }
    if (node->n_pendings >= node->config.pending_max && !is_always_taken(request->type) &&
        !is_repeated(node, request)) {
        fl_node__refuse(node, link, request, FL_REPLY_BUSY);
        return;
    }
    switch (request->type) {
    case FL_REQ_KEEP_ALIVE:
        keep_alive(node, link, request);
        break;
    case FL_REQ_DETACH:
        detach(node, link, request);
        break;
    case FL_REQ_RESUME_SESSION:
    case FL_REQ_DESCRIBE:
    case FL_REQ_LIST:
    case FL_REQ_SESSIONS:
    case FL_REQ_WAITS:
    case FL_REQ_WATCH:
        ask(node, link, request, data, len);
        break;
    case FL_REQ_TRANSFER_LEADER:
        transfer(node, link, request);
        break;
    case FL_REQ_ADD_NODE:
    case FL_REQ_PROMOTE_NODE:
    case FL_REQ_REMOVE_NODE:
        change_members(node, link, request);
        break;
    case FL_REQ_UNWATCH:
        unwatch(node, link, request);
        break;
    case FL_REQ_BACKUP: /* the driver's: it has the disk */
    case FL_REQ_BACKUP_READ:
        fl_node__refuse_invalid(node, link, request, "type", "is not for this node");
        break;
    case FL_REQ_STATUS:
        break;
    case FL_REQ_OPEN_SESSION:
    case FL_REQ_CLOSE_SESSION:
    case FL_REQ_ACQUIRE:
    case FL_REQ_RELEASE:
    case FL_REQ_CANCEL:
    case FL_REQ_FORCE_RELEASE:
    case FL_REQ_END_SESSION:
        submit(node, link, request);
        break;
    }
}
