/* What the HTTP/1.1 port may cost us, each limit with its opponent. */
#ifndef FL_HTTP_LIMITS_H
#define FL_HTTP_LIMITS_H

/* People, scrapers and clients that wait with curl. A flood beyond it meets 503, after those that
 * idle were closed for it. */
#define FL_HTTP_CONNECTIONS_MAX 1000
/* The request line and the headers; browsers and proxies send one or two kilobytes. */
#define FL_HTTP_HEAD_BYTES_MAX (16u * 1024)
#define FL_HTTP_HEADERS_MAX    100
/* A name of 512 bytes, each as %XX, twice. */
#define FL_HTTP_URL_BYTES_MAX (4u * 1024)
/* As much as a gRPC message may have (rpc/limits.h). */
#define FL_HTTP_BODY_BYTES_MAX (64u * 1024)
/* What a chunked body may spend on chunk headers and trailers besides: one byte a chunk is an
 * attack. */
#define FL_HTTP_REQUEST_BYTES_MAX (FL_HTTP_HEAD_BYTES_MAX + 2 * FL_HTTP_BODY_BYTES_MAX)
/* Requests that come while one is being answered: pipelining is allowed, a flood of it is not. */
#define FL_HTTP_PIPELINE_BYTES_MAX (64u * 1024)
/* No further request is begun while the client has not taken this much of its answers. */
#define FL_HTTP_OUT_BYTES_PAUSE (256u * 1024)
/* From a request's first byte to its last, and from a connection's beginning to its first request's
 * last: a client that dribbles holds a place, and nothing else, for so long. */
#define FL_HTTP_REQUEST_MS 10000u
/* Between requests. Scrapers come every 15 s or every minute. */
#define FL_HTTP_IDLE_MS 75000u
/* After a refusal that ends the connection we read on for a while, for closing at once would reset
 * it, and the client might lose the answer. */
#define FL_HTTP_LINGER_MS        2000u
#define FL_HTTP_LINGER_BYTES_MAX (1024u * 1024)

#endif
