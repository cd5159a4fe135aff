/* Links to gateways, and the pendings that each is owed. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "node/internal.h"

/* Pendings kept for reuse: as many as a second of full load needs. */
#define SPARE_PENDINGS_MAX 8192

static bool link_has_id(const void *value, const void *key)
{
    return ((const struct link *)value)->id == *(const uint64_t *)key;
}

struct link *fl_node__link(const struct fl_node *node, uint64_t id)
{
    return fl_map_find(&node->links, fl_hash_mix64(id), link_has_id, &id);
}

void fl_node_link_up(struct fl_node *node, uint64_t now_ms, uint64_t id)
{
    struct link *link;

    (void)now_ms;
    FL_REQUIRE(fl_node__link(node, id) == NULL);
    link = fl_xcalloc(1, sizeof *link);
    link->id = id;
    fl_list_init(&link->pendings);
    fl_list_init(&link->carried);
    fl_list_init(&link->watches);
    fl_map_insert(&node->links, fl_hash_mix64(id), link);
    fl_node__push_leader(node, link);
    fl_node__push_members(node, link);
}

static void link_free(struct fl_node *node, struct link *link)
{
    FL_LIST_EACH(at, &link->pendings)
    {
        fl_node__pending_free(node, FL_CONTAINER_OF(at, struct pending, in_link));
    }
    FL_LIST_EACH(at, &link->carried)
    {
        fl_node__live_carry(FL_CONTAINER_OF(at, struct live, in_carrier), NULL);
    }
    fl_node__watch_end_all(node, link, NULL);
    free(link);
}

/* The waits stay in the queue and the sessions live on until their TTL: only the way back is gone.
 */
void fl_node_link_down(struct fl_node *node, uint64_t now_ms, uint64_t id)
{
    struct link *link = fl_node__link(node, id);

    (void)now_ms;
    FL_REQUIRE(link != NULL);
    fl_map_remove(&node->links, fl_hash_mix64(id), link);
    link_free(node, link);
}

void fl_node__links_deinit(struct fl_node *node)
{
    size_t cursor = 0;
    struct link *link;

    while ((link = fl_map_next(&node->links, &cursor)) != NULL)
        link_free(node, link);
    fl_map_deinit(&node->links);
    FL_LIST_EACH(at, &node->spare_pendings)
    {
        free(FL_CONTAINER_OF(at, struct pending, in_link));
    }
}

static struct pending *pending_alloc(struct fl_node *node)
{
    struct fl_list *spare = fl_list_first(&node->spare_pendings);

    if (spare == NULL)
        return fl_xalloc(sizeof(struct pending));
    fl_list_remove(spare);
    node->n_spare_pendings--;
    return FL_CONTAINER_OF(spare, struct pending, in_link);
}

struct pending *fl_node__pending_new(struct fl_node *node, struct link *link,
                                     const struct fl_request *request)
{
    struct pending *p = pending_alloc(node);

    *p = (struct pending){.link = link,
                          .tag = request->tag,
                          .type = request->type,
                          .session = request->session,
                          .request_id = request->request_id};
    fl_list_init(&p->in_place);
    fl_list_append(&link->pendings, &p->in_link);
    node->n_pendings++;
    return p;
}

void fl_node__pending_lift(struct fl_node *node, struct pending *p)
{
    if (p->draft != NULL)
        p->draft->owners[p->slot] = NULL;
    p->draft = NULL;
    if (p->is_waiter)
        fl_node__waiters_remove(node, p);
    fl_list_remove(&p->in_place);
}

void fl_node__pending_free(struct fl_node *node, struct pending *p)
{
    fl_node__pending_lift(node, p);
    fl_list_remove(&p->in_link);
    free(p->message);
    node->n_pendings--;
    if (node->n_spare_pendings == SPARE_PENDINGS_MAX) {
        free(p);
        return;
    }
    fl_list_append(&node->spare_pendings, &p->in_link);
    node->n_spare_pendings++;
}
