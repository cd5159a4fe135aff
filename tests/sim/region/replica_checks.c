#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "replica.h"

typedef unsigned long long ull;

/* --- What was told to be durable --- */

void replica__promise_vote(struct replica *r, uint64_t term, uint64_t voted_for)
{
    struct replica_promise *p = &r->promise;

    if (term < p->term || (term == p->term && p->voted_for != 0 && p->voted_for != voted_for))
        timeline_fail(r->place.time, "R3: node %u votes twice in term %llu", r->id, (ull)term);
    p->term = term;
    p->voted_for = voted_for;
}

/* Queued: it may truncate at any moment. */
void replica__note_append(struct replica *r, const struct fl_append *append)
{
    r->promise.queued++;
    if (append->index < r->promise.floor)
        r->promise.floor = append->index;
}

static void promise_entries(struct replica_promise *p, const struct fl_append *append)
{
    uint64_t last = append->index + append->n - 1;

    if (last >= p->capacity) {
        p->capacity = fl_grow_capacity(p->capacity, last + 1, sizeof *p->terms);
        p->terms = fl_xrealloc(p->terms, p->capacity * sizeof *p->terms);
    }
    for (unsigned i = 0; i < append->n; i++)
        p->terms[append->index + i] = append->entries[i]->term;
    p->last = last;
}

void replica__promise_append(struct replica *r, const struct fl_append *append)
{
    struct replica_promise *p = &r->promise;

    p->queued--;
    if (p->voided > 0)
        p->voided--;
    else
        promise_entries(p, append);
    if (p->queued == 0)
        p->floor = UINT64_MAX;
}

void replica__promise_snapshot(struct replica *r, uint64_t index, bool replaces_log)
{
    struct replica_promise *p = &r->promise;

    if (index > p->installed)
        p->installed = index;
    if (replaces_log) {
        p->last = index;
        p->voided = p->queued;
    }
}

bool replica__promised(const struct replica *r, uint64_t index, uint64_t term)
{
    const struct replica_promise *p = &r->promise;

    return index <= p->installed || (index <= p->last && p->terms[index] == term);
}

static uint64_t found_term(const struct fl_store_recovered *found, uint64_t index)
{
    if (index < found->start_index || index >= found->start_index + found->n)
        return 0;
    return found->entries[index - found->start_index]->term;
}

void replica__check_recovered(struct replica *r, const struct fl_store_recovered *found)
{
    struct replica_promise *p = &r->promise;
    uint64_t covered = found->snapshot != NULL ? found->snapshot->index : 0;
    uint64_t last = p->last < p->floor - 1 ? p->last : p->floor - 1;

    if (found->term < p->term ||
        (found->term == p->term && p->voted_for != 0 && found->voted_for != p->voted_for))
        timeline_fail(r->place.time, "R3: node %u forgot its vote in term %llu", r->id,
                      (ull)p->term);
    for (uint64_t i = covered + 1; i <= last; i++) {
        if (found_term(found, i) != p->terms[i]) {
            timeline_fail(r->place.time, "R4: node %u lost entry %llu, which it told durable",
                          r->id, (ull)i);
            return;
        }
    }
    /* What was found beyond is durable now: the engine acts on it. */
    p->term = found->term;
    p->voted_for = found->voted_for;
    p->floor = UINT64_MAX;
    p->last = covered;
    p->queued = p->voided = 0;
    for (unsigned i = 0; i < found->n; i++) {
        struct fl_append one = {found->start_index + i, 1, &found->entries[i], 0};

        if (one.index > covered)
            promise_entries(p, &one);
    }
    if (covered > p->installed)
        p->installed = covered;
}

/* --- The node's judgement of sessions --- */

static struct replica_heard *heard_of(struct replica *r, uint64_t session)
{
    return &r->heard[session % REPLICA_SESSIONS];
}

void replica__note_role(struct replica *r, uint64_t term, bool is_leader)
{
    if (r->leads == is_leader && r->term == term)
        return;
    r->settled_ms = r->confirmed_begun_us = 0;
    r->leads = is_leader;
    r->term = term;
}

void replica__note_applied(struct replica *r, uint64_t index, uint64_t term)
{
    (void)index;
    if (r->leads && r->term == term && r->settled_ms == 0)
        r->settled_ms = place_now_ms(&r->place);
}

/* T3, with its exception: the log may know that the session is silent. */
static void check_expiry(struct replica *r, const struct fl_command *command, uint64_t index)
{
    struct replica_heard *heard = heard_of(r, command->session.low);
    uint64_t since = r->settled_ms, needed, now = place_now_ms(&r->place);
    struct fl_session_info info;

    r->counts.expiries++;
    if (command->term != r->term)
        timeline_fail(r->place.time, "T4: an expiry of another term");
    if (!fl_machine_session(fl_node_machine(r->node), command->session, &info))
        return;
    needed = info.ttl_ms;
    if (heard->term == r->term)
        since = heard->at_ms;
    else
        needed -= info.silence_ms < needed ? info.silence_ms : needed;
    if (now < since + needed)
        timeline_fail(r->place.time, "T3: an expiry is proposed %llu ms early",
                      (ull)(since + needed - now));
    heard->expiring_term = r->term;
    heard->expiring_index = index;
}

void replica__check_proposal(struct replica *r, const void *data, size_t len, uint64_t index)
{
    struct fl_batch batch;

    if (fl_batch_decode(data, len, &batch) != FL_OK)
        return;
    for (size_t i = 0; i < batch.n; i++) {
        if (batch.commands[i].type == FL_CMD_EXPIRE_SESSION)
            check_expiry(r, &batch.commands[i], index);
    }
    fl_batch_deinit(&batch);
}

/* The node reads it: from here on it is heard. */
void replica__note_request(struct replica *r, uint64_t link, const void *data, size_t len)
{
    struct fl_request request;

    if (fl_request_decode(data, len, &request) != FL_OK || request.type != FL_REQ_KEEP_ALIVE)
        return;
    r->beats[request.tag % REPLICA_BEATS] =
        (struct replica_beat){link, request.tag, r->place.time->now_us, request.session.low};
    if (!r->leads)
        return;
    heard_of(r, request.session.low)->term = r->term;
    heard_of(r, request.session.low)->at_ms = place_now_ms(&r->place);
}

/* T2, T5: seen where the acknowledgement leaves. */
static void check_acknowledgement(struct replica *r, uint64_t link, const struct fl_reply *reply)
{
    const struct replica_beat *beat = &r->beats[reply->tag % REPLICA_BEATS];
    const struct replica_heard *heard;

    if (beat->link != link || beat->tag != reply->tag)
        return;
    heard = heard_of(r, beat->session);
    r->counts.acks++;
    r->truth->judge->acks++;
    if (r->confirmed_begun_us < beat->received_us)
        timeline_fail(r->place.time, "T2: acknowledged without a confirmation after receipt");
    if (truth_was_deposed(r->truth, r->term, beat->received_us))
        timeline_fail(r->place.time,
                      "T2: acknowledged by node %u, deposed before the heartbeat came", r->id);
    if (heard->expiring_term == r->term &&
        heard->expiring_index > fl_machine_index(fl_node_machine(r->node)))
        timeline_fail(r->place.time, "T5: acknowledged while an expiry is under way");
}

void replica__check_frame(struct replica *r, uint64_t link, const uint8_t *data, size_t len)
{
    struct fl_reply reply;

    if (data[0] != FL_LINK_REPLY || fl_reply_decode(data + 1, len - 1, &reply) != FL_OK)
        return;
    if (reply.request_type == FL_REQ_KEEP_ALIVE && reply.status == FL_REPLY_ANSWER &&
        reply.answer == FL_ANS_OK)
        check_acknowledgement(r, link, &reply);
    fl_reply_deinit(&reply);
}
