/* Replies and pushes leave through here, one frame each. */
#include "base/assert.h"
#include "node/internal.h"

/* When to come again: soon after BUSY, which passes with the load; later when somebody must free
 * space. */
#define BUSY_RETRY_MS      100
#define DISK_FULL_RETRY_MS 1000

static struct fl_buf *begin_frame(struct fl_node *node, enum fl_link_frame frame)
{
    fl_buf_clear(&node->frame);
    fl_buf_put_u8(&node->frame, (uint8_t)frame);
    return &node->frame;
}

void fl_node__send_reply(struct fl_node *node, struct link *link, const struct fl_reply *reply)
{
    struct fl_buf *frame = begin_frame(node, FL_LINK_REPLY);

    fl_reply_encode(frame, reply);
    node->ops.send(node->ctx, link->id, frame->data, frame->len);
}

void fl_node__send_push(struct fl_node *node, struct link *link, const struct fl_push *push)
{
    struct fl_buf *frame = begin_frame(node, FL_LINK_PUSH);

    fl_push_encode(frame, push);
    node->ops.send(node->ctx, link->id, frame->data, frame->len);
}

struct fl_reply fl_node__reply_to(const struct fl_node *node, const struct pending *p,
                                  enum fl_answer answer)
{
    return (struct fl_reply){
        .tag = p->tag,
        .request_type = p->type,
        .answer = answer,
        .index = node->applied_index,
        .session = p->session,
        .request_id = p->request_id,
    };
}

void fl_node__answer(struct fl_node *node, struct pending *p, const struct fl_reply *reply)
{
    fl_node__send_reply(node, p->link, reply);
    fl_node__pending_free(node, p);
}

void fl_node__answer_plain(struct fl_node *node, struct pending *p, enum fl_answer answer)
{
    struct fl_reply reply = fl_node__reply_to(node, p, answer);

    fl_node__answer(node, p, &reply);
}

/* While a transfer runs we lead, but take nothing: then nobody knows whom to ask. */
static void fill_not_leader(const struct fl_node *node, struct fl_reply *reply)
{
    reply->status = FL_REPLY_NOT_LEADER;
    reply->leader_id = node->is_leader ? 0 : node->leader_id;
    reply->term = node->term;
}

void fl_node__answer_not_leader(struct fl_node *node, struct pending *p)
{
    struct fl_reply reply = {.tag = p->tag, .request_type = p->type};

    fill_not_leader(node, &reply);
    fl_node__answer(node, p, &reply);
}

void fl_node__refuse(struct fl_node *node, struct link *link, const struct fl_request *request,
                     enum fl_reply_status status)
{
    struct fl_reply reply = {.tag = request->tag, .request_type = request->type, .status = status};

    if (status == FL_REPLY_NOT_LEADER)
        fill_not_leader(node, &reply);
    else
        reply.retry_ms = status == FL_REPLY_DISK_FULL ? DISK_FULL_RETRY_MS : BUSY_RETRY_MS;
    fl_node__send_reply(node, link, &reply);
}

void fl_node__refuse_invalid(struct fl_node *node, struct link *link,
                             const struct fl_request *request, const char *field, const char *why)
{
    struct fl_reply reply = {
        .tag = request->tag,
        .request_type = request->type,
        .status = FL_REPLY_INVALID,
        .field = fl_str_from(field),
        .text = fl_str_from(why),
    };

    fl_node__send_reply(node, link, &reply);
}
