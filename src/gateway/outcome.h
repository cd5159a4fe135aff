/* How every outcome is told: one table of reasons, each with its gRPC code and a sentence that says
 * what to do. The names are stable and part of the API; docs/api.md lists them. */
#ifndef FL_GATEWAY_OUTCOME_H
#define FL_GATEWAY_OUTCOME_H

#include <stdbool.h>

#include "gateway/router.h"
#include "node/message.h"
#include "rpc/status.h"

/* name, code, sentence */
#define FL_REASON_TABLE(X)                                                                         \
    X(BAD_ARGUMENT, INVALID_ARGUMENT, "an argument is not valid")                                  \
    X(BAD_MESSAGE, INVALID_ARGUMENT,                                                               \
      "the message is not of this call's type: generate the client's stubs from this release's "   \
      ".proto files")                                                                              \
    X(SESSION_NOT_FOUND, NOT_FOUND,                                                                \
      "the session is unknown or has ended, and with it all that it held: treat its locks as "     \
      "lost and open a new one")                                                                   \
    X(STALE_TOKEN, FAILED_PRECONDITION,                                                            \
      "the token is not that of a present hold: what it named has ended, and somebody else may "   \
      "have the name now")                                                                         \
    X(MODE_CONFLICT, FAILED_PRECONDITION, "the name is in use in another mode")                    \
    X(REQUEST_REUSED, FAILED_PRECONDITION,                                                         \
      "this request_id belongs to an earlier request with other arguments: choose another one")    \
    X(REQUEST_ENDED, FAILED_PRECONDITION,                                                          \
      "this request was granted before, and that grant has ended: ask again with a new "           \
      "request_id")                                                                                \
    X(NO_LEADER, UNAVAILABLE,                                                                      \
      "no leader can be reached from this gateway: try again, with the same request_id, best at "  \
      "another endpoint")                                                                          \
    X(NODE_UNREACHABLE, UNAVAILABLE,                                                               \
      "no node can be reached from this gateway: try again at another endpoint")                   \
    X(NODE_STARTING, UNAVAILABLE, "the node is starting: try again shortly")                       \
    X(CHANGE_RUNNING, UNAVAILABLE,                                                                 \
      "another change of members or of the leader is under way, or a node has not heard of the "   \
      "last one yet: try again shortly")                                                           \
    X(SHUTTING_DOWN, UNAVAILABLE,                                                                  \
      "this gateway is stopping: try again, with the same request_id, at another endpoint")        \
    X(BUSY, RESOURCE_EXHAUSTED,                                                                    \
      "too many requests are waiting to be answered: try again later, with the same request_id")   \
    X(RATE_LIMITED, RESOURCE_EXHAUSTED,                                                            \
      "this session, name or address asks more often than this gateway allows: slow down")         \
    X(DISK_FULL, RESOURCE_EXHAUSTED,                                                               \
      "the cluster's disk is full, so nothing new is granted (releases go on): free space on the " \
      "nodes, then try again")                                                                     \
    X(TOKENS_EXHAUSTED, RESOURCE_EXHAUSTED,                                                        \
      "this cluster has handed out its last token: a new cluster is needed")                       \
    X(SLOW_READER, RESOURCE_EXHAUSTED,                                                             \
      "the client does not read what it is sent: open the stream again and read it promptly")      \
    X(STREAM_REPLACED, ABORTED, "another stream has taken over this session")                      \
    X(STREAM_SILENT, ABORTED,                                                                      \
      "no message came for the session's ttl_ms: send heartbeats three times as often, and "       \
      "resume the session or open a new one")                                                      \
    X(BAD_SEQUENCE, FAILED_PRECONDITION,                                                           \
      "the first message of the stream, and only the first, must be open or resume")               \
    X(WATCH_INTERRUPTED, ABORTED,                                                                  \
      "the watch cannot go on without a gap: begin again without from_index")                      \
    X(NO_FAST_TIER, UNIMPLEMENTED,                                                                 \
      "this gateway has no fast tier: use the strict tier, or configure one")                      \
    X(OUT_OF_MEMORY, RESOURCE_EXHAUSTED, "the gateway is out of memory: try again later")          \
    X(INTERNAL, INTERNAL, "the cluster answered what it should not: please report this")

enum fl_reason {
#define X(name, code, sentence) FL_REASON_##name,
    FL_REASON_TABLE(X)
#undef X
        FL_REASON_COUNT,
};

/* A status and its texts. `status` borrows from `text` and `field`: do not copy the struct. */
struct fl_outcome {
    struct fl_rpc_status status;
    char text[512], field[64];
};

const char *fl_reason_text(enum fl_reason reason);     /* "NO_LEADER" */
const char *fl_reason_sentence(enum fl_reason reason); /* its remedy */
enum fl_rpc_code fl_reason_code(enum fl_reason reason);

void fl_outcome_set(struct fl_outcome *outcome, enum fl_reason reason);
/* BAD_ARGUMENT: "FIELD WHY", e.g. "name is empty". */
void fl_outcome_set_fault(struct fl_outcome *outcome, const char *field, const char *why);

/* How an ask ended. True: the node did or decided what was asked (OK, GRANTED, HELD, TIMED_OUT,
 * CANCELLED), and `reply` tells; false: `outcome` is the error. `reply` may be NULL when `how` is
 * not REPLIED. */
bool fl_outcome_of(struct fl_outcome *outcome, enum fl_ask_end how, const struct fl_reply *reply);
void fl_outcome_set_rate_limited(struct fl_outcome *outcome, uint32_t retry_after_ms);
/* A refusal of fl_router_ask(). */
void fl_outcome_of_error(struct fl_outcome *outcome, int error);

#endif
