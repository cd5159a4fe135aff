/* The invariants I1 to I7 of core/machine.h, walked. For tests: everything is looked at. */
#include "core/internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

struct checker {
    const struct fl_machine *m;
    char *why;
    size_t why_size;
    int result;
    uint64_t n_holds, n_waits, n_names, n_due;
    uint64_t n_many; /* shared and counted holds */
};

__attribute__((format(printf, 2, 3))) static void broken(struct checker *c, const char *format, ...)
{
    va_list args;

    if (c->result != FL_OK)
        return;
    va_start(args, format);
    vsnprintf(c->why, c->why_size, format, args);
    va_end(args);
    c->result = FL_E_INTERNAL;
}

/* What a ring of claims must be: right owner, right order, and found by its request. */
static uint32_t check_ring(struct checker *c, enum ring ring, fl_handle head, uint32_t owner,
                           bool waits)
{
    uint64_t last = 0;
    uint32_t n = 0;

    for (fl_handle at = head; at != 0; at = fl_ring_next(c->m, ring, head, at)) {
        const struct claim *claim = fl_claim_at(c->m, at);
        uint64_t order = claim->is_wait ? claim->due->seq + 1 : claim->token;

        if (claim->is_wait != waits)
            broken(c, "I4: claim %u is in the wrong list", at);
        if ((ring == IN_LOCK ? claim->lock : claim->session) != owner)
            broken(c, "I4: claim %u is in the list of another", at);
        if (order <= last)
            broken(c, "I3: claim %u is out of order", at);
        if (!waits && claim->token > c->m->token)
            broken(c, "I3: token %llu is above the counter", (unsigned long long)claim->token);
        if (fl_claim_find(c->m, fl_claim_session(c->m, claim), claim->request_id) != at)
            broken(c, "I6: claim %u is not found by its request", at);
        if (waits && (claim->due->owner != at || claim->due->is_closing))
            broken(c, "I6: claim %u has another's deadline", at);
        last = order;
        n++;
    }
    return n;
}

static void check_holders(struct checker *c, const struct lock *lock, const struct extra *extra,
                          uint32_t n)
{
    enum fl_mode mode = fl_lock_mode(c->m, lock);

    for (fl_handle at = lock->holders; at != 0;
         at = fl_ring_next(c->m, IN_LOCK, lock->holders, at)) {
        const struct claim *claim = fl_claim_at(c->m, at);

        if (claim->mode != (unsigned)mode)
            broken(c, "I1: holders of different modes");
        if (mode == FL_MODE_EXCLUSIVE)
            continue;
        c->n_many++;
        if (fl_claim_by_token(c->m, claim->token) != at)
            broken(c, "I6: claim %u is not found by its token", at);
    }
    if (mode == FL_MODE_EXCLUSIVE && n > 1)
        broken(c, "I1: %u exclusive holders", n);
    if (mode == FL_MODE_COUNTED && n > extra->limit)
        broken(c, "I1: %u holders of %u permits", n, extra->limit);
    if (n != (extra != NULL ? extra->n_holders : n))
        broken(c, "I4: %u holders, counted as %u", n, extra->n_holders);
    if (extra == NULL && n > 1)
        broken(c, "I1: %u holders of a plain name", n);
}

static bool has_dead_claim(const struct fl_machine *m, fl_handle head)
{
    for (fl_handle at = head; at != 0; at = fl_ring_next(m, IN_LOCK, head, at)) {
        if (fl_claim_is_dead(m, fl_claim_at(m, at)))
            return true;
    }
    return false;
}

static void check_waiters(struct checker *c, const struct lock *lock, const struct extra *extra,
                          uint32_t n)
{
    const struct claim *first;

    if (n != extra->n_waiters)
        broken(c, "I4: %u waiters, counted as %u", n, extra->n_waiters);
    if (n == 0 || has_dead_claim(c->m, lock->holders))
        return; /* the dead are handed on as the work allows */
    first = fl_claim_at(c->m, extra->waiters);
    if (!fl_claim_is_dead(c->m, first) && first->due->node.key > c->m->now_ms &&
        c->m->token < FL_TOKEN_MAX && fl_lock_admits(c->m, lock, (enum fl_mode)first->mode))
        broken(c, "I2: the first waiter could be granted");
}

static void check_name(struct checker *c, fl_handle handle)
{
    const struct lock *lock = fl_lock_at(c->m, handle);
    const struct extra *extra = fl_lock_extra(c->m, lock);
    uint32_t n_holders = check_ring(c, IN_LOCK, lock->holders, handle, false), n_waiters = 0;

    if (fl_name_find(c->m, fl_lock_name(c->m, lock)) != handle)
        broken(c, "I6: a name is not found by itself");
    check_holders(c, lock, extra, n_holders);
    if (extra != NULL) {
        n_waiters = check_ring(c, IN_LOCK, extra->waiters, handle, true);
        check_waiters(c, lock, extra, n_waiters);
        c->n_due += extra->closing != NULL;
        if (extra->closing != NULL &&
            (extra->closing->owner != handle || !extra->closing->is_closing))
            broken(c, "I6: a closed name has another's deadline");
    }
    if (n_holders == 0 && n_waiters == 0 && (extra == NULL || extra->closing == NULL))
        broken(c, "I5: an idle name is kept");
    c->n_holds += n_holders;
    c->n_waits += n_waiters;
    c->n_due += n_waiters;
    c->n_names++;
}

static void check_names(struct checker *c)
{
    struct fl_str last = {NULL, 0};
    const char *fault = fl_order__fault(c->m);

    if (fault != NULL)
        broken(c, "I6: %s", fault);

    for (fl_handle at = fl_order_seek(c->m, last, false); at != 0 && c->result == FL_OK;
         at = fl_order_next(c->m, at)) {
        struct fl_str name = fl_lock_name(c->m, fl_lock_at(c->m, at));
        fl_handle behind = fl_order_next(c->m, at);

        if (fl_str_compare(name, last) <= 0)
            broken(c, "I6: names are out of order");
        if (fl_order_seek(c->m, name, false) != at || fl_order_seek(c->m, name, true) != behind)
            broken(c, "I6: a name is not where it is sought");
        check_name(c, at);
        last = name;
    }
    if (c->n_names != fl_handle_set_len(&c->m->by_name))
        broken(c, "I6: %llu names in order, %zu by hash", (unsigned long long)c->n_names,
               fl_handle_set_len(&c->m->by_name));
}

static void check_sessions(struct checker *c)
{
    const struct fl_machine *m = c->m;
    uint64_t n_holds = 0, n_waits = 0, n_live = 0;

    for (uint32_t i = 0; i < m->n_places; i++) {
        const struct session *session = m->sessions[i];

        if (session == NULL)
            continue;
        if (session->n_holds != check_ring(c, IN_SESSION, session->holds, i, false) ||
            session->n_waits != check_ring(c, IN_SESSION, session->waits, i, true))
            broken(c, "I4: a session's claims are miscounted");
        if (session->is_dead ? session->holds == 0 && session->waits == 0
                             : fl_session_find(m, session->id) != session)
            broken(c, "I7: a session is dead and done, or live and not found");
        n_holds += session->n_holds;
        n_waits += session->n_waits;
        n_live += !session->is_dead;
    }
    if (n_live != m->n_sessions || n_live != m->by_session.len)
        broken(c, "I6: sessions are miscounted");
    if (n_holds != m->n_holds || n_holds != c->n_holds || n_waits != m->n_waits ||
        n_waits != c->n_waits)
        broken(c, "I4: holds or waits are miscounted");
    if (n_holds + n_waits != fl_handle_set_len(&m->by_request))
        broken(c, "I6: requests are miscounted");
    if (c->n_many != fl_handle_set_len(&m->by_token))
        broken(c, "I6: tokens are miscounted");
    if (c->n_due != m->due.len)
        broken(c, "I6: deadlines are miscounted");
}

int fl_machine_check(const struct fl_machine *m, char *why, size_t why_size)
{
    struct checker c = {.m = m, .why = why, .why_size = why_size};

    check_names(&c);
    check_sessions(&c);
    return c.result;
}
