/* The inside of a gateway, shared by the files of this folder and their tests. */
#ifndef FL_GATEWAY_INTERNAL_H
#define FL_GATEWAY_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "gateway/gateway.h"
#include "gateway/meter.h"
#include "gateway/outcome.h"
#include "gateway/unary.h"

/* A method of the server and what it needs: the rpc method's ctx. */
struct fl_gateway_method {
    struct fl_gateway *gateway;
    const struct fl_unary_method *unary; /* NULL: OpenSession and Watch */
};

struct fl_gateway {
    struct fl_loop *loop;
    struct fl_router *router; /* owned */
    struct fl_rates *rates;   /* owned */
    struct fl_rpc_server *server;
    struct fl_gateway_meter meter;
    struct fl_gateway_link links[FL_ROUTER_LINKS_MAX];
    struct fl_timer tick;
    uint32_t leaderless_ms;
    bool is_serving; /* as health tells it */
    bool is_draining;
    void (*members)(void *ctx, struct fl_str members);
    void *members_ctx;
    uint64_t members_index; /* of the change that was told last */

    struct fl_list streams; /* stream.in_gateway */
    struct fl_map sessions; /* open streams, by session */
    struct fl_list watches; /* watch.in_gateway */
    size_t n_streams, n_watches;

    struct fl_rpc_method *methods; /* owned */
    struct fl_gateway_method *bindings;
    struct fl_rpc_file files[2];
};

/* --- calls.c: what every call shares --- */

/* NULL: `outcome` says what is wrong with it. */
ProtobufCMessage *fl_gateway__unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                     size_t len, struct fl_outcome *outcome);
/* Packs and sends. False: out of memory; the call should be finished. */
bool fl_gateway__send(struct fl_rpc_call *call, const ProtobufCMessage *message);
/* Whether a rate limit refuses it: `outcome` is then set. */
bool fl_gateway__is_limited(struct fl_gateway *gateway, const struct fl_request *request,
                            const char *peer, struct fl_outcome *outcome);
uint64_t fl_gateway__wall_ms(void);
struct fl_session_id fl_gateway__new_session_id(void);
uint64_t fl_gateway__new_request_id(void);
void fl_gateway__new_hash_key(uint64_t ret_key[2]);

extern const struct fl_rpc_handler fl_gateway__unary_handler;

/* --- stream.c: OpenSession --- */

extern const struct fl_rpc_handler fl_gateway__stream_handler;
void fl_gateway__streams_push(struct fl_gateway *gateway, const struct fl_push *push);
/* The leader is new, or its link is: it must learn which sessions we carry. */
void fl_gateway__streams_resume(struct fl_gateway *gateway);
void fl_gateway__streams_end(struct fl_gateway *gateway, enum fl_reason reason);

/* --- watch.c --- */

extern const struct fl_rpc_handler fl_gateway__watch_handler;
void fl_gateway__watches_end(struct fl_gateway *gateway, enum fl_reason reason);

#endif
