#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

static uint64_t hash_of_id(const struct fl_machine *m, struct fl_session_id id)
{
    uint64_t key[2] = {id.high, id.low};

    return fl_hash_siphash(m->hash_key, key, sizeof key);
}

static bool has_id(const void *value, const void *key)
{
    return fl_session_id_equal(((const struct session *)value)->id,
                               *(const struct fl_session_id *)key);
}

struct session *fl_session_find(const struct fl_machine *m, struct fl_session_id id)
{
    return fl_map_find(&m->by_session, hash_of_id(m, id), has_id, &id);
}

static uint32_t take_place(struct fl_machine *m)
{
    if (m->free_places != 0)
        return m->free_place[--m->free_places];
    if (m->n_places == m->sessions_capacity) {
        m->sessions_capacity = (uint32_t)fl_grow_capacity(m->sessions_capacity,
                                                          (size_t)m->n_places + 1, sizeof(void *));
        m->sessions = fl_xrealloc(m->sessions, m->sessions_capacity * sizeof *m->sessions);
        m->free_place = fl_xrealloc(m->free_place, m->sessions_capacity * sizeof *m->free_place);
    }
    return m->n_places++;
}

static size_t memory_of(const struct session *session)
{
    return sizeof *session + session->client_len + 48 +
           session->finished_capacity * sizeof *session->finished;
}

struct session *fl_session_add(struct fl_machine *m, struct fl_session_id id, struct fl_str client)
{
    struct session *session = fl_xcalloc(1, sizeof *session);

    FL_REQUIRE(client.len <= FL_CLIENT_MAX);
    session->id = id;
    session->client = fl_xmemdup(client.data, client.len);
    session->client_len = (uint8_t)client.len;
    session->place = take_place(m);
    fl_list_init(&session->in_dead);
    m->sessions[session->place] = session;
    m->n_sessions++;
    m->loose_memory += memory_of(session);
    fl_map_insert(&m->by_session, hash_of_id(m, id), session);
    return session;
}

static void free_session(struct fl_machine *m, struct session *session)
{
    m->loose_memory -= memory_of(session);
    m->sessions[session->place] = NULL;
    m->free_place[m->free_places++] = session->place;
    free(session->client);
    free(session->finished);
    free(session);
}

void fl_session_forget_if_done(struct fl_machine *m, struct session *session)
{
    if (!session->is_dead || session->holds != 0 || session->waits != 0)
        return;
    fl_list_remove(&session->in_dead);
    free_session(m, session);
}

void fl_session_bury(struct fl_machine *m, struct session *session, enum fl_cause cause)
{
    session->is_dead = true;
    session->cause = (uint8_t)cause;
    fl_map_remove(&m->by_session, hash_of_id(m, session->id), session);
    m->n_sessions--;
    fl_list_append(&m->dead, &session->in_dead);
}

void fl_session_die(struct fl_machine *m, struct session *session, enum fl_cause cause)
{
    fl_session_bury(m, session, cause);
    fl_session_forget_if_done(m, session);
}

/* Holds first: the waits of the dead behind them in the same queues then end on the way. */
static void reap_one(struct fl_machine *m, struct session *session)
{
    fl_handle claim = session->holds != 0 ? session->holds : session->waits;
    fl_handle lock = fl_claim_at(m, claim)->lock;

    if (session->holds != 0) {
        fl_lock_end_dead(m, claim);
    } else {
        fl_machine_emit_claim(m, FL_EFF_WAIT_END, claim, (enum fl_cause)session->cause);
        fl_claim_end(m, claim, FL_ANS_ENDED, (enum fl_cause)session->cause);
    }
    fl_lock_hand_on(m, lock);
}

void fl_sessions_reap(struct fl_machine *m)
{
    while (m->work_left != 0 && !fl_list_is_empty(&m->dead)) {
        m->work_left--;
        reap_one(m, FL_CONTAINER_OF(fl_list_first(&m->dead), struct session, in_dead));
    }
}

/* --- Finished requests --- */

const struct finished *fl_session_finished_at(const struct session *session, uint32_t i)
{
    uint32_t first = session->n_finished == FL_REQUESTS_REMEMBERED ? session->finished_at : 0;

    return &session->finished[(first + i) % FL_REQUESTS_REMEMBERED];
}

const struct finished *fl_session_finished(const struct session *session, uint64_t request_id)
{
    /* From the newest: a late retry is rarely late by much. */
    for (uint32_t i = session->n_finished; i-- > 0;) {
        const struct finished *finished = fl_session_finished_at(session, i);

        if (finished->request_id == request_id)
            return finished;
    }
    return NULL;
}

void fl_session_remember(struct fl_machine *m, struct session *session,
                         const struct finished *finished)
{
    if (session->n_finished < FL_REQUESTS_REMEMBERED) {
        if (session->n_finished == session->finished_capacity) {
            uint32_t capacity =
                session->finished_capacity == 0 ? 4 : session->finished_capacity * 2;

            m->loose_memory += (capacity - session->finished_capacity) * sizeof *session->finished;
            session->finished =
                fl_xrealloc(session->finished, capacity * sizeof *session->finished);
            session->finished_capacity = capacity;
        }
        session->finished[session->n_finished++] = *finished;
        return;
    }
    session->finished[session->finished_at] = *finished;
    session->finished_at = (session->finished_at + 1) % FL_REQUESTS_REMEMBERED;
}

void fl_sessions_deinit(struct fl_machine *m)
{
    for (uint32_t i = 0; i < m->n_places; i++) {
        if (m->sessions[i] != NULL)
            free_session(m, m->sessions[i]);
    }
    free(m->sessions);
    free(m->free_place);
    fl_map_deinit(&m->by_session);
}
