/* One call with one answer, apart from how it arrived: the gRPC server and the JSON API drive the
 * same object. */
#ifndef FL_GATEWAY_UNARY_H
#define FL_GATEWAY_UNARY_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "gateway/answers.h"
#include "gateway/arguments.h"
#include "gateway/router.h"
#include "rpc/status.h"

struct fl_gateway;
struct fl_unary;

/* Where the answer goes: exactly one of the two, once, unless the call is gone first; both may come
 * before fl_unary_start() returns. The message and the status are borrowed. */
struct fl_unary_sink {
    void (*reply)(void *ctx, const ProtobufCMessage *response);
    void (*fail)(void *ctx, const struct fl_rpc_status *status);
};

struct fl_unary_method {
    const char *path; /* "/fencelock.v1.LockService/Acquire" */
    const ProtobufCMessageDescriptor *request;
    fl_arguments_reader read;
    fl_answer_writer write;
};

extern const struct fl_unary_method fl_unary_methods[];
extern const size_t fl_unary_n_methods;
/* By path, or NULL. */
const struct fl_unary_method *fl_unary_find(const char *path);

/* `message` is of the method's request type and may be freed afterwards. `peer` is who asks, for
 * those who see what an operator did. NULL: it was answered already. */
struct fl_unary *fl_unary_start(struct fl_gateway *gateway, const struct fl_unary_method *method,
                                const ProtobufCMessage *message, const char *peer,
                                const struct fl_unary_sink *sink, void *ctx);

enum fl_unary_gone {
    FL_UNARY_CANCELLED, /* the client said so, or its deadline came: it has given up */
    FL_UNARY_CUT_OFF,   /* the connection broke: it may ask again with the same request_id */
};
/* Nobody waits for the answer any more. What waited in a queue leaves it, and a grant on its way is
 * given back (C04, C05): always when the client has given up; after a broken connection only when
 * the client could not repeat the request, since it did not choose the request_id (C02). */
void fl_unary_gone(struct fl_unary *unary, enum fl_unary_gone why);

#endif
