#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "raft/engine_state.h"

/* libraft keeps a leader's address and never uses it here. */
#define ADDRESS "peer"
/* The version of its structures in which all fields that we fill are read. */
#define LIBRAFT_VERSION 2
#define HEADS_ON_STACK  64

/* libraft reports only what must not happen: entries that contradict what was committed. Going on
 * would spread it. */
static void feed(struct fl_engine *e, struct raft_message *rm,
                 const struct fl_engine_source *source)
{
    struct raft_event event = {.type = RAFT_RECEIVE, .receive = {.message = rm}};

    FL_REQUIRE(fl_engine__step(e, &event, source) == 0);
}

/* The entries k to k + n - 1 of an append, as an append of their own. */
static void feed_part(struct fl_engine *e, const struct fl_raft_message *m, unsigned k, unsigned n)
{
    struct raft_entry on_stack[HEADS_ON_STACK], *heads = on_stack;
    struct fl_engine_source source = {.first = m->log_index + k + 1};
    struct raft_message rm = {
        .type = RAFT_APPEND_ENTRIES, .server_id = m->from, .server_address = ADDRESS};
    struct raft_append_entries *append = &rm.append_entries;

    append->term = m->term;
    append->prev_log_index = m->log_index + k;
    append->prev_log_term = k != 0 ? m->entries[k - 1]->term : m->log_term;
    append->leader_commit = m->commit;
    append->n_entries = n;
    if (n != 0) {
        if (n > HEADS_ON_STACK)
            heads = fl_xcalloc(n, sizeof *heads);
        source.entries = m->entries + k;
        /* libraft owns a batch's memory but never looks into it: one byte stands in for ours. */
        fl_engine__fill_heads(heads, source.entries, n, raft_malloc(1));
        append->entries = heads;
    }
    feed(e, &rm, &source);
    if (heads != on_stack)
        free(heads);
}

/* Rule 2b: a change on top of one that we have implies that ours is committed. libraft would forget
 * it, and with it the configuration to fall back to. */
static void confirm_older_change(struct fl_engine *e, const struct fl_raft_message *m, unsigned k)
{
    uint64_t index = m->log_index + 1 + k, older = e->raft.configuration_uncommitted_index;
    uint64_t before = k != 0 ? m->entries[k - 1]->term : m->log_term;
    struct fl_entry *change = fl_engine_log_get(&e->log, older);

    if (older == 0 || older >= index || change == NULL || change->type != FL_ENTRY_CHANGE ||
        m->term < fl_engine_term(e) || fl_engine__term_at(e, index - 1) != before ||
        fl_engine__term_at(e, index) == m->entries[k]->term)
        return;
    FL_RULE_ACTED(e, CONFIRM_CHANGE);
    fl_engine__confirm_change(e, older, change->data, change->len);
}

static void feed_append(struct fl_engine *e, const struct fl_raft_message *m)
{
    unsigned k = 0;

    if (m->n == 0 || !FL_RULE_ON(e, SPLIT_CHANGE)) {
        feed_part(e, m, 0, m->n);
        fl_engine__settle(e);
        return;
    }
    while (k < m->n) {
        unsigned n = 0;

        while (k + n < m->n && m->entries[k + n]->type != FL_ENTRY_CHANGE)
            n++;
        if (n == 0) {
            n = 1;
            if (FL_RULE_ON(e, CONFIRM_CHANGE))
                confirm_older_change(e, m, k);
        }
        if (n != m->n)
            FL_RULE_ACTED(e, SPLIT_CHANGE);
        feed_part(e, m, k, n);
        /* Between the parts, so that libraft sees a change applied before the next one. */
        fl_engine__settle(e);
        k += n;
        /* Refused: one refusal is enough. */
        if (m->log_index + k >= e->log.first &&
            fl_engine__term_at(e, m->log_index + k) != m->entries[k - 1]->term)
            break;
    }
}

static void receive_append(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct fl_raft_message anchored = *m;
    uint64_t skip;
    bool is_below =
        e->snapshot != NULL && e->installing == NULL && m->log_index < e->snapshot->index &&
        (m->log_index == 0 ? e->log.first > 1 : fl_engine__term_at(e, m->log_index) == 0);

    if (!is_below || !FL_RULE_ON(e, TRIM)) {
        feed_append(e, m);
        return;
    }
    /* Rule 5: all up to our snapshot is committed, so a leader has the same there. */
    FL_RULE_ACTED(e, TRIM);
    skip = e->snapshot->index - m->log_index;
    if (skip > m->n)
        skip = m->n;
    anchored.entries = m->n != 0 ? m->entries + skip : NULL;
    anchored.n = m->n - (unsigned)skip;
    anchored.log_index = e->snapshot->index;
    anchored.log_term = e->snapshot->term;
    feed_append(e, &anchored);
}

static void receive_append_result(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct raft_message rm = {
        .type = RAFT_APPEND_ENTRIES_RESULT, .server_id = m->from, .server_address = ADDRESS};
    struct raft_append_entries_result *result = &rm.append_entries_result;

    result->version = LIBRAFT_VERSION;
    result->term = m->term;
    result->rejected = m->rejected;
    result->last_log_index = m->log_index;
    result->features = m->features;
    result->capacity = m->capacity;
    if (m->rejected != 0 && m->term == fl_engine_term(e) && fl_engine__leads(e) &&
        FL_RULE_ON(e, STALE_REJECTION)) {
        uint64_t match = fl_engine_match_index(e, m->from);

        /* What was acknowledged is durable: a refusal of it is an old one. */
        if (m->rejected <= match) {
            FL_RULE_ACTED(e, STALE_REJECTION);
            return;
        }
        if (result->last_log_index < match)
            result->last_log_index = match;
    }
    feed(e, &rm, NULL);
}

/* Rule 12: libraft refuses to vote when its own configuration, which may be stale, does not count
 * it among the voters. Whoever asks decides whose votes count, so granting is safe. It is shown
 * itself as a voter for this one step; not while it leads (progress goes by position), and not
 * without any configuration: what lost its disk must not vote. */
static void feed_vote(struct fl_engine *e, struct raft_message *rm)
{
    struct raft_configuration *c = &e->raft.configuration;
    struct raft_server shown[FL_RAFT_SERVERS_MAX + 1], *servers = c->servers;
    struct raft_server *self = fl_engine__server(e, e->id);
    unsigned n = c->n;

    if (!FL_RULE_ON(e, UNAWARE_VOTER) || n == 0 || n > FL_RAFT_SERVERS_MAX || fl_engine__leads(e) ||
        fl_engine__is_voter(e, e->id)) {
        feed(e, rm, NULL);
        return;
    }
    FL_RULE_ACTED(e, UNAWARE_VOTER);
    /* Whoever follows a leader refuses, and who takes itself for no voter never stands, and so
     * follows the last one for ever. */
    if (e->now_ms >= e->leader_heard_ms + e->raft.election_timeout)
        rm->request_vote.disrupt_leader = true;
    memcpy(shown, servers, n * sizeof *servers);
    if (self != NULL) {
        shown[self - servers].role = RAFT_VOTER;
    } else {
        shown[n] =
            (struct raft_server){.id = e->id, .address = e->raft.address, .role = RAFT_VOTER};
        c->n = n + 1;
    }
    c->servers = shown;
    feed(e, rm, NULL);
    c->servers = servers;
    c->n = n;
}

static void receive_vote(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct raft_message rm = {
        .type = RAFT_REQUEST_VOTE, .server_id = m->from, .server_address = ADDRESS};

    if (m->is_pre_vote && m->term < fl_engine_term(e) && FL_RULE_ON(e, PREVOTE_TERM)) {
        struct fl_raft_message refusal = {.type = FL_RAFT_VOTE_RESULT,
                                          .from = e->id,
                                          .to = m->from,
                                          .term = fl_engine_term(e),
                                          .is_pre_vote = true};

        FL_RULE_ACTED(e, PREVOTE_TERM);
        e->ops->send(e->ctx, &refusal);
        return;
    }
    rm.request_vote = (struct raft_request_vote){
        .version = LIBRAFT_VERSION,
        .term = m->term,
        .candidate_id = m->from,
        .last_log_index = m->log_index,
        .last_log_term = m->log_term,
        .disrupt_leader = m->disrupts,
        .pre_vote = m->is_pre_vote,
    };
    feed_vote(e, &rm);
}

static void receive_vote_result(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct raft_message rm = {
        .type = RAFT_REQUEST_VOTE_RESULT, .server_id = m->from, .server_address = ADDRESS};

    if (e->raft.state != RAFT_CANDIDATE && FL_RULE_ON(e, LATE_VOTE)) {
        FL_RULE_ACTED(e, LATE_VOTE);
        return;
    }
    rm.request_vote_result = (struct raft_request_vote_result){
        .version = LIBRAFT_VERSION,
        .term = m->term,
        .vote_granted = m->is_granted,
        .pre_vote = m->is_pre_vote,
        .features = m->features,
        .capacity = m->capacity,
    };
    feed(e, &rm, NULL);
}

static void receive_snapshot(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct raft_message rm = {
        .type = RAFT_INSTALL_SNAPSHOT, .server_id = m->from, .server_address = ADDRESS};
    struct fl_engine_source source = {.snapshot = m->snapshot};
    struct raft_install_snapshot *install = &rm.install_snapshot;

    if (e->installing != NULL && FL_RULE_ON(e, INSTALL_ONCE)) {
        FL_RULE_ACTED(e, INSTALL_ONCE);
        return;
    }
    install->term = m->term;
    install->last_index = m->snapshot->index;
    install->last_term = m->snapshot->term;
    install->conf_index = m->snapshot->configuration_index;
    if (fl_engine__configuration_decode(m->snapshot->configuration, m->snapshot->configuration_len,
                                        &install->conf) < 0)
        return;
    feed(e, &rm, &source);
}

static void receive_timeout_now(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct raft_message rm = {
        .type = RAFT_TIMEOUT_NOW, .server_id = m->from, .server_address = ADDRESS};

    rm.timeout_now = (struct raft_timeout_now){
        .term = m->term, .last_log_index = m->log_index, .last_log_term = m->log_term};
    feed(e, &rm, NULL);
}

/* Rule 1: libraft's answer to an older term looks like a success to whoever leads ours. */
static bool answer_old_term(struct fl_engine *e, const struct fl_raft_message *m)
{
    struct fl_raft_message refusal = {.type = FL_RAFT_APPEND_RESULT,
                                      .from = e->id,
                                      .to = m->from,
                                      .term = fl_engine_term(e),
                                      .rejected = 1,
                                      .is_old = true};

    if (!FL_RULE_ON(e, OLD_TERM))
        return false;
    if (m->type == FL_RAFT_APPEND_RESULT)
        return m->is_old && m->term <= fl_engine_term(e);
    if ((m->type != FL_RAFT_APPEND && m->type != FL_RAFT_INSTALL_SNAPSHOT) ||
        m->term >= fl_engine_term(e))
        return false;
    FL_RULE_ACTED(e, OLD_TERM);
    e->ops->send(e->ctx, &refusal);
    return true;
}

/* Rule 15: what libraft takes on trust. */
static bool is_sound(const struct fl_engine *e, uint64_t from, const struct fl_raft_message *m)
{
    if (from == 0 || from == e->id || fl_raft_message_check(m) < 0)
        return false;
    /* A second leader of our term: whoever it is, it is not heard. */
    return !(fl_engine__leads(e) && m->term == fl_engine_term(e) &&
             (m->type == FL_RAFT_APPEND || m->type == FL_RAFT_INSTALL_SNAPSHOT));
}

void fl_engine_receive(struct fl_engine *e, uint64_t now_ms, uint64_t from,
                       const struct fl_raft_message *message)
{
    struct fl_raft_message m = *message;
    struct fl_engine_peer *peer;

    e->now_ms = now_ms;
    m.from = from;
    if (FL_RULE_ON(e, CHECK_MESSAGE) && !is_sound(e, from, &m)) {
        FL_RULE_ACTED(e, CHECK_MESSAGE);
        return;
    }
    peer = fl_engine__leads(e) ? fl_engine__peer(e, from) : NULL;
    if (peer != NULL)
        peer->heard_ms = now_ms;
    if (answer_old_term(e, &m))
        return;
    if (m.type == FL_RAFT_APPEND || m.type == FL_RAFT_INSTALL_SNAPSHOT) {
        e->leader_heard_ms = now_ms;
        e->leader_heard_term = m.term;
    }
    switch (m.type) {
    case FL_RAFT_APPEND:
        receive_append(e, &m);
        return; /* settled part by part */
    case FL_RAFT_APPEND_RESULT:
        receive_append_result(e, &m);
        break;
    case FL_RAFT_VOTE:
        receive_vote(e, &m);
        break;
    case FL_RAFT_VOTE_RESULT:
        receive_vote_result(e, &m);
        break;
    case FL_RAFT_INSTALL_SNAPSHOT:
        receive_snapshot(e, &m);
        break;
    case FL_RAFT_TIMEOUT_NOW:
        receive_timeout_now(e, &m);
        break;
    case FL_RAFT_PING:
        fl_engine__receive_ping(e, &m);
        break;
    case FL_RAFT_PONG:
        fl_engine__receive_pong(e, &m);
        break;
    }
    fl_engine__settle(e);
}
