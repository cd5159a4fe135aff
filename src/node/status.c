/* STATUS: what the driver told last, and the machine's figures. */
#include "base/assert.h"
#include "node/internal.h"

static struct fl_str keep_text(struct fl_buf *texts, struct fl_str s)
{
    size_t at = texts->len;

    fl_buf_put(texts, s.data, s.len);
    return (struct fl_str){(const char *)texts->data + at, s.len};
}

void fl_node_set_status(struct fl_node *node, const struct fl_status_info *info)
{
    struct status_copy *copy = &node->status;
    size_t size = info->version.len + 1;

    FL_REQUIRE(info->n_members <= sizeof info->members / sizeof info->members[0]);
    for (uint32_t i = 0; i < info->n_members; i++)
        size += info->members[i].address.len;
    copy->info = *info;
    fl_buf_clear(&copy->texts);
    fl_buf_reserve(&copy->texts, size); /* so that it does not move below */
    copy->info.version = keep_text(&copy->texts, info->version);
    for (uint32_t i = 0; i < info->n_members; i++)
        copy->info.members[i].address = keep_text(&copy->texts, info->members[i].address);
}

void fl_node__status_answer(struct fl_node *node, struct link *link,
                            const struct fl_request *request)
{
    struct fl_reply reply = {.tag = request->tag,
                             .request_type = request->type,
                             .index = node->applied_index,
                             .info = node->status.info};

    reply.info.node_id = node->config.node_id;
    reply.info.leader_id = node->leader_id;
    reply.info.term = node->term;
    reply.info.applied_index = node->applied_index;
    reply.info.history_hash = fl_machine_history_hash(node->machine);
    reply.info.token = fl_machine_token(node->machine);
    fl_machine_stats(node->machine, &reply.info.stats);
    if (node->is_leader)
        reply.info.role = 2;
    fl_node__send_reply(node, link, &reply);
}
