/* From a client's message to a request for a node, with every range checked on the way: what is
 * wrong is told with the field's name in the .proto, before it costs the cluster anything.
 *
 * Each returns false with the outcome set, or true with the request filled; its strings borrow from
 * the message and from `arena`. A zero is never a default by accident (C29): where 0 and absent
 * differ, the .proto says "optional". */
#ifndef FL_GATEWAY_ARGUMENTS_H
#define FL_GATEWAY_ARGUMENTS_H

#include "admin.pb-c.h"
#include "gateway/arena.h"
#include "gateway/outcome.h"
#include "lock.pb-c.h"
#include "node/message.h"

struct fl_arguments {
    struct fl_arena *arena;
    struct fl_outcome *outcome;
    struct fl_request *request;
};

typedef bool (*fl_arguments_reader)(struct fl_arguments *args, const ProtobufCMessage *message);

bool fl_arguments_create_session(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_keep_alive(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_close_session(struct fl_arguments *args, const ProtobufCMessage *message);
/* request_id stays 0 when it is absent. */
bool fl_arguments_acquire(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_release(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_describe(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_list(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_watch(struct fl_arguments *args, const ProtobufCMessage *message);

bool fl_arguments_status(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_list_sessions(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_list_waits(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_end_session(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_force_release(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_transfer_leader(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_begin_backup(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_read_backup(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_add_node(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_promote_node(struct fl_arguments *args, const ProtobufCMessage *message);
bool fl_arguments_remove_node(struct fl_arguments *args, const ProtobufCMessage *message);

/* The parts that the session stream shares. `options` may be NULL. */
bool fl_arguments_options(struct fl_arguments *args, const Fencelock__V1__SessionOptions *options);
bool fl_arguments_session(struct fl_arguments *args, const char *session_id);
/* The session is the stream's: one in the message must be the same or absent. */
bool fl_arguments_stream_acquire(struct fl_arguments *args, struct fl_session_id session,
                                 const Fencelock__V1__AcquireRequest *message);
bool fl_arguments_stream_release(struct fl_arguments *args, struct fl_session_id session,
                                 const Fencelock__V1__ReleaseRequest *message);

#endif
