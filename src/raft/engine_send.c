#include <string.h>

#include "base/assert.h"
#include "raft/engine_state.h"

/* An append as several messages, each below the cap unless a single entry is above it: libraft
 * gives everything that a server lacks at once. The server sees them as appends that follow each
 * other, and acknowledges each. */
static void send_append(struct fl_engine *e, struct fl_raft_message *m, unsigned n)
{
    struct fl_entry *entries[256];
    uint64_t next = m->log_index + 1;

    m->entries = entries;
    do {
        size_t bytes = 0;

        m->n = 0;
        while (n != 0 && m->n < sizeof entries / sizeof entries[0]) {
            struct fl_entry *entry = fl_engine_log_get(&e->log, next);

            FL_REQUIRE(entry != NULL);
            if (m->n != 0 && bytes + entry->len > FL_RAFT_APPEND_BYTES_MAX)
                break;
            bytes += entry->len;
            entries[m->n++] = entry;
            next++;
            n--;
        }
        e->ops->send(e->ctx, m);
        m->log_index = next - 1;
        m->log_term = fl_engine__term_at(e, next - 1);
    } while (n != 0);
}

/* Rule 9: libraft asks again with each heartbeat that is refused. */
static void send_snapshot(struct fl_engine *e, struct fl_raft_message *m)
{
    struct fl_engine_peer *peer = fl_engine__peer(e, m->to);

    if (peer != NULL && FL_RULE_ON(e, ONE_TRANSFER)) {
        if (peer->transfer_index == m->snapshot->index && e->now_ms < peer->transfer_until) {
            FL_RULE_ACTED(e, ONE_TRANSFER);
            return;
        }
        peer->transfer_index = m->snapshot->index;
        peer->transfer_until = e->now_ms + e->raft.election_timeout;
    }
    e->ops->send_snapshot(e->ctx, m->to, m);
}

/* Rule 14: libraft's leader steps back one entry per round trip. All entries of the term that
 * conflicts can be skipped, down to what is committed. */
static uint64_t conflict_hint(struct fl_engine *e, uint64_t rejected, uint64_t last)
{
    uint64_t i = rejected;
    uint64_t term = i >= e->log.first ? fl_engine__term_at(e, i) : 0;

    if (!FL_RULE_ON(e, CONFLICT_HINT) || term == 0 || last != i - 1)
        return last;
    while (i > e->commit + 1 && i > e->log.first && fl_engine__term_at(e, i - 1) == term)
        i--;
    if (i != rejected)
        FL_RULE_ACTED(e, CONFLICT_HINT);
    return i - 1;
}

static void send_append_result(struct fl_engine *e, struct fl_raft_message *m,
                               const struct raft_append_entries_result *result)
{
    m->type = FL_RAFT_APPEND_RESULT;
    m->term = result->term;
    m->rejected = result->rejected;
    m->log_index = result->last_log_index;
    m->features = result->features;
    m->capacity = result->capacity;
    if (m->rejected != 0)
        m->log_index = conflict_hint(e, m->rejected, m->log_index);
    e->ops->send(e->ctx, m);
}

static void send_vote(struct fl_engine *e, struct fl_raft_message *m,
                      const struct raft_request_vote *vote)
{
    m->type = FL_RAFT_VOTE;
    m->term = vote->term;
    m->log_index = vote->last_log_index;
    m->log_term = vote->last_log_term;
    m->disrupts = vote->disrupt_leader;
    m->is_pre_vote = vote->pre_vote;
    e->ops->send(e->ctx, m);
}

void fl_engine__send(struct fl_engine *e, const struct raft_message *message)
{
    struct fl_raft_message m = {.from = e->id, .to = message->server_id};

    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        m.type = FL_RAFT_APPEND;
        m.term = message->append_entries.term;
        m.log_index = message->append_entries.prev_log_index;
        m.log_term = message->append_entries.prev_log_term;
        m.commit = message->append_entries.leader_commit;
        send_append(e, &m, message->append_entries.n_entries);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        send_append_result(e, &m, &message->append_entries_result);
        break;
    case RAFT_REQUEST_VOTE:
        send_vote(e, &m, &message->request_vote);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        m.type = FL_RAFT_VOTE_RESULT;
        m.term = message->request_vote_result.term;
        m.is_granted = message->request_vote_result.vote_granted;
        m.is_pre_vote = message->request_vote_result.pre_vote;
        m.features = message->request_vote_result.features;
        m.capacity = message->request_vote_result.capacity;
        e->ops->send(e->ctx, &m);
        break;
    case RAFT_INSTALL_SNAPSHOT:
        FL_REQUIRE(e->snapshot != NULL &&
                   e->snapshot->index == message->install_snapshot.last_index);
        m.type = FL_RAFT_INSTALL_SNAPSHOT;
        m.term = message->install_snapshot.term;
        m.snapshot = e->snapshot;
        send_snapshot(e, &m);
        break;
    case RAFT_TIMEOUT_NOW:
        m.type = FL_RAFT_TIMEOUT_NOW;
        m.term = message->timeout_now.term;
        m.log_index = message->timeout_now.last_log_index;
        m.log_term = message->timeout_now.last_log_term;
        e->ops->send(e->ctx, &m);
        break;
    }
}
