/* A session's stream, shared by stream.c (its life) and stream_requests.c (what its client asks).
 */
#ifndef FL_GATEWAY_STREAM_H
#define FL_GATEWAY_STREAM_H

#include "gateway/internal.h"

enum stream_state { FRESH, OPENING, OPEN, CLOSING, ENDED };

struct stream {
    struct fl_list in_gateway;
    struct fl_gateway *gateway;
    struct fl_rpc_call *call;
    enum stream_state state;
    struct fl_session_id session;
    uint32_t ttl_ms;
    bool is_new; /* opened, not resumed */
    bool release_on_disconnect, is_listed, is_paused;

    struct fl_ask opening; /* open, resume; resume again at a new leader; close */
    struct fl_ask heartbeat;
    uint64_t heartbeat_seq, next_seq;
    bool has_next;

    struct fl_buf early; /* messages that came while it opened: a length, then the bytes */
    bool *ret_gone;      /* set when the stream is freed; or NULL */

    struct fl_list requests; /* stream_request.in_stream */
    unsigned n_acquires, n_releases;

    struct fl_timer silence;
    uint64_t heard_ms;
};

struct stream_request {
    struct fl_ask ask;
    struct fl_list in_stream;
    struct stream *stream;
    uint64_t request_id;
    bool is_acquire;
};

#define FL_STREAM_RESPONSE_INIT  FENCELOCK__V1__OPEN_SESSION_RESPONSE__INIT
#define FL_STREAM_RESPONSE(name) FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_##name

/* False: the stream has ended, and may be gone. */
bool fl_stream__send(struct stream *stream, const Fencelock__V1__OpenSessionResponse *response);
/* The node knows no such session (C10). */
void fl_stream__session_not_found(struct stream *stream);
bool fl_stream__is_session_gone(enum fl_ask_end how, const struct fl_reply *reply);

/* What the client asks. Each may end the stream. */
void fl_stream__heartbeat(struct stream *stream, uint64_t seq);
void fl_stream__acquire(struct stream *stream, const Fencelock__V1__AcquireRequest *message);
void fl_stream__release(struct stream *stream, const Fencelock__V1__ReleaseRequest *message);
void fl_stream__cancel(struct stream *stream, const Fencelock__V1__CancelRequest *message);
/* Forgets what is unanswered. */
void fl_stream__forget(struct stream *stream);

#endif
