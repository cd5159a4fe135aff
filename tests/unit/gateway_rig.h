/* A gateway with both its sides in the test's hands: the gRPC server is a stand-in that records
 * what is sent (gateway_rig.c defines rpc/server.h's functions), the nodes are what the test
 * answers. The loop is real, and runs only in rig_wait(). */
#ifndef FL_TESTS_UNIT_GATEWAY_RIG_H
#define FL_TESTS_UNIT_GATEWAY_RIG_H

#include "test.h"

#include <stdio.h>
#include <string.h>

#include "admin.pb-c.h"
#include "base/alloc.h"
#include "base/error.h"
#include "gateway/gateway.h"
#include "lock.pb-c.h"

#define RIG_MAX 64

struct rig_request {
    unsigned link;
    struct fl_request request; /* strings borrow from `bytes` */
    uint8_t *bytes;
};

struct rig {
    struct fl_loop *loop;
    struct fl_gateway *gateway;
    struct rig_request requests[RIG_MAX]; /* pings left out */
    size_t n_requests;
};

/* Three links, to nodes 1 (local), 2 and 3; all are up, node 2 leads in term 5. */
void rig_init(struct rig *rig, const struct fl_gateway_config *config);
/* No link yet. */
void rig_init_bare(struct rig *rig, const struct fl_gateway_config *config);
void rig_deinit(struct rig *rig);
void rig_forget_requests(struct rig *rig);
void rig_push_leader(struct rig *rig, unsigned link, uint64_t leader_id, uint64_t term);
void rig_push(struct rig *rig, unsigned link, const struct fl_push *push);
/* The last request, which must be of that type. */
const struct rig_request *rig_last(const struct rig *rig, enum fl_request_type type);
/* How many of that type went out. */
size_t rig_count(const struct rig *rig, enum fl_request_type type);
/* Answers it, on its link. Tag and type are filled in. */
void rig_reply(struct rig *rig, const struct rig_request *to, struct fl_reply reply);
/* Runs the loop until `is_true(ctx)`; fails after ten seconds. */
void rig_wait(struct rig *rig, bool (*is_true)(void *ctx), void *ctx);

/* --- Calls, as their client sees them --- */

struct fl_rpc_call {
    const struct fl_rpc_method *method;
    void *data;
    uint8_t *sent[RIG_MAX];
    size_t sent_len[RIG_MAX], n_sent, n_read;
    bool is_finished, is_gone, is_paused;
    enum fl_rpc_code code;
    char reason[64], message[1024], field[64];
    uint32_t retry_after_ms;
    size_t queued; /* what fl_rpc_call_queued() says */
};

/* on_gone comes within fl_rpc_call_finish(), or later: a server may do either. */
extern bool rig_is_gone_at_once;

struct fl_rpc_call *call_open(struct rig *rig, const char *path);
void call_send(struct fl_rpc_call *call, const ProtobufCMessage *message);
void call_send_bytes(struct fl_rpc_call *call, const void *data, size_t len);
void call_half_close(struct fl_rpc_call *call);
/* Safe when it is gone already. */
void call_gone(struct fl_rpc_call *call, enum fl_rpc_gone why);
/* The next message that was sent; fails when there is none. Freed with the test. */
const void *call_read(struct fl_rpc_call *call, const ProtobufCMessageDescriptor *type);
bool call_has_message(const struct fl_rpc_call *call);
void assert_ended(const struct fl_rpc_call *call, enum fl_rpc_code code, const char *reason);

#define SESSION_TEXT "s_0123456789abcdef0123456789abcdef"
#define SESSION_ID   ((struct fl_session_id){0x0123456789abcdef, 0x0123456789abcdef})

#endif
