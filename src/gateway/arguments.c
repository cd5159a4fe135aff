#include "gateway/arguments.h"

#include <stdlib.h>
#include <string.h>

#include "base/bugs.h"
#include "base/error.h"
#include "gateway/page.h"

#define WAITERS_SHOWN     10u
#define WAITERS_SHOWN_MAX 1000u
#define ADDRESS_MAX       255u

static bool fault(struct fl_arguments *args, const char *field, const char *why)
{
    fl_outcome_set_fault(args->outcome, field, why);
    return false;
}

/* --- Parts --- */

bool fl_arguments_session(struct fl_arguments *args, const char *session_id)
{
    if (session_id[0] == '\0')
        return fault(args, "session_id", "is missing");
    /* Opaque to clients: what is not one of ours is as unknown as one that has ended. */
    if (fl_session_id_parse(fl_str_from(session_id), &args->request->session) < 0) {
        fl_outcome_set(args->outcome, FL_REASON_SESSION_NOT_FOUND);
        return false;
    }
    return true;
}

static bool read_name(struct fl_arguments *args, const char *name)
{
    const char *why;

    args->request->name = fl_str_from(name);
    why = fl_name_fault(args->request->name);
    return why == NULL || fault(args, "name", why);
}

static bool read_prefix(struct fl_arguments *args, const char *field, const char *prefix)
{
    const char *why = NULL;

    args->request->name = fl_str_from(prefix);
    if (prefix[0] != '\0')
        why = fl_name_fault(args->request->name);
    return why == NULL || fault(args, field, why);
}

static bool read_token(struct fl_arguments *args, uint64_t token)
{
    if (token == 0)
        return fault(args, "token", "is missing");
    if (token > FL_TOKEN_MAX)
        return fault(args, "token", "is above 2^53 - 1, the highest there can be");
    args->request->token = token;
    return true;
}

bool fl_arguments_options(struct fl_arguments *args, const Fencelock__V1__SessionOptions *options)
{
    static const Fencelock__V1__SessionOptions none = FENCELOCK__V1__SESSION_OPTIONS__INIT;
    struct fl_request *q = args->request;
    const char *why;

    if (options == NULL)
        options = &none;
    q->client = fl_str_from(options->client);
    why = fl_client_name_fault(q->client);
    if (why != NULL)
        return fault(args, "client", why);
    q->ttl_ms = FL_TTL_MS_DEFAULT;
    if (options->has_ttl_ms_case != FENCELOCK__V1__SESSION_OPTIONS__HAS_TTL_MS__NOT_SET)
        q->ttl_ms = options->ttl_ms;
    if (FL_BUG(GATEWAY_ZERO_MEANS_ABSENT) && q->ttl_ms == 0)
        q->ttl_ms = FL_TTL_MS_DEFAULT;
    if (q->ttl_ms < FL_TTL_MS_MIN || q->ttl_ms > FL_TTL_MS_MAX)
        return fault(args, "ttl_ms", "must be from 1000 to 3600000");
    if (options->has_lock_delay_ms_case !=
        FENCELOCK__V1__SESSION_OPTIONS__HAS_LOCK_DELAY_MS__NOT_SET)
        q->lock_delay_ms = options->lock_delay_ms;
    if (q->lock_delay_ms > FL_LOCK_DELAY_MS_MAX)
        return fault(args, "lock_delay_ms", "must be at most 600000");
    q->release_on_disconnect = options->release_on_disconnect;
    return true;
}

static bool read_mode(struct fl_arguments *args, const Fencelock__V1__AcquireRequest *message)
{
    bool has_limit = message->has_limit_case != FENCELOCK__V1__ACQUIRE_REQUEST__HAS_LIMIT__NOT_SET;
    struct fl_request *q = args->request;

    switch ((int)message->mode) {
    case FENCELOCK__V1__MODE__MODE_UNSPECIFIED:
    case FENCELOCK__V1__MODE__EXCLUSIVE:
        q->mode = FL_MODE_EXCLUSIVE;
        break;
    case FENCELOCK__V1__MODE__SHARED:
        q->mode = FL_MODE_SHARED;
        break;
    case FENCELOCK__V1__MODE__COUNTED:
        q->mode = FL_MODE_COUNTED;
        break;
    default:
        return fault(args, "mode", "must be EXCLUSIVE, SHARED or COUNTED");
    }
    if (q->mode != FL_MODE_COUNTED)
        return !has_limit || fault(args, "limit", "is only for mode COUNTED");
    if (!has_limit || message->limit == 0 || message->limit > FL_LIMIT_MAX)
        return fault(args, "limit", "must be from 1 to 1000000 in mode COUNTED");
    q->limit = message->limit;
    return true;
}

static bool read_tier(struct fl_arguments *args, int tier)
{
    if (tier == FENCELOCK__V1__TIER__TIER_UNSPECIFIED || tier == FENCELOCK__V1__TIER__STRICT)
        return true;
    if (tier != FENCELOCK__V1__TIER__FAST)
        return fault(args, "tier", "must be STRICT or FAST");
    fl_outcome_set(args->outcome, FL_REASON_NO_FAST_TIER);
    return false;
}

static bool read_acquire(struct fl_arguments *args, const Fencelock__V1__AcquireRequest *message)
{
    struct fl_request *q = args->request;

    q->type = FL_REQ_ACQUIRE;
    if (!read_name(args, message->name) || !read_mode(args, message) ||
        !read_tier(args, (int)message->tier))
        return false;
    if (message->has_wait_ms_case != FENCELOCK__V1__ACQUIRE_REQUEST__HAS_WAIT_MS__NOT_SET)
        q->wait_ms = message->wait_ms;
    if (q->wait_ms > FL_WAIT_MS_MAX)
        return fault(args, "wait_ms", "must be at most 86400000, a day");
    if (message->has_request_id_case == FENCELOCK__V1__ACQUIRE_REQUEST__HAS_REQUEST_ID__NOT_SET)
        return true;
    q->request_id = message->request_id;
    return q->request_id != 0 || fault(args, "request_id", "must not be 0");
}

static bool read_stream_session(struct fl_arguments *args, struct fl_session_id session,
                                const char *session_id)
{
    struct fl_session_id other;

    args->request->session = session;
    if (session_id[0] == '\0')
        return true;
    if (fl_session_id_parse(fl_str_from(session_id), &other) == FL_OK &&
        fl_session_id_equal(session, other))
        return true;
    return fault(args, "session_id", "is not that of the stream: leave it out");
}

bool fl_arguments_stream_acquire(struct fl_arguments *args, struct fl_session_id session,
                                 const Fencelock__V1__AcquireRequest *message)
{
    if (!read_stream_session(args, session, message->session_id) || !read_acquire(args, message))
        return false;
    return args->request->request_id != 0 || fault(args, "request_id", "is missing");
}

bool fl_arguments_stream_release(struct fl_arguments *args, struct fl_session_id session,
                                 const Fencelock__V1__ReleaseRequest *message)
{
    args->request->type = FL_REQ_RELEASE;
    return read_stream_session(args, session, message->session_id) &&
           read_name(args, message->name) && read_token(args, message->token);
}

static bool read_page(struct fl_arguments *args, uint32_t page_size, const char *page_token,
                      struct fl_str *ret_last)
{
    char *out = fl_arena_alloc(args->arena, FL_NAME_MAX);

    if (page_size > FL_PAGE_MAX)
        return fault(args, "page_size", "must be at most 1000");
    args->request->max = page_size != 0 ? page_size : FL_PAGE_DEFAULT;
    if (fl_page_parse(page_token, out, ret_last) < 0)
        return fault(args, "page_token", "is not one that an earlier page gave");
    return true;
}

/* --- LockService --- */

bool fl_arguments_create_session(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_OPEN_SESSION;
    return fl_arguments_options(args,
                                ((const Fencelock__V1__CreateSessionRequest *)message)->options);
}

bool fl_arguments_keep_alive(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_KEEP_ALIVE;
    return fl_arguments_session(args,
                                ((const Fencelock__V1__KeepAliveRequest *)message)->session_id);
}

bool fl_arguments_close_session(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_CLOSE_SESSION;
    return fl_arguments_session(args,
                                ((const Fencelock__V1__CloseSessionRequest *)message)->session_id);
}

bool fl_arguments_acquire(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__AcquireRequest *acquire = (const Fencelock__V1__AcquireRequest *)message;

    return read_acquire(args, acquire) && fl_arguments_session(args, acquire->session_id);
}

bool fl_arguments_release(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__ReleaseRequest *release = (const Fencelock__V1__ReleaseRequest *)message;

    args->request->type = FL_REQ_RELEASE;
    return read_name(args, release->name) && read_token(args, release->token) &&
           fl_arguments_session(args, release->session_id);
}

bool fl_arguments_describe(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__DescribeRequest *describe =
        (const Fencelock__V1__DescribeRequest *)message;
    struct fl_request *q = args->request;

    q->type = FL_REQ_DESCRIBE;
    q->stale_ok = describe->stale_ok;
    q->max = WAITERS_SHOWN;
    if (describe->has_waiters_max_case != FENCELOCK__V1__DESCRIBE_REQUEST__HAS_WAITERS_MAX__NOT_SET)
        q->max = describe->waiters_max;
    if (q->max > WAITERS_SHOWN_MAX)
        return fault(args, "waiters_max", "must be at most 1000");
    return read_name(args, describe->name);
}

bool fl_arguments_list(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__ListRequest *list = (const Fencelock__V1__ListRequest *)message;

    args->request->type = FL_REQ_LIST;
    args->request->is_prefix = true;
    args->request->stale_ok = list->stale_ok;
    return read_prefix(args, "prefix", list->prefix) &&
           read_page(args, list->page_size, list->page_token, &args->request->after);
}

bool fl_arguments_watch(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__WatchRequest *watch = (const Fencelock__V1__WatchRequest *)message;
    struct fl_request *q = args->request;

    q->type = FL_REQ_WATCH;
    q->is_prefix = watch->is_prefix;
    if (watch->has_from_index_case != FENCELOCK__V1__WATCH_REQUEST__HAS_FROM_INDEX__NOT_SET) {
        if (watch->from_index == 0)
            return fault(args, "from_index", "must not be 0: leave it out to begin");
        q->from_index = watch->from_index;
    }
    return watch->is_prefix ? read_prefix(args, "name", watch->name) : read_name(args, watch->name);
}

/* --- AdminService --- */

bool fl_arguments_status(struct fl_arguments *args, const ProtobufCMessage *message)
{
    (void)message;
    args->request->type = FL_REQ_STATUS;
    args->request->stale_ok = true;
    return true;
}

bool fl_arguments_list_sessions(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__ListSessionsRequest *list =
        (const Fencelock__V1__ListSessionsRequest *)message;
    struct fl_str last;

    args->request->type = FL_REQ_SESSIONS;
    if (!read_page(args, list->page_size, list->page_token, &last))
        return false;
    if (last.len > 0 && fl_session_id_parse(last, &args->request->session) < 0)
        return fault(args, "page_token", "is not one that an earlier page gave");
    return true;
}

bool fl_arguments_list_waits(struct fl_arguments *args, const ProtobufCMessage *message)
{
    uint32_t max = ((const Fencelock__V1__ListWaitsRequest *)message)->max;

    args->request->type = FL_REQ_WAITS;
    args->request->max = max != 0 ? max : FL_PAGE_DEFAULT;
    return max <= FL_PAGE_MAX || fault(args, "max", "must be at most 1000");
}

static bool read_who(struct fl_arguments *args, const char *by, const char *reason)
{
    const char *why;

    args->request->actor = fl_str_from(by);
    why = fl_client_name_fault(args->request->actor);
    if (why != NULL)
        return fault(args, "by", why);
    args->request->reason = fl_str_from(reason);
    if (args->request->reason.len > FL_REASON_MAX)
        return fault(args, "reason", "is longer than 256 bytes");
    if (fl_str_has_control(args->request->reason))
        return fault(args, "reason", "has a control character");
    return true;
}

bool fl_arguments_end_session(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__EndSessionRequest *end_session =
        (const Fencelock__V1__EndSessionRequest *)message;

    args->request->type = FL_REQ_END_SESSION;
    return read_who(args, end_session->by, end_session->reason) &&
           fl_arguments_session(args, end_session->session_id);
}

bool fl_arguments_force_release(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__ForceReleaseRequest *force =
        (const Fencelock__V1__ForceReleaseRequest *)message;

    args->request->type = FL_REQ_FORCE_RELEASE;
    if (!read_name(args, force->name) || !read_token(args, force->token) ||
        !read_who(args, force->by, force->reason))
        return false;
    return force->reason[0] != '\0' ||
           fault(args, "reason", "is missing: the former holder is told why");
}

bool fl_arguments_transfer_leader(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_TRANSFER_LEADER;
    args->request->node_id = ((const Fencelock__V1__TransferLeaderRequest *)message)->node_id;
    return true;
}

/* What is wrong with an address for others to dial, or NULL. The gateway has no business with
 * resolving it. */
static const char *address_fault(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct fl_str text = fl_str_from(address);
    unsigned long port;
    char *end;

    if (text.len == 0)
        return "is missing: HOST:PORT of the node's peer port";
    if (text.len > ADDRESS_MAX || fl_str_has_control(text) || strpbrk(address, ", =") != NULL)
        return "is no HOST:PORT";
    if (colon == NULL || colon == address || colon[1] < '0' || colon[1] > '9')
        return "must be HOST:PORT, as the other nodes dial it";
    port = strtoul(colon + 1, &end, 10);
    return *end != '\0' || port == 0 || port > 65535 ? "has no port from 1 to 65535" : NULL;
}

static bool read_node_id(struct fl_arguments *args, uint64_t node_id)
{
    args->request->node_id = node_id;
    return (node_id != 0 && node_id <= INT64_MAX) ||
           fault(args, "node_id", "must be a number from 1 up");
}

bool fl_arguments_add_node(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__AddNodeRequest *add = (const Fencelock__V1__AddNodeRequest *)message;
    const char *why = address_fault(add->address);

    args->request->type = FL_REQ_ADD_NODE;
    args->request->name = fl_str_from(add->address);
    return read_node_id(args, add->node_id) && (why == NULL || fault(args, "address", why));
}

bool fl_arguments_promote_node(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_PROMOTE_NODE;
    return read_node_id(args, ((const Fencelock__V1__PromoteNodeRequest *)message)->node_id);
}

bool fl_arguments_remove_node(struct fl_arguments *args, const ProtobufCMessage *message)
{
    args->request->type = FL_REQ_REMOVE_NODE;
    return read_node_id(args, ((const Fencelock__V1__RemoveNodeRequest *)message)->node_id);
}

bool fl_arguments_begin_backup(struct fl_arguments *args, const ProtobufCMessage *message)
{
    (void)message;
    args->request->type = FL_REQ_BACKUP;
    return true;
}

bool fl_arguments_read_backup(struct fl_arguments *args, const ProtobufCMessage *message)
{
    const Fencelock__V1__ReadBackupRequest *read =
        (const Fencelock__V1__ReadBackupRequest *)message;

    args->request->type = FL_REQ_BACKUP_READ;
    args->request->request_id = read->backup_id;
    args->request->from_index = read->offset;
    return read_node_id(args, read->node_id);
}
