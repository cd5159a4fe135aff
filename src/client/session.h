/* The judgement of a client: what to send when, what may be believed, what is lost. No input or
 * output, no clock, no threads: events go in with the time, effects come out through `emit`.
 *
 * Rules, each held by tests/unit/client_session.c:
 *   T1   Belief ends before the server can expire the session: send time of the last acknowledged
 *        heartbeat + ttl (1 - rho)/(1 + rho) - guard.
 *   T6   From the send, never from the receipt; an acknowledgement counts for its own seq only.
 *   T7   Nothing but an acknowledgement (and the answer to the first opening) extends belief.
 *   T10  A grant that arrives after the end of belief is no grant. Loss is told once.
 *   C09  A failed heartbeat is tried again until belief ends, elsewhere after ttl/6 of silence.
 *   C10  "Session not found" loses everything at once; a session is never opened anew under locks.
 *   C13  A release is repeated until the server has judged it.
 *   C26  Reconnects are spread at random; heartbeats never come faster than ttl/3 on one stream.
 *
 * There is one stream at a time. When an effect drops it, its later events must not be passed in.
 * The caller gives now_ms on CLOCK_BOOTTIME, and a tick no later than fl_session_next_ms(). */
#ifndef FL_CLIENT_SESSION_H
#define FL_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "base/random.h"

#include <fencelock/fencelock.h>

#define FL_CLIENT_SESSION_ID_SIZE 40 /* "s_" and 32 digits today; with the final zero */

/* How long a heartbeat's sender may believe, for clocks within 1 % of true time (PROPERTIES T1). */
uint64_t fl_session_belief_ms(uint32_t ttl_ms);

enum fl_ask_state {
    FL_BID_WAITING,   /* no answer yet */
    FL_BID_HELD,      /* granted, as far as we know */
    FL_BID_RELEASING, /* the server has not judged the release yet */
    FL_BID_GIVING_UP, /* nobody waits for the answer; a grant that still comes is given back */
    FL_BID_OVER,
};

/* One Acquire and what becomes of it. Lives in its owner, who sets name, mode, limit, wait_ms; the
 * session borrows it from FL_SESSION_EV_ACQUIRE until FL_SESSION_FX_DONE. */
struct fl_bid {
    const char *name;
    int mode;
    uint32_t limit, wait_ms;

    uint64_t id, token;
    enum fl_ask_state state;
    uint64_t wait_until_ms; /* the end of the wait, kept over reconnects */
    uint64_t give_up_ms;    /* no answer by then: tell the caller so */
    bool is_sent;           /* on the present stream */
    bool was_sent;          /* on any */
    bool is_repeated;       /* what was sent last had been sent before */
    uint32_t seen_in_round; /* of fl_session.resume_round */
    struct fl_list link;    /* in unanswered or held */
    struct fl_list bucket;  /* by id */
};

enum fl_session_event_type {
    FL_SESSION_EV_TICK,
    FL_SESSION_EV_ACQUIRE, /* bid */
    FL_SESSION_EV_RELEASE, /* bid: HELD, or RELEASING to ask once more */
    FL_SESSION_EV_CANCEL,  /* bid: nobody waits any more; NULL: all that wait */
    FL_SESSION_EV_CLOSE,   /* the last event of the owner's */
    /* From the stream. */
    FL_SESSION_EV_OPENED,   /* session_id, ttl_ms, known; again after each change of the leader */
    FL_SESSION_EV_ACK,      /* seq */
    FL_SESSION_EV_ACQUIRED, /* request_id, is_granted, token, is_cancelled, holder */
    FL_SESSION_EV_RELEASED, /* request_id */
    FL_SESSION_EV_LOST,     /* request_id, token, cause, by, reason */
    FL_SESSION_EV_ENDED,    /* the session, by the server: cause, by, reason */
    FL_SESSION_EV_ERROR,    /* request_id, why */
    FL_SESSION_EV_DOWN,     /* the stream: why */
};

/* What a resumed session holds or waits for, by the server's word. */
struct fl_session_known {
    uint64_t request_id, token; /* token 0: waits */
    const char *name;
};

struct fl_session_event {
    enum fl_session_event_type type;
    uint64_t now_ms;
    struct fl_bid *bid;
    const char *session_id;
    uint32_t ttl_ms;
    const struct fl_session_known *known;
    size_t n_known;
    uint64_t seq, request_id, token;
    bool is_granted, is_cancelled;
    const struct fl_holder *holder; /* or NULL */
    enum fl_lost_cause cause;
    const char *by, *reason; /* or NULL */
    const struct fl_why *why;
};

enum fl_session_effect_type {
    /* The stream. */
    FL_SESSION_FX_CONNECT,        /* begin one: the next effect is its first message */
    FL_SESSION_FX_DROP,           /* end it; with `move_on` leave the endpoint too */
    FL_SESSION_FX_SEND_OPEN,      /* */
    FL_SESSION_FX_SEND_RESUME,    /* session_id */
    FL_SESSION_FX_SEND_HEARTBEAT, /* seq */
    FL_SESSION_FX_SEND_ACQUIRE,   /* bid; wait_ms: what is left of its wait */
    FL_SESSION_FX_SEND_RELEASE,   /* request_id, name, token */
    FL_SESSION_FX_SEND_CANCEL,    /* request_id */
    FL_SESSION_FX_SEND_CLOSE,     /* then end our side of the stream */
    /* The owner. */
    FL_SESSION_FX_BELIEF,     /* until_ms; 0: the session is over, nothing of it counts */
    FL_SESSION_FX_GRANTED,    /* bid */
    FL_SESSION_FX_REFUSED,    /* bid, why */
    FL_SESSION_FX_RELEASED,   /* bid, why: code 0, or it was not ours any more */
    FL_SESSION_FX_UNRELEASED, /* bid, why: no answer in time; it goes on being tried */
    FL_SESSION_FX_LOST,       /* bid, cause, by, reason */
    FL_SESSION_FX_DONE,       /* bid: the session knows it no longer. Last, once for each */
};

struct fl_session_effect {
    enum fl_session_effect_type type;
    struct fl_bid *bid;
    const char *session_id, *name;
    uint64_t seq, request_id, token, until_ms;
    uint32_t wait_ms;
    bool move_on;
    enum fl_lost_cause cause;
    const char *by, *reason; /* never NULL */
    const struct fl_why *why;
};

/* Must not call back into the session. */
typedef void (*fl_session_emit)(void *ctx, const struct fl_session_effect *effect);

#define FL_BID_BUCKETS 256 /* an array that never grows: adding a request cannot fail */

struct fl_session {
    /* Fixed. */
    uint32_t ttl_ms_wanted, timeout_ms;
    fl_session_emit emit;
    void *ctx;

    enum { FL_SESSION_NONE, FL_SESSION_OPENING, FL_SESSION_LIVE } state;
    enum { FL_STREAM_DOWN, FL_STREAM_ASKED, FL_STREAM_UP } stream;
    bool is_closing, is_close_sent;
    char id[FL_CLIENT_SESSION_ID_SIZE];
    uint32_t ttl_ms;
    uint64_t believe_until_ms;

    uint64_t asked_ms;      /* when the opening or resuming message was sent */
    uint64_t heartbeat_seq; /* the last one sent */
    uint64_t heartbeat_ms;  /* when */
    bool is_heartbeat_out;  /* and not acknowledged */
    uint64_t connect_at_ms; /* stream down: not before */
    uint64_t resend_at_ms;  /* 0: nothing was put off */
    unsigned failures;      /* of the stream in a row, for the back-off */
    uint32_t resume_round;

    uint64_t last_request_id;
    struct fl_list unanswered, held; /* of fl_bid.link, oldest first */
    struct fl_list buckets[FL_BID_BUCKETS];
    uint64_t next_give_up_ms; /* not later than the earliest of the unanswered */
    struct fl_why last_why;   /* of the stream, for those who give up */
    struct fl_random random;
};

/* `seed` also begins the request ids, so that those of two clients that share a session differ. */
void fl_session_init(struct fl_session *session, uint32_t ttl_ms, uint32_t timeout_ms,
                     uint64_t seed, fl_session_emit emit, void *ctx);
void fl_session_step(struct fl_session *session, const struct fl_session_event *event);
/* When the next tick is due; UINT64_MAX: none is. */
uint64_t fl_session_next_ms(const struct fl_session *session);
/* The invariants S1 to S5 of README.md: the first that does not hold, or NULL. For tests. */
const char *fl_session__check(const struct fl_session *session);
/* After FL_SESSION_EV_CLOSE: nothing is left to do. */
bool fl_session_is_closed(const struct fl_session *session);

#endif
