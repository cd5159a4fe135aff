/* When each session was last heard, and what follows from its silence. On the leader only: the log
 * knows nothing of heartbeats, but that a session has been silent for long (NOTE_SILENCE).
 *
 * Deadlines are in judged time, the clock less the leader's own silence (N5): a stall of ours moves
 * every deadline at once. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "node/internal.h"

/* Expiries in one entry: the machine may do a bounded amount of work per entry, and other commands
 * want their turn. */
#define EXPIRIES_PER_ENTRY 512
/* Before a refused expiry is tried again: a transfer of leadership is on. */
#define EXPIRY_RETRY_MS 100

uint64_t fl_node__judged_now(const struct fl_node *node)
{
    return node->now_ms - node->liveness.stalled_ms;
}

static bool live_has_id(const void *value, const void *key)
{
    return fl_session_id_equal(((const struct live *)value)->id,
                               *(const struct fl_session_id *)key);
}

struct live *fl_node__live(const struct fl_node *node, struct fl_session_id id)
{
    return fl_map_find(&node->liveness.sessions, fl_node__session_hash(node, id), live_has_id, &id);
}

/* The silence at which the next note is due: at over half the TTL first, so that a healthy client
 * causes none; then in steps, so that a cluster that elects all the time still counts it down. */
static uint32_t next_note_ms(const struct live *live)
{
    if (live->clearing)
        return live->ttl_ms;
    if (live->noted_ms == 0)
        return live->ttl_ms / 2 + 1;
    return live->noted_ms + live->ttl_ms / 8;
}

static void schedule(struct fl_node *node, struct live *live)
{
    uint32_t note_ms = next_note_ms(live);
    uint64_t at = live->deadline;

    if (fl_list_is_linked(&live->in_due)) /* its time has come already */
        return;
    if (note_ms < live->ttl_ms) {
        uint64_t rest = live->ttl_ms - note_ms;

        at = at > rest ? at - rest : 0;
    }
    fl_heap_set(&node->liveness.timers, &live->timer, at);
}

static struct live *live_new(struct fl_node *node, struct fl_session_id id, uint32_t ttl_ms)
{
    struct live *live = fl_xcalloc(1, sizeof *live);

    live->id = id;
    live->ttl_ms = ttl_ms;
    fl_list_init(&live->in_due);
    fl_list_init(&live->held);
    fl_list_init(&live->in_carrier);
    fl_map_insert(&node->liveness.sessions, fl_node__session_hash(node, id), live);
    return live;
}

static void live_free(struct fl_node *node, struct live *live)
{
    FL_REQUIRE(fl_list_is_empty(&live->held));
    fl_heap_remove(&node->liveness.timers, &live->timer);
    fl_list_remove(&live->in_due);
    fl_list_remove(&live->in_carrier);
    free(live);
}

void fl_node__live_open(struct fl_node *node, struct fl_session_id id, uint32_t ttl_ms)
{
    struct live *live = fl_node__live(node, id);

    if (live != NULL) /* A repeated OPEN does not renew: nobody may believe in it again (T7). */
        return;
    live = live_new(node, id, ttl_ms);
    live->deadline = fl_node__judged_now(node) + ttl_ms;
    schedule(node, live);
}

static void acknowledge(struct fl_node *node, const struct live *live, struct pending *p)
{
    struct fl_reply reply = fl_node__reply_to(node, p, FL_ANS_OK);

    reply.ttl_ms = live->ttl_ms;
    fl_node__answer(node, p, &reply);
}

static struct pending *first_held(const struct live *live)
{
    struct fl_list *at = fl_list_first(&live->held);

    return at != NULL ? FL_CONTAINER_OF(at, struct pending, in_place) : NULL;
}

void fl_node__live_end(struct fl_node *node, struct fl_session_id id)
{
    struct live *live = fl_node__live(node, id);

    if (live == NULL)
        return;
    for (struct pending *p; (p = first_held(live)) != NULL;)
        fl_node__answer_plain(node, p, FL_ANS_SESSION_NOT_FOUND);
    fl_map_remove(&node->liveness.sessions, fl_node__session_hash(node, id), live);
    live_free(node, live);
}

static void note(struct fl_node *node, struct live *live, uint32_t silence_ms)
{
    struct fl_command command = {
        .type = FL_CMD_NOTE_SILENCE, .session = live->id, .silence_ms = silence_ms};

    fl_node__draft_add(node, &command, NULL);
}

void fl_node__live_heard(struct fl_node *node, struct live *live, uint64_t received_ms)
{
    if (live->expiring)
        return;
    if (received_ms + live->ttl_ms > live->deadline)
        live->deadline = received_ms + live->ttl_ms;
    fl_list_remove(&live->in_due);
    if (live->noted_ms != 0 && !live->clearing) {
        live->clearing = true;
        note(node, live, 0);
    }
    schedule(node, live);
}

/* N4: between the proposal of an expiry and its outcome nothing is acknowledged. Nor while the log
 * says that the session is silent: the next leader would give it the rest only, and the client
 * would believe in the whole. */
static bool must_hold(const struct live *live)
{
    if (live->expiring)
        return !FL_BUG(NODE_ACK_AFTER_EXPIRE_PROPOSED);
    return live->noted_ms != 0 && !FL_BUG(NODE_ACK_BEFORE_NOTE_CLEARED);
}

void fl_node__live_beat(struct fl_node *node, struct pending *p)
{
    struct live *live = fl_node__live(node, p->session);

    if (live == NULL) {
        fl_node__answer_plain(node, p, FL_ANS_SESSION_NOT_FOUND);
        return;
    }
    fl_node__live_heard(node, live, p->received_ms);
    if (must_hold(live))
        fl_list_append(&live->held, &p->in_place);
    else
        acknowledge(node, live, p);
}

void fl_node__live_carry(struct live *live, struct link *link)
{
    fl_list_remove(&live->in_carrier);
    live->carrier = link;
    if (link != NULL)
        fl_list_append(&link->carried, &live->in_carrier);
}

uint32_t fl_node__live_silence_ms(const struct fl_node *node, const struct live *live)
{
    uint64_t now = fl_node__judged_now(node);
    uint64_t silence;

    if (now >= live->deadline)
        silence = now - live->deadline + live->ttl_ms;
    else if (live->deadline - now >= live->ttl_ms)
        silence = 0;
    else
        silence = live->ttl_ms - (live->deadline - now);
    return silence > UINT32_MAX ? UINT32_MAX : (uint32_t)silence;
}

void fl_node__live_cleared(struct fl_node *node, struct fl_session_id id)
{
    struct live *live = fl_node__live(node, id);

    if (live == NULL || !live->clearing)
        return;
    live->clearing = false;
    live->noted_ms = 0;
    if (live->expiring)
        return;
    schedule(node, live);
    for (struct pending *p; (p = first_held(live)) != NULL;)
        acknowledge(node, live, p);
}

static void refuse_held(struct fl_node *node, struct live *live)
{
    for (struct pending *p; (p = first_held(live)) != NULL;)
        fl_node__answer_not_leader(node, p);
}

void fl_node__live_not_expired(struct fl_node *node, struct fl_session_id id)
{
    struct live *live = fl_node__live(node, id);

    if (live == NULL)
        return;
    live->expiring = false;
    live->deadline = fl_node__judged_now(node) + EXPIRY_RETRY_MS;
    schedule(node, live);
    refuse_held(node, live);
}

void fl_node__live_note_refused(struct fl_node *node, struct fl_session_id id)
{
    struct live *live = fl_node__live(node, id);

    if (live == NULL || live->expiring)
        return;
    live->clearing = false;
    schedule(node, live);
    refuse_held(node, live);
}

/* --- The table --- */

void fl_node__liveness_init(struct fl_node *node)
{
    fl_list_init(&node->liveness.due);
    fl_list_init(&node->liveness.doomed);
}

/* N2: a full TTL from now, or the rest of it for one that the log knows to be silent. */
static uint32_t grace_ms(const struct fl_session_info *info)
{
    if (FL_BUG(NODE_NO_GRACE))
        return 0;
    if (FL_BUG(NODE_GRACE_HALVED))
        return info->ttl_ms / 2;
    if (FL_BUG(NODE_NOTE_IGNORED))
        return info->ttl_ms;
    return info->silence_ms < info->ttl_ms ? info->ttl_ms - info->silence_ms : 0;
}

static void begin_session(void *ctx, const struct fl_session_info *info)
{
    struct fl_node *node = ctx;
    struct live *live = fl_node__live(node, info->id);

    if (live != NULL) {
        FL_REQUIRE(FL_BUG(NODE_TABLE_KEPT));
        return;
    }
    live = live_new(node, info->id, info->ttl_ms);
    live->noted_ms = info->silence_ms;
    live->deadline = fl_node__judged_now(node) + grace_ms(info);
    schedule(node, live);
}

static void hear_all(struct fl_node *node, const struct fl_list *beats)
{
    FL_LIST_EACH(at, beats)
    {
        struct pending *p = FL_CONTAINER_OF(at, struct pending, in_place);
        struct live *live = fl_node__live(node, p->session);

        if (live != NULL)
            fl_node__live_heard(node, live, p->received_ms);
    }
}

void fl_node__liveness_begin(struct fl_node *node)
{
    fl_machine_each_session(node->machine, begin_session, node);
    hear_all(node, &node->rounds.beats);
    hear_all(node, &node->rounds.ready_beats);
}

void fl_node__liveness_clear(struct fl_node *node)
{
    if (!FL_BUG(NODE_TABLE_KEPT))
        fl_node__liveness_deinit(node);
}

void fl_node__liveness_deinit(struct fl_node *node)
{
    size_t cursor = 0;
    struct live *live;

    while ((live = fl_map_next(&node->liveness.sessions, &cursor)) != NULL)
        live_free(node, live);
    fl_map_deinit(&node->liveness.sessions);
    fl_heap_deinit(&node->liveness.timers);
}

/* Who was due before the stall is asked for again, after a confirmation that begins after it. */
void fl_node__liveness_stalled(struct fl_node *node, uint64_t gap_ms)
{
    struct liveness *liveness = &node->liveness;

    if (FL_BUG(NODE_STALL_NOT_ADDED))
        return;
    liveness->stalled_ms += gap_ms;
    FL_LIST_EACH(at, &liveness->doomed)
    {
        fl_list_remove(at);
        fl_list_append(&liveness->due, at);
    }
    FL_LIST_EACH(at, &liveness->due)
    {
        FL_CONTAINER_OF(at, struct live, in_due)->due_round = fl_node__rounds_next(node);
    }
}

static void become_due(struct fl_node *node, struct live *live)
{
    fl_heap_remove(&node->liveness.timers, &live->timer);
    live->due_round = fl_node__rounds_next(node);
    fl_list_append(FL_BUG(NODE_EXPIRY_UNCONFIRMED) ? &node->liveness.doomed : &node->liveness.due,
                   &live->in_due);
}

void fl_node__liveness_flush(struct fl_node *node)
{
    uint64_t now = fl_node__judged_now(node);
    struct fl_heap_node *first;

    if (!node->is_settled)
        return;
    while ((first = fl_heap_first(&node->liveness.timers)) != NULL && first->key <= now) {
        struct live *live = FL_CONTAINER_OF(first, struct live, timer);

        if (live->deadline <= now) {
            become_due(node, live);
            continue;
        }
        live->noted_ms = fl_node__live_silence_ms(node, live);
        note(node, live, live->noted_ms);
        schedule(node, live);
    }
}

uint64_t fl_node__liveness_round(const struct fl_node *node)
{
    const struct fl_list *due = &node->liveness.due;

    return fl_list_is_empty(due) ? 0 : FL_CONTAINER_OF(due->prev, struct live, in_due)->due_round;
}

void fl_node__liveness_confirmed(struct fl_node *node, uint64_t round)
{
    FL_LIST_EACH(at, &node->liveness.due)
    {
        if (FL_CONTAINER_OF(at, struct live, in_due)->due_round > round)
            break;
        fl_list_remove(at);
        fl_list_append(&node->liveness.doomed, at);
    }
}

/* N3: the expiry carries our term, and is made at the last moment: whoever was heard until now is
 * no longer in the list. */
void fl_node__liveness_condemn(struct fl_node *node)
{
    struct fl_list *at;

    for (int n = 0; n < EXPIRIES_PER_ENTRY; n++) {
        struct fl_command command = {.type = FL_CMD_EXPIRE_SESSION, .term = node->term};
        struct live *live;

        if ((at = fl_list_first(&node->liveness.doomed)) == NULL)
            return;
        live = FL_CONTAINER_OF(at, struct live, in_due);
        fl_list_remove(at);
        live->expiring = true;
        command.session = live->id;
        fl_node__draft_add(node, &command, NULL);
    }
}
