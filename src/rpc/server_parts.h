/* The parts of a server, shared by server.c, connection.c, server_call.c, health.c and reflect.c
 * only. */
#ifndef FL_RPC_SERVER_PARTS_H
#define FL_RPC_SERVER_PARTS_H

#include "base/list.h"
#include "net/h2.h"
#include "rpc/call.h"
#include "rpc/limits.h"

struct fl_rpc_server {
    struct fl_loop *loop;
    struct fl_rpc_server_config config;
    struct fl_conn_listener *listener;
    nghttp2_session_callbacks *callbacks;
    const struct fl_rpc_method **methods; /* owned array, sorted by path */
    size_t n_methods;
    struct fl_list connections;
    struct fl_list health; /* struct fl_health_service */
    struct fl_list health_watches;
    struct fl_rpc_server_stats stats;
    bool is_draining, is_freed;
    struct fl_timer grace;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

struct fl_rpc_connection {
    struct fl_list link;
    struct fl_rpc_server *server;
    struct fl_conn *conn;
    nghttp2_session *session;
    struct fl_list calls;
    struct fl_list sending;  /* calls with queued bytes; whoever moved least recently is first */
    struct fl_list stopped;  /* calls whose handler waits for on_writable */
    struct fl_list writable; /* those that have room again: told at the end of the turn */
    size_t queued_bytes;     /* of all calls */
    bool is_drain_told;      /* the last stream was named: it closes when its calls have ended */
    bool is_doomed;          /* closed at the end of the turn, once GOAWAY is out */
    struct fl_timer alive;
    bool is_ping_open, has_preface;
    uint64_t last_read_ms, last_ping_ms;
    unsigned ping_strikes;
    unsigned idle_frames;
};

struct fl_rpc_header {
    char *name, *value; /* one allocation, at name */
};

struct fl_rpc_call {
    struct fl_list link;
    struct fl_rpc_connection *connection;
    int32_t stream_id;
    const struct fl_rpc_method *method; /* NULL until the headers are complete */
    void *data;
    bool is_gone;     /* its handler has been told */
    bool has_headers; /* of the response */
    bool is_finished, is_trailer_sent, is_half_closed;
    bool is_over_limit, is_paused;
    bool has_deadline, is_content_type_ok, is_encoding_bad, is_post, is_timeout_bad;
    unsigned n_messages;
    uint64_t deadline_ms, timeout_ms;
    struct fl_timer timer;        /* deadline */
    struct fl_list sending_link;  /* in the connection's `sending` */
    uint64_t moved_ms;            /* when it last had nothing queued, or some of it was taken */
    struct fl_list writable_link; /* in the connection's `stopped` or `writable` */
    char *path;                   /* owned */
    struct fl_rpc_header *headers;
    size_t n_headers, header_bytes;
    struct fl_deframer deframer;
    size_t unconsumed; /* of the stream's window, while paused */
    struct fl_rpc_queue out;
    struct {
        enum fl_rpc_code code;
        char *message, *reason, *field; /* owned */
        uint32_t retry_after_ms;
    } end;
};

/* connection.c */
extern const struct fl_conn_handler fl_rpc__door;          /* ctx: the server */
nghttp2_session_callbacks *fl_rpc__server_callbacks(void); /* NULL: out of memory */
void fl_rpc__connection_wake(struct fl_rpc_connection *c);
void fl_rpc__connection_close(struct fl_rpc_connection *c, const char *why);
/* GOAWAY: no new streams; it closes when the last call has ended. */
void fl_rpc__connection_drain(struct fl_rpc_connection *c);
void fl_rpc__connection_check_drained(struct fl_rpc_connection *c);

/* server_call.c */
struct fl_rpc_call *fl_rpc__call_new(struct fl_rpc_connection *c, int32_t stream_id);
int fl_rpc__call_header(struct fl_rpc_call *call, const uint8_t *name, size_t name_len,
                        const uint8_t *value, size_t value_len); /* FL_E_TOO_BIG: stop decoding */
/* A header after the messages: nobody reads it, and it costs. */
int fl_rpc__call_trailer(struct fl_rpc_call *call, size_t name_len, size_t value_len);
void fl_rpc__call_headers_end(struct fl_rpc_call *call);
void fl_rpc__call_input(struct fl_rpc_call *call, const uint8_t *data, size_t len);
void fl_rpc__call_input_end(struct fl_rpc_call *call);
void fl_rpc__call_gone(struct fl_rpc_call *call,
                       enum fl_rpc_gone why); /* tells the handler, once */
void fl_rpc__call_free(struct fl_rpc_call *call);
/* Resets the streams of which nothing has been taken for too long. */
void fl_rpc__reset_stalled(struct fl_rpc_connection *c, uint64_t now_ms);
void fl_rpc__call_finish_plain(struct fl_rpc_call *call, enum fl_rpc_code code,
                               const char *message);

/* server.c */
const struct fl_rpc_method *fl_rpc__find_method(const struct fl_rpc_server *s, const char *path);
void fl_rpc__check_drained(struct fl_rpc_server *s);

/* health.c, reflect.c: methods that every server has */
extern const struct fl_rpc_method fl_rpc__health_methods[2];
extern const struct fl_rpc_method fl_rpc__reflect_methods[2];
struct fl_rpc_server *fl_rpc__call_server(struct fl_rpc_call *call);
void fl_rpc__health_deinit(struct fl_rpc_server *s);

#endif
