/* Where each request is: waiting for a leader, or sent to a link, and out of both when it ends. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/hash.h"
#include "gateway/router_parts.h"

static bool has_tag(const void *value, const void *key)
{
    return ((const struct fl_ask *)value)->tag == *(const uint64_t *)key;
}

struct fl_ask *fl_router__find_ask(const struct fl_router *router, uint64_t tag)
{
    return fl_map_find(&router->by_tag, fl_hash_mix64(tag), has_tag, &tag);
}

void fl_router__set_frame(struct fl_router *router, struct fl_ask *ask,
                          const struct fl_request *request)
{
    fl_buf_clear(&router->scratch);
    fl_buf_put_u8(&router->scratch, FL_LINK_REQUEST);
    fl_request_encode(&router->scratch, request);
    router->n_bytes -= ask->len;
    ask->frame = fl_xrealloc(ask->frame, router->scratch.len);
    memcpy(ask->frame, router->scratch.data, router->scratch.len);
    ask->len = router->scratch.len;
    router->n_bytes += ask->len;
}

void fl_router__lift(struct fl_router *router, struct fl_ask *ask)
{
    fl_list_remove(&ask->in_place);
    if (ask->is_sent)
        fl_map_remove(&router->by_tag, fl_hash_mix64(ask->tag), ask);
    ask->is_sent = false;
    ask->is_watching = false;
}

void fl_router__drop(struct fl_router *router, struct fl_ask *ask)
{
    fl_router__lift(router, ask);
    router->n_asked--;
    router->n_bytes -= ask->len;
    free(ask->frame);
    ask->frame = NULL;
    ask->len = 0;
    ask->is_asked = false;
}

void fl_router__end(struct fl_router *router, struct fl_ask *ask, enum fl_ask_end how,
                    const struct fl_reply *reply)
{
    fl_router__drop(router, ask);
    if (router->ops.ended != NULL)
        router->ops.ended(router->ctx, ask, how, reply);
    ask->done(ask, how, reply);
}

/* By sequence; nearly always at the end. */
void fl_router__put_waiting(struct fl_router *router, struct fl_ask *ask)
{
    struct fl_list *before = router->waiting.prev;

    while (before != &router->waiting &&
           FL_CONTAINER_OF(before, struct fl_ask, in_place)->sequence > ask->sequence)
        before = before->prev;
    fl_list_prepend(before, &ask->in_place);
}

void fl_router__transmit(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                         unsigned link)
{
    ask->link = (uint8_t)link;
    ask->is_sent = ask->was_sent = true;
    ask->sent_ms = now_ms;
    fl_map_insert(&router->by_tag, fl_hash_mix64(ask->tag), ask);
    fl_list_append(&router->links[link].sent, &ask->in_place);
    router->ops.send(router->ctx, link, ask->frame, ask->len);
}

/* A new tag for each sending, so that a late answer to an earlier one is nobody's (G3), and the
 * rest of the wait (G1). */
void fl_router__transmit_again(struct fl_router *router, uint64_t now_ms, struct fl_ask *ask,
                               unsigned link)
{
    struct fl_request request;
    uint8_t *old = fl_xmemdup(ask->frame, ask->len);
    int r = fl_request_decode(old + 1, ask->len - 1, &request);

    FL_REQUIRE(r == FL_OK); /* our own encoding */
    request.tag = ask->tag = ++router->last_tag;
    if (request.wait_ms != 0 && !FL_BUG(GATEWAY_RESENDS_WHOLE_WAIT))
        request.wait_ms = ask->wait_until_ms > now_ms ? (uint32_t)(ask->wait_until_ms - now_ms) : 0;
    if (FL_BUG(GATEWAY_RESENDS_AS_NEW) && request.type == FL_REQ_ACQUIRE)
        request.request_id += 1000000;
    fl_router__set_frame(router, ask, &request);
    free(old);
    fl_router__transmit(router, now_ms, ask, link);
}

void fl_router__tell(struct fl_router *router, unsigned link, struct fl_request *request)
{
    request->tag = ++router->last_tag;
    fl_buf_clear(&router->scratch);
    fl_buf_put_u8(&router->scratch, FL_LINK_REQUEST);
    fl_request_encode(&router->scratch, request);
    router->ops.send(router->ctx, link, router->scratch.data, router->scratch.len);
}

/* Nobody listens to this watch any more. */
void fl_router__send_unwatch(struct fl_router *router, const struct fl_ask *ask)
{
    struct fl_request request = {.type = FL_REQ_UNWATCH, .request_id = ask->tag};

    fl_router__tell(router, ask->link, &request);
}
