/* Who gets a name. First come, first served: nobody overtakes a waiter that does not go together
 * with him. */
#include "core/internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/bugs.h"

enum fl_mode fl_lock_mode(const struct fl_machine *m, const struct lock *lock)
{
    return lock->holders != 0 ? (enum fl_mode)fl_claim_at(m, lock->holders)->mode : FL_MODE_NONE;
}

bool fl_lock_admits(const struct fl_machine *m, const struct lock *lock, enum fl_mode mode)
{
    const struct extra *extra = fl_lock_extra(m, lock);

    if (extra != NULL && extra->closing != NULL)
        return false;
    if (lock->holders == 0)
        return true;
    if (mode != fl_lock_mode(m, lock))
        return false;
    switch (mode) {
    case FL_MODE_SHARED:
        return true;
    case FL_MODE_COUNTED:
        return extra->n_holders < extra->limit + (FL_BUG(CORE_LIMIT_OFF_BY_ONE) ? 1 : 0);
    case FL_MODE_EXCLUSIVE:
    case FL_MODE_NONE:
        break;
    }
    return false;
}

/* A hand-on does this much whatever the entry has done already: one hold ends, the next begins. */
#define STEPS_FREE 2

/* Whether one more hold or wait may be ended, or granted, in this entry. */
static bool may_step(struct fl_machine *m, uint32_t *n_steps)
{
    if ((*n_steps)++ < STEPS_FREE)
        return true;
    if (m->work_left == 0 && !FL_BUG(CORE_HAND_ON_UNBOUNDED))
        return false;
    if (m->work_left != 0)
        m->work_left--;
    return true;
}

static enum fl_cause cause_of_death(const struct fl_machine *m, const struct claim *claim)
{
    return (enum fl_cause)fl_claim_session(m, claim)->cause;
}

void fl_lock_end_dead(struct fl_machine *m, fl_handle claim_handle)
{
    const struct claim *claim = fl_claim_at(m, claim_handle);
    const struct session *session = fl_claim_session(m, claim);
    enum fl_cause cause = cause_of_death(m, claim);
    bool is_delayed = cause == FL_CAUSE_EXPIRED || FL_BUG(CORE_LOCK_DELAY_AFTER_CLOSE);
    uint32_t delay_ms = is_delayed ? session->lock_delay_ms : 0;
    fl_handle lock = claim->lock;

    fl_machine_emit_claim(m, FL_EFF_HOLD_END, claim_handle, cause);
    fl_claim_end(m, claim_handle, FL_ANS_ENDED, cause);
    if (delay_ms != 0)
        fl_lock_close(m, lock, m->now_ms + delay_ms, m->next_seq++);
}

/* Among the oldest holders only: a name with fifty thousand readers is not walked by each release.
 * Whoever is behind them ends when its own session is reaped. */
static void end_dead_holders(struct fl_machine *m, const struct lock *lock, uint32_t *n_steps)
{
    fl_handle at = fl_list_is_empty(&m->dead) ? 0 : lock->holders;

    for (uint32_t looks = m->looks; at != 0 && looks != 0; looks--) {
        fl_handle next = fl_ring_next(m, IN_LOCK, lock->holders, at);

        if (fl_claim_is_dead(m, fl_claim_at(m, at))) {
            if (!may_step(m, n_steps))
                return;
            fl_lock_end_dead(m, at);
        }
        at = next;
    }
}

/* Why the first waiter must not be granted any more, or NONE. */
static enum fl_cause fault_of_waiter(const struct fl_machine *m, const struct claim *claim)
{
    if (fl_claim_is_dead(m, claim) && !FL_BUG(CORE_GRANTS_DEAD_WAITER))
        return cause_of_death(m, claim);
    if (claim->due->node.key <= m->now_ms && !FL_BUG(CORE_GRANTS_LATE_WAITER))
        return FL_CAUSE_TIMED_OUT;
    return FL_CAUSE_NONE;
}

/* False when the entry's work did not suffice. */
static bool promote_waiters(struct fl_machine *m, const struct lock *lock, uint32_t *n_steps)
{
    const struct extra *extra;

    while ((extra = fl_lock_extra(m, lock)) != NULL && extra->waiters != 0) {
        fl_handle first = extra->waiters;
        const struct claim *claim = fl_claim_at(m, first);
        enum fl_cause fault = fault_of_waiter(m, claim);
        bool is_next =
            fl_lock_admits(m, lock, (enum fl_mode)claim->mode) && m->token < FL_TOKEN_MAX;

        if (fault == FL_CAUSE_NONE && !is_next)
            break;
        if (!may_step(m, n_steps))
            return false;
        if (fault != FL_CAUSE_NONE) {
            fl_machine_emit_claim(m, FL_EFF_WAIT_END, first, fault);
            fl_claim_end(m, first, FL_ANS_TIMED_OUT, fault);
        } else {
            uint64_t since_ms = claim->since_ms;

            fl_claim_promote(m, first);
            fl_machine_emit_promoted(m, first, m->now_ms > since_ms ? m->now_ms - since_ms : 0);
        }
    }
    return true;
}

/* What is left undone is due at once: the name stays closed until then, so that nobody passes those
 * who wait, and the next entries go on with it before they do anything else. */
void fl_lock_hand_on(struct fl_machine *m, fl_handle handle)
{
    const struct lock *lock = fl_lock_at(m, handle);
    struct extra *extra;
    uint32_t n_steps = 0;

    end_dead_holders(m, lock, &n_steps);
    if (!promote_waiters(m, lock, &n_steps) && fl_lock_extra(m, lock)->closing == NULL &&
        !FL_BUG(CORE_HAND_ON_STOPS))
        fl_lock_close(m, handle, m->now_ms, m->next_seq++);
    extra = fl_lock_extra(m, lock);
    if (extra != NULL && lock->holders == 0 && extra->waiters == 0)
        extra->limit = 0; /* a closed name is of no kind */
    fl_name_drop_if_idle(m, handle);
}

void fl_lock_close(struct fl_machine *m, fl_handle handle, uint64_t until_ms, uint64_t seq)
{
    struct extra *extra = fl_name_need_extra(m, handle);

    if (extra->closing != NULL) {
        if (extra->closing->node.key >= until_ms)
            return;
        fl_due_free(m, extra->closing);
    }
    extra->closing = fl_due_new(m, handle, true, until_ms, seq);
}

void fl_lock_open(struct fl_machine *m, fl_handle handle)
{
    struct extra *extra = fl_lock_extra(m, fl_lock_at(m, handle));

    fl_due_free(m, extra->closing);
    extra->closing = NULL;
    fl_lock_hand_on(m, handle);
}
