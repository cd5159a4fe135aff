#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"

struct request_key {
    uint32_t session;
    uint64_t request_id;
};

static uint64_t hash_of_request(const struct fl_machine *m, uint32_t session, uint64_t request_id)
{
    uint64_t key[2] = {session, request_id};

    return fl_hash_siphash(m->hash_key, key, sizeof key);
}

static uint64_t hash_of_claim(const void *owner, uint32_t handle)
{
    const struct fl_machine *m = owner;
    const struct claim *claim = fl_claim_at(m, handle);

    return hash_of_request(m, claim->session, claim->request_id);
}

static bool is_request(const void *owner, uint32_t handle, const void *key)
{
    const struct claim *claim = fl_claim_at(owner, handle);
    const struct request_key *request = key;

    return claim->session == request->session && claim->request_id == request->request_id;
}

fl_handle fl_claim_find(const struct fl_machine *m, const struct session *session,
                        uint64_t request_id)
{
    struct request_key key = {session->place, request_id};

    return fl_handle_set_find(&m->by_request, hash_of_request(m, session->place, request_id),
                              is_request, &key);
}

static uint64_t hash_of_token(const void *owner, uint32_t handle)
{
    return fl_hash_mix64(fl_claim_at(owner, handle)->token);
}

static bool is_token(const void *owner, uint32_t handle, const void *key)
{
    return fl_claim_at(owner, handle)->token == *(const fl_token *)key;
}

fl_handle fl_claim_by_token(const struct fl_machine *m, fl_token token)
{
    return fl_handle_set_find(&m->by_token, fl_hash_mix64(token), is_token, &token);
}

struct due *fl_due_new(struct fl_machine *m, fl_handle owner, bool is_closing, uint64_t at_ms,
                       uint64_t seq)
{
    struct due *due = fl_xcalloc(1, sizeof *due);

    due->owner = owner;
    due->is_closing = is_closing;
    due->seq = seq;
    fl_heap_set(&m->due, &due->node, at_ms);
    m->loose_memory += sizeof *due + 16;
    return due;
}

void fl_due_free(struct fl_machine *m, struct due *due)
{
    fl_heap_remove(&m->due, &due->node);
    m->loose_memory -= sizeof *due + 16;
    free(due);
}

static fl_handle claim_new(struct fl_machine *m, const struct session *session, uint64_t request_id,
                           fl_handle lock, enum fl_mode mode)
{
    fl_handle handle = fl_slab_take(&m->claims);
    struct claim *claim = fl_claim_at(m, handle);

    memset(claim, 0, sizeof *claim);
    claim->request_id = request_id;
    claim->since_ms = m->now_ms & SINCE_MS_MAX;
    claim->mode = mode & 3;
    claim->lock = lock;
    claim->session = session->place;
    fl_handle_set_add(&m->by_request, handle);
    return handle;
}

static void link_hold(struct fl_machine *m, struct session *session, fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle);
    struct lock *lock = fl_lock_at(m, claim->lock);

    if (lock->holders != 0 || claim->mode != FL_MODE_EXCLUSIVE)
        fl_name_need_extra(m, claim->lock);
    fl_ring_append(m, IN_LOCK, &lock->holders, handle);
    if (lock->extra != 0)
        fl_extra_at(m, lock->extra)->n_holders++;
    fl_ring_append(m, IN_SESSION, &session->holds, handle);
    session->n_holds++;
    m->n_holds++;
    if (claim->mode != FL_MODE_EXCLUSIVE)
        fl_handle_set_add(&m->by_token, handle);
}

fl_handle fl_claim_hold(struct fl_machine *m, struct session *session, uint64_t request_id,
                        fl_handle lock, enum fl_mode mode)
{
    fl_handle handle = claim_new(m, session, request_id, lock, mode);

    FL_REQUIRE(m->token < FL_TOKEN_MAX);
    if (!FL_BUG(CORE_TOKEN_SHARED_BY_READERS) || fl_lock_at(m, lock)->holders == 0)
        m->token++;
    fl_claim_at(m, handle)->token = m->token;
    m->grants++;
    link_hold(m, session, handle);
    return handle;
}

static void link_wait(struct fl_machine *m, struct session *session, fl_handle handle,
                      uint64_t deadline_ms, uint64_t seq)
{
    struct claim *claim = fl_claim_at(m, handle);
    struct extra *extra = fl_name_need_extra(m, claim->lock);

    claim->is_wait = 1;
    claim->due = fl_due_new(m, handle, false, deadline_ms, seq);
    fl_ring_append(m, IN_LOCK, &extra->waiters, handle);
    extra->n_waiters++;
    fl_ring_append(m, IN_SESSION, &session->waits, handle);
    session->n_waits++;
    m->n_waits++;
}

fl_handle fl_claim_wait(struct fl_machine *m, struct session *session, uint64_t request_id,
                        fl_handle lock, enum fl_mode mode, uint64_t deadline_ms)
{
    fl_handle handle = claim_new(m, session, request_id, lock, mode);

    link_wait(m, session, handle, deadline_ms, m->next_seq++);
    return handle;
}

static void unlink_wait(struct fl_machine *m, struct session *session, fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle);
    struct extra *extra = fl_lock_extra(m, fl_lock_at(m, claim->lock));

    fl_due_free(m, claim->due);
    claim->due = NULL;
    fl_ring_remove(m, IN_LOCK, &extra->waiters, handle);
    extra->n_waiters--;
    fl_ring_remove(m, IN_SESSION, &session->waits, handle);
    session->n_waits--;
    m->n_waits--;
}

void fl_claim_promote(struct fl_machine *m, fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle);
    struct session *session = fl_claim_session(m, claim);

    FL_REQUIRE(claim->is_wait && m->token < FL_TOKEN_MAX);
    unlink_wait(m, session, handle);
    claim->is_wait = 0;
    claim->since_ms = m->now_ms & SINCE_MS_MAX;
    claim->token = ++m->token;
    m->grants++;
    link_hold(m, session, handle);
}

static void unlink_hold(struct fl_machine *m, struct session *session, fl_handle handle)
{
    const struct claim *claim = fl_claim_at(m, handle);
    struct lock *lock = fl_lock_at(m, claim->lock);

    if (claim->mode != FL_MODE_EXCLUSIVE)
        fl_handle_set_remove(&m->by_token, handle);
    fl_ring_remove(m, IN_LOCK, &lock->holders, handle);
    if (lock->extra != 0)
        fl_extra_at(m, lock->extra)->n_holders--;
    fl_ring_remove(m, IN_SESSION, &session->holds, handle);
    session->n_holds--;
    m->n_holds--;
}

static void remember(struct fl_machine *m, struct session *session, const struct claim *claim,
                     enum fl_answer answer, enum fl_cause cause)
{
    const struct lock *lock = fl_lock_at(m, claim->lock);
    const struct extra *extra = fl_lock_extra(m, lock);
    struct finished finished = {
        .request_id = claim->request_id,
        .name_hash = fl_name_stable_hash(fl_lock_name(m, lock)),
        .token = claim->is_wait ? 0 : claim->token,
        .limit = claim->mode == FL_MODE_COUNTED ? extra->limit : 0,
        .mode = (uint8_t)claim->mode,
        .answer = (uint8_t)answer,
        .was_released = cause == FL_CAUSE_RELEASED || cause == FL_CAUSE_ABANDONED,
    };

    fl_session_remember(m, session, &finished);
}

void fl_claim_end(struct fl_machine *m, fl_handle handle, enum fl_answer answer,
                  enum fl_cause cause)
{
    struct claim *claim = fl_claim_at(m, handle);
    struct session *session = fl_claim_session(m, claim);

    if (!session->is_dead)
        remember(m, session, claim, answer, cause);
    fl_handle_set_remove(&m->by_request, handle);
    if (claim->is_wait)
        unlink_wait(m, session, handle);
    else
        unlink_hold(m, session, handle);
    fl_slab_give(&m->claims, handle);
    fl_session_forget_if_done(m, session);
}

fl_handle fl_claim_restore(struct fl_machine *m, struct session *session, const struct claim *model,
                           uint64_t deadline_ms, uint64_t seq)
{
    fl_handle handle =
        claim_new(m, session, model->request_id, model->lock, (enum fl_mode)model->mode);
    struct claim *claim = fl_claim_at(m, handle);

    claim->since_ms = model->since_ms;
    claim->asker = model->asker;
    if (model->is_wait) {
        link_wait(m, session, handle, deadline_ms, seq);
    } else {
        claim->token = model->token;
        link_hold(m, session, handle);
    }
    return handle;
}

void fl_claims_init(struct fl_machine *m)
{
    fl_slab_init(&m->claims, sizeof(struct claim));
    fl_handle_set_init(&m->by_request, hash_of_claim, m);
    fl_handle_set_init(&m->by_token, hash_of_token, m);
}

void fl_claims_deinit(struct fl_machine *m)
{
    while (m->due.len != 0)
        fl_due_free(m, FL_CONTAINER_OF(fl_heap_first(&m->due), struct due, node));
    fl_heap_deinit(&m->due);
    fl_slab_deinit(&m->claims);
    fl_handle_set_deinit(&m->by_request);
    fl_handle_set_deinit(&m->by_token);
}
