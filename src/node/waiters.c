/* Requests that wait in the machine and whose gateway waits for the outcome. A request that was
 * sent twice (another link, another tag) has twins: one stands in the map, the others hang on it.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "node/internal.h"

struct key {
    struct fl_session_id session;
    uint64_t request_id;
};

static bool waits_for(const void *value, const void *key)
{
    const struct pending *p = value;
    const struct key *k = key;

    return p->request_id == k->request_id && fl_session_id_equal(p->session, k->session);
}

static uint64_t hash_of(const struct fl_node *node, struct fl_session_id session,
                        uint64_t request_id)
{
    return fl_hash_mix64(fl_node__session_hash(node, session) ^ fl_hash_mix64(request_id));
}

struct pending *fl_node__waiters_find(const struct fl_node *node, struct fl_session_id session,
                                      uint64_t request_id)
{
    struct key key = {session, request_id};

    if (node->waiters.len == 0)
        return NULL;
    return fl_map_find(&node->waiters, hash_of(node, session, request_id), waits_for, &key);
}

void fl_node__waiters_add(struct fl_node *node, struct pending *p)
{
    struct pending *twin = fl_node__waiters_find(node, p->session, p->request_id);

    FL_REQUIRE(p->draft == NULL && !fl_list_is_linked(&p->in_place));
    p->is_waiter = true;
    if (twin != NULL)
        fl_list_append(&twin->in_place, &p->in_place);
    else
        fl_map_insert(&node->waiters, hash_of(node, p->session, p->request_id), p);
}

void fl_node__waiters_remove(struct fl_node *node, struct pending *p)
{
    uint64_t hash = hash_of(node, p->session, p->request_id);
    struct fl_list *twin = fl_list_first(&p->in_place);

    p->is_waiter = false;
    if (fl_map_remove(&node->waiters, hash, p) && twin != NULL)
        fl_map_insert(&node->waiters, hash, FL_CONTAINER_OF(twin, struct pending, in_place));
    fl_list_remove(&p->in_place);
}
