#include "client/bids.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "client/why.h"

/* A request that the server put off (no leader, starting) is sent again after so long. */
#define RESEND_MS_MIN 50
#define RESEND_MS_MAX 200

static struct fl_bid *bid_of(struct fl_list *link)
{
    return FL_CONTAINER_OF(link, struct fl_bid, link);
}

static struct fl_list *bucket_of(struct fl_session *s, uint64_t id)
{
    return &s->buckets[id % FL_BID_BUCKETS];
}

static struct fl_bid *find(struct fl_session *s, uint64_t id)
{
    FL_LIST_EACH(link, bucket_of(s, id))
    {
        struct fl_bid *bid = FL_CONTAINER_OF(link, struct fl_bid, bucket);

        if (bid->id == id)
            return bid;
    }
    return NULL;
}

static void move_to(struct fl_list *list, struct fl_bid *bid, enum fl_ask_state state)
{
    bid->state = state;
    fl_list_remove(&bid->link);
    fl_list_append(list, &bid->link);
}

static void emit_bid(struct fl_session *s, enum fl_session_effect_type type, struct fl_bid *bid,
                     const struct fl_why *why)
{
    struct fl_session_effect effect = {.type = type, .bid = bid, .why = why};

    fl_session__emit(s, &effect);
}

/* The owner may free the bid in this. */
static void finish(struct fl_session *s, struct fl_bid *bid)
{
    bid->state = FL_BID_OVER;
    fl_list_remove(&bid->link);
    fl_list_remove(&bid->bucket);
    emit_bid(s, FL_SESSION_FX_DONE, bid, NULL);
}

static void answer_and_finish(struct fl_session *s, enum fl_session_effect_type type,
                              struct fl_bid *bid, const struct fl_why *why)
{
    emit_bid(s, type, bid, why);
    finish(s, bid);
}

static void send_release(struct fl_session *s, uint64_t id, const char *name, uint64_t token)
{
    struct fl_session_effect effect = {
        .type = FL_SESSION_FX_SEND_RELEASE, .request_id = id, .name = name, .token = token};

    fl_session__emit(s, &effect);
}

static void send_acquire(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    uint64_t left_ms = bid->wait_until_ms > now_ms ? bid->wait_until_ms - now_ms : 0;
    struct fl_session_effect effect = {.type = FL_SESSION_FX_SEND_ACQUIRE,
                                       .bid = bid,
                                       .request_id = bid->id,
                                       .name = bid->name,
                                       .wait_ms = (uint32_t)left_ms};

    fl_session__emit(s, &effect);
}

static void send_cancel(struct fl_session *s, uint64_t id)
{
    struct fl_session_effect effect = {.type = FL_SESSION_FX_SEND_CANCEL, .request_id = id};

    fl_session__emit(s, &effect);
}

static void send(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    bid->is_repeated = bid->was_sent;
    bid->is_sent = bid->was_sent = true;
    switch (bid->state) {
    case FL_BID_WAITING:
        send_acquire(s, bid, now_ms);
        break;
    case FL_BID_RELEASING:
        send_release(s, bid->id, bid->name, bid->token);
        break;
    case FL_BID_GIVING_UP:
        /* A cancel has no answer of its own: the request is repeated for it to end. */
        send_acquire(s, bid, now_ms);
        send_cancel(s, bid->id);
        break;
    default:
        FL_UNREACHABLE();
    }
}

static void send_if_up(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    bid->is_sent = false;
    if (s->stream == FL_STREAM_UP)
        send(s, bid, now_ms);
}

static void set_give_up(struct fl_session *s, struct fl_bid *bid, uint64_t at_ms)
{
    bid->give_up_ms = at_ms;
    if (at_ms < s->next_give_up_ms)
        s->next_give_up_ms = at_ms;
}

void fl_bids__acquire(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    bid->id = ++s->last_request_id;
    bid->token = 0;
    bid->is_sent = bid->was_sent = false;
    bid->state = FL_BID_WAITING;
    bid->wait_until_ms = now_ms + bid->wait_ms;
    fl_list_append(&s->unanswered, &bid->link);
    fl_list_append(bucket_of(s, bid->id), &bid->bucket);
    set_give_up(s, bid, bid->wait_until_ms + s->timeout_ms);
    send_if_up(s, bid, now_ms);
}

static void begin_release(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    move_to(&s->unanswered, bid, FL_BID_RELEASING);
    set_give_up(s, bid, now_ms + s->timeout_ms);
    send_if_up(s, bid, now_ms);
}

void fl_bids__release(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    if (bid->state == FL_BID_RELEASING)
        set_give_up(s, bid, now_ms + s->timeout_ms); /* it is being asked already */
    else if (bid->state == FL_BID_HELD)
        begin_release(s, bid, now_ms);
}

/* Nobody waits for the answer any more. What was never sent is simply over; else the server is told
 * to forget it, and a grant that crosses on the way is given back. */
static void abandon(struct fl_session *s, struct fl_bid *bid)
{
    if (!bid->was_sent) {
        finish(s, bid);
        return;
    }
    bid->state = FL_BID_GIVING_UP;
    bid->give_up_ms = UINT64_MAX;
    bid->wait_until_ms = 0;
    if (s->stream == FL_STREAM_UP && bid->is_sent)
        send_cancel(s, bid->id);
}

void fl_bids__cancel(struct fl_session *s, struct fl_bid *bid)
{
    struct fl_why why;

    if (bid->state != FL_BID_WAITING)
        return;
    fl_why_set(&why, FL_E_CLOSED, "CANCELLED", "the wait was cancelled");
    emit_bid(s, FL_SESSION_FX_REFUSED, bid, &why);
    abandon(s, bid);
}

void fl_bids__cancel_all(struct fl_session *s)
{
    FL_LIST_EACH(link, &s->unanswered)
    fl_bids__cancel(s, bid_of(link));
}

static void refusal_why(const struct fl_bid *bid, const struct fl_session_event *event,
                        struct fl_why *why)
{
    const struct fl_holder *holder = event->holder;

    if (event->is_cancelled) {
        fl_why_set(why, FL_E_CLOSED, "CANCELLED", "the wait was cancelled");
        return;
    }
    if (holder == NULL || holder->token == 0)
        fl_why_set(why, bid->wait_ms == 0 ? FL_E_HELD : FL_E_TIMEOUT,
                   bid->wait_ms == 0 ? "HELD" : "TIMED_OUT", "%s is not free: others wait for it",
                   bid->name);
    else
        fl_why_set(why, bid->wait_ms == 0 ? FL_E_HELD : FL_E_TIMEOUT,
                   bid->wait_ms == 0 ? "HELD" : "TIMED_OUT",
                   "%s is held by %s for %" PRIu64 " ms (token %" PRIu64 ")", bid->name,
                   holder->client[0] != '\0' ? holder->client : "another session",
                   holder->held_for_ms, holder->token);
    if (holder != NULL)
        why->holder = *holder;
}

static void granted(struct fl_session *s, struct fl_bid *bid, const struct fl_session_event *event)
{
    bid->token = event->token;
    if (bid->state == FL_BID_GIVING_UP) {
        begin_release(s, bid, event->now_ms);
        return;
    }
    move_to(&s->held, bid, FL_BID_HELD);
    if (FL_BUG(CLIENT_GRANT_RENEWS_BELIEF))
        s->believe_until_ms = event->now_ms + fl_session_belief_ms(s->ttl_ms);
    emit_bid(s, FL_SESSION_FX_GRANTED, bid, NULL);
}

void fl_bids__acquired(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_bid *bid = find(s, event->request_id);
    struct fl_why why;

    if (bid == NULL || (bid->state != FL_BID_WAITING && bid->state != FL_BID_GIVING_UP))
        return; /* a repeated answer: the first one counted */
    if (event->is_granted) {
        granted(s, bid, event);
    } else if (bid->state == FL_BID_GIVING_UP) {
        finish(s, bid);
    } else {
        refusal_why(bid, event, &why);
        answer_and_finish(s, FL_SESSION_FX_REFUSED, bid, &why);
    }
}

void fl_bids__released(struct fl_session *s, uint64_t request_id)
{
    struct fl_bid *bid = find(s, request_id);
    struct fl_why why;

    if (bid == NULL || bid->state != FL_BID_RELEASING)
        return;
    fl_why_set(&why, FL_OK, NULL, "released");
    answer_and_finish(s, FL_SESSION_FX_RELEASED, bid, &why);
}

static void tell_lost(struct fl_session *s, struct fl_bid *bid,
                      const struct fl_session_effect *loss)
{
    struct fl_session_effect effect = *loss;

    effect.type = FL_SESSION_FX_LOST;
    effect.bid = bid;
    if (!FL_BUG(CLIENT_LOSS_IS_SILENT))
        fl_session__emit(s, &effect);
    finish(s, bid);
}

void fl_bids__lost(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_session_effect loss = {
        .cause = event->cause, .by = event->by, .reason = event->reason};
    struct fl_bid *bid = find(s, event->request_id);
    struct fl_why why;

    if (bid == NULL || (bid->token != 0 && bid->token != event->token))
        return;
    fl_why_set(&why, FL_E_LOST, "LOST", "%s was lost: %s", bid->name,
               fl_lost_cause_text(event->cause));
    switch (bid->state) {
    case FL_BID_HELD:
        tell_lost(s, bid, &loss);
        break;
    case FL_BID_WAITING:
        answer_and_finish(s, FL_SESSION_FX_REFUSED, bid, &why);
        break;
    case FL_BID_RELEASING:
        answer_and_finish(s, FL_SESSION_FX_RELEASED, bid, &why);
        break;
    default:
        finish(s, bid);
    }
}

static bool is_passing(int code)
{
    return code == FL_E_UNREACHABLE || code == FL_E_NO_LEADER || code == FL_E_AGAIN ||
           code == FL_E_INTERNAL;
}

/* A repeated request may wait in the cluster, whatever a gateway says for want of room: to believe
 * that it is over would leave behind a grant that nobody knows of (L11). */
static bool may_wait_still(const struct fl_bid *bid, int code)
{
    return is_passing(code) || (bid->is_repeated && (code == FL_E_LIMITED || code == FL_E_NOSPACE));
}

static void put_off(struct fl_session *s, struct fl_bid *bid, uint64_t now_ms)
{
    uint64_t at_ms = now_ms + fl_random_between(&s->random, RESEND_MS_MIN, RESEND_MS_MAX);

    bid->is_sent = false;
    if (s->resend_at_ms == 0 || at_ms < s->resend_at_ms)
        s->resend_at_ms = at_ms;
}

void fl_bids__error(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_bid *bid = find(s, event->request_id);
    int code = event->why->code;

    if (bid == NULL)
        return;
    if (may_wait_still(bid, code) &&
        !(FL_BUG(CLIENT_RELEASE_FORGOTTEN) && bid->state == FL_BID_RELEASING)) {
        s->last_why = *event->why;
        put_off(s, bid, event->now_ms);
    } else if (bid->state == FL_BID_WAITING) {
        answer_and_finish(s, FL_SESSION_FX_REFUSED, bid, event->why);
    } else if (bid->state == FL_BID_RELEASING) {
        /* The server has judged only if it says whose the name is now (C13). */
        if (FL_BUG(CLIENT_RELEASE_FORGOTTEN) || code == FL_E_STALE || code == FL_E_NOT_FOUND ||
            code == FL_E_CONFLICT)
            answer_and_finish(s, FL_SESSION_FX_RELEASED, bid, event->why);
        else
            put_off(s, bid, event->now_ms);
    } else if (bid->state == FL_BID_GIVING_UP) {
        finish(s, bid);
    }
}

void fl_bids__send(struct fl_session *s, uint64_t now_ms)
{
    s->resend_at_ms = 0;
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (!bid_of(link)->is_sent)
            send(s, bid_of(link), now_ms);
    }
}

void fl_bids__unsend(struct fl_session *s)
{
    s->resend_at_ms = 0;
    FL_LIST_EACH(link, &s->unanswered)
    bid_of(link)->is_sent = false;
}

/* Marks what is known; gives back a hold that belongs to no request of ours (it was given up before
 * its grant, and the cancel was lost on the way). */
static void mark_known(struct fl_session *s, const struct fl_session_known *known, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct fl_bid *bid = find(s, known[i].request_id);

        if (bid != NULL)
            bid->seen_in_round = s->resume_round;
        else if (known[i].token != 0)
            send_release(s, known[i].request_id, known[i].name, known[i].token);
        else
            send_cancel(s, known[i].request_id);
    }
}

void fl_bids__reconcile(struct fl_session *s, const struct fl_session_known *known, size_t n)
{
    struct fl_session_effect loss = {.cause = FL_LOST_GONE, .by = "", .reason = ""};

    s->resume_round++;
    mark_known(s, known, n);
    FL_LIST_EACH(link, &s->held)
    {
        if (bid_of(link)->seen_in_round != s->resume_round)
            tell_lost(s, bid_of(link), &loss);
    }
}

static void no_answer_why(const struct fl_session *s, const struct fl_bid *bid, struct fl_why *why)
{
    int code = s->last_why.code == FL_E_NO_LEADER ? FL_E_NO_LEADER : FL_E_UNREACHABLE;

    fl_why_set(why, code, s->last_why.reason, "no answer about %s%s%s", bid->name,
               s->last_why.message[0] != '\0' ? ": " : "", s->last_why.message);
}

static void overdue(struct fl_session *s, struct fl_bid *bid)
{
    struct fl_why why;

    no_answer_why(s, bid, &why);
    if (bid->state == FL_BID_WAITING) {
        emit_bid(s, FL_SESSION_FX_REFUSED, bid, &why);
        abandon(s, bid);
    } else if (bid->state == FL_BID_RELEASING) {
        bid->give_up_ms = UINT64_MAX;
        emit_bid(s, FL_SESSION_FX_UNRELEASED, bid, &why);
    }
}

void fl_bids__give_up(struct fl_session *s, uint64_t now_ms)
{
    if (now_ms < s->next_give_up_ms)
        return;
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (bid_of(link)->give_up_ms <= now_ms)
            overdue(s, bid_of(link));
    }
    s->next_give_up_ms = UINT64_MAX;
    FL_LIST_EACH(left, &s->unanswered)
    {
        if (bid_of(left)->give_up_ms < s->next_give_up_ms)
            s->next_give_up_ms = bid_of(left)->give_up_ms;
    }
}

void fl_bids__refuse_all(struct fl_session *s, const struct fl_why *why)
{
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (bid_of(link)->state == FL_BID_WAITING)
            answer_and_finish(s, FL_SESSION_FX_REFUSED, bid_of(link), why);
    }
}

void fl_bids__end_all(struct fl_session *s, const struct fl_session_effect *loss,
                      const struct fl_why *why, bool is_quiet)
{
    FL_LIST_EACH(link, &s->held)
    {
        if (is_quiet)
            finish(s, bid_of(link));
        else
            tell_lost(s, bid_of(link), loss);
    }
    fl_bids__refuse_all(s, why);
    FL_LIST_EACH(other, &s->unanswered)
    {
        if (bid_of(other)->state == FL_BID_RELEASING)
            answer_and_finish(s, FL_SESSION_FX_RELEASED, bid_of(other), why);
        else
            finish(s, bid_of(other));
    }
}

static bool can_be_found(const struct fl_session *s, const struct fl_bid *bid)
{
    FL_LIST_EACH(link, &s->buckets[bid->id % FL_BID_BUCKETS])
    {
        if (link == &bid->bucket)
            return true;
    }
    return false;
}

const char *fl_bids__check(const struct fl_session *s)
{
    FL_LIST_EACH(link, &s->held)
    {
        const struct fl_bid *bid = bid_of(link);

        if (bid->state != FL_BID_HELD || bid->token == 0 || s->state != FL_SESSION_LIVE ||
            !can_be_found(s, bid))
            return "S3";
    }
    FL_LIST_EACH(other, &s->unanswered)
    {
        const struct fl_bid *bid = bid_of(other);

        if (bid->state == FL_BID_HELD || bid->state == FL_BID_OVER || !can_be_found(s, bid) ||
            bid->give_up_ms < s->next_give_up_ms)
            return "S4";
    }
    return NULL;
}
