/* Rounds that confirm leadership: a ping that a majority of the voters answers, each only while it
 * has seen no newer term, shows that no other leader was elected before the ping was sent. Nothing
 * here depends on clocks. */
#include <string.h>

#include "raft/engine_state.h"

void fl_engine__ping(struct fl_engine *e)
{
    const struct raft_configuration *c = &e->raft.configuration;
    struct fl_raft_message ping = {
        .type = FL_RAFT_PING, .from = e->id, .term = fl_engine_term(e), .seq = e->ping_seq};

    for (unsigned i = 0; i < c->n; i++) {
        if (c->servers[i].id == e->id || c->servers[i].role != RAFT_VOTER)
            continue;
        ping.to = c->servers[i].id;
        e->ops->send(e->ctx, &ping);
    }
}

void fl_engine_confirm(struct fl_engine *e, uint64_t now_ms, uint64_t round)
{
    struct fl_engine_round *slot;

    e->now_ms = now_ms;
    if (!fl_engine__leads(e))
        return;
    if (e->n_rounds < FL_ENGINE_ROUNDS_MAX)
        e->n_rounds++;
    slot = &e->rounds[e->n_rounds - 1];
    *slot = (struct fl_engine_round){.round = round, .seq = ++e->ping_seq, .index = e->commit};
    fl_engine__ping(e);
    fl_engine__settle(e);
}

void fl_engine__receive_ping(struct fl_engine *e, const struct fl_raft_message *ping)
{
    struct fl_raft_message pong = {.type = FL_RAFT_PONG,
                                   .from = e->id,
                                   .to = ping->from,
                                   .term = ping->term,
                                   .seq = ping->seq};

    /* With a newer term we may have helped to elect somebody else. */
    if (fl_engine_term(e) <= ping->term)
        e->ops->send(e->ctx, &pong);
}

void fl_engine__receive_pong(struct fl_engine *e, const struct fl_raft_message *pong)
{
    struct fl_engine_peer *peer;

    if (!fl_engine__leads(e) || pong->term != fl_engine_term(e) || pong->seq > e->ping_seq)
        return;
    peer = fl_engine__peer(e, pong->from);
    if (peer != NULL && pong->seq > peer->pong_seq)
        peer->pong_seq = pong->seq;
}

static bool has_majority(struct fl_engine *e, uint64_t seq)
{
    unsigned answers = fl_engine__is_voter(e, e->id) ? 1 : 0;

    for (unsigned i = 0; i < e->n_peers; i++)
        if (e->peers[i].pong_seq >= seq && fl_engine__is_voter(e, e->peers[i].id))
            answers++;
    return answers > fl_engine__voters(&e->raft.configuration) / 2;
}

void fl_engine__confirm_settle(struct fl_engine *e)
{
    struct fl_engine_round done;
    unsigned n = e->n_rounds;

    /* Before its own entry is committed a leader does not know how far its predecessors came. */
    if (n == 0 || !fl_engine__leads(e) || e->needs_own_entry || e->commit < e->term_start)
        return;
    while (n != 0 && !has_majority(e, e->rounds[n - 1].seq))
        n--;
    if (n == 0)
        return;
    done = e->rounds[n - 1];
    e->n_rounds -= n;
    memmove(e->rounds, e->rounds + n, e->n_rounds * sizeof e->rounds[0]);
    if (done.index < e->term_start)
        done.index = e->term_start;
    e->ops->confirmed(e->ctx, done.round, done.index);
}
