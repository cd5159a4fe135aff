/* Links to gateways: those in this process, and those that dialled the peers' port. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "raft/member_parts.h"

/* A gateway that takes its replies too slowly is cut off: it dials again and asks again. */
#define LINK_OUTPUT_BYTES_MAX (256u * 1024 * 1024)

struct link {
    struct fl_list list_link;
    uint64_t id;
    struct fl_member *member;
    struct fl_framed *connection; /* NULL: in this process */
    fl_member_link_send send;
    void *send_ctx;
};

static bool has_id(const void *value, const void *key)
{
    return ((const struct link *)value)->id == *(const uint64_t *)key;
}

static struct link *find_link(const struct fl_member *m, uint64_t id)
{
    return fl_map_find(&m->links, fl_hash_mix64(id), has_id, &id);
}

static struct link *add_link(struct fl_member *m)
{
    struct link *link = fl_xcalloc(1, sizeof *link);

    link->id = ++m->last_link;
    link->member = m;
    fl_map_insert(&m->links, fl_hash_mix64(link->id), link);
    fl_list_append(&m->link_list, &link->list_link);
    return link;
}

static void remove_link(struct link *link)
{
    struct fl_member *m = link->member;
    uint64_t id = link->id;

    fl_map_remove(&m->links, fl_hash_mix64(id), link);
    fl_list_remove(&link->list_link);
    free(link);
    fl_member__backup_link_down(m, id);
    fl_node_link_down(m->node, fl_loop_now_ms(m->loop), id);
    fl_member__wake(m);
}

static int receive(struct fl_member *m, uint64_t id, const uint8_t *data, size_t len)
{
    if (len == 0 || data[0] != FL_LINK_REQUEST)
        return FL_E_MALFORMED;
    fl_member__wake(m);
    if (fl_member__backup_request(m, id, data + 1, len - 1))
        return FL_OK;
    return fl_node_request(m->node, fl_loop_now_ms(m->loop), id, data + 1, len - 1);
}

void fl_member__send_to_link(struct fl_member *m, uint64_t id, const void *data, size_t len)
{
    struct link *link = find_link(m, id);
    int r;

    if (link == NULL)
        return;
    if (link->connection == NULL) {
        link->send(link->send_ctx, data, len);
        return;
    }
    r = fl_framed_send(link->connection, data, len);
    if (r == FL_E_BUSY) {
        fl_framed_close(link->connection, "it takes its replies too slowly");
    } else if (r == FL_E_TOO_BIG) {
        fl_error("member", "an answer to gateway %s would be %zu bytes long: its link is closed",
                 fl_framed_peer(link->connection), len);
        fl_framed_close(link->connection, "an answer is too long");
    }
}

/* --- From the network --- */

static int on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct link *link = ctx;
    int r = receive(link->member, link->id, data, len);

    if (r < 0)
        fl_warn("member", "gateway %s sent what is no request (%s): its link is closed",
                fl_framed_peer(c), fl_error_text(r));
    return r;
}

static void on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    (void)c;
    (void)error;
    (void)why;
    remove_link(ctx);
}

static const struct fl_framed_handler link_handler = {
    .on_frame = on_frame,
    .on_close = on_close,
};

void fl_member__accept_link(struct fl_member *m, struct fl_framed *c)
{
    struct link *link = add_link(m);

    link->connection = c;
    fl_framed_set_limit(c, LINK_OUTPUT_BYTES_MAX);
    fl_framed_set_handler(c, &link_handler, link);
    fl_node_link_up(m->node, fl_loop_now_ms(m->loop), link->id);
    fl_member__wake(m);
}

void fl_member__close_links(struct fl_member *m)
{
    FL_LIST_EACH(list_link, &m->link_list)
    {
        struct link *link = FL_CONTAINER_OF(list_link, struct link, list_link);

        if (link->connection != NULL)
            fl_framed_close(link->connection, "the node stops");
        else
            remove_link(link);
    }
}

/* --- In this process --- */

uint64_t fl_member_link_open(struct fl_member *m, fl_member_link_send send, void *ctx)
{
    struct link *link = add_link(m);

    link->send = send;
    link->send_ctx = ctx;
    fl_node_link_up(m->node, fl_loop_now_ms(m->loop), link->id);
    fl_member__wake(m);
    return link->id;
}

void fl_member_link_receive(struct fl_member *m, uint64_t link, const void *data, size_t len)
{
    /* Our own gateway in this process speaks our release: what it says can be decoded. */
    if (receive(m, link, data, len) < 0)
        fl_error("member", "the gateway of this process sent what is no request: dropped");
}

void fl_member_link_close(struct fl_member *m, uint64_t id)
{
    struct link *link = find_link(m, id);

    if (link != NULL)
        remove_link(link);
}
