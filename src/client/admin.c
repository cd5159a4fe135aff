/* The operator's calls. */
#include <stdlib.h>

#include "admin.pb-c.h"
#include "client/client.h"
#include "client/unpack.h"
#include "client/why.h"
#include "lock.pb-c.h"

#include <fencelock/admin.h>

#define PATH "/fencelock.v1.AdminService/"

/* ---- Status ---- */

/* The strings borrow from the response, which lives as long. */
struct status_box {
    struct fl_cluster_status status;
    Fencelock__V1__StatusResponse *response;
};

static int copy_members(struct fl_node_status *to, const Fencelock__V1__StatusResponse__Node *from)
{
    to->members = calloc(from->n_members + 1, sizeof *to->members);
    if (to->members == NULL)
        return FL_E_NOMEM;
    for (; to->n_members < from->n_members; to->n_members++) {
        const Fencelock__V1__StatusResponse__Member *member = from->members[to->n_members];

        to->members[to->n_members] = (struct fl_member_status){.node_id = member->node_id,
                                                               .address = member->address,
                                                               .role = member->role,
                                                               .is_reachable = member->reachable,
                                                               .match_index = member->match_index};
    }
    return FL_OK;
}

static int copy_node(struct fl_node_status *to, const Fencelock__V1__StatusResponse__Node *from)
{
    *to = (struct fl_node_status){.node_id = from->node_id,
                                  .leader_id = from->leader_id,
                                  .term = from->term,
                                  .commit_index = from->commit_index,
                                  .applied_index = from->applied_index,
                                  .last_index = from->last_index,
                                  .snapshot_index = from->snapshot_index,
                                  .state_hash = from->state_hash,
                                  .sessions = from->sessions,
                                  .names = from->names,
                                  .holds = from->holds,
                                  .waits = from->waits,
                                  .grants = from->grants,
                                  .memory_bytes = from->memory_bytes,
                                  .token = from->token,
                                  .role = from->role,
                                  .version = from->version,
                                  .error = from->error};
    return copy_members(to, from);
}

static int status_from(Fencelock__V1__StatusResponse *response, struct fl_cluster_status **ret)
{
    struct status_box *box = calloc(1, sizeof *box);
    struct fl_cluster_status *status;
    int r = FL_OK;

    if (box == NULL) {
        fl_unpacked_free(response);
        return FL_E_NOMEM;
    }
    status = &box->status;
    box->response = response;
    status->nodes = calloc(response->n_nodes + 1, sizeof *status->nodes);
    if (status->nodes == NULL)
        r = FL_E_NOMEM;
    for (; r == 0 && status->n_nodes < response->n_nodes; status->n_nodes++)
        r = copy_node(&status->nodes[status->n_nodes], response->nodes[status->n_nodes]);
    if (r < 0)
        fl_cluster_status_free(status);
    else
        *ret = status;
    return r;
}

int fl_cluster_status(struct fl_client *client, bool all_nodes, struct fl_cluster_status **ret,
                      struct fl_why *why)
{
    Fencelock__V1__StatusRequest request = FENCELOCK__V1__STATUS_REQUEST__INIT;
    Fencelock__V1__StatusResponse *response;
    uint8_t *data;
    size_t len;
    int r;

    request.all_nodes = all_nodes;
    r = fl_call__unary(client, PATH "Status", true, &request.base, &data, &len, why);
    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__status_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    return status_from(response, ret) == 0 ? FL_OK : fl_why_set_nomem(why);
}

void fl_cluster_status_free(struct fl_cluster_status *status)
{
    struct status_box *box = (struct status_box *)status;

    if (box == NULL)
        return;
    for (size_t i = 0; status->nodes != NULL && i < box->response->n_nodes; i++)
        free(status->nodes[i].members);
    fl_unpacked_free(box->response);
    free(status->nodes);
    free(box);
}

/* ---- Sessions ---- */

struct sessions_box {
    struct fl_session_listing listing;
    Fencelock__V1__ListSessionsResponse *response;
};

static struct fl_session_listing *sessions_from(Fencelock__V1__ListSessionsResponse *response)
{
    struct sessions_box *box = calloc(1, sizeof *box);
    struct fl_session_listing *listing = box != NULL ? &box->listing : NULL;

    if (box == NULL)
        return NULL;
    listing->items = calloc(response->n_sessions + 1, sizeof *listing->items);
    if (listing->items == NULL) {
        free(box);
        return NULL;
    }
    box->response = response;
    listing->next_page = response->next_page_token;
    for (; listing->n_items < response->n_sessions; listing->n_items++) {
        const Fencelock__V1__ListSessionsResponse__Session *item =
            response->sessions[listing->n_items];

        listing->items[listing->n_items] = (struct fl_session_item){.session_id = item->session_id,
                                                                    .client = item->client,
                                                                    .ttl_ms = item->ttl_ms,
                                                                    .holds = item->holds,
                                                                    .waits = item->waits,
                                                                    .silent_ms = item->silent_ms,
                                                                    .age_ms = item->age_ms};
    }
    return listing;
}

int fl_list_sessions(struct fl_client *client, const char *page, uint32_t page_size,
                     struct fl_session_listing **ret, struct fl_why *why)
{
    Fencelock__V1__ListSessionsRequest request = FENCELOCK__V1__LIST_SESSIONS_REQUEST__INIT;
    Fencelock__V1__ListSessionsResponse *response;
    uint8_t *data;
    size_t len;
    int r;

    request.page_size = page_size;
    request.page_token = (char *)(page != NULL ? page : "");
    r = fl_call__unary(client, PATH "ListSessions", true, &request.base, &data, &len, why);
    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__list_sessions_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    *ret = sessions_from(response);
    if (*ret != NULL)
        return FL_OK;
    fl_unpacked_free(response);
    return fl_why_set_nomem(why);
}

void fl_session_listing_free(struct fl_session_listing *listing)
{
    struct sessions_box *box = (struct sessions_box *)listing;

    if (box == NULL)
        return;
    fl_unpacked_free(box->response);
    free(listing->items);
    free(box);
}

/* ---- Ending by hand: the answers are empty ---- */

static int order(struct fl_client *client, const char *path, bool is_repeatable,
                 const ProtobufCMessage *request, struct fl_why *why)
{
    uint8_t *data;
    size_t len;
    int r = fl_call__unary(client, path, is_repeatable, request, &data, &len, why);

    if (r == 0)
        free(data);
    return r;
}

static char *text_or_empty(const char *text)
{
    return (char *)(text != NULL ? text : "");
}

int fl_end_session(struct fl_client *client, const char *session_id, const char *by,
                   const char *reason, struct fl_why *why)
{
    Fencelock__V1__EndSessionRequest request = FENCELOCK__V1__END_SESSION_REQUEST__INIT;

    request.session_id = text_or_empty(session_id);
    request.by = text_or_empty(by);
    request.reason = text_or_empty(reason);
    return order(client, PATH "EndSession", false, &request.base, why);
}

int fl_force_release(struct fl_client *client, const char *name, uint64_t token, const char *by,
                     const char *reason, struct fl_why *why)
{
    Fencelock__V1__ForceReleaseRequest request = FENCELOCK__V1__FORCE_RELEASE_REQUEST__INIT;

    request.name = text_or_empty(name);
    request.token = token;
    request.by = text_or_empty(by);
    request.reason = text_or_empty(reason);
    return order(client, PATH "ForceRelease", false, &request.base, why);
}

int fl_release_by_token(struct fl_client *client, const char *session_id, const char *name,
                        uint64_t token, struct fl_why *why)
{
    Fencelock__V1__ReleaseRequest request = FENCELOCK__V1__RELEASE_REQUEST__INIT;

    request.session_id = text_or_empty(session_id);
    request.name = text_or_empty(name);
    request.token = token;
    return order(client, "/fencelock.v1.LockService/Release", true, &request.base, why);
}

int fl_close_session(struct fl_client *client, const char *session_id, struct fl_why *why)
{
    Fencelock__V1__CloseSessionRequest request = FENCELOCK__V1__CLOSE_SESSION_REQUEST__INIT;

    request.session_id = text_or_empty(session_id);
    return order(client, "/fencelock.v1.LockService/CloseSession", true, &request.base, why);
}

int fl_transfer_leader(struct fl_client *client, uint64_t node_id, struct fl_why *why)
{
    Fencelock__V1__TransferLeaderRequest request = FENCELOCK__V1__TRANSFER_LEADER_REQUEST__INIT;

    request.node_id = node_id;
    return order(client, PATH "TransferLeader", false, &request.base, why);
}

int fl_add_node(struct fl_client *client, uint64_t node_id, const char *address, struct fl_why *why)
{
    Fencelock__V1__AddNodeRequest request = FENCELOCK__V1__ADD_NODE_REQUEST__INIT;

    request.node_id = node_id;
    request.address = text_or_empty(address);
    return order(client, PATH "AddNode", true, &request.base, why);
}

int fl_promote_node(struct fl_client *client, uint64_t node_id, struct fl_why *why)
{
    Fencelock__V1__PromoteNodeRequest request = FENCELOCK__V1__PROMOTE_NODE_REQUEST__INIT;

    request.node_id = node_id;
    return order(client, PATH "PromoteNode", true, &request.base, why);
}

int fl_remove_node(struct fl_client *client, uint64_t node_id, struct fl_why *why)
{
    Fencelock__V1__RemoveNodeRequest request = FENCELOCK__V1__REMOVE_NODE_REQUEST__INIT;

    request.node_id = node_id;
    return order(client, PATH "RemoveNode", true, &request.base, why);
}

/* ---- Backup ---- */

static int begin_backup(struct fl_client *client, Fencelock__V1__ReadBackupRequest *ret_next,
                        struct fl_backup_info *info, struct fl_why *why)
{
    Fencelock__V1__BeginBackupRequest request = FENCELOCK__V1__BEGIN_BACKUP_REQUEST__INIT;
    Fencelock__V1__BeginBackupResponse *response;
    uint8_t *data;
    size_t len;
    int r = fl_call__unary(client, PATH "BeginBackup", true, &request.base, &data, &len, why);

    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__begin_backup_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    ret_next->backup_id = response->backup_id;
    ret_next->node_id = response->node_id;
    *info = (struct fl_backup_info){
        .size = response->size, .index = response->index, .token = response->token};
    fl_unpacked_free(response);
    return FL_OK;
}

/* 1: there is more. */
static int read_backup(struct fl_client *client, Fencelock__V1__ReadBackupRequest *next,
                       int (*write)(void *ctx, const void *data, size_t len), void *ctx,
                       struct fl_why *why)
{
    Fencelock__V1__ReadBackupResponse *response;
    uint8_t *data;
    size_t len;
    int r = fl_call__unary(client, PATH "ReadBackup", true, &next->base, &data, &len, why);

    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__read_backup_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    if (response->data.len > 0) {
        r = 1;
        next->offset += response->data.len;
        if (write(ctx, response->data.data, response->data.len) != 0)
            r = fl_why_set(why, FL_E_CLOSED, NULL, "the backup could not be written");
    }
    fl_unpacked_free(response);
    return r;
}

int fl_backup(struct fl_client *client, int (*write)(void *ctx, const void *data, size_t len),
              void *ctx, struct fl_backup_info *info, struct fl_why *why)
{
    Fencelock__V1__ReadBackupRequest next = FENCELOCK__V1__READ_BACKUP_REQUEST__INIT;
    int r = begin_backup(client, &next, info, why);

    if (r == FL_OK)
        do
            r = read_backup(client, &next, write, ctx, why);
        while (r == 1);
    if (r == FL_OK && next.offset != info->size)
        r = fl_why_set(why, FL_E_INTERNAL, NULL, "the backup came short of its own length");
    return r;
}
