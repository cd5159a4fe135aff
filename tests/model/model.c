#include "model.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "trace.h"

#define SESSIONS_MAX 192 /* live and dead */
#define CLAIMS_MAX   512
#define CLOSINGS_MAX 16
#define TEXT_MAX     32

struct text {
    char data[TEXT_MAX];
    size_t len;
};

struct past {
    uint64_t request;
    struct text name; /* empty: cancelled before it came */
    enum fl_mode mode;
    uint32_t limit;
    enum fl_answer answer;
    fl_token token;
    bool released;
};

struct session {
    bool used, dead;
    struct fl_session_id id;
    struct text client;
    uint32_t ttl_ms, delay_ms, silence_ms;
    uint64_t opened_ms, died; /* died: the how-manieth */
    enum fl_cause cause;
    struct past past[FL_REQUESTS_REMEMBERED]; /* oldest first */
    size_t n_past;
};

struct claim {
    bool used, waits;
    struct session *session;
    uint64_t request, since_ms, deadline_ms;
    struct text name;
    enum fl_mode mode;
    uint32_t limit;
    uint16_t asker;
    uint64_t order; /* of holds: the token; of waits: the order of arrival */
};

struct closing {
    bool used;
    struct text name;
    uint64_t until_ms, order;
};

struct model {
    struct session sessions[SESSIONS_MAX];
    struct claim claims[CLAIMS_MAX];
    struct closing closings[CLOSINGS_MAX];
    uint64_t now_ms, next_order, deaths, grants;
    fl_token token;
    uint32_t work, work_left, looks;
    fl_machine_sink sink;
    void *ctx;
    uint64_t index;
    uint32_t sub;
    int32_t command;
};

#define EACH(item, array)                                                                          \
    for (__typeof__(&(array)[0]) item = (array); item < (array) + FL_ARRAY_LEN(array); item++)     \
        if (item->used)

static struct fl_str str(const struct text *text)
{
    return (struct fl_str){text->data, text->len};
}

static struct text text_of(struct fl_str s)
{
    struct text text = {.len = s.len};

    FL_REQUIRE(s.len <= TEXT_MAX);
    if (s.len != 0)
        memcpy(text.data, s.data, s.len);
    return text;
}

static bool is_named(const struct text *text, struct fl_str name)
{
    return fl_str_equal(str(text), name);
}

/* --- Looking --- */

static struct session *session_of(struct model *m, struct fl_session_id id)
{
    EACH(s, m->sessions)
    if (!s->dead && fl_session_id_equal(s->id, id))
        return s;
    return NULL;
}

static struct claim *claim_of(struct model *m, const struct session *session, uint64_t request)
{
    EACH(c, m->claims)
    if (c->session == session && c->request == request)
        return c;
    return NULL;
}

/* Of those who hold (or wait for) the name, the first whose order is above `after`. */
static struct claim *next_claim(const struct model *m, struct fl_str name, bool waits,
                                uint64_t after)
{
    struct claim *best = NULL;

    EACH(c, ((struct model *)m)->claims)
    if (c->waits == waits && is_named(&c->name, name) && c->order > after &&
        (best == NULL || c->order < best->order))
        best = c;
    return best;
}

static struct claim *next_of_session(const struct model *m, const struct session *session,
                                     bool waits, uint64_t after)
{
    struct claim *best = NULL;

    EACH(c, ((struct model *)m)->claims)
    if (c->waits == waits && c->session == session && c->order > after &&
        (best == NULL || c->order < best->order))
        best = c;
    return best;
}

/* Of so many that hold it longest, or NULL. */
static struct claim *oldest_live_holder(const struct model *m, struct fl_str name, uint32_t looks)
{
    struct claim *c = next_claim(m, name, false, 0);

    for (; c != NULL && looks > 0; looks--) {
        if (!c->session->dead)
            return c;
        c = next_claim(m, name, false, c->order);
    }
    return NULL;
}

static uint32_t count(const struct model *m, struct fl_str name, bool waits, bool with_dead)
{
    uint32_t n = 0;

    EACH(c, ((struct model *)m)->claims)
    n += c->waits == waits && is_named(&c->name, name) && (with_dead || !c->session->dead);
    return n;
}

static struct closing *closing_of(const struct model *m, struct fl_str name)
{
    EACH(c, ((struct model *)m)->closings)
    if (is_named(&c->name, name))
        return c;
    return NULL;
}

static bool anyone_dead(const struct model *m)
{
    EACH(s, ((struct model *)m)->sessions)
    if (s->dead)
        return true;
    return false;
}

/* --- Telling --- */

static void emit(struct model *m, struct fl_effect e)
{
    e.index = m->index;
    e.sub = m->sub++;
    e.command = m->command;
    m->sink(m->ctx, &e);
}

static struct fl_effect about(const struct model *m, const struct claim *c)
{
    return (struct fl_effect){
        .session = c->session->id,
        .request_id = c->request,
        .name = str(&c->name),
        .token = c->waits ? 0 : c->order,
        .mode = c->mode,
        .limit = c->limit,
        .deadline_ms = c->waits ? c->deadline_ms : 0,
        .waiters = count(m, str(&c->name), true, true),
    };
}

static void tell(struct model *m, enum fl_effect_type type, const struct claim *c,
                 enum fl_cause cause)
{
    struct fl_effect e = about(m, c);

    e.type = type;
    e.cause = cause;
    if (type == FL_EFF_WAIT_END)
        e.waiters--;
    emit(m, e);
}

static void answer(struct model *m, const struct fl_command *c, enum fl_answer what, fl_token token)
{
    emit(m, (struct fl_effect){.type = FL_EFF_ANSWER,
                               .answer = what,
                               .session = c->session,
                               .request_id = c->request_id,
                               .name = c->name,
                               .token = token});
}

static void answer_claim(struct model *m, const struct fl_command *command, const struct claim *c)
{
    struct fl_effect e = about(m, c);

    e.type = FL_EFF_ANSWER;
    e.name = command->name;
    e.answer = c->waits ? FL_ANS_QUEUED : FL_ANS_GRANTED;
    EACH(other, m->claims)
    e.position += c->waits && other->waits && is_named(&other->name, str(&c->name)) &&
                  other->order < c->order;
    emit(m, e);
}

static void answer_refused(struct model *m, const struct fl_command *c, enum fl_answer what)
{
    const struct claim *holder = oldest_live_holder(m, c->name, m->looks);
    const struct claim *any = next_claim(m, c->name, false, 0);
    struct fl_effect e = {.type = FL_EFF_ANSWER,
                          .answer = what,
                          .session = c->session,
                          .request_id = c->request_id,
                          .name = c->name,
                          .waiters = count(m, c->name, true, true)};

    if (any == NULL)
        any = next_claim(m, c->name, true, 0);
    if (any != NULL)
        e.limit = any->limit;
    if (holder != NULL) {
        e.mode = holder->mode;
        e.holder_client = str(&holder->session->client);
        e.holder_token = holder->order;
        e.holder_since_ms = holder->since_ms;
    }
    emit(m, e);
}

/* --- Ending --- */

static void remember(struct session *s, struct past past)
{
    if (s->dead)
        return;
    if (s->n_past == FL_REQUESTS_REMEMBERED)
        memmove(s->past, s->past + 1, --s->n_past * sizeof s->past[0]);
    s->past[s->n_past++] = past;
}

static void forget_if_done(struct model *m, struct session *s)
{
    if (s->dead && next_of_session(m, s, false, 0) == NULL &&
        next_of_session(m, s, true, 0) == NULL)
        s->used = false;
}

static void end_claim(struct model *m, struct claim *c, enum fl_answer then, enum fl_cause cause)
{
    remember(c->session,
             (struct past){c->request, c->name, c->mode, c->limit, then, c->waits ? 0 : c->order,
                           cause == FL_CAUSE_RELEASED || cause == FL_CAUSE_ABANDONED});
    c->used = false;
    forget_if_done(m, c->session);
}

static void end_wait(struct model *m, struct claim *c, enum fl_answer then, enum fl_cause cause)
{
    tell(m, FL_EFF_WAIT_END, c, cause);
    end_claim(m, c, then, cause);
}

static void end_hold(struct model *m, struct claim *c, enum fl_cause cause,
                     const struct fl_command *by)
{
    struct fl_effect e = about(m, c);

    e.type = FL_EFF_HOLD_END;
    e.cause = cause;
    if (by != NULL) {
        e.actor = by->actor;
        e.reason = by->reason;
    }
    emit(m, e);
    end_claim(m, c, FL_ANS_ENDED, cause);
}

/* --- Granting --- */

static bool admits(const struct model *m, struct fl_str name, enum fl_mode mode)
{
    const struct claim *holder = next_claim(m, name, false, 0);

    if (closing_of(m, name) != NULL)
        return false;
    if (holder == NULL)
        return true;
    if (holder->mode != mode || mode == FL_MODE_EXCLUSIVE)
        return false;
    return mode == FL_MODE_SHARED || count(m, name, false, true) < holder->limit;
}

static void grant(struct model *m, struct claim *c)
{
    c->waits = false;
    c->since_ms = m->now_ms;
    c->order = ++m->token;
    m->grants++;
    tell(m, FL_EFF_GRANT, c, FL_CAUSE_NONE);
}

static void close_name(struct model *m, struct fl_str name, uint64_t until_ms)
{
    struct closing *old = closing_of(m, name);
    uint64_t order = m->next_order++;

    if (old == NULL) {
        for (old = m->closings; old->used; old++)
            ;
    } else if (old->until_ms >= until_ms) {
        return;
    }
    *old = (struct closing){true, text_of(name), until_ms, order};
}

static void end_dead_hold(struct model *m, struct claim *c)
{
    const struct session *s = c->session;
    enum fl_cause cause = s->cause;
    uint32_t delay_ms = cause == FL_CAUSE_EXPIRED ? s->delay_ms : 0;

    end_hold(m, c, cause, NULL);
    if (delay_ms != 0)
        close_name(m, str(&c->name), m->now_ms + delay_ms);
}

/* A hold that ends and the next that begins are always done; more than that is work. */
static bool may_step(struct model *m, uint32_t *n)
{
    if ((*n)++ < 2)
        return true;
    if (m->work_left == 0)
        return false;
    m->work_left--;
    return true;
}

static void end_dead_holders(struct model *m, struct fl_str name, uint32_t *n)
{
    uint64_t at = 0;
    struct claim *c;

    for (uint32_t i = 0; i < m->looks && (c = next_claim(m, name, false, at)) != NULL; i++) {
        at = c->order;
        if (!c->session->dead)
            continue;
        if (!may_step(m, n))
            return;
        end_dead_hold(m, c);
    }
}

/* False when the work did not suffice. */
static bool promote(struct model *m, struct fl_str name, uint32_t *n)
{
    struct claim *c;

    while ((c = next_claim(m, name, true, 0)) != NULL) {
        bool is_late = c->deadline_ms <= m->now_ms;

        if (!c->session->dead && !is_late &&
            (!admits(m, name, c->mode) || m->token >= FL_TOKEN_MAX))
            return true;
        if (!may_step(m, n))
            return false;
        if (c->session->dead)
            end_wait(m, c, FL_ANS_ENDED, c->session->cause);
        else if (is_late)
            end_wait(m, c, FL_ANS_TIMED_OUT, FL_CAUSE_TIMED_OUT);
        else
            grant(m, c);
    }
    return true;
}

/* What is left over is done in the next entries, and until then the name is closed. */
static void hand_on(struct model *m, struct fl_str borrowed)
{
    struct text copy = text_of(borrowed);
    struct fl_str name = str(&copy);
    uint32_t n = 0;

    end_dead_holders(m, name, &n);
    if (!promote(m, name, &n) && closing_of(m, name) == NULL)
        close_name(m, name, m->now_ms);
}

/* --- Commands --- */

static bool is_same(const struct fl_command *c, const struct text *name, enum fl_mode mode,
                    uint32_t limit)
{
    return is_named(name, c->name) && c->mode == mode && c->limit == limit;
}

static struct past *past_of(struct session *s, uint64_t request)
{
    for (size_t i = s->n_past; i-- > 0;) {
        if (s->past[i].request == request)
            return &s->past[i];
    }
    return NULL;
}

static void refuse(struct model *m, struct session *s, const struct fl_command *c,
                   enum fl_answer what)
{
    remember(s, (struct past){c->request_id, text_of(c->name), c->mode, c->limit, what, 0, false});
    answer_refused(m, c, what);
}

/* Another kind of lock than those who hold it or wait for it have, or waiting for oneself. */
static bool conflicts(const struct model *m, const struct session *s, const struct fl_command *c)
{
    EACH(other, ((struct model *)m)->claims)
    {
        if (!is_named(&other->name, c->name))
            continue;
        if (other->limit != c->limit)
            return true;
        if (!other->waits && other->session == s && other->mode != c->mode)
            return true;
    }
    return false;
}

static void acquire(struct model *m, struct session *s, const struct fl_command *c)
{
    struct claim *claim = m->claims;
    bool free_now;

    if (anyone_dead(m))
        hand_on(m, c->name);
    if (m->token >= FL_TOKEN_MAX) {
        refuse(m, s, c, FL_ANS_TOKENS_EXHAUSTED);
        return;
    }
    if (conflicts(m, s, c)) {
        refuse(m, s, c, FL_ANS_MODE_CONFLICT);
        return;
    }
    free_now = next_claim(m, c->name, true, 0) == NULL && admits(m, c->name, c->mode);
    if (!free_now && c->wait_ms == 0) {
        refuse(m, s, c, FL_ANS_HELD);
        return;
    }
    while (claim->used)
        claim++;
    *claim = (struct claim){.used = true,
                            .waits = true,
                            .session = s,
                            .request = c->request_id,
                            .asker = c->asker,
                            .since_ms = m->now_ms,
                            .deadline_ms = m->now_ms + c->wait_ms,
                            .name = text_of(c->name),
                            .mode = c->mode,
                            .limit = c->limit};
    if (free_now) {
        grant(m, claim);
    } else {
        claim->order = m->next_order++;
        tell(m, FL_EFF_ENQUEUE, claim, FL_CAUSE_NONE);
    }
    answer_claim(m, c, claim);
}

static void apply_acquire(struct model *m, struct session *s, const struct fl_command *c)
{
    struct claim *claim = claim_of(m, s, c->request_id);
    const struct past *past = past_of(s, c->request_id);

    if (claim != NULL && is_same(c, &claim->name, claim->mode, claim->limit)) {
        claim->asker = c->asker;
        answer_claim(m, c, claim);
    } else if (claim != NULL)
        answer(m, c, FL_ANS_REQUEST_REUSED, 0);
    else if (past == NULL)
        acquire(m, s, c);
    else if (past->name.len != 0 && !is_same(c, &past->name, past->mode, past->limit))
        answer(m, c, FL_ANS_REQUEST_REUSED, 0);
    else if (past->answer == FL_ANS_ENDED)
        answer(m, c, FL_ANS_ENDED, past->token);
    else
        answer_refused(m, c, past->answer);
}

static void apply_release(struct model *m, struct session *s, const struct fl_command *c,
                          enum fl_cause cause)
{
    fl_token current = 0;
    uint32_t n_holders = count(m, c->name, false, true), looked = 0;

    for (struct claim *h = next_claim(m, c->name, false, 0); h != NULL;
         h = next_claim(m, c->name, false, h->order)) {
        if (h->session->dead) {
            looked++;
            continue;
        }
        if (n_holders - looked++ <= m->looks) /* one of the newest */
            current = h->order;
        if (h->order == c->token && (s == NULL || h->session == s)) {
            end_hold(m, h, cause, c);
            answer(m, c, FL_ANS_OK, 0);
            hand_on(m, c->name);
            return;
        }
    }
    for (size_t i = 0; s != NULL && i < s->n_past; i++) {
        const struct past *past = &s->past[i];

        if (past->released && past->token == c->token && is_named(&past->name, c->name)) {
            answer(m, c, FL_ANS_OK, 0);
            return;
        }
    }
    answer(m, c, FL_ANS_STALE_TOKEN, current);
}

static void apply_cancel(struct model *m, struct session *s, const struct fl_command *c)
{
    struct claim *claim = claim_of(m, s, c->request_id);
    struct text name;

    if (claim == NULL) {
        if (past_of(s, c->request_id) == NULL)
            remember(s, (struct past){.request = c->request_id, .answer = FL_ANS_CANCELLED});
        answer(m, c, FL_ANS_NOT_WAITING, 0);
        return;
    }
    if (c->asker != 0 && c->asker != claim->asker) {
        answer(m, c, FL_ANS_NOT_WAITING, 0);
        return;
    }
    if (!claim->waits && !c->abandon) {
        answer_claim(m, c, claim);
        return;
    }
    name = claim->name;
    if (claim->waits)
        end_wait(m, claim, FL_ANS_CANCELLED, FL_CAUSE_CANCELLED);
    else
        end_hold(m, claim, FL_CAUSE_ABANDONED, c);
    answer(m, c, FL_ANS_CANCELLED, 0);
    hand_on(m, str(&name));
}

static void apply_open(struct model *m, struct session *s, const struct fl_command *c)
{
    if (s != NULL) {
        bool same = s->ttl_ms == c->ttl_ms && s->delay_ms == c->lock_delay_ms &&
                    is_named(&s->client, c->client);

        answer(m, c, same ? FL_ANS_OK : FL_ANS_SESSION_EXISTS, 0);
        return;
    }
    for (s = m->sessions; s->used; s++)
        ;
    *s = (struct session){.used = true,
                          .id = c->session,
                          .client = text_of(c->client),
                          .ttl_ms = c->ttl_ms,
                          .delay_ms = c->lock_delay_ms,
                          .opened_ms = m->now_ms};
    emit(m, (struct fl_effect){.type = FL_EFF_SESSION_OPEN, .session = c->session});
    answer(m, c, FL_ANS_OK, 0);
}

/* One step: the name of the oldest claim of whoever died first, holds before waits. */
static void reap(struct model *m)
{
    while (m->work_left > 0 && anyone_dead(m)) {
        struct session *first = NULL;
        struct claim *claim;

        EACH(s, m->sessions)
        if (s->dead && (first == NULL || s->died < first->died))
            first = s;
        m->work_left--;
        claim = next_of_session(m, first, false, 0);
        if (claim != NULL) {
            end_dead_hold(m, claim);
        } else {
            claim = next_of_session(m, first, true, 0);
            end_wait(m, claim, FL_ANS_ENDED, first->cause);
        }
        hand_on(m, str(&claim->name));
    }
}

static void end_session(struct model *m, struct session *s, const struct fl_command *c,
                        enum fl_cause cause)
{
    emit(m, (struct fl_effect){.type = FL_EFF_SESSION_END,
                               .cause = cause,
                               .session = s->id,
                               .actor = c->actor,
                               .reason = c->reason});
    answer(m, c, FL_ANS_OK, 0);
    s->dead = true;
    s->cause = cause;
    s->died = m->deaths++;
    forget_if_done(m, s);
    reap(m);
}

static void apply_in_session(struct model *m, struct session *s, const struct fl_command *c)
{
    switch (c->type) {
    case FL_CMD_ACQUIRE:
        apply_acquire(m, s, c);
        break;
    case FL_CMD_RELEASE:
        apply_release(m, s, c, FL_CAUSE_RELEASED);
        break;
    case FL_CMD_CANCEL:
        apply_cancel(m, s, c);
        break;
    case FL_CMD_CLOSE_SESSION:
        end_session(m, s, c, FL_CAUSE_CLOSED);
        break;
    case FL_CMD_EXPIRE_SESSION:
        end_session(m, s, c, FL_CAUSE_EXPIRED);
        break;
    case FL_CMD_END_SESSION:
        end_session(m, s, c, FL_CAUSE_ENDED);
        break;
    default:
        s->silence_ms = c->silence_ms;
        answer(m, c, FL_ANS_OK, 0);
        break;
    }
}

static void apply(struct model *m, uint64_t term, const struct fl_command *c)
{
    struct session *s = session_of(m, c->session);

    if (c->type == FL_CMD_FORCE_RELEASE) {
        apply_release(m, NULL, c, FL_CAUSE_FORCED);
    } else if (c->type == FL_CMD_RAISE_TOKEN) {
        m->token = c->token > m->token ? c->token : m->token;
        answer(m, c, FL_ANS_OK, 0);
    } else if (c->type == FL_CMD_OPEN_SESSION) {
        apply_open(m, s, c);
    } else if (c->type == FL_CMD_EXPIRE_SESSION && c->term != term) {
        answer(m, c, FL_ANS_TERM_OVER, 0);
    } else if (s == NULL) {
        answer(m, c, FL_ANS_SESSION_NOT_FOUND, 0);
    } else {
        apply_in_session(m, s, c);
    }
}

/* --- Time --- */

/* What is due first: a wait or a closing; equal times in the order of arrival. */
static uint64_t first_due(struct model *m, struct claim **ret_wait, struct closing **ret_closing)
{
    uint64_t time = UINT64_MAX, order = UINT64_MAX;

    *ret_wait = NULL;
    *ret_closing = NULL;
    EACH(c, m->claims)
    if (c->waits && (c->deadline_ms < time || (c->deadline_ms == time && c->order < order))) {
        time = c->deadline_ms;
        order = c->order;
        *ret_wait = c;
    }
    EACH(c, m->closings)
    if (c->until_ms < time || (c->until_ms == time && c->order < order)) {
        time = c->until_ms;
        order = c->order;
        *ret_wait = NULL;
        *ret_closing = c;
    }
    return time;
}

static void do_due(struct model *m)
{
    struct claim *wait;
    struct closing *closing;

    while (m->work_left > 0 && first_due(m, &wait, &closing) <= m->now_ms) {
        struct text name = wait != NULL ? wait->name : closing->name;

        m->work_left--;
        if (wait == NULL)
            closing->used = false;
        else if (wait->session->dead)
            end_wait(m, wait, FL_ANS_ENDED, wait->session->cause);
        else
            end_wait(m, wait, FL_ANS_TIMED_OUT, FL_CAUSE_TIMED_OUT);
        hand_on(m, str(&name));
    }
}

/* --- From outside --- */

struct model *model_new(uint32_t work, uint32_t looks)
{
    struct model *m = fl_xcalloc(1, sizeof *m);

    m->work = work;
    m->looks = looks;
    m->next_order = 1;
    return m;
}

void model_free(struct model *m)
{
    free(m);
}

fl_token model_token(const struct model *m)
{
    return m->token;
}

void model_apply(struct model *m, uint64_t index, uint64_t term, const struct fl_batch *batch,
                 fl_machine_sink sink, void *ctx)
{
    m->sink = sink;
    m->ctx = ctx;
    m->index = index;
    m->sub = 0;
    m->command = -1;
    m->work_left = m->work;
    if (batch->now_ms > m->now_ms)
        m->now_ms = batch->now_ms;
    do_due(m);
    reap(m);
    for (size_t i = 0; i < batch->n; i++) {
        m->command = (int32_t)i;
        apply(m, term, &batch->commands[i]);
    }
}

static void describe_claims(const struct model *m, struct fl_buf *text, struct fl_str name,
                            const struct session *session, bool waits)
{
    uint32_t position = 0;
    const struct claim *c = NULL;
    uint64_t at = 0;

    while ((c = session != NULL ? next_of_session(m, session, waits, at)
                                : next_claim(m, name, waits, at)) != NULL) {
        struct fl_request_info info = {c->session->id,
                                       str(&c->session->client),
                                       str(&c->name),
                                       c->request,
                                       c->mode,
                                       waits ? 0 : c->order,
                                       c->since_ms,
                                       waits ? c->deadline_ms : 0,
                                       0};

        at = c->order;
        if (c->session->dead)
            continue;
        if (waits && session == NULL)
            info.position = position++;
        trace_request(text, &info);
    }
}

static void describe_session(const struct model *m, struct fl_buf *text, const struct session *s)
{
    struct fl_session_info info = {s->id,        str(&s->client), s->ttl_ms, s->delay_ms,
                                   s->opened_ms, s->silence_ms,   0,         0};

    EACH(c, ((struct model *)m)->claims)
    if (c->session == s)
        *(c->waits ? &info.waits : &info.holds) += 1;
    trace_session(text, &info);
    describe_claims(m, text, FL_STR(""), s, false);
    describe_claims(m, text, FL_STR(""), s, true);
}

static void describe_name(const struct model *m, struct fl_buf *text, struct fl_str name)
{
    const struct claim *holder = oldest_live_holder(m, name, UINT32_MAX);
    const struct closing *closing = closing_of(m, name);
    struct fl_name_info info = {.name = name,
                                .holders = count(m, name, false, false),
                                .waiters = count(m, name, true, false)};

    if (holder != NULL) {
        info.mode = holder->mode;
        info.limit = holder->limit;
    }
    if (closing != NULL && closing->until_ms > m->now_ms)
        info.closed_until_ms = closing->until_ms;
    if (info.holders + info.waiters == 0 && info.closed_until_ms == 0)
        return;
    trace_name(text, &info);
    describe_claims(m, text, name, NULL, false);
    describe_claims(m, text, name, NULL, true);
    trace_name(text, &info);
}

/* The least name behind `after`, of any claim or closing. */
static const struct text *next_name(const struct model *m, struct fl_str after)
{
    const struct text *best = NULL;

    EACH(c, ((struct model *)m)->claims)
    if (fl_str_compare(str(&c->name), after) > 0 &&
        (best == NULL || fl_str_compare(str(&c->name), str(best)) < 0))
        best = &c->name;
    EACH(c, ((struct model *)m)->closings)
    if (fl_str_compare(str(&c->name), after) > 0 &&
        (best == NULL || fl_str_compare(str(&c->name), str(best)) < 0))
        best = &c->name;
    return best;
}

void model_describe(const struct model *m, struct fl_buf *text)
{
    struct claim *wait;
    struct closing *closing;
    uint64_t due = first_due((struct model *)m, &wait, &closing);
    struct fl_session_id last = {0, 0};
    const struct session *next;

    trace_totals(text, m->token, due, anyone_dead(m) || due <= m->now_ms, m->grants);
    do {
        next = NULL;
        EACH(s, ((struct model *)m)->sessions)
        if (!s->dead && s->id.low > last.low && (next == NULL || s->id.low < next->id.low))
            next = s;
        if (next != NULL) {
            last = next->id;
            describe_session(m, text, next);
        }
    } while (next != NULL);
    for (const struct text *name = next_name(m, FL_STR("")); name != NULL;
         name = next_name(m, str(name)))
        describe_name(m, text, str(name));
}
