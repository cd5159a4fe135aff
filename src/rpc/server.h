/* A gRPC server on HTTP/2 (h2c), for one loop. Rules and limits: RPC.md sections
 * 3 to 6; each limit has its number and its reason in rpc/limits.h.
 *
 * A call lives until on_gone, its last callback, exactly once; a handler that keeps a pointer to it
 * drops it there. Messages are blocks made by fl_rpc_message_new(): pack straight into them. */
#ifndef FL_RPC_SERVER_H
#define FL_RPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"
#include "rpc/status.h"

struct fl_rpc_server;
struct fl_rpc_call;

/* Room for a message of `size` bytes, with the frame's prefix hidden before it. NULL: out of
 * memory. */
uint8_t *fl_rpc_message_new(size_t size);
void fl_rpc_message_free(uint8_t *message); /* NULL is fine */

enum fl_rpc_gone {
    FL_RPC_GONE_DONE,      /* finished, and the client has been sent everything */
    FL_RPC_GONE_CANCELLED, /* the client reset the stream */
    FL_RPC_GONE_DEADLINE,  /* its deadline came; DEADLINE_EXCEEDED was sent */
    FL_RPC_GONE_LOST,      /* the connection broke */
    FL_RPC_GONE_REFUSED,   /* we ended it: protocol error or a limit */
};

struct fl_rpc_handler {
    void (*on_open)(struct fl_rpc_call *call);                                     /* optional */
    void (*on_message)(struct fl_rpc_call *call, const uint8_t *data, size_t len); /* borrowed */
    void (*on_half_close)(struct fl_rpc_call *call); /* the client has said all */
    void (*on_writable)(struct fl_rpc_call *call);   /* after send said stop */
    void (*on_gone)(struct fl_rpc_call *call, enum fl_rpc_gone why);
};

struct fl_rpc_method {
    const char *path; /* "/fencelock.v1.LockService/Acquire" */
    bool is_stream;   /* client or server streams; else exactly one message each way is enforced */
    const struct fl_rpc_handler *handler;
    void *ctx; /* fl_rpc_call_method_ctx() */
};

struct fl_rpc_server_config {
    const char
        *address; /* HOST:PORT, [V6]:PORT or *:PORT (both families); port 0 takes a free one */
    size_t message_bytes_max; /* 0: 64 KiB */
    /* A stream whose client takes nothing of what is queued for so long is reset; 0: a minute. */
    unsigned stall_ms;
    /* Reflection: serialized FileDescriptorProto of each .proto served; borrowed for the server's
     * life. */
    const struct fl_rpc_file *files;
    size_t n_files;
};
struct fl_rpc_file {
    const char *name; /* "fencelock/v1/lock.proto" */
    const uint8_t *descriptor;
    size_t len;
};

/* `methods` are borrowed for the server's life. grpc.health.v1.Health and reflection v1 and v1alpha
 * are served by the server itself. On failure `why` (256 bytes) says more. */
int fl_rpc_server_new(struct fl_loop *loop, const struct fl_rpc_server_config *config,
                      const struct fl_rpc_method *methods, size_t n_methods,
                      struct fl_rpc_server **ret_server, char *why);
unsigned fl_rpc_server_port(const struct fl_rpc_server *server);
/* Health of a service ("" is the whole server); Watch pushes the change. */
void fl_rpc_server_set_serving(struct fl_rpc_server *server, const char *service, bool is_serving);
/* Stops accepting, GOAWAYs, lets calls end for `grace_ms`, then closes them; `done` follows once.
 */
void fl_rpc_server_drain(struct fl_rpc_server *server, unsigned grace_ms, void (*done)(void *ctx),
                         void *ctx);
/* Closes everything; each call gets its on_gone before this returns. */
void fl_rpc_server_free(struct fl_rpc_server *server);
struct fl_rpc_server_stats {
    uint64_t connections, connections_ever, calls, calls_ever, bytes_in, bytes_out;
};
void fl_rpc_server_stats(const struct fl_rpc_server *server, struct fl_rpc_server_stats *ret_stats);

void *fl_rpc_call_method_ctx(const struct fl_rpc_call *call);
void fl_rpc_call_set_data(struct fl_rpc_call *call, void *data);
void *fl_rpc_call_data(const struct fl_rpc_call *call);
/* fl_loop_now_ms at which the client's deadline comes; UINT64_MAX: none. */
uint64_t fl_rpc_call_deadline_ms(const struct fl_rpc_call *call);
const char *fl_rpc_call_peer(const struct fl_rpc_call *call); /* address, for logs */
/* A request header (lower case); NULL: absent. Borrowed for the call's life. */
const char *fl_rpc_call_metadata(const struct fl_rpc_call *call, const char *key);

/* Takes `message`, also on failure. False: the client reads too slowly; stop until on_writable
 * (what was sent is kept), which never comes when the call has ended. NULL: memory ran out when it
 * was made, and the call fails with that. */
bool fl_rpc_call_send(struct fl_rpc_call *call, uint8_t *message, size_t len);
/* Bytes queued and not yet taken by the connection. */
size_t fl_rpc_call_queued(const struct fl_rpc_call *call);
/* The last word; what was sent goes out before it. Later sends are ignored, and nothing more that
 * the client says is handed over: only on_gone follows. */
void fl_rpc_call_finish(struct fl_rpc_call *call, const struct fl_rpc_status *status);
/* Hold back the client's messages (its window is not given back), and go on. */
void fl_rpc_call_pause(struct fl_rpc_call *call);
void fl_rpc_call_resume(struct fl_rpc_call *call);

#endif
