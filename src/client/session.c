#include "client/session.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "client/bids.h"
#include "client/why.h"

/* Clocks of client and server each run within 1 % of true time. */
#define RHO_PERCENT 1
/* For what is not a clock's rate: rounding to milliseconds, a thread that wakes late. */
#define GUARD_MS_MIN 50

/* First reconnect within ttl/20, later ones within up to ttl/6: the mean of many clients is spread
 * over seconds at the usual ttl, and a single one loses no more than one heartbeat (C26). */
#define BACKOFF_FIRST_PART 20
#define BACKOFF_LAST_PART  6
/* Whoever has a ttl of an hour wants to survive an outage of an hour, and not to wait for minutes
 * when there is none. */
#define BACKOFF_MS_MAX  5000
#define PATIENCE_MS_MAX 5000

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t fl_session_belief_ms(uint32_t ttl_ms)
{
    uint64_t guard_ms = ttl_ms / 100 > GUARD_MS_MIN ? ttl_ms / 100 : GUARD_MS_MIN;
    uint64_t safe_ms = (uint64_t)ttl_ms * (100 - RHO_PERCENT) / (100 + RHO_PERCENT);

    return safe_ms > guard_ms ? safe_ms - guard_ms : 0;
}

void fl_session__emit(struct fl_session *s, const struct fl_session_effect *effect)
{
    struct fl_session_effect full = *effect;

    if (full.by == NULL)
        full.by = "";
    if (full.reason == NULL)
        full.reason = "";
    s->emit(s->ctx, &full);
}

void fl_session_init(struct fl_session *s, uint32_t ttl_ms, uint32_t timeout_ms, uint64_t seed,
                     fl_session_emit emit, void *ctx)
{
    *s = (struct fl_session){.ttl_ms_wanted = ttl_ms,
                             .timeout_ms = timeout_ms,
                             .emit = emit,
                             .ctx = ctx,
                             .ttl_ms = ttl_ms,
                             .next_give_up_ms = UINT64_MAX};
    fl_list_init(&s->unanswered);
    fl_list_init(&s->held);
    for (size_t i = 0; i < FL_BID_BUCKETS; i++)
        fl_list_init(&s->buckets[i]);
    fl_random_init(&s->random, seed);
    s->last_request_id = fl_random_u64(&s->random) >> 2; /* below 2^62: also for signed readers */
}

static void emit_plain(struct fl_session *s, enum fl_session_effect_type type)
{
    struct fl_session_effect effect = {.type = type};

    fl_session__emit(s, &effect);
}

static void tell_belief(struct fl_session *s)
{
    struct fl_session_effect effect = {.type = FL_SESSION_FX_BELIEF,
                                       .until_ms = s->believe_until_ms};

    fl_session__emit(s, &effect);
}

static void send_heartbeat(struct fl_session *s, uint64_t now_ms)
{
    struct fl_session_effect effect = {.type = FL_SESSION_FX_SEND_HEARTBEAT,
                                       .seq = ++s->heartbeat_seq};

    s->heartbeat_ms = now_ms;
    s->is_heartbeat_out = true;
    fl_session__emit(s, &effect);
}

static void stream_is_down(struct fl_session *s, uint64_t now_ms)
{
    uint64_t part = s->failures == 0 ? BACKOFF_FIRST_PART : BACKOFF_LAST_PART;

    s->stream = FL_STREAM_DOWN;
    s->is_heartbeat_out = false;
    s->failures++;
    /* Never in the same step: the caller cannot begin a stream while it is ending one. */
    s->connect_at_ms =
        now_ms + 1 + fl_random_below(&s->random, min_u64(s->ttl_ms / part, BACKOFF_MS_MAX));
    if (FL_BUG(CLIENT_RECONNECTS_AT_ONCE))
        s->connect_at_ms = now_ms + 1;
    fl_bids__unsend(s);
}

static void drop_stream(struct fl_session *s, bool move_on, const char *reason)
{
    struct fl_session_effect effect = {
        .type = FL_SESSION_FX_DROP, .move_on = move_on, .reason = reason};

    if (s->stream != FL_STREAM_DOWN)
        fl_session__emit(s, &effect);
}

/* The session is over, by the server's word or by our own clock. */
static void end_session(struct fl_session *s, const struct fl_session_event *event,
                        enum fl_lost_cause cause, bool is_quiet)
{
    struct fl_session_effect loss = {.cause = cause, .by = event->by, .reason = event->reason};
    struct fl_why why;

    drop_stream(s, false, "the session is over");
    s->stream = FL_STREAM_DOWN;
    s->state = FL_SESSION_NONE;
    s->id[0] = '\0';
    s->is_heartbeat_out = false;
    s->failures = 0;
    s->connect_at_ms = event->now_ms;
    s->believe_until_ms = 0;
    tell_belief(s);
    if (is_quiet)
        fl_why_set(&why, FL_E_CLOSED, "CLOSED", "the client was closed");
    else
        fl_why_set(&why, FL_E_SESSION_GONE, "SESSION_GONE",
                   "%s: what it held is in other hands now; acquire anew",
                   fl_lost_cause_text(cause));
    if (FL_BUG(CLIENT_REOPENS_SILENTLY) && !is_quiet) {
        fl_bids__unsend(s);
        return;
    }
    fl_bids__end_all(s, &loss, &why, is_quiet);
}

/* Whether the session may still be believed in; if not, it is over. Everything that arrives is
 * preceded by this: the news may have lain in a socket while we were stopped. */
static bool still_believes(struct fl_session *s, const struct fl_session_event *event)
{
    if (s->state != FL_SESSION_LIVE || event->now_ms < s->believe_until_ms)
        return true;
    if (FL_BUG(CLIENT_GRANT_AFTER_BELIEF) && event->type == FL_SESSION_EV_ACQUIRED)
        return true;
    end_session(s, event, FL_LOST_LEASE, false);
    return false;
}

static void connect(struct fl_session *s, uint64_t now_ms)
{
    struct fl_session_effect first = {
        .type = s->state == FL_SESSION_LIVE ? FL_SESSION_FX_SEND_RESUME : FL_SESSION_FX_SEND_OPEN,
        .session_id = s->id};

    s->stream = FL_STREAM_ASKED;
    s->asked_ms = now_ms;
    if (s->state == FL_SESSION_NONE)
        s->state = FL_SESSION_OPENING;
    emit_plain(s, FL_SESSION_FX_CONNECT);
    fl_session__emit(s, &first);
}

static bool wants_stream(const struct fl_session *s)
{
    if (s->is_closing)
        return s->state == FL_SESSION_LIVE && !s->is_close_sent;
    return s->state == FL_SESSION_LIVE || !fl_list_is_empty(&s->unanswered);
}

/* Silence of this length means another endpoint. */
static uint64_t patience_ms(const struct fl_session *s)
{
    return min_u64(s->ttl_ms / 6, PATIENCE_MS_MAX);
}

/* When what was sent on the stream must have been answered; UINT64_MAX: nothing is open. Once the
 * close is sent only the owner's patience counts. */
static uint64_t answer_by_ms(const struct fl_session *s)
{
    if (s->is_close_sent)
        return UINT64_MAX;
    if (s->stream == FL_STREAM_ASKED)
        return s->asked_ms + patience_ms(s);
    if (s->stream == FL_STREAM_UP && s->is_heartbeat_out)
        return s->heartbeat_ms + patience_ms(s);
    return UINT64_MAX;
}

static uint64_t heartbeat_due_ms(const struct fl_session *s)
{
    if (s->stream != FL_STREAM_UP || s->is_heartbeat_out || s->is_closing)
        return UINT64_MAX;
    return s->heartbeat_ms + s->ttl_ms / 3;
}

static void tick(struct fl_session *s, const struct fl_session_event *event)
{
    uint64_t now_ms = event->now_ms;

    if (now_ms >= answer_by_ms(s)) {
        fl_why_set(&s->last_why, FL_E_UNREACHABLE, "SILENT", "an endpoint did not answer for %u ms",
                   (unsigned)patience_ms(s));
        drop_stream(s, true, "it does not answer");
        stream_is_down(s, now_ms);
    }
    fl_bids__give_up(s, now_ms);
    if (now_ms >= heartbeat_due_ms(s))
        send_heartbeat(s, now_ms);
    if (s->stream == FL_STREAM_UP && s->resend_at_ms != 0 && now_ms >= s->resend_at_ms)
        fl_bids__send(s, now_ms);
    if (s->stream == FL_STREAM_DOWN && wants_stream(s) && now_ms >= s->connect_at_ms)
        connect(s, now_ms);
}

static void send_close(struct fl_session *s)
{
    s->is_close_sent = true;
    emit_plain(s, FL_SESSION_FX_SEND_CLOSE);
}

static void stream_is_up(struct fl_session *s, uint64_t now_ms)
{
    s->stream = FL_STREAM_UP;
    s->failures = 0;
    s->last_why = (struct fl_why){0}; /* an old failure explains nothing now */
    if (s->is_closing)
        send_close(s);
    else
        fl_bids__send(s, now_ms);
}

static void opened_new(struct fl_session *s, const struct fl_session_event *event)
{
    uint64_t until_ms = s->asked_ms + fl_session_belief_ms(event->ttl_ms);

    if (FL_BUG(CLIENT_BELIEF_FROM_RECEIPT))
        until_ms = event->now_ms + fl_session_belief_ms(event->ttl_ms);
    if (event->now_ms >= until_ms) {
        /* The answer took longer than the lease: that session is as good as expired. */
        drop_stream(s, true, "the answer came too late");
        stream_is_down(s, event->now_ms);
        return;
    }
    s->state = FL_SESSION_LIVE;
    s->ttl_ms = event->ttl_ms;
    fl_why_copy_text(s->id, sizeof s->id, event->session_id);
    s->believe_until_ms = until_ms;
    s->heartbeat_ms = s->asked_ms; /* the opening counts as the first heartbeat */
    tell_belief(s);
    stream_is_up(s, event->now_ms);
}

/* The gateway found a new leader, which says what it knows: a loss that the old one decided may
 * never have been told. What we sent, the gateway sends again. */
static void opened_elsewhere(struct fl_session *s, const struct fl_session_event *event)
{
    if (strcmp(s->id, event->session_id) == 0)
        fl_bids__reconcile(s, event->known, event->n_known);
}

/* A resume says nothing about the lease (T7): a heartbeat follows at once. */
static void opened_again(struct fl_session *s, const struct fl_session_event *event)
{
    if (strcmp(s->id, event->session_id) != 0) {
        end_session(s, event, FL_LOST_EXPIRED, false);
        return;
    }
    s->stream = FL_STREAM_UP; /* what reconciling sends goes out on it */
    fl_bids__reconcile(s, event->known, event->n_known);
    if (!s->is_closing)
        send_heartbeat(s, event->now_ms);
    stream_is_up(s, event->now_ms);
}

static void opened(struct fl_session *s, const struct fl_session_event *event)
{
    if (s->stream == FL_STREAM_UP)
        opened_elsewhere(s, event);
    else if (s->stream == FL_STREAM_DOWN)
        return;
    else if (s->state == FL_SESSION_OPENING)
        opened_new(s, event);
    else
        opened_again(s, event);
}

static void acknowledged(struct fl_session *s, const struct fl_session_event *event)
{
    uint64_t from_ms = s->heartbeat_ms;

    if (s->stream != FL_STREAM_UP || !s->is_heartbeat_out)
        return;
    if (event->seq != s->heartbeat_seq && !FL_BUG(CLIENT_ANY_ACK_COUNTS))
        return;
    if (FL_BUG(CLIENT_BELIEF_FROM_RECEIPT))
        from_ms = event->now_ms;
    s->is_heartbeat_out = false;
    s->believe_until_ms = from_ms + fl_session_belief_ms(s->ttl_ms);
    tell_belief(s);
}

/* Errors of a stream that no other endpoint will take back: whoever waits for a session to be
 * opened is told at once. A session that lives is worth trying for until its lease ends (C09). */
static bool is_final(int code)
{
    return code == FL_E_INVALID || code == FL_E_DENIED || code == FL_E_UNSUPPORTED ||
           code == FL_E_LIMITED || code == FL_E_NOMEM || code == FL_E_PROTOCOL;
}

static void down(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_session_effect move_on = {
        .type = FL_SESSION_FX_DROP, .move_on = true, .reason = event->why->message};
    bool was_refused = event->why->reason[0] != '\0';

    s->last_why = *event->why;
    stream_is_down(s, event->now_ms);
    if (s->is_close_sent ||
        (s->state == FL_SESSION_LIVE && event->why->code == FL_E_SESSION_GONE)) {
        end_session(s, event, FL_LOST_EXPIRED, s->is_closing);
        return;
    }
    if (s->state == FL_SESSION_OPENING) {
        s->state = FL_SESSION_NONE;
        if (is_final(event->why->code))
            fl_bids__refuse_all(s, event->why);
    } else if (FL_BUG(CLIENT_STOPS_ON_FIRST_ERROR)) {
        s->connect_at_ms = UINT64_MAX;
    }
    if (was_refused)
        fl_session__emit(s, &move_on); /* this gateway answers, but cannot serve us */
}

static void close_session(struct fl_session *s, const struct fl_session_event *event)
{
    s->is_closing = true;
    if (s->state != FL_SESSION_LIVE)
        end_session(s, event, FL_LOST_LEASE, true);
    else if (s->stream == FL_STREAM_UP)
        send_close(s);
}

static void deliver(struct fl_session *s, const struct fl_session_event *event)
{
    switch (event->type) {
    case FL_SESSION_EV_TICK:
        break;
    case FL_SESSION_EV_ACQUIRE:
        fl_bids__acquire(s, event->bid, event->now_ms);
        break;
    case FL_SESSION_EV_RELEASE:
        fl_bids__release(s, event->bid, event->now_ms);
        break;
    case FL_SESSION_EV_CANCEL:
        if (event->bid != NULL)
            fl_bids__cancel(s, event->bid);
        else
            fl_bids__cancel_all(s);
        break;
    case FL_SESSION_EV_CLOSE:
        close_session(s, event);
        break;
    case FL_SESSION_EV_OPENED:
        opened(s, event);
        break;
    case FL_SESSION_EV_ACK:
        acknowledged(s, event);
        break;
    case FL_SESSION_EV_ACQUIRED:
        fl_bids__acquired(s, event);
        break;
    case FL_SESSION_EV_RELEASED:
        fl_bids__released(s, event->request_id);
        break;
    case FL_SESSION_EV_LOST:
        fl_bids__lost(s, event);
        break;
    case FL_SESSION_EV_ENDED:
        end_session(s, event, event->cause, s->is_closing);
        break;
    case FL_SESSION_EV_ERROR:
        if (event->why->code == FL_E_SESSION_GONE)
            end_session(s, event, FL_LOST_EXPIRED, s->is_closing);
        else
            fl_bids__error(s, event);
        break;
    case FL_SESSION_EV_DOWN:
        down(s, event);
        break;
    }
}

/* What the stream said before belief ended belongs to the session that is over. */
static bool is_from_stream(const struct fl_session_event *event)
{
    return event->type >= FL_SESSION_EV_OPENED;
}

void fl_session_step(struct fl_session *s, const struct fl_session_event *event)
{
    bool is_same_session = still_believes(s, event);

    if (is_same_session || !is_from_stream(event))
        deliver(s, event);
    tick(s, event);
}

uint64_t fl_session_next_ms(const struct fl_session *s)
{
    uint64_t next = min_u64(answer_by_ms(s), heartbeat_due_ms(s));

    next = min_u64(next, s->next_give_up_ms);
    if (s->state == FL_SESSION_LIVE)
        next = min_u64(next, s->believe_until_ms);
    if (s->stream == FL_STREAM_UP && s->resend_at_ms != 0)
        next = min_u64(next, s->resend_at_ms);
    if (s->stream == FL_STREAM_DOWN && wants_stream(s))
        next = min_u64(next, s->connect_at_ms);
    return next;
}

bool fl_session_is_closed(const struct fl_session *s)
{
    return s->is_closing && s->state == FL_SESSION_NONE;
}

const char *fl_session__check(const struct fl_session *s)
{
    if (s->stream == FL_STREAM_UP && s->state != FL_SESSION_LIVE)
        return "S1";
    if (s->is_heartbeat_out && s->stream != FL_STREAM_UP)
        return "S2";
    if ((s->state == FL_SESSION_LIVE) != (s->id[0] != '\0') ||
        (s->state == FL_SESSION_LIVE) != (s->believe_until_ms != 0))
        return "S5";
    return fl_bids__check(s);
}
