#include "core/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "core/internal.h"

/* --- Effects --- */

void fl_machine_emit(struct fl_machine *m, struct fl_effect *effect)
{
    effect->index = m->index;
    effect->sub = m->sub++;
    effect->command = m->command;
    if (m->sink != NULL)
        m->sink(m->sink_ctx, effect);
}

static void fill_claim(const struct fl_machine *m, const struct claim *claim,
                       struct fl_effect *effect)
{
    const struct lock *lock = fl_lock_at(m, claim->lock);
    const struct extra *extra = fl_lock_extra(m, lock);

    effect->session = fl_claim_session(m, claim)->id;
    effect->request_id = claim->request_id;
    effect->name = fl_lock_name(m, lock);
    effect->token = claim->is_wait ? 0 : claim->token;
    effect->mode = (enum fl_mode)claim->mode;
    effect->limit = claim->mode == FL_MODE_COUNTED ? extra->limit : 0;
    effect->deadline_ms = claim->is_wait ? claim->due->node.key : 0;
    effect->waiters = extra != NULL ? extra->n_waiters : 0;
    effect->for_ms = m->now_ms > claim->since_ms ? m->now_ms - claim->since_ms : 0;
}

void fl_machine_emit_claim(struct fl_machine *m, enum fl_effect_type type, fl_handle claim,
                           enum fl_cause cause)
{
    struct fl_effect effect = {.type = type, .cause = cause};

    fill_claim(m, fl_claim_at(m, claim), &effect);
    if (type == FL_EFF_WAIT_END)
        effect.waiters--; /* it is still in the queue, for its name and place */
    fl_machine_emit(m, &effect);
}

void fl_machine_emit_promoted(struct fl_machine *m, fl_handle claim, uint64_t waited_ms)
{
    struct fl_effect effect = {.type = FL_EFF_GRANT};

    fill_claim(m, fl_claim_at(m, claim), &effect);
    effect.for_ms = waited_ms;
    fl_machine_emit(m, &effect);
}

static void answer(struct fl_machine *m, const struct fl_command *command, enum fl_answer what)
{
    struct fl_effect effect = {
        .type = FL_EFF_ANSWER,
        .answer = what,
        .session = command->session,
        .request_id = command->request_id,
        .name = command->name,
    };

    fl_machine_emit(m, &effect);
}

static void answer_token(struct fl_machine *m, const struct fl_command *command,
                         enum fl_answer what, fl_token token)
{
    struct fl_effect effect = {
        .type = FL_EFF_ANSWER,
        .answer = what,
        .session = command->session,
        .request_id = command->request_id,
        .name = command->name,
        .token = token,
    };

    fl_machine_emit(m, &effect);
}

/* --- Acquire --- */

/* Not walked further than this: after a leader change fifty thousand waiters ask again at once. */
#define POSITION_WALK_MAX 100

static uint32_t position_of(const struct fl_machine *m, fl_handle handle)
{
    const struct claim *claim = fl_claim_at(m, handle);
    const struct extra *extra = fl_lock_extra(m, fl_lock_at(m, claim->lock));
    uint32_t position = 0;

    for (fl_handle at = handle; at != extra->waiters; at = fl_claim_at(m, at)->lock_prev) {
        if (++position > POSITION_WALK_MAX)
            return extra->n_waiters - 1;
    }
    return position;
}

static void answer_claim(struct fl_machine *m, const struct fl_command *command, fl_handle handle,
                         uint32_t position)
{
    const struct claim *claim = fl_claim_at(m, handle);
    struct fl_effect effect = {.type = FL_EFF_ANSWER};

    fill_claim(m, claim, &effect);
    effect.name = command->name;
    effect.answer = claim->is_wait ? FL_ANS_QUEUED : FL_ANS_GRANTED;
    effect.position = position;
    fl_machine_emit(m, &effect);
}

/* A repeated request may be answered before the name of a dead holder was handed on. Of a name that
 * many hold, those who died may not all be cleared away: then for once nobody is named. */
static const struct claim *oldest_live_holder(const struct fl_machine *m, const struct lock *lock)
{
    fl_handle at = lock->holders;

    for (uint32_t looks = m->looks; at != 0 && looks != 0; looks--) {
        if (!fl_claim_is_dead(m, fl_claim_at(m, at)))
            return fl_claim_at(m, at);
        at = fl_ring_next(m, IN_LOCK, lock->holders, at);
    }
    return NULL;
}

/* A refusal: who has the name, as it is now. */
static void answer_refused(struct fl_machine *m, const struct fl_command *command,
                           enum fl_answer what, fl_handle lock_handle)
{
    struct fl_effect effect = {
        .type = FL_EFF_ANSWER,
        .answer = what,
        .session = command->session,
        .request_id = command->request_id,
        .name = command->name,
    };

    if (lock_handle != 0) {
        const struct lock *lock = fl_lock_at(m, lock_handle);
        const struct extra *extra = fl_lock_extra(m, lock);
        const struct claim *holder = oldest_live_holder(m, lock);

        effect.limit = extra != NULL ? extra->limit : 0;
        effect.waiters = extra != NULL ? extra->n_waiters : 0;
        if (holder != NULL) {
            const struct session *session = fl_claim_session(m, holder);

            effect.mode = (enum fl_mode)holder->mode;
            effect.holder_client = (struct fl_str){session->client, session->client_len};
            effect.holder_token = holder->token;
            effect.holder_since_ms = holder->since_ms;
        }
    }
    fl_machine_emit(m, &effect);
}

static bool is_same_request(const struct fl_command *command, uint64_t name_hash, unsigned mode,
                            uint32_t limit)
{
    if (FL_BUG(CORE_REQUEST_ID_IS_ENOUGH))
        return true;
    return name_hash == fl_name_stable_hash(command->name) && mode == (unsigned)command->mode &&
           limit == command->limit;
}

/* The request is known already: the same answer as the first time. */
static void answer_repeated(struct fl_machine *m, const struct fl_command *command,
                            fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle);
    const struct lock *lock = fl_lock_at(m, claim->lock);
    const struct extra *extra = fl_lock_extra(m, lock);
    uint32_t limit = claim->mode == FL_MODE_COUNTED ? extra->limit : 0;

    if (!is_same_request(command, fl_name_stable_hash(fl_lock_name(m, lock)), claim->mode, limit))
        answer(m, command, FL_ANS_REQUEST_REUSED);
    else {
        claim->asker = command->asker;
        answer_claim(m, command, handle, claim->is_wait ? position_of(m, handle) : 0);
    }
}

static void answer_finished(struct fl_machine *m, const struct fl_command *command,
                            const struct finished *finished)
{
    enum fl_answer what = (enum fl_answer)finished->answer;

    if (finished->name_hash != 0 &&
        !is_same_request(command, finished->name_hash, finished->mode, finished->limit))
        answer(m, command, FL_ANS_REQUEST_REUSED);
    else if (what == FL_ANS_ENDED)
        answer_token(m, command, what, finished->token);
    else
        answer_refused(m, command, what, fl_name_find(m, command->name));
}

static void refuse(struct fl_machine *m, struct session *session, const struct fl_command *command,
                   enum fl_answer what, fl_handle lock)
{
    struct finished finished = {
        .request_id = command->request_id,
        .name_hash = fl_name_stable_hash(command->name),
        .mode = (uint8_t)command->mode,
        .limit = command->limit,
        .answer = (uint8_t)what,
    };

    fl_session_remember(m, session, &finished);
    answer_refused(m, command, what, lock);
    if (lock != 0)
        fl_name_drop_if_idle(m, lock);
}

/* Exclusive and shared go together on a name, in turns; counted only with the same limit. Both are
 * set by whoever is there first and held until the name is idle. */
static bool is_other_kind(const struct fl_machine *m, const struct lock *lock,
                          const struct fl_command *command)
{
    const struct extra *extra = fl_lock_extra(m, lock);
    bool is_used = lock->holders != 0 || (extra != NULL && extra->waiters != 0);

    return is_used && (extra != NULL ? extra->limit : 0) != command->limit;
}

/* Of a session with more holds, on a name with more holders, it is not noticed that it waits for
 * itself: that wait ends by its deadline. */
#define OWN_HOLDS_WALK_MAX 4096

/* Whether this session holds the name in another mode: waiting would be waiting for itself. The
 * shorter of the two lists is walked. */
static bool holds_in_other_mode(const struct fl_machine *m, const struct session *session,
                                fl_handle lock_handle, enum fl_mode mode)
{
    const struct lock *lock = fl_lock_at(m, lock_handle);
    const struct extra *extra = fl_lock_extra(m, lock);
    uint32_t n_holders = extra != NULL ? extra->n_holders : 1;
    bool by_session = session->n_holds < n_holders;
    enum ring ring = by_session ? IN_SESSION : IN_LOCK;
    fl_handle head = by_session ? session->holds : lock->holders;

    if (lock->holders == 0 || fl_lock_mode(m, lock) == mode ||
        (by_session ? session->n_holds : n_holders) > OWN_HOLDS_WALK_MAX)
        return false;
    for (fl_handle at = head; at != 0; at = fl_ring_next(m, ring, head, at)) {
        const struct claim *claim = fl_claim_at(m, at);

        if (claim->lock == lock_handle && claim->session == session->place)
            return true;
    }
    return false;
}

static void acquire_new(struct fl_machine *m, struct session *session,
                        const struct fl_command *command)
{
    fl_handle handle = fl_name_find(m, command->name), claim;
    const struct extra *extra;
    struct lock *lock;
    bool must_queue, reenters;

    /* A dead holder's name is handed on before anyone else asks. */
    if (handle != 0 && !fl_list_is_empty(&m->dead)) {
        fl_lock_hand_on(m, handle);
        handle = fl_name_find(m, command->name);
    }
    if (m->token >= FL_TOKEN_MAX) {
        refuse(m, session, command, FL_ANS_TOKENS_EXHAUSTED, handle);
        return;
    }
    if (handle == 0)
        handle = fl_name_add(m, command->name);
    lock = fl_lock_at(m, handle);
    if (!FL_BUG(CORE_OTHER_KIND_WAITS) &&
        (is_other_kind(m, lock, command) ||
         holds_in_other_mode(m, session, handle, command->mode))) {
        refuse(m, session, command, FL_ANS_MODE_CONFLICT, handle);
        return;
    }
    extra = fl_lock_extra(m, lock);
    must_queue = extra != NULL && extra->waiters != 0;
    if (FL_BUG(CORE_TRY_ONCE_BARGES) && command->wait_ms == 0)
        must_queue = false;
    if (FL_BUG(CORE_SHARED_PASSES_EXCLUSIVE) && command->mode == FL_MODE_SHARED)
        must_queue = false;
    reenters = FL_BUG(CORE_SESSION_REENTERS) && lock->holders != 0 &&
               fl_claim_at(m, lock->holders)->session == session->place;
    if ((!must_queue && fl_lock_admits(m, lock, command->mode)) || reenters) {
        if (command->mode == FL_MODE_COUNTED)
            fl_name_need_extra(m, handle)->limit = command->limit;
        claim = fl_claim_hold(m, session, command->request_id, handle, command->mode);
        fl_claim_at(m, claim)->asker = command->asker;
        fl_machine_emit_claim(m, FL_EFF_GRANT, claim, FL_CAUSE_NONE);
        answer_claim(m, command, claim, 0);
        return;
    }
    if (command->wait_ms == 0) {
        refuse(m, session, command, FL_ANS_HELD, handle);
        return;
    }
    fl_name_need_extra(m, handle)->limit = command->limit;
    claim = fl_claim_wait(m, session, command->request_id, handle, command->mode,
                          m->now_ms + command->wait_ms);
    fl_claim_at(m, claim)->asker = command->asker;
    fl_machine_emit_claim(m, FL_EFF_ENQUEUE, claim, FL_CAUSE_NONE);
    answer_claim(m, command, claim, fl_lock_extra(m, lock)->n_waiters - 1);
}

static void apply_acquire(struct fl_machine *m, const struct fl_command *command)
{
    struct session *session = fl_session_find(m, command->session);
    const struct finished *finished;
    fl_handle claim;

    if (session == NULL) {
        answer(m, command, FL_ANS_SESSION_NOT_FOUND);
        return;
    }
    claim = fl_claim_find(m, session, command->request_id);
    if (FL_BUG(CORE_RETRY_QUEUES_AGAIN) && claim != 0 && fl_claim_at(m, claim)->is_wait)
        claim = 0;
    if (claim != 0) {
        answer_repeated(m, command, claim);
        return;
    }
    finished = fl_session_finished(session, command->request_id);
    if (finished != NULL && !FL_BUG(CORE_FORGETS_FINISHED))
        answer_finished(m, command, finished);
    else
        acquire_new(m, session, command);
}

/* --- Release, cancel --- */

static void end_hold(struct fl_machine *m, fl_handle claim, enum fl_cause cause,
                     const struct fl_command *command)
{
    struct fl_effect effect = {.type = FL_EFF_HOLD_END, .cause = cause};

    fill_claim(m, fl_claim_at(m, claim), &effect);
    effect.actor = command->actor;
    effect.reason = command->reason;
    fl_machine_emit(m, &effect);
    fl_claim_end(m, claim, FL_ANS_ENDED, cause);
}

/* The live hold of that name with that token, by that session (NULL: anyone's). */
static fl_handle find_hold(const struct fl_machine *m, fl_handle lock_handle, fl_token token,
                           const struct session *session)
{
    const struct lock *lock = fl_lock_at(m, lock_handle);
    bool is_exclusive = fl_lock_mode(m, lock) == FL_MODE_EXCLUSIVE;
    fl_handle handle = is_exclusive ? lock->holders : fl_claim_by_token(m, token);
    const struct claim *claim = handle != 0 ? fl_claim_at(m, handle) : NULL;

    if (claim == NULL || claim->lock != lock_handle || fl_claim_is_dead(m, claim) ||
        (session != NULL && fl_claim_session(m, claim) != session))
        return 0;
    return claim->token == token || FL_BUG(CORE_RELEASE_IGNORES_TOKEN) ? handle : 0;
}

/* The current token of a name: of its newest live holder; 0 when nobody holds it, or (as above) the
 * newest have all died. */
static fl_token current_token(const struct fl_machine *m, fl_handle lock_handle)
{
    fl_handle head = lock_handle != 0 ? fl_lock_at(m, lock_handle)->holders : 0, at = head;

    for (uint32_t looks = m->looks; head != 0 && looks != 0; looks--) {
        const struct claim *claim;

        at = fl_claim_at(m, at)->lock_prev; /* of the oldest: the newest */
        claim = fl_claim_at(m, at);
        if (!fl_claim_is_dead(m, claim))
            return claim->token;
        if (at == head)
            break;
    }
    return 0;
}

static bool was_released(const struct session *session, const struct fl_command *command)
{
    uint64_t name_hash = fl_name_stable_hash(command->name);

    for (uint32_t i = 0; i < session->n_finished; i++) {
        const struct finished *finished = fl_session_finished_at(session, i);

        if (finished->was_released && finished->token == command->token &&
            finished->name_hash == name_hash)
            return true;
    }
    return false;
}

static void apply_release(struct fl_machine *m, const struct fl_command *command)
{
    const struct session *session = fl_session_find(m, command->session);
    fl_handle lock = fl_name_find(m, command->name), hold;

    if (session == NULL) {
        answer(m, command, FL_ANS_SESSION_NOT_FOUND);
        return;
    }
    hold = lock != 0 ? find_hold(m, lock, command->token, session) : 0;
    if (hold != 0) {
        end_hold(m, hold, FL_CAUSE_RELEASED, command);
        answer(m, command, FL_ANS_OK);
        if (!FL_BUG(CORE_RELEASE_WAKES_LATER) || fl_lock_at(m, lock)->extra == 0)
            fl_lock_hand_on(m, lock);
    } else if (was_released(session, command)) {
        answer(m, command, FL_ANS_OK);
    } else {
        answer_token(m, command, FL_ANS_STALE_TOKEN, current_token(m, lock));
    }
}

static void apply_force_release(struct fl_machine *m, const struct fl_command *command)
{
    fl_handle lock = fl_name_find(m, command->name);
    fl_handle hold = lock != 0 ? find_hold(m, lock, command->token, NULL) : 0;

    if (hold == 0) {
        answer_token(m, command, FL_ANS_STALE_TOKEN, current_token(m, lock));
        return;
    }
    end_hold(m, hold, FL_CAUSE_FORCED, command);
    answer(m, command, FL_ANS_OK);
    fl_lock_hand_on(m, lock);
}

static void cancel_claim(struct fl_machine *m, const struct fl_command *command, fl_handle handle)
{
    const struct claim *claim = fl_claim_at(m, handle);
    fl_handle lock = claim->lock;

    if (command->asker != 0 && command->asker != claim->asker && !FL_BUG(CORE_ANY_ASKER_ABANDONS)) {
        answer(m, command, FL_ANS_NOT_WAITING); /* it was asked for again since */
        return;
    }
    if (!claim->is_wait && !command->abandon) {
        answer_claim(m, command, handle, 0); /* it has been granted: the grant stays */
        return;
    }
    if (claim->is_wait) {
        fl_machine_emit_claim(m, FL_EFF_WAIT_END, handle, FL_CAUSE_CANCELLED);
        fl_claim_end(m, handle, FL_ANS_CANCELLED, FL_CAUSE_CANCELLED);
    } else {
        end_hold(m, handle, FL_CAUSE_ABANDONED, command);
    }
    answer(m, command, FL_ANS_CANCELLED);
    if (!FL_BUG(CORE_CANCEL_LOSES_WAKE_UP))
        fl_lock_hand_on(m, lock);
}

static void apply_cancel(struct fl_machine *m, const struct fl_command *command)
{
    struct session *session = fl_session_find(m, command->session);
    struct finished early = {.request_id = command->request_id, .answer = FL_ANS_CANCELLED};
    fl_handle claim;

    if (session == NULL) {
        answer(m, command, FL_ANS_SESSION_NOT_FOUND);
        return;
    }
    claim = fl_claim_find(m, session, command->request_id);
    if (claim != 0) {
        cancel_claim(m, command, claim);
        return;
    }
    /* It may have overtaken its request on the way through another gateway. */
    if (fl_session_finished(session, command->request_id) == NULL &&
        !FL_BUG(CORE_EARLY_CANCEL_FORGOTTEN))
        fl_session_remember(m, session, &early);
    answer(m, command, FL_ANS_NOT_WAITING);
}

/* --- Sessions --- */

static void apply_open(struct fl_machine *m, const struct fl_command *command)
{
    struct session *session = fl_session_find(m, command->session);
    struct fl_effect effect = {.type = FL_EFF_SESSION_OPEN, .session = command->session};

    if (session != NULL) {
        bool is_same =
            session->ttl_ms == command->ttl_ms &&
            session->lock_delay_ms == command->lock_delay_ms &&
            fl_str_equal((struct fl_str){session->client, session->client_len}, command->client);

        answer(m, command, is_same ? FL_ANS_OK : FL_ANS_SESSION_EXISTS);
        return;
    }
    session = fl_session_add(m, command->session, command->client);
    session->ttl_ms = command->ttl_ms;
    session->lock_delay_ms = command->lock_delay_ms;
    session->opened_ms = m->now_ms;
    fl_machine_emit(m, &effect);
    answer(m, command, FL_ANS_OK);
}

static void end_session(struct fl_machine *m, const struct fl_command *command, enum fl_cause cause)
{
    struct session *session = fl_session_find(m, command->session);
    struct fl_effect effect = {
        .type = FL_EFF_SESSION_END,
        .cause = cause,
        .session = command->session,
        .actor = command->actor,
        .reason = command->reason,
    };

    if (session == NULL) {
        answer(m, command, FL_ANS_SESSION_NOT_FOUND);
        return;
    }
    fl_machine_emit(m, &effect);
    answer(m, command, FL_ANS_OK);
    fl_session_die(m, session, cause);
    fl_sessions_reap(m);
}

static void apply_note_silence(struct fl_machine *m, const struct fl_command *command)
{
    struct session *session = fl_session_find(m, command->session);

    if (session != NULL)
        session->silence_ms = command->silence_ms;
    answer(m, command, session != NULL ? FL_ANS_OK : FL_ANS_SESSION_NOT_FOUND);
}

static void apply_command(struct fl_machine *m, uint64_t term, const struct fl_command *command)
{
    switch (command->type) {
    case FL_CMD_OPEN_SESSION:
        apply_open(m, command);
        break;
    case FL_CMD_CLOSE_SESSION:
        end_session(m, command, FL_CAUSE_CLOSED);
        break;
    case FL_CMD_EXPIRE_SESSION:
        /* T4: whoever decided it must still lead; terms of entries never go back. */
        if (command->term != term && !FL_BUG(CORE_EXPIRY_OF_ANY_TERM))
            answer(m, command, FL_ANS_TERM_OVER);
        else
            end_session(m, command, FL_CAUSE_EXPIRED);
        break;
    case FL_CMD_END_SESSION:
        end_session(m, command, FL_CAUSE_ENDED);
        break;
    case FL_CMD_NOTE_SILENCE:
        apply_note_silence(m, command);
        break;
    case FL_CMD_ACQUIRE:
        apply_acquire(m, command);
        break;
    case FL_CMD_RELEASE:
        apply_release(m, command);
        break;
    case FL_CMD_CANCEL:
        apply_cancel(m, command);
        break;
    case FL_CMD_FORCE_RELEASE:
        apply_force_release(m, command);
        break;
    case FL_CMD_RAISE_TOKEN:
        if (command->token > m->token)
            m->token = command->token;
        answer(m, command, FL_ANS_OK);
        break;
    case FL_CMD_MARK_LEVEL:
        answer(m, command, FL_ANS_OK);
        break;
    }
}

/* --- What is due --- */

static void end_wait_in_time(struct fl_machine *m, fl_handle handle)
{
    const struct claim *claim = fl_claim_at(m, handle);
    const struct session *session = fl_claim_session(m, claim);
    fl_handle lock = claim->lock;
    /* A session's death ends its waits, also those that are cleared away later. */
    enum fl_cause cause = session->is_dead ? (enum fl_cause)session->cause : FL_CAUSE_TIMED_OUT;

    fl_machine_emit_claim(m, FL_EFF_WAIT_END, handle, cause);
    fl_claim_end(m, handle, FL_ANS_TIMED_OUT, cause);
    fl_lock_hand_on(m, lock); /* it may have stood before others that can be granted */
}

static void do_due(struct fl_machine *m)
{
    const struct fl_heap_node *first;

    while (m->work_left != 0 && (first = fl_heap_first(&m->due)) != NULL &&
           first->key <= m->now_ms) {
        struct due *due = FL_CONTAINER_OF(first, struct due, node);

        m->work_left--;
        if (due->is_closing)
            fl_lock_open(m, due->owner);
        else
            end_wait_in_time(m, due->owner);
    }
}

/* --- Apply --- */

int fl_machine_apply(struct fl_machine *m, uint64_t index, uint64_t term, const void *data,
                     size_t len, fl_machine_sink sink, void *ctx)
{
    struct fl_batch batch;
    int r;

    FL_REQUIRE(index > m->index);
    r = fl_batch_decode(data, len, &batch);
    if (r == FL_E_VERSION)
        return r;
    m->index = index;
    m->history_hash =
        fl_hash_siphash((struct fl_hash_key){m->history_hash, index ^ term << 32}, data, len);
    if (r < 0)
        return r;
    if (batch.now_ms > m->now_ms || FL_BUG(CORE_TIME_GOES_BACK))
        m->now_ms = batch.now_ms;
    m->sink = sink;
    m->sink_ctx = ctx;
    m->sub = 0;
    m->work_left = m->work_per_entry;
    m->command = -1;
    do_due(m);
    fl_sessions_reap(m);
    for (size_t i = 0; i < batch.n; i++) {
        m->command = (int32_t)i;
        apply_command(m, term, &batch.commands[i]);
    }
    m->sink = NULL;
    fl_batch_deinit(&batch);
    return FL_OK;
}

bool fl_machine_has_backlog(const struct fl_machine *m)
{
    const struct fl_heap_node *first = fl_heap_first(&m->due);

    return !fl_list_is_empty(&m->dead) || (first != NULL && first->key <= m->now_ms);
}

uint64_t fl_machine_next_due(const struct fl_machine *m)
{
    const struct fl_heap_node *first = fl_heap_first(&m->due);

    return first != NULL ? first->key : UINT64_MAX;
}

uint64_t fl_machine_index(const struct fl_machine *m)
{
    return m->index;
}

uint64_t fl_machine_now_ms(const struct fl_machine *m)
{
    return m->now_ms;
}

fl_token fl_machine_token(const struct fl_machine *m)
{
    return m->token;
}

uint64_t fl_machine_history_hash(const struct fl_machine *m)
{
    return m->history_hash;
}

/* --- Life --- */

struct fl_machine *fl_machine_new(const uint64_t hash_key[2])
{
    struct fl_machine *m = fl_xcalloc(1, sizeof *m);

    m->hash_key = (struct fl_hash_key){hash_key[0], hash_key[1]};
    m->work_per_entry = FL_MACHINE_WORK_PER_ENTRY;
    m->looks = FL_MACHINE_LOOKS;
    m->command = -1;
    fl_list_init(&m->dead);
    fl_names_init(m);
    fl_claims_init(m);
    return m;
}

void fl_machine_free(struct fl_machine *m)
{
    if (m == NULL)
        return;
    fl_claims_deinit(m);
    fl_names_deinit(m);
    fl_sessions_deinit(m);
    free(m);
}

void fl_machine__set_work(struct fl_machine *m, uint32_t work_per_entry, uint32_t looks)
{
    m->work_per_entry = work_per_entry;
    m->looks = looks;
}

void fl_machine_stats(const struct fl_machine *m, struct fl_machine_stats *ret_stats)
{
    size_t memory = sizeof *m + m->loose_memory + fl_slab_memory(&m->locks) +
                    fl_slab_memory(&m->claims) + fl_slab_memory(&m->extras) +
                    fl_handle_set_memory(&m->by_name) + fl_handle_set_memory(&m->by_request) +
                    fl_handle_set_memory(&m->by_token) + fl_order_memory(&m->order) +
                    m->due.capacity * sizeof(void *) + m->sessions_capacity * 12 +
                    m->by_session.capacity * sizeof(struct fl_map_slot);

    for (size_t i = 0; i < TEXT_CLASSES; i++)
        memory += fl_slab_memory(&m->texts[i]);
    *ret_stats = (struct fl_machine_stats){
        .sessions = m->n_sessions,
        .names = fl_handle_set_len(&m->by_name),
        .holds = m->n_holds,
        .waits = m->n_waits,
        .grants = m->grants,
        .memory = memory,
    };
}
