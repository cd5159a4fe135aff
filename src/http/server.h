/* An HTTP/1.1 server on a loop: requests come whole and bounded to one handler, which answers at
 * once or later, with a body or with a stream. It knows nothing of Fencelock.
 *
 * Requests of one connection are answered in order, one at a time: what is pipelined behind a
 * request waits, unparsed, until that is answered. The parser is http_parser's, strict, and a new
 * one for each request; every limit stands in limits.h. */
#ifndef FL_HTTP_SERVER_H
#define FL_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "net/loop.h"

struct fl_http_server;

/* One request and its answer. */
struct fl_http_exchange;

enum fl_http_method { FL_HTTP_GET, FL_HTTP_HEAD, FL_HTTP_POST, FL_HTTP_OTHER };

/* Borrowed until the request is answered; what was not sent is empty. */
struct fl_http_request {
    enum fl_http_method method;
    struct fl_str path;  /* as it was sent: /v1/..., not decoded */
    struct fl_str query; /* behind the ?, not decoded */
    struct fl_str body;
    struct fl_str host, origin, content_type, if_none_match;
};

struct fl_http_config {
    const char *address; /* HOST:PORT, numeric; port 0 takes a free one */
    /* The request is complete. */
    void (*handle)(void *ctx, struct fl_http_exchange *x);
    void *ctx;
};

/* On failure `why` (256 bytes) says more. */
int fl_http_server_new(struct fl_loop *loop, const struct fl_http_config *config,
                       struct fl_http_server **ret_server, char *why);
unsigned fl_http_server_port(const struct fl_http_server *server);
/* Whether it listens on a loopback address only. */
bool fl_http_server_is_loopback(const struct fl_http_server *server);
/* No new connection, no further request; `done` follows once, when all are answered or `grace_ms`
 * are over. */
void fl_http_server_drain(struct fl_http_server *server, unsigned grace_ms, void (*done)(void *ctx),
                          void *ctx);
/* Every open exchange is gone before it returns; the memory follows with the loop's next turns. */
void fl_http_server_free(struct fl_http_server *server);

struct fl_http_server_stats {
    uint64_t accepted, refused; /* connections */
    uint64_t requests, bad;     /* complete ones, and what was none */
    size_t connections;
};
void fl_http_server_stats(const struct fl_http_server *server,
                          struct fl_http_server_stats *ret_stats);

/* --- One exchange --- */

const struct fl_http_request *fl_http_request(const struct fl_http_exchange *x);
const char *fl_http_peer(const struct fl_http_exchange *x);
/* `gone` is called when the client left before the answer; never after fl_http_reply() or
 * fl_http_stream_end(). NULL takes it back. */
void fl_http_on_gone(struct fl_http_exchange *x, void (*gone)(void *data), void *data);

struct fl_http_answer {
    unsigned status;
    const char *type;    /* Content-Type; NULL: none */
    const char *headers; /* more of them, each ended by \r\n; or NULL */
    struct fl_str body;
};
/* Ends the exchange. Exactly once, unless it is gone or was streamed. */
void fl_http_reply(struct fl_http_exchange *x, const struct fl_http_answer *answer);

/* The alternative: a body whose length nobody knows yet. */
void fl_http_stream_begin(struct fl_http_exchange *x, const char *type);
void fl_http_stream(struct fl_http_exchange *x, struct fl_str data);
/* What the client has not taken yet. */
size_t fl_http_stream_queued(const struct fl_http_exchange *x);
void fl_http_stream_end(struct fl_http_exchange *x);

/* "Not Found" */
const char *fl_http_status_text(unsigned status);

#endif
