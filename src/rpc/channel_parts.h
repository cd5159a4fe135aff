/* The parts of a channel, shared by channel.c, channel_link.c and client_call.c only. */
#ifndef FL_RPC_CHANNEL_PARTS_H
#define FL_RPC_CHANNEL_PARTS_H

#include "base/list.h"
#include "base/random.h"
#include "base/str.h"
#include "net/h2.h"
#include "rpc/call.h"
#include "rpc/channel.h"
#include "rpc/limits.h"

#define FL_CHANNEL_ENDPOINTS_MAX 64

struct fl_rpc_channel {
    struct fl_loop *loop;
    struct fl_rpc_channel_config config;
    char *endpoints_text; /* owned; cut into the endpoints */
    const char *endpoints[FL_CHANNEL_ENDPOINTS_MAX];
    unsigned n_endpoints, next_endpoint;
    unsigned rounds; /* through the endpoints; which of a name's addresses comes first */
    nghttp2_session_callbacks *callbacks;
    struct fl_random random;
    struct fl_channel_link *current; /* dialling or ready; NULL: none */
    struct fl_list links;            /* all, the draining ones too */
    struct fl_list waiting;          /* calls without a link */
    struct fl_timer redial;
    unsigned backoff_ms;
    bool is_freed;
    bool is_pinned; /* a callback of ours is using it: freed afterwards */
    char why[160];  /* of the last failure */
};

/* One connection to one endpoint. */
struct fl_channel_link {
    struct fl_list link;
    struct fl_rpc_channel *channel;
    struct fl_conn *conn;
    nghttp2_session *session; /* NULL until connected */
    struct fl_list calls;
    const char *endpoint; /* borrowed from the channel */
    bool is_ready;        /* the server's SETTINGS came */
    bool is_ping_open;
    uint64_t last_read_ms;
    struct fl_timer alive;
};

struct fl_rpc_client_call {
    struct fl_list link; /* in channel.waiting or link.calls */
    struct fl_rpc_channel *channel;
    struct fl_channel_link *on; /* NULL: waiting */
    int32_t stream_id;
    const struct fl_rpc_call_handler *handler;
    void *ctx;
    char *path; /* owned */
    bool wait_for_ready, is_half_closed, has_headers, was_sent;
    unsigned replays_left; /* how often it may go out again, unseen by a server */
    unsigned dials_left;   /* failures until it gives up, unless wait_for_ready */
    uint64_t deadline_ms;
    struct fl_timer timer;
    /* Messages stay until the server has answered something: a call that it never looked at can be
     * sent again. `cursor` is what is to be sent next. */
    struct fl_rpc_block *first, *last, *cursor;
    struct fl_deframer deframer;
    int http_status;
    bool has_status;
    struct {
        enum fl_rpc_code code;
        char *message, *reason, *field; /* owned */
        uint32_t retry_after_ms;
    } end;
};

/* channel_link.c */
nghttp2_session_callbacks *fl_channel__callbacks(void);
struct fl_channel_link *fl_channel__link_new(struct fl_rpc_channel *ch, const char *endpoint);
void fl_channel__link_close(struct fl_channel_link *link, const char *why);

/* channel.c */
void fl_channel__link_ready(struct fl_channel_link *link);
void fl_channel__link_draining(struct fl_channel_link *link);
/* It is about to be freed. */
void fl_channel__link_gone(struct fl_channel_link *link, const char *why);
/* Puts a call on the current link, or has it wait for one. */
void fl_channel__place(struct fl_rpc_client_call *call);

/* client_call.c */
int fl_channel__call_start(struct fl_rpc_client_call *call, struct fl_channel_link *link);
void fl_channel__call_header(struct fl_rpc_client_call *call, struct fl_str name,
                             struct fl_str value);
void fl_channel__call_input(struct fl_rpc_client_call *call, const uint8_t *data, size_t len);
/* No server has looked at it: as good as not sent. Goes out again, or ends. */
void fl_channel__call_replay(struct fl_rpc_client_call *call);
/* Its stream was closed with that HTTP/2 code. */
void fl_channel__call_closed(struct fl_rpc_client_call *call, uint32_t error_code);
/* on_done, then the memory goes. */
void fl_channel__call_done(struct fl_rpc_client_call *call, enum fl_rpc_code code,
                           const char *message);

#endif
