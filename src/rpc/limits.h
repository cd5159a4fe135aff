/* What one connection may cost us, each with its opponent. */
#ifndef FL_RPC_LIMITS_H
#define FL_RPC_LIMITS_H

/* A client may queue ten thousand waits on one connection; its releases must still get a stream. */
#define FL_RPC_STREAMS_MAX 20000
/* Beyond this much that a handler has not taken, the stream's sender waits. */
#define FL_RPC_STREAM_WINDOW (64 * 1024)
/* Given back at receipt: one slow stream must not stop the others. */
#define FL_RPC_CONN_WINDOW (4 * 1024 * 1024)
/* A request of ours is small; a larger one is a mistake or an attack. */
#define FL_RPC_MESSAGE_BYTES_MAX (64 * 1024)
/* The most that is allocated on a prefix's word alone. */
#define FL_RPC_FIRST_ALLOC_MAX (16 * 1024)
/* Names and values, each with 32 (RFC 9113 section 6.5.2). Over it the call is refused, over four
 * times it the decoding itself stops (an HPACK bomb costs CPU, not bytes). */
#define FL_RPC_HEADER_BYTES_MAX (16 * 1024)
/* Replies that a client does not read: pause the handler, then refuse, by stream and by connection.
 */
#define FL_RPC_STREAM_OUT_PAUSE (64 * 1024)
#define FL_RPC_STREAM_OUT_GO_ON (16 * 1024)
#define FL_RPC_CONN_OUT_PAUSE   (4 * 1024 * 1024)
#define FL_RPC_CONN_OUT_MAX     (32 * 1024 * 1024)
/* Frames are not pulled while the kernel has refused this much. */
#define FL_RPC_SOCKET_OUT_MAX (256 * 1024)
/* Each expired or cancelled wait is a reset, and ten thousand may come at once (a client restarts):
 * nghttp2's default of 1,000 and 33 a second would close honest connections. */
#define FL_RPC_RESET_BURST 20000
#define FL_RPC_RESET_RATE  5000
/* Floods (CVE-2019-9512, -9515, 2024-28182). */
#define FL_RPC_CONTINUATIONS_MAX 8
#define FL_RPC_OUTBOUND_ACK_MAX  256
#define FL_RPC_SETTINGS_MAX      16
/* Frames that carry nothing (empty DATA, PRIORITY, WINDOW_UPDATE) between two that carry something,
 * theirs or ours: whoever reads a long stream sends nothing but WINDOW_UPDATEs. */
#define FL_RPC_IDLE_FRAMES_MAX 100000
/* A connection must have said its preface by then. */
#define FL_RPC_PREFACE_MS 10000
/* Silence, then a ping, then the end: a half-open connection is noticed within a third of the usual
 * TTL. */
#define FL_RPC_PING_AFTER_MS   2000
#define FL_RPC_PING_TIMEOUT_MS 1300
/* Pings closer than this with nothing sent between are strikes; the third ends the connection. */
#define FL_RPC_PING_MIN_MS      5000
#define FL_RPC_PING_STRIKES_MAX 2
/* A reply that a stream's window keeps from going out for so long: the client is stuck or hostile.
 */
#define FL_RPC_STREAM_STALL_MS 60000

#endif
