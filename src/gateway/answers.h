/* From a node's reply to the message for the client. Everything is made in the arena. */
#ifndef FL_GATEWAY_ANSWERS_H
#define FL_GATEWAY_ANSWERS_H

#include "admin.pb-c.h"
#include "gateway/arena.h"
#include "lock.pb-c.h"
#include "node/message.h"

/* What the reply does not say. */
struct fl_answer_context {
    const char *name;    /* DESCRIBE */
    uint64_t request_id; /* ACQUIRE */
    uint64_t wall_ms;    /* now, for people */
};

typedef ProtobufCMessage *(*fl_answer_writer)(struct fl_arena *arena, const struct fl_reply *reply,
                                              const struct fl_answer_context *context);

#define FL_ANSWER(name)                                                                            \
    ProtobufCMessage *fl_answer_##name(struct fl_arena *arena, const struct fl_reply *reply,       \
                                       const struct fl_answer_context *context)
FL_ANSWER(create_session);
FL_ANSWER(keep_alive);
FL_ANSWER(close_session);
FL_ANSWER(acquire);
FL_ANSWER(release);
FL_ANSWER(describe);
FL_ANSWER(list);
FL_ANSWER(status);
FL_ANSWER(list_sessions);
FL_ANSWER(list_waits);
FL_ANSWER(end_session);
FL_ANSWER(force_release);
FL_ANSWER(transfer_leader);
FL_ANSWER(begin_backup);
FL_ANSWER(read_backup);
FL_ANSWER(add_node);
FL_ANSWER(promote_node);
FL_ANSWER(remove_node);

/* The session stream's, after opening (`reply` has no list) or resuming. */
Fencelock__V1__OpenSessionResponse__Opened *fl_answer_opened(struct fl_arena *arena,
                                                             const struct fl_reply *reply);
/* One node of a status; with `error` (may be NULL) instead of a reply when it could not be asked.
 */
Fencelock__V1__StatusResponse__Node *fl_answer_node(struct fl_arena *arena,
                                                    const struct fl_reply *reply, uint64_t node_id,
                                                    const char *error);
ProtobufCMessage *fl_answer_nodes(struct fl_arena *arena,
                                  Fencelock__V1__StatusResponse__Node **nodes, size_t n);

Fencelock__V1__Mode fl_answer_mode(enum fl_mode mode);
Fencelock__V1__Cause fl_answer_cause(enum fl_cause cause);

#endif
