/* One watch, apart from how it arrived: the gRPC server and the JSON API drive the same object. */
#ifndef FL_GATEWAY_WATCH_H
#define FL_GATEWAY_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "lock.pb-c.h"
#include "rpc/status.h"

struct fl_gateway;
struct fl_watch;

/* Messages and statuses are borrowed. */
struct fl_watch_sink {
    bool (*event)(void *ctx, const ProtobufCMessage *event); /* false: out of memory */
    size_t (*queued)(void *ctx); /* bytes that its client has not read */
    /* Once, and nothing after it; it may free the watch. */
    void (*end)(void *ctx, const struct fl_rpc_status *status);
};

struct fl_watch *fl_watch_new(struct fl_gateway *gateway, const struct fl_watch_sink *sink,
                              void *ctx);
/* Once. It may end at once, and so may be gone when this returns. `peer` is who asks. */
void fl_watch_begin(struct fl_watch *watch, const Fencelock__V1__WatchRequest *request,
                    const char *peer);
/* Its client is gone, or was told the end. */
void fl_watch_free(struct fl_watch *watch);

#endif
