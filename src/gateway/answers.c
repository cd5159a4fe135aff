#include "gateway/answers.h"

#include "gateway/page.h"

/* A message of TYPE, initialised by its INIT, in the arena. */
#define NEW(var, TYPE, INIT)                                                                       \
    Fencelock__V1__##TYPE *var = fl_arena_alloc(arena, sizeof *var);                               \
    *var = (Fencelock__V1__##TYPE)FENCELOCK__V1__##INIT##__INIT

Fencelock__V1__Mode fl_answer_mode(enum fl_mode mode)
{
    switch (mode) {
    case FL_MODE_EXCLUSIVE:
        return FENCELOCK__V1__MODE__EXCLUSIVE;
    case FL_MODE_SHARED:
        return FENCELOCK__V1__MODE__SHARED;
    case FL_MODE_COUNTED:
        return FENCELOCK__V1__MODE__COUNTED;
    case FL_MODE_NONE:
        break;
    }
    return FENCELOCK__V1__MODE__MODE_UNSPECIFIED;
}

Fencelock__V1__Cause fl_answer_cause(enum fl_cause cause)
{
    switch (cause) {
    case FL_CAUSE_RELEASED:
        return FENCELOCK__V1__CAUSE__RELEASED;
    case FL_CAUSE_ABANDONED:
    case FL_CAUSE_CANCELLED:
        return FENCELOCK__V1__CAUSE__CANCELLED;
    case FL_CAUSE_TIMED_OUT:
        return FENCELOCK__V1__CAUSE__TIMED_OUT;
    case FL_CAUSE_CLOSED:
        return FENCELOCK__V1__CAUSE__SESSION_CLOSED;
    case FL_CAUSE_EXPIRED:
        return FENCELOCK__V1__CAUSE__SESSION_EXPIRED;
    case FL_CAUSE_ENDED:
        return FENCELOCK__V1__CAUSE__SESSION_ENDED;
    case FL_CAUSE_FORCED:
        return FENCELOCK__V1__CAUSE__FORCE_RELEASED;
    case FL_CAUSE_NONE:
        break;
    }
    return FENCELOCK__V1__CAUSE__CAUSE_UNSPECIFIED;
}

static char *session_text(struct fl_arena *arena, struct fl_session_id id)
{
    char *text = fl_arena_alloc(arena, FL_SESSION_ID_TEXT_SIZE);

    fl_session_id_format(id, text);
    return text;
}

/* --- Sessions --- */

FL_ANSWER(create_session)
{
    NEW(response, CreateSessionResponse, CREATE_SESSION_RESPONSE);

    (void)context;
    response->session_id = session_text(arena, reply->session);
    response->ttl_ms = reply->ttl_ms;
    return &response->base;
}

FL_ANSWER(keep_alive)
{
    NEW(response, KeepAliveResponse, KEEP_ALIVE_RESPONSE);

    (void)context;
    response->ttl_ms = reply->ttl_ms;
    return &response->base;
}

FL_ANSWER(close_session)
{
    NEW(response, CloseSessionResponse, CLOSE_SESSION_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

static Fencelock__V1__OpenSessionResponse__Hold *hold_of(struct fl_arena *arena,
                                                         const struct fl_reply_request *request)
{
    NEW(hold, OpenSessionResponse__Hold, OPEN_SESSION_RESPONSE__HOLD);

    hold->name = fl_arena_text(arena, request->name);
    hold->token = request->token;
    hold->request_id = request->request_id;
    hold->mode = fl_answer_mode(request->mode);
    return hold;
}

static Fencelock__V1__OpenSessionResponse__Wait *wait_of(struct fl_arena *arena,
                                                         const struct fl_reply_request *request)
{
    NEW(wait, OpenSessionResponse__Wait, OPEN_SESSION_RESPONSE__WAIT);

    wait->name = fl_arena_text(arena, request->name);
    wait->request_id = request->request_id;
    wait->mode = fl_answer_mode(request->mode);
    return wait;
}

Fencelock__V1__OpenSessionResponse__Opened *fl_answer_opened(struct fl_arena *arena,
                                                             const struct fl_reply *reply)
{
    NEW(opened, OpenSessionResponse__Opened, OPEN_SESSION_RESPONSE__OPENED);

    opened->session_id = session_text(arena, reply->session);
    opened->ttl_ms = reply->ttl_ms;
    if (reply->n_requests == 0)
        return opened;
    opened->holds = fl_arena_alloc(arena, reply->n_requests * sizeof *opened->holds);
    opened->waits = fl_arena_alloc(arena, reply->n_requests * sizeof *opened->waits);
    for (size_t i = 0; i < reply->n_requests; i++) {
        if (reply->requests[i].token != 0)
            opened->holds[opened->n_holds++] = hold_of(arena, &reply->requests[i]);
        else
            opened->waits[opened->n_waits++] = wait_of(arena, &reply->requests[i]);
    }
    return opened;
}

/* --- Locks --- */

static Fencelock__V1__Holder *present_holder(struct fl_arena *arena, const struct fl_reply *reply)
{
    if (reply->holder_token == 0) /* closed by a lock-delay */
        return NULL;
    NEW(holder, Holder, HOLDER);
    holder->client = fl_arena_text(arena, reply->holder_client);
    holder->token = reply->holder_token;
    holder->held_for_ms = reply->holder_for_ms;
    holder->mode = fl_answer_mode(reply->mode);
    return holder;
}

FL_ANSWER(acquire)
{
    NEW(response, AcquireResponse, ACQUIRE_RESPONSE);

    response->request_id = context->request_id;
    response->log_index = reply->index;
    if (reply->answer == FL_ANS_GRANTED) {
        response->granted = true;
        response->token = reply->token;
        response->lease_ms = reply->ttl_ms;
        response->lease_until_ms = context->wall_ms + reply->ttl_ms;
        return &response->base;
    }
    response->cause = reply->answer == FL_ANS_CANCELLED ? FENCELOCK__V1__CAUSE__CANCELLED
                                                        : FENCELOCK__V1__CAUSE__TIMED_OUT;
    response->holder = present_holder(arena, reply);
    return &response->base;
}

FL_ANSWER(release)
{
    NEW(response, ReleaseResponse, RELEASE_RESPONSE);

    (void)context;
    response->log_index = reply->index;
    return &response->base;
}

static Fencelock__V1__Holder *holder_of(struct fl_arena *arena,
                                        const struct fl_reply_request *request)
{
    NEW(holder, Holder, HOLDER);

    /* The session's id stays out: whoever knows it can speak for the session. */
    holder->client = fl_arena_text(arena, request->client);
    holder->token = request->token;
    holder->held_for_ms = request->for_ms;
    holder->mode = fl_answer_mode(request->mode);
    holder->lease_left_ms = request->lease_left_ms;
    return holder;
}

static Fencelock__V1__DescribeResponse__Waiter *waiter_of(struct fl_arena *arena,
                                                          const struct fl_reply_request *request)
{
    NEW(waiter, DescribeResponse__Waiter, DESCRIBE_RESPONSE__WAITER);

    waiter->client = fl_arena_text(arena, request->client);
    waiter->waiting_for_ms = request->for_ms;
    waiter->mode = fl_answer_mode(request->mode);
    return waiter;
}

FL_ANSWER(describe)
{
    NEW(response, DescribeResponse, DESCRIBE_RESPONSE);

    response->name = fl_arena_text(arena, fl_str_from(context->name));
    response->held = reply->name_info.holders > 0;
    response->mode = fl_answer_mode(reply->name_info.mode);
    response->limit = reply->name_info.limit;
    response->waiter_count = reply->name_info.waiters;
    response->closed_for_ms = reply->closed_for_ms;
    response->log_index = reply->index;
    if (reply->n_requests == 0)
        return &response->base;
    response->holders = fl_arena_alloc(arena, reply->n_requests * sizeof *response->holders);
    response->waiters = fl_arena_alloc(arena, reply->n_requests * sizeof *response->waiters);
    for (size_t i = 0; i < reply->n_requests; i++) {
        if (reply->requests[i].token != 0)
            response->holders[response->n_holders++] = holder_of(arena, &reply->requests[i]);
        else
            response->waiters[response->n_waiters++] = waiter_of(arena, &reply->requests[i]);
    }
    return &response->base;
}

static Fencelock__V1__ListResponse__Item *item_of(struct fl_arena *arena,
                                                  const struct fl_reply_name *name)
{
    NEW(item, ListResponse__Item, LIST_RESPONSE__ITEM);

    item->name = fl_arena_text(arena, name->name);
    item->mode = fl_answer_mode(name->mode);
    item->limit = name->limit;
    item->holders = name->holders;
    item->waiters = name->waiters;
    item->client = fl_arena_text(arena, name->holder_client);
    item->token = name->token;
    item->held_for_ms = name->held_for_ms;
    return item;
}

FL_ANSWER(list)
{
    NEW(response, ListResponse, LIST_RESPONSE);

    (void)context;
    response->log_index = reply->index;
    response->n_items = reply->n_names;
    response->items = fl_arena_alloc(arena, reply->n_names * sizeof *response->items);
    for (size_t i = 0; i < reply->n_names; i++)
        response->items[i] = item_of(arena, &reply->names[i]);
    if (reply->more && reply->n_names > 0)
        response->next_page_token = fl_page_token(arena, reply->names[reply->n_names - 1].name);
    return &response->base;
}

/* --- AdminService --- */

static Fencelock__V1__StatusResponse__Member *member_of(struct fl_arena *arena,
                                                        const struct fl_status_member *info)
{
    static const char *const roles[] = {"voter", "standby", "spare"};
    NEW(member, StatusResponse__Member, STATUS_RESPONSE__MEMBER);

    member->node_id = info->id;
    member->address = fl_arena_text(arena, info->address);
    member->role = fl_arena_text(arena, fl_str_from(roles[info->role % 3]));
    member->reachable = info->reachable;
    member->match_index = info->match_index;
    return member;
}

static void fill_node(struct fl_arena *arena, const struct fl_status_info *info,
                      Fencelock__V1__StatusResponse__Node *node)
{
    static const char *const roles[] = {"follower", "candidate", "leader"};

    node->role = fl_arena_text(arena, fl_str_from(roles[info->role % 3]));
    node->leader_id = info->leader_id;
    node->term = info->term;
    node->commit_index = info->commit_index;
    node->applied_index = info->applied_index;
    node->last_index = info->last_index;
    node->snapshot_index = info->snapshot_index;
    node->state_hash = info->history_hash;
    node->sessions = info->stats.sessions;
    node->names = info->stats.names;
    node->holds = info->stats.holds;
    node->waits = info->stats.waits;
    node->grants = info->stats.grants;
    node->memory_bytes = info->stats.memory;
    node->token = info->token;
    node->version = fl_arena_text(arena, info->version);
    node->n_members = info->n_members;
    node->members = fl_arena_alloc(arena, info->n_members * sizeof *node->members);
    for (uint32_t i = 0; i < info->n_members; i++)
        node->members[i] = member_of(arena, &info->members[i]);
}

Fencelock__V1__StatusResponse__Node *fl_answer_node(struct fl_arena *arena,
                                                    const struct fl_reply *reply, uint64_t node_id,
                                                    const char *error)
{
    NEW(node, StatusResponse__Node, STATUS_RESPONSE__NODE);

    node->node_id = node_id;
    if (error != NULL)
        node->error = fl_arena_text(arena, fl_str_from(error));
    else
        fill_node(arena, &reply->info, node);
    return node;
}

ProtobufCMessage *fl_answer_nodes(struct fl_arena *arena,
                                  Fencelock__V1__StatusResponse__Node **nodes, size_t n)
{
    NEW(response, StatusResponse, STATUS_RESPONSE);

    response->nodes = nodes;
    response->n_nodes = n;
    return &response->base;
}

FL_ANSWER(status)
{
    Fencelock__V1__StatusResponse__Node **nodes = fl_arena_alloc(arena, sizeof *nodes);

    (void)context;
    nodes[0] = fl_answer_node(arena, reply, reply->info.node_id, NULL);
    return fl_answer_nodes(arena, nodes, 1);
}

static Fencelock__V1__ListSessionsResponse__Session *session_of(struct fl_arena *arena,
                                                                const struct fl_reply_session *info)
{
    NEW(session, ListSessionsResponse__Session, LIST_SESSIONS_RESPONSE__SESSION);

    session->session_id = session_text(arena, info->id);
    session->client = fl_arena_text(arena, info->client);
    session->ttl_ms = info->ttl_ms;
    session->holds = info->holds;
    session->waits = info->waits;
    session->silent_ms = info->silent_ms;
    session->age_ms = info->age_ms;
    return session;
}

FL_ANSWER(list_sessions)
{
    NEW(response, ListSessionsResponse, LIST_SESSIONS_RESPONSE);

    (void)context;
    response->n_sessions = reply->n_sessions;
    response->sessions = fl_arena_alloc(arena, reply->n_sessions * sizeof *response->sessions);
    for (size_t i = 0; i < reply->n_sessions; i++)
        response->sessions[i] = session_of(arena, &reply->sessions[i]);
    if (reply->more && reply->n_sessions > 0)
        response->next_page_token = fl_page_token(
            arena, fl_str_from(response->sessions[reply->n_sessions - 1]->session_id));
    return &response->base;
}

FL_ANSWER(end_session)
{
    NEW(response, EndSessionResponse, END_SESSION_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(force_release)
{
    NEW(response, ForceReleaseResponse, FORCE_RELEASE_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(transfer_leader)
{
    NEW(response, TransferLeaderResponse, TRANSFER_LEADER_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(add_node)
{
    NEW(response, AddNodeResponse, ADD_NODE_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(promote_node)
{
    NEW(response, PromoteNodeResponse, PROMOTE_NODE_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(remove_node)
{
    NEW(response, RemoveNodeResponse, REMOVE_NODE_RESPONSE);

    (void)reply;
    (void)context;
    return &response->base;
}

FL_ANSWER(begin_backup)
{
    NEW(response, BeginBackupResponse, BEGIN_BACKUP_RESPONSE);

    (void)context;
    response->backup_id = reply->request_id;
    response->node_id = reply->node_id;
    response->size = reply->size;
    response->index = reply->index;
    response->token = reply->token;
    return &response->base;
}

FL_ANSWER(read_backup)
{
    NEW(response, ReadBackupResponse, READ_BACKUP_RESPONSE);

    (void)context;
    response->data = (ProtobufCBinaryData){.len = reply->bytes.len,
                                           .data = (uint8_t *)(uintptr_t)reply->bytes.data};
    return &response->base;
}
