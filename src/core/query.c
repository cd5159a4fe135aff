#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/bugs.h"

static void fill_session(const struct session *session, struct fl_session_info *info)
{
    *info = (struct fl_session_info){
        .id = session->id,
        .client = {session->client, session->client_len},
        .ttl_ms = session->ttl_ms,
        .lock_delay_ms = session->lock_delay_ms,
        .opened_ms = session->opened_ms,
        .silence_ms = session->silence_ms,
        .holds = session->n_holds,
        .waits = session->n_waits,
    };
}

bool fl_machine_session(const struct fl_machine *m, struct fl_session_id id,
                        struct fl_session_info *ret_info)
{
    const struct session *session = fl_session_find(m, id);

    if (session == NULL)
        return false;
    fill_session(session, ret_info);
    return true;
}

bool fl_machine_has_request(const struct fl_machine *m, struct fl_session_id id,
                            uint64_t request_id)
{
    const struct session *session = fl_session_find(m, id);

    return session != NULL && fl_claim_find(m, session, request_id) != 0;
}

static int compare_ids(const void *a, const void *b)
{
    const struct session *x = *(struct session *const *)a, *y = *(struct session *const *)b;

    if (x->id.high != y->id.high)
        return x->id.high < y->id.high ? -1 : 1;
    return (x->id.low > y->id.low) - (x->id.low < y->id.low);
}

struct session **fl_sessions_sorted(const struct fl_machine *m, size_t *ret_n)
{
    struct session **list = fl_xalloc((size_t)m->n_places * sizeof *list);
    size_t n = 0;

    for (uint32_t i = 0; i < m->n_places; i++) {
        if (m->sessions[i] != NULL && !m->sessions[i]->is_dead)
            list[n++] = m->sessions[i];
    }
    if (n != 0)
        qsort(list, n, sizeof *list, compare_ids);
    *ret_n = n;
    return list;
}

void fl_machine_each_session(const struct fl_machine *m, fl_session_visitor visit, void *ctx)
{
    size_t n;
    struct session **list = fl_sessions_sorted(m, &n);

    for (size_t i = 0; i < n; i++) {
        struct fl_session_info info;

        fill_session(list[i], &info);
        visit(ctx, &info);
    }
    free(list);
}

static void visit_claim(const struct fl_machine *m, fl_handle handle, uint32_t position,
                        fl_request_visitor visit, void *ctx)
{
    const struct claim *claim = fl_claim_at(m, handle);
    const struct session *session = fl_claim_session(m, claim);
    struct fl_request_info info = {
        .session = session->id,
        .client = {session->client, session->client_len},
        .name = fl_lock_name(m, fl_lock_at(m, claim->lock)),
        .request_id = claim->request_id,
        .mode = (enum fl_mode)claim->mode,
        .token = claim->is_wait ? 0 : claim->token,
        .since_ms = claim->since_ms,
        .deadline_ms = claim->is_wait ? claim->due->node.key : 0,
        .position = position,
    };
    const struct extra *extra = fl_lock_extra(m, fl_lock_at(m, claim->lock));

    if (claim->mode == FL_MODE_COUNTED)
        info.limit = extra->limit;

    visit(ctx, &info);
}

void fl_machine_each_request(const struct fl_machine *m, struct fl_session_id id,
                             fl_request_visitor visit, void *ctx)
{
    const struct session *session = fl_session_find(m, id);

    if (session == NULL)
        return;
    for (fl_handle at = session->holds; at != 0;
         at = fl_ring_next(m, IN_SESSION, session->holds, at))
        visit_claim(m, at, 0, visit, ctx);
    for (fl_handle at = session->waits; at != 0;
         at = fl_ring_next(m, IN_SESSION, session->waits, at))
        visit_claim(m, at, 0, visit, ctx);
}

void fl_machine_each_wait(const struct fl_machine *m, size_t max, fl_request_visitor visit,
                          void *ctx)
{
    for (uint32_t i = 0; i < m->n_places && max != 0; i++) {
        const struct session *session = m->sessions[i];

        if (session == NULL || session->is_dead)
            continue;
        for (fl_handle at = session->waits; at != 0 && max != 0;
             at = fl_ring_next(m, IN_SESSION, session->waits, at), max--)
            visit_claim(m, at, 0, visit, ctx);
    }
}

/* How many of a name's claims are not of the dead: by count where nobody is dead. */
static uint32_t count_live(const struct fl_machine *m, fl_handle head, uint32_t n)
{
    uint32_t live = 0;

    if (fl_list_is_empty(&m->dead) || FL_BUG(CORE_DEAD_HOLDER_SHOWN))
        return n;
    for (fl_handle at = head; at != 0; at = fl_ring_next(m, IN_LOCK, head, at))
        live += !fl_claim_is_dead(m, fl_claim_at(m, at));
    return live;
}

/* False when nothing about the name counts any more. */
static bool fill_name(const struct fl_machine *m, const struct lock *lock,
                      struct fl_name_info *info)
{
    const struct extra *extra = fl_lock_extra(m, lock);
    uint32_t n_holders = extra != NULL ? extra->n_holders : lock->holders != 0;

    memset(info, 0, sizeof *info);
    info->name = fl_lock_name(m, lock);
    info->holders = count_live(m, lock->holders, n_holders);
    info->waiters = extra != NULL ? count_live(m, extra->waiters, extra->n_waiters) : 0;
    info->mode = info->holders != 0 ? fl_lock_mode(m, lock) : FL_MODE_NONE;
    info->limit = extra != NULL && info->mode == FL_MODE_COUNTED ? extra->limit : 0;
    if (extra != NULL && extra->closing != NULL && extra->closing->node.key > m->now_ms)
        info->closed_until_ms = extra->closing->node.key;
    return info->holders != 0 || info->waiters != 0 || info->closed_until_ms != 0;
}

bool fl_machine_describe(const struct fl_machine *m, struct fl_str name, uint32_t waiters_max,
                         struct fl_name_info *ret_info, fl_request_visitor visit, void *ctx)
{
    fl_handle handle = fl_name_find(m, name);
    const struct lock *lock = handle != 0 ? fl_lock_at(m, handle) : NULL;
    const struct extra *extra;
    uint32_t position = 0;

    if (lock == NULL || !fill_name(m, lock, ret_info)) {
        memset(ret_info, 0, sizeof *ret_info);
        return false;
    }
    for (fl_handle at = lock->holders; at != 0; at = fl_ring_next(m, IN_LOCK, lock->holders, at)) {
        if (!fl_claim_is_dead(m, fl_claim_at(m, at)))
            visit_claim(m, at, 0, visit, ctx);
    }
    extra = fl_lock_extra(m, lock);
    for (fl_handle at = extra != NULL ? extra->waiters : 0; at != 0 && position < waiters_max;
         at = fl_ring_next(m, IN_LOCK, extra->waiters, at)) {
        if (!fl_claim_is_dead(m, fl_claim_at(m, at)))
            visit_claim(m, at, position++, visit, ctx);
    }
    return true;
}

void fl_machine_each_holder(const struct fl_machine *m, struct fl_str name, uint32_t max,
                            fl_request_visitor visit, void *ctx)
{
    fl_handle handle = fl_name_find(m, name);
    fl_handle head = handle != 0 ? fl_lock_at(m, handle)->holders : 0, at = head;

    for (uint64_t looks = (uint64_t)max + m->looks; at != 0 && max != 0 && looks != 0; looks--) {
        if (!fl_claim_is_dead(m, fl_claim_at(m, at))) {
            max--;
            visit_claim(m, at, 0, visit, ctx);
        }
        at = fl_ring_next(m, IN_LOCK, head, at);
    }
}

void fl_machine_list(const struct fl_machine *m, struct fl_str prefix, struct fl_str after,
                     size_t max, fl_name_visitor visit, void *ctx)
{
    bool goes_on = fl_str_compare(after, prefix) >= 0 && after.len != 0;
    fl_handle at = fl_order_seek(m, goes_on ? after : prefix, goes_on);

    while (at != 0 && max != 0) {
        const struct lock *lock = fl_lock_at(m, at);
        struct fl_str name = fl_lock_name(m, lock);
        struct fl_name_info info;

        if (!fl_str_has_prefix(name, prefix))
            break;
        if (fill_name(m, lock, &info)) {
            max--;
            if (!visit(ctx, &info))
                break;
        }
        at = fl_order_next(m, at);
    }
}
