#include "judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void judge_init(struct judge *j, struct timeline *time)
{
    memset(j, 0, sizeof *j);
    j->time = time;
}

void judge_deinit(struct judge *j)
{
    for (size_t i = 0; i < JUDGE_SESSIONS_MAX; i++)
        free(j->sessions[i]);
}

void judge_committed_batch(struct judge *j, uint64_t now_ms)
{
    if (now_ms < j->log_ms)
        timeline_fail(j->time, "L14: log time goes back");
    j->log_ms = now_ms;
}

static struct judge_session *session_of(struct judge *j, uint64_t number)
{
    struct judge_session **session = &j->sessions[number % JUDGE_SESSIONS_MAX];

    if (*session == NULL)
        *session = fl_xcalloc(1, sizeof **session);
    return *session;
}

void judge_session(struct judge *j, uint32_t number, uint32_t ttl_ms)
{
    session_of(j, number)->ttl_ms = ttl_ms;
}

uint32_t judge_ttl_ms(const struct judge *j, uint32_t number)
{
    const struct judge_session *session = j->sessions[number % JUDGE_SESSIONS_MAX];

    return session != NULL ? session->ttl_ms : 0;
}

static struct judge_request *request_of(struct judge *j, uint64_t session, uint64_t request)
{
    return &session_of(j, session)->requests[request % JUDGE_REQUESTS_MAX];
}

static struct judge_name *name_of(struct judge *j, struct fl_str name)
{
    return &j->names[(unsigned)(name.data[1] - '0') % JUDGE_NAMES_MAX];
}

static bool may_share(enum fl_mode a, enum fl_mode b)
{
    return a == b && a != FL_MODE_EXCLUSIVE;
}

/* What a clock beyond the bound breaks is counted, and left to the fence. */
__attribute__((format(printf, 2, 3))) static void lease_broken(struct judge *j, const char *format,
                                                               ...)
{
    char text[128];
    va_list args;

    j->overlaps++;
    if (j->clocks_are_off)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    timeline_fail(j->time, "%s", text);
}

/* --- The log's side --- */

static void on_grant(struct judge *j, const struct fl_effect *effect)
{
    struct judge_name *name = name_of(j, effect->name);
    struct judge_request *request = request_of(j, effect->session.low, effect->request_id);
    const struct judge_session *session = session_of(j, effect->session.low);

    j->grants++;
    if (effect->token <= name->last_token)
        timeline_fail(j->time, "L1: token %llu after %llu", (unsigned long long)effect->token,
                      (unsigned long long)name->last_token);
    name->last_token = effect->token;
    for (size_t i = 0; i < name->n_holders; i++) {
        if (!may_share(name->holders[i].mode, effect->mode))
            timeline_fail(j->time, "L3: granted beside a holder");
    }
    if (effect->mode == FL_MODE_COUNTED && name->n_holders >= effect->limit)
        timeline_fail(j->time, "L3: one permit too many");
    if (request->token != 0)
        timeline_fail(j->time, "L10: a request is granted twice");
    if (request->is_refused)
        timeline_fail(j->time, "L11: granted after it was told that it is not");
    if (session->is_ended)
        timeline_fail(j->time, "L8: granted to a session that has ended");
    request->token = effect->token;
    if (name->n_holders < JUDGE_HOLDERS_MAX)
        name->holders[name->n_holders++] =
            (struct judge_hold){(uint32_t)effect->session.low, effect->request_id, effect->token,
                                effect->mode, effect->limit};
}

static void remove_hold(struct judge_hold *holds, size_t *n, uint64_t session, uint64_t request)
{
    for (size_t i = 0; i < *n; i++) {
        if (holds[i].session == session && holds[i].request == request) {
            holds[i] = holds[--*n];
            return;
        }
    }
}

static void on_expired(struct judge *j, struct judge_session *session)
{
    uint64_t now = j->time->now_us, ttl_us = (uint64_t)session->ttl_ms * MS;
    uint64_t silent = now - session->beat_us;

    j->expiries++;
    session->expired_us = now;
    if (session->believed_until_us > now)
        lease_broken(j, "T1: expired while its client believes for %llu us",
                     (unsigned long long)(session->believed_until_us - now));
    if (silent < ttl_us / 2 - 300 * MS && session->beating_since_us + 2 * ttl_us < now)
        timeline_fail(j->time, "V4, T9: expired a session that beats");
    if (session->beat_us > j->disturbed_until_us &&
        silent > ttl_us + ttl_us * RHO_PPM / 1000000 + ttl_us * RHO_PPM / 1000000 + 600 * MS)
        timeline_fail(j->time, "V2: expired only after %llu ms of silence",
                      (unsigned long long)(silent / MS));
}

static void on_session_end(struct judge *j, const struct fl_effect *effect)
{
    struct judge_session *session = session_of(j, effect->session.low);

    session->is_ended = true;
    if (effect->cause == FL_CAUSE_EXPIRED)
        on_expired(j, session);
}

void judge_effect(struct judge *j, const struct fl_effect *effect)
{
    struct judge_name *name;

    switch (effect->type) {
    case FL_EFF_GRANT:
        on_grant(j, effect);
        break;
    case FL_EFF_HOLD_END:
        name = name_of(j, effect->name);
        remove_hold(name->holders, &name->n_holders, effect->session.low, effect->request_id);
        break;
    case FL_EFF_SESSION_OPEN:
        session_of(j, effect->session.low)->is_open = true;
        session_of(j, effect->session.low)->beat_us = j->time->now_us;
        session_of(j, effect->session.low)->beating_since_us = j->time->now_us;
        break;
    case FL_EFF_SESSION_END:
        on_session_end(j, effect);
        break;
    default:
        break;
    }
}

/* --- The clients' side --- */

void judge_asked(struct judge *j, uint32_t session, uint64_t request, uint32_t wait_ms)
{
    struct judge_request *r = request_of(j, session, request);

    r->asked_us = j->time->now_us;
    r->wait_ms = wait_ms;
}

void judge_granted(struct judge *j, uint32_t session, uint64_t request, fl_token token,
                   uint64_t index)
{
    struct judge_request *r = request_of(j, session, request);

    if (r->token != token)
        timeline_fail(j->time, "L10: told token %llu, the log says %llu", (unsigned long long)token,
                      (unsigned long long)r->token);
    if (r->told_token != 0 && r->told_token != token)
        timeline_fail(j->time, "L10: told two tokens");
    r->told_token = token;
    r->told_index = index;
}

void judge_refused(struct judge *j, uint32_t session, uint64_t request, enum fl_answer answer)
{
    struct judge_request *r = request_of(j, session, request);
    uint64_t waited = j->time->now_us - r->asked_us, wait_us = r->wait_ms * MS;
    uint64_t slack = wait_us * RHO_PPM / 1000000 + MS;

    r->is_refused = true;
    /* A grant that was cancelled was given back at once: only a later one would be wrong. */
    if (r->token != 0 && answer != FL_ANS_CANCELLED)
        timeline_fail(j->time, "L11: told that it is not granted, but it was");
    if (answer != FL_ANS_TIMED_OUT || j->clocks_are_off)
        return;
    if (waited + slack < wait_us)
        timeline_fail(j->time, "L14: timed out after %llu ms of %llu",
                      (unsigned long long)(waited / MS), (unsigned long long)r->wait_ms);
    if (r->asked_us > j->disturbed_until_us && waited > wait_us + slack + j->late_us)
        timeline_fail(j->time, "L14: timed out only after %llu ms of %llu",
                      (unsigned long long)(waited / MS), (unsigned long long)r->wait_ms);
}

void judge_beat(struct judge *j, uint32_t number)
{
    struct judge_session *session = session_of(j, number);
    uint64_t now = j->time->now_us;

    if (now - session->beat_us > (uint64_t)session->ttl_ms * MS / 2 - 300 * MS)
        session->beating_since_us = now;
    session->beat_us = now;
}

/* A believer whose lease ran out stays off: its client has given up. */
static bool still_believes(struct judge *j, const struct judge_hold *hold)
{
    return session_of(j, hold->session)->believed_until_us > j->time->now_us;
}

static void check_believers(struct judge *j, struct judge_name *name)
{
    size_t live = 0, exclusive = 0;

    for (size_t i = 0; i < name->n_believers; i++) {
        if (!still_believes(j, &name->believers[i]))
            continue;
        live++;
        exclusive += name->believers[i].mode == FL_MODE_EXCLUSIVE;
    }
    if (exclusive > 0 && live > 1)
        lease_broken(j, "T1: two clients believe in one lock");
}

void judge_believes(struct judge *j, uint32_t number, uint64_t until_us)
{
    struct judge_session *session = session_of(j, number);

    if (session->expired_us != 0 && until_us > session->expired_us)
        lease_broken(j, "T1: comforted beyond its expiry");
    if (until_us > session->believed_until_us)
        session->believed_until_us = until_us;
    for (size_t i = 0; i < JUDGE_NAMES_MAX; i++)
        check_believers(j, &j->names[i]);
}

void judge_lock_on(struct judge *j, unsigned number, struct judge_hold hold)
{
    struct judge_name *name = &j->names[number % JUDGE_NAMES_MAX];

    for (size_t i = 0; i < name->n_believers;) {
        if (still_believes(j, &name->believers[i]))
            i++;
        else
            name->believers[i] = name->believers[--name->n_believers];
    }
    if (name->n_believers < JUDGE_HOLDERS_MAX)
        name->believers[name->n_believers++] = hold;
    check_believers(j, name);
}

void judge_lock_off(struct judge *j, unsigned number, uint32_t session, uint64_t request)
{
    struct judge_name *name = &j->names[number % JUDGE_NAMES_MAX];

    remove_hold(name->believers, &name->n_believers, session, request);
}
