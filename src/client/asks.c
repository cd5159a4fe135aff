#include "client/asks.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "client/why.h"

/* A request that the server put off (no leader, starting) is sent again after so long. */
#define RESEND_MS_MIN 50
#define RESEND_MS_MAX 200

static struct fl_ask *ask_of(struct fl_list *link)
{
    return FL_CONTAINER_OF(link, struct fl_ask, link);
}

static struct fl_list *bucket_of(struct fl_session *s, uint64_t id)
{
    return &s->buckets[id % FL_ASK_BUCKETS];
}

static struct fl_ask *find(struct fl_session *s, uint64_t id)
{
    FL_LIST_EACH(link, bucket_of(s, id))
    {
        struct fl_ask *ask = FL_CONTAINER_OF(link, struct fl_ask, bucket);

        if (ask->id == id)
            return ask;
    }
    return NULL;
}

static void move_to(struct fl_list *list, struct fl_ask *ask, enum fl_ask_state state)
{
    ask->state = state;
    fl_list_remove(&ask->link);
    fl_list_append(list, &ask->link);
}

static void emit_ask(struct fl_session *s, enum fl_session_effect_type type, struct fl_ask *ask,
                     const struct fl_why *why)
{
    struct fl_session_effect effect = {.type = type, .ask = ask, .why = why};

    fl_session__emit(s, &effect);
}

/* The owner may free the ask in this. */
static void finish(struct fl_session *s, struct fl_ask *ask)
{
    ask->state = FL_ASK_OVER;
    fl_list_remove(&ask->link);
    fl_list_remove(&ask->bucket);
    emit_ask(s, FL_SESSION_FX_DONE, ask, NULL);
}

static void answer_and_finish(struct fl_session *s, enum fl_session_effect_type type,
                              struct fl_ask *ask, const struct fl_why *why)
{
    emit_ask(s, type, ask, why);
    finish(s, ask);
}

static void send_release(struct fl_session *s, uint64_t id, const char *name, uint64_t token)
{
    struct fl_session_effect effect = {
        .type = FL_SESSION_FX_SEND_RELEASE, .request_id = id, .name = name, .token = token};

    fl_session__emit(s, &effect);
}

static void send_acquire(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    uint64_t left_ms = ask->wait_until_ms > now_ms ? ask->wait_until_ms - now_ms : 0;
    struct fl_session_effect effect = {.type = FL_SESSION_FX_SEND_ACQUIRE,
                                       .ask = ask,
                                       .request_id = ask->id,
                                       .name = ask->name,
                                       .wait_ms = (uint32_t)left_ms};

    fl_session__emit(s, &effect);
}

static void send_cancel(struct fl_session *s, uint64_t id)
{
    struct fl_session_effect effect = {.type = FL_SESSION_FX_SEND_CANCEL, .request_id = id};

    fl_session__emit(s, &effect);
}

static void send(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    ask->is_sent = ask->was_sent = true;
    switch (ask->state) {
    case FL_ASK_WAITING:
        send_acquire(s, ask, now_ms);
        break;
    case FL_ASK_RELEASING:
        send_release(s, ask->id, ask->name, ask->token);
        break;
    case FL_ASK_GIVING_UP:
        send_cancel(s, ask->id);
        break;
    default:
        FL_UNREACHABLE();
    }
}

static void send_if_up(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    ask->is_sent = false;
    if (s->stream == FL_STREAM_UP)
        send(s, ask, now_ms);
}

static void set_give_up(struct fl_session *s, struct fl_ask *ask, uint64_t at_ms)
{
    ask->give_up_ms = at_ms;
    if (at_ms < s->next_give_up_ms)
        s->next_give_up_ms = at_ms;
}

void fl_asks__acquire(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    ask->id = ++s->last_request_id;
    ask->token = 0;
    ask->is_sent = ask->was_sent = false;
    ask->state = FL_ASK_WAITING;
    ask->wait_until_ms = now_ms + ask->wait_ms;
    fl_list_append(&s->unanswered, &ask->link);
    fl_list_append(bucket_of(s, ask->id), &ask->bucket);
    set_give_up(s, ask, ask->wait_until_ms + s->timeout_ms);
    send_if_up(s, ask, now_ms);
}

static void begin_release(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    move_to(&s->unanswered, ask, FL_ASK_RELEASING);
    set_give_up(s, ask, now_ms + s->timeout_ms);
    send_if_up(s, ask, now_ms);
}

void fl_asks__release(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    if (ask->state == FL_ASK_RELEASING)
        set_give_up(s, ask, now_ms + s->timeout_ms); /* it is being asked already */
    else if (ask->state == FL_ASK_HELD)
        begin_release(s, ask, now_ms);
}

/* Nobody waits for the answer any more. What was never sent is simply over; else the server is told
 * to forget it, and a grant that crosses on the way is given back. */
static void abandon(struct fl_session *s, struct fl_ask *ask)
{
    if (!ask->was_sent) {
        finish(s, ask);
        return;
    }
    ask->state = FL_ASK_GIVING_UP;
    ask->give_up_ms = UINT64_MAX;
    send_if_up(s, ask, 0);
}

void fl_asks__cancel(struct fl_session *s, struct fl_ask *ask)
{
    struct fl_why why;

    if (ask->state != FL_ASK_WAITING)
        return;
    fl_why_set(&why, FL_E_CLOSED, "CANCELLED", "the wait was cancelled");
    emit_ask(s, FL_SESSION_FX_REFUSED, ask, &why);
    abandon(s, ask);
}

static void refusal_why(const struct fl_ask *ask, const struct fl_session_event *event,
                        struct fl_why *why)
{
    const struct fl_holder *holder = event->holder;

    if (event->is_cancelled) {
        fl_why_set(why, FL_E_CLOSED, "CANCELLED", "the wait was cancelled");
        return;
    }
    if (holder == NULL || holder->token == 0)
        fl_why_set(why, ask->wait_ms == 0 ? FL_E_HELD : FL_E_TIMEOUT,
                   ask->wait_ms == 0 ? "HELD" : "TIMED_OUT", "%s is not free: others wait for it",
                   ask->name);
    else
        fl_why_set(why, ask->wait_ms == 0 ? FL_E_HELD : FL_E_TIMEOUT,
                   ask->wait_ms == 0 ? "HELD" : "TIMED_OUT",
                   "%s is held by %s for %" PRIu64 " ms (token %" PRIu64 ")", ask->name,
                   holder->client[0] != '\0' ? holder->client : "another session",
                   holder->held_for_ms, holder->token);
    if (holder != NULL)
        why->holder = *holder;
}

static void granted(struct fl_session *s, struct fl_ask *ask, const struct fl_session_event *event)
{
    ask->token = event->token;
    if (ask->state == FL_ASK_GIVING_UP) {
        begin_release(s, ask, event->now_ms);
        return;
    }
    move_to(&s->held, ask, FL_ASK_HELD);
    if (FL_BUG(CLIENT_GRANT_RENEWS_BELIEF))
        s->believe_until_ms = event->now_ms + fl_session_belief_ms(s->ttl_ms);
    emit_ask(s, FL_SESSION_FX_GRANTED, ask, NULL);
}

void fl_asks__acquired(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_ask *ask = find(s, event->request_id);
    struct fl_why why;

    if (ask == NULL || (ask->state != FL_ASK_WAITING && ask->state != FL_ASK_GIVING_UP))
        return; /* a repeated answer: the first one counted */
    if (event->is_granted) {
        granted(s, ask, event);
    } else if (ask->state == FL_ASK_GIVING_UP) {
        finish(s, ask);
    } else {
        refusal_why(ask, event, &why);
        answer_and_finish(s, FL_SESSION_FX_REFUSED, ask, &why);
    }
}

void fl_asks__released(struct fl_session *s, uint64_t request_id)
{
    struct fl_ask *ask = find(s, request_id);
    struct fl_why why;

    if (ask == NULL || ask->state != FL_ASK_RELEASING)
        return;
    fl_why_set(&why, FL_OK, NULL, "released");
    answer_and_finish(s, FL_SESSION_FX_RELEASED, ask, &why);
}

static void tell_lost(struct fl_session *s, struct fl_ask *ask,
                      const struct fl_session_effect *loss)
{
    struct fl_session_effect effect = *loss;

    effect.type = FL_SESSION_FX_LOST;
    effect.ask = ask;
    if (!FL_BUG(CLIENT_LOSS_IS_SILENT))
        fl_session__emit(s, &effect);
    finish(s, ask);
}

void fl_asks__lost(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_session_effect loss = {
        .cause = event->cause, .by = event->by, .reason = event->reason};
    struct fl_ask *ask = find(s, event->request_id);
    struct fl_why why;

    if (ask == NULL || (ask->token != 0 && ask->token != event->token))
        return;
    fl_why_set(&why, FL_E_LOST, "LOST", "%s was lost: %s", ask->name,
               fl_lost_cause_text(event->cause));
    switch (ask->state) {
    case FL_ASK_HELD:
        tell_lost(s, ask, &loss);
        break;
    case FL_ASK_WAITING:
        answer_and_finish(s, FL_SESSION_FX_REFUSED, ask, &why);
        break;
    case FL_ASK_RELEASING:
        answer_and_finish(s, FL_SESSION_FX_RELEASED, ask, &why);
        break;
    default:
        finish(s, ask);
    }
}

static bool is_passing(int code)
{
    return code == FL_E_UNREACHABLE || code == FL_E_NO_LEADER || code == FL_E_AGAIN ||
           code == FL_E_INTERNAL;
}

static void put_off(struct fl_session *s, struct fl_ask *ask, uint64_t now_ms)
{
    uint64_t at_ms = now_ms + fl_random_between(&s->random, RESEND_MS_MIN, RESEND_MS_MAX);

    ask->is_sent = false;
    if (s->resend_at_ms == 0 || at_ms < s->resend_at_ms)
        s->resend_at_ms = at_ms;
}

void fl_asks__error(struct fl_session *s, const struct fl_session_event *event)
{
    struct fl_ask *ask = find(s, event->request_id);
    int code = event->why->code;

    if (ask == NULL)
        return;
    if (is_passing(code)) {
        s->last_why = *event->why;
        put_off(s, ask, event->now_ms);
    } else if (ask->state == FL_ASK_WAITING) {
        answer_and_finish(s, FL_SESSION_FX_REFUSED, ask, event->why);
    } else if (ask->state == FL_ASK_RELEASING) {
        /* The server has judged only if it says whose the name is now (C13). */
        if (code == FL_E_STALE || code == FL_E_NOT_FOUND || code == FL_E_CONFLICT)
            answer_and_finish(s, FL_SESSION_FX_RELEASED, ask, event->why);
        else
            put_off(s, ask, event->now_ms);
    } else if (ask->state == FL_ASK_GIVING_UP) {
        finish(s, ask);
    }
}

void fl_asks__send(struct fl_session *s, uint64_t now_ms)
{
    s->resend_at_ms = 0;
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (!ask_of(link)->is_sent)
            send(s, ask_of(link), now_ms);
    }
}

void fl_asks__unsend(struct fl_session *s)
{
    s->resend_at_ms = 0;
    FL_LIST_EACH(link, &s->unanswered)
    ask_of(link)->is_sent = false;
}

/* Marks what is known; gives back a hold that belongs to no request of ours (it was given up before
 * its grant, and the cancel was lost on the way). */
static void mark_known(struct fl_session *s, const struct fl_session_known *known, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct fl_ask *ask = find(s, known[i].request_id);

        if (ask != NULL)
            ask->seen_in_round = s->resume_round;
        else if (known[i].token != 0)
            send_release(s, known[i].request_id, known[i].name, known[i].token);
        else
            send_cancel(s, known[i].request_id);
    }
}

void fl_asks__reconcile(struct fl_session *s, const struct fl_session_known *known, size_t n)
{
    struct fl_session_effect loss = {.cause = FL_LOST_GONE, .by = "", .reason = ""};

    s->resume_round++;
    mark_known(s, known, n);
    FL_LIST_EACH(link, &s->held)
    {
        if (ask_of(link)->seen_in_round != s->resume_round)
            tell_lost(s, ask_of(link), &loss);
    }
    FL_LIST_EACH(other, &s->unanswered)
    {
        struct fl_ask *ask = ask_of(other);

        if (ask->state == FL_ASK_GIVING_UP && ask->seen_in_round != s->resume_round)
            finish(s, ask);
    }
}

static void no_answer_why(const struct fl_session *s, const struct fl_ask *ask, struct fl_why *why)
{
    int code = s->last_why.code == FL_E_NO_LEADER ? FL_E_NO_LEADER : FL_E_UNREACHABLE;

    fl_why_set(why, code, s->last_why.reason, "no answer about %s%s%s", ask->name,
               s->last_why.message[0] != '\0' ? ": " : "", s->last_why.message);
}

static void overdue(struct fl_session *s, struct fl_ask *ask)
{
    struct fl_why why;

    no_answer_why(s, ask, &why);
    if (ask->state == FL_ASK_WAITING) {
        emit_ask(s, FL_SESSION_FX_REFUSED, ask, &why);
        abandon(s, ask);
    } else if (ask->state == FL_ASK_RELEASING) {
        ask->give_up_ms = UINT64_MAX;
        emit_ask(s, FL_SESSION_FX_UNRELEASED, ask, &why);
    }
}

void fl_asks__give_up(struct fl_session *s, uint64_t now_ms)
{
    if (now_ms < s->next_give_up_ms)
        return;
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (ask_of(link)->give_up_ms <= now_ms)
            overdue(s, ask_of(link));
    }
    s->next_give_up_ms = UINT64_MAX;
    FL_LIST_EACH(left, &s->unanswered)
    {
        if (ask_of(left)->give_up_ms < s->next_give_up_ms)
            s->next_give_up_ms = ask_of(left)->give_up_ms;
    }
}

void fl_asks__refuse_all(struct fl_session *s, const struct fl_why *why)
{
    FL_LIST_EACH(link, &s->unanswered)
    {
        if (ask_of(link)->state == FL_ASK_WAITING)
            answer_and_finish(s, FL_SESSION_FX_REFUSED, ask_of(link), why);
    }
}

void fl_asks__end_all(struct fl_session *s, const struct fl_session_effect *loss,
                      const struct fl_why *why, bool is_quiet)
{
    FL_LIST_EACH(link, &s->held)
    {
        if (is_quiet)
            finish(s, ask_of(link));
        else
            tell_lost(s, ask_of(link), loss);
    }
    fl_asks__refuse_all(s, why);
    FL_LIST_EACH(other, &s->unanswered)
    {
        if (ask_of(other)->state == FL_ASK_RELEASING)
            answer_and_finish(s, FL_SESSION_FX_RELEASED, ask_of(other), why);
        else
            finish(s, ask_of(other));
    }
}
