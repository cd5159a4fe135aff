/* HTTP/2 sessions as both of our sides set them up: limits against floods, windows, fairness
 * between streams. What the frames mean is rpc's business. */
#ifndef FL_NET_H2_H
#define FL_NET_H2_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/conn.h"

struct fl_h2_limits {
    unsigned streams_max; /* that the peer may open; a client's: 0 */
    int stream_window, conn_window;
    unsigned header_bytes_max; /* advertised */
    unsigned reset_burst, reset_rate, continuations_max, outbound_ack_max, settings_max;
    size_t socket_out_max; /* frames are not pulled while so much waits for the kernel */
};

/* Also submits our SETTINGS. FL_E_NOMEM. */
int fl_h2_session_new(bool is_server, const struct fl_h2_limits *limits,
                      const nghttp2_session_callbacks *callbacks, void *ctx,
                      nghttp2_session **ret_session);
/* Also after one of its functions has failed. NULL is fine. */
void fl_h2_session_free(nghttp2_session *session);

/* Moves frames into the connection. FL_E_NOMEM; FL_E_PROTOCOL when the session cannot go on. Not
 * from inside a callback of the session. */
int fl_h2_pull(nghttp2_session *session, struct fl_conn *conn, size_t socket_out_max);

/* Streams of one urgency take turns, whatever the peer asks for: without this, one busy stream
 * starves all unary calls of its connection. */
void fl_h2_set_urgency(nghttp2_session *session, int32_t stream_id, unsigned urgency);

/* A header from two C strings, not copied. */
nghttp2_nv fl_h2_header(const char *name, const char *value, size_t value_len);

#endif
