/* One connection of the server; the inside of server.c and connection.c. */
#ifndef FL_HTTP_CONNECTION_H
#define FL_HTTP_CONNECTION_H

#include <http_parser.h>

#include "base/buf.h"
#include "base/list.h"
#include "http/server.h"
#include "net/conn.h"

struct fl_http_server {
    struct fl_loop *loop;
    struct fl_conn_listener *listener;
    void (*handle)(void *ctx, struct fl_http_exchange *x);
    void *ctx;
    struct fl_list connections; /* the one that has been idle for longest comes first */
    struct fl_http_server_stats stats;
    bool is_loopback;
    struct fl_timer grace;
    void (*drained)(void *ctx);
    void *drained_ctx;
    bool is_draining, is_freed;
};

enum fl_http_phase {
    FL_HTTP_READING,   /* a request, or the silence before it */
    FL_HTTP_ANSWERING, /* the handler has it */
    FL_HTTP_LINGERING, /* the last answer is out: what comes is thrown away */
};

struct fl_http_exchange {
    struct fl_http_request request;
    void (*gone)(void *data);
    void *data;
    bool is_streaming;
};

/* The headers that anybody asks for. */
enum fl_http_header {
    FL_HTTP_HOST,
    FL_HTTP_ORIGIN,
    FL_HTTP_CONTENT_TYPE,
    FL_HTTP_IF_NONE_MATCH,
    FL_HTTP_EXPECT,
    FL_HTTP_HEADERS_KEPT,
};

struct fl_http_connection {
    struct fl_list link;
    struct fl_http_server *server;
    struct fl_conn *conn;
    enum fl_http_phase phase;
    struct fl_timer deadline;
    struct fl_buf waiting; /* input behind the request in hand */
    size_t waiting_at;     /* what of it is taken already */
    size_t lingered;
    bool has_answered; /* once at least */

    /* The request that is being read. */
    http_parser parser;
    bool has_begun, has_head, is_whole;
    size_t head_bytes, bytes;
    unsigned n_headers;
    unsigned refusal; /* a status, decided in the middle of parsing; 0: none */
    char header[32];  /* the name of the present one, cut: a longer one is none of ours */
    size_t header_len;
    bool is_in_value;
    int kept; /* enum fl_http_header, or -1 */
    bool has[FL_HTTP_HEADERS_KEPT];
    struct fl_buf url, values[FL_HTTP_HEADERS_KEPT], body;
    bool keeps_alive;

    struct fl_http_exchange exchange;
};

extern const struct fl_conn_handler fl_http__door;
void fl_http__connection_close(struct fl_http_connection *c, const char *why);
/* Closes when nothing is in hand; else with the answer. */
void fl_http__connection_drain(struct fl_http_connection *c);
/* The exchange in hand, if any, is gone. */
void fl_http__connection_abandon(struct fl_http_connection *c);
/* A connection is gone. */
void fl_http__check_drained(struct fl_http_server *server);

#endif
