#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "raft/engine_state.h"

/* What remains must survive the loss of one. */
#define VOTERS_MIN 3

int fl_engine__configuration_decode(const void *data, uint32_t len,
                                    struct raft_configuration *ret_configuration)
{
    struct raft_buffer buf = {.base = (void *)(uintptr_t)data, .len = len};

    raft_configuration_init(ret_configuration);
    return raft_configuration_decode(&buf, ret_configuration) == 0 ? FL_OK : FL_E_MALFORMED;
}

struct raft_server *fl_engine__server(const struct fl_engine *e, uint64_t id)
{
    for (unsigned i = 0; i < e->raft.configuration.n; i++)
        if (e->raft.configuration.servers[i].id == id)
            return &e->raft.configuration.servers[i];
    return NULL;
}

bool fl_engine__is_voter(const struct fl_engine *e, uint64_t id)
{
    const struct raft_server *server = fl_engine__server(e, id);

    return server != NULL && server->role == RAFT_VOTER;
}

unsigned fl_engine__voters(const struct raft_configuration *configuration)
{
    unsigned n = 0;

    for (unsigned i = 0; i < configuration->n; i++)
        n += configuration->servers[i].role == RAFT_VOTER;
    return n;
}

struct fl_engine_peer *fl_engine__peer(struct fl_engine *e, uint64_t id)
{
    struct fl_engine_peer *peer = NULL;

    for (unsigned i = 0; i < e->n_peers; i++)
        if (e->peers[i].id == id)
            return &e->peers[i];
    if (fl_engine__server(e, id) == NULL)
        return NULL;
    if (e->n_peers < FL_RAFT_SERVERS_MAX)
        peer = &e->peers[e->n_peers++];
    for (unsigned i = 0; peer == NULL && i < e->n_peers; i++)
        if (fl_engine__server(e, e->peers[i].id) == NULL)
            peer = &e->peers[i];
    if (peer != NULL)
        *peer = (struct fl_engine_peer){.id = id};
    return peer;
}

/* Rule 12b. A voter that is silent is not waited for: it may be the dead one that this change
 * replaces. Nor is `leaving`. */
static bool voters_have_last_change(struct fl_engine *e, uint64_t leaving)
{
    const struct raft_configuration *c = &e->raft.configuration;

    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id, heard_ms = e->leading_since_ms;
        const struct fl_engine_peer *peer = fl_engine__peer(e, id);

        if (c->servers[i].role != RAFT_VOTER || id == e->id || id == leaving)
            continue;
        if (peer != NULL && peer->heard_ms > heard_ms)
            heard_ms = peer->heard_ms;
        if (fl_engine_match_index(e, id) < e->raft.configuration_committed_index &&
            e->now_ms < heard_ms + 2 * (uint64_t)e->raft.election_timeout)
            return false;
    }
    return true;
}

static int may_change(const struct fl_engine *e)
{
    if (!fl_engine__leads(e))
        return FL_E_NOT_LEADER;
    if (e->transfer_to != 0 || raft_transferee(&e->raft) != 0)
        return FL_E_BUSY;
    if (FL_RULE_ON(e, OWN_ENTRY) && (e->needs_own_entry || e->commit < e->term_start))
        return FL_E_BUSY;
    if (e->raft.configuration_uncommitted_index != 0 || e->raft.leader_state.promotee_id != 0 ||
        e->promoting != 0)
        return FL_E_BUSY;
    return FL_OK;
}

static int submit_configuration(struct fl_engine *e, const struct raft_configuration *c)
{
    struct raft_buffer buf;
    struct fl_entry *entry;
    int64_t index;

    FL_REQUIRE(raft_configuration_encode(c, &buf) == 0);
    entry = fl_entry_new(FL_ENTRY_CHANGE, 0, buf.base, (uint32_t)buf.len);
    raft_free(buf.base);
    index = fl_engine__submit(e, entry);
    fl_entry_unref(entry);
    return index < 0 ? (int)index : FL_OK;
}

enum edit { EDIT_ADD, EDIT_PROMOTE, EDIT_REMOVE };

/* The configuration in force with one server changed; the order of the others is kept, since
 * libraft finds their progress by position. */
static int submit_edit(struct fl_engine *e, enum edit edit, uint64_t id, const char *address)
{
    const struct raft_configuration *now = &e->raft.configuration;
    struct raft_configuration next;
    int r = FL_OK;

    raft_configuration_init(&next);
    for (unsigned i = 0; i < now->n && r == FL_OK; i++) {
        const struct raft_server *s = &now->servers[i];
        int role = edit == EDIT_PROMOTE && s->id == id ? RAFT_VOTER : s->role;

        if (edit == EDIT_REMOVE && s->id == id)
            continue;
        if (raft_configuration_add(&next, s->id, s->address, role) != 0)
            r = FL_E_INVALID;
    }
    if (r == FL_OK && edit == EDIT_ADD &&
        raft_configuration_add(&next, id, address, RAFT_STANDBY) != 0)
        r = FL_E_EXISTS;
    if (r == FL_OK)
        r = submit_configuration(e, &next);
    raft_configuration_close(&next);
    return r;
}

int fl_engine_add(struct fl_engine *e, uint64_t now_ms, uint64_t id, const char *address)
{
    int r;

    e->now_ms = now_ms;
    r = may_change(e);
    if (r < 0)
        return r;
    if (id == 0 || address == NULL || e->raft.configuration.n >= FL_RAFT_SERVERS_MAX)
        return FL_E_INVALID;
    if (fl_engine__server(e, id) != NULL)
        return FL_E_EXISTS;
    r = submit_edit(e, EDIT_ADD, id, address);
    fl_engine__settle(e);
    return r;
}

int fl_engine_promote(struct fl_engine *e, uint64_t now_ms, uint64_t id)
{
    struct raft_event event = {.type = RAFT_CATCH_UP, .catch_up = {.server_id = id}};
    int r;

    e->now_ms = now_ms;
    r = may_change(e);
    if (r < 0)
        return r;
    if (fl_engine__server(e, id) == NULL)
        return FL_E_NOT_FOUND;
    if (fl_engine__is_voter(e, id))
        return FL_E_EXISTS;
    if (FL_RULE_ON(e, LAST_CHANGE) && !voters_have_last_change(e, 0)) {
        FL_RULE_ACTED(e, LAST_CHANGE);
        return FL_E_BUSY;
    }
    /* Rule 16: libraft waits in vain for a server that is level already. */
    if (FL_RULE_ON(e, CATCH_UP) && fl_engine_match_index(e, id) == fl_engine_last_index(e)) {
        FL_RULE_ACTED(e, CATCH_UP);
        r = submit_edit(e, EDIT_PROMOTE, id, NULL);
    } else {
        if (fl_engine__step(e, &event, NULL) != 0)
            return FL_E_BUSY;
        e->promoting = id;
    }
    fl_engine__settle(e);
    return r;
}

int fl_engine_remove(struct fl_engine *e, uint64_t now_ms, uint64_t id)
{
    int r;

    e->now_ms = now_ms;
    r = may_change(e);
    if (r < 0)
        return r;
    if (fl_engine__server(e, id) == NULL)
        return FL_E_NOT_FOUND;
    if (fl_engine__is_voter(e, id) && FL_RULE_ON(e, SINGLE_VOTER) &&
        fl_engine__voters(&e->raft.configuration) <= VOTERS_MIN) {
        FL_RULE_ACTED(e, SINGLE_VOTER);
        return FL_E_INVALID;
    }
    if (FL_RULE_ON(e, LAST_CHANGE) && !voters_have_last_change(e, id)) {
        FL_RULE_ACTED(e, LAST_CHANGE);
        return FL_E_BUSY;
    }
    r = submit_edit(e, EDIT_REMOVE, id, NULL);
    fl_engine__settle(e);
    return r;
}

static uint64_t furthest_voter(const struct fl_engine *e)
{
    const struct raft_configuration *c = &e->raft.configuration;
    uint64_t best = 0, best_match = 0;

    for (unsigned i = 0; i < c->n; i++) {
        uint64_t match = fl_engine_match_index(e, c->servers[i].id);

        if (c->servers[i].role != RAFT_VOTER || c->servers[i].id == e->id)
            continue;
        if (best == 0 || match > best_match) {
            best = c->servers[i].id;
            best_match = match;
        }
    }
    return best;
}

int fl_engine_transfer(struct fl_engine *e, uint64_t now_ms, uint64_t id)
{
    int r;

    e->now_ms = now_ms;
    r = may_change(e);
    if (r < 0)
        return r;
    if (id == 0)
        id = furthest_voter(e);
    if (id == 0 || fl_engine__server(e, id) == NULL)
        return FL_E_NOT_FOUND;
    if (id == e->id || !fl_engine__is_voter(e, id))
        return FL_E_INVALID;
    e->transfer_to = id;
    e->transfer_until = now_ms + 2 * (uint64_t)e->raft.election_timeout;
    fl_engine__settle(e);
    return FL_OK;
}

static void settle_promotion(struct fl_engine *e)
{
    uint64_t id = e->promoting;
    int status;

    if (fl_engine__server(e, id) == NULL || fl_engine__is_voter(e, id) ||
        raft_catch_up(&e->raft, id, &status) != 0) {
        e->promoting = 0;
        return;
    }
    if (status == RAFT_CATCH_UP_RUNNING)
        return;
    e->promoting = 0;
    /* Aborted: too slow. Whoever asked sees a standby still, and can ask again. */
    if (status == RAFT_CATCH_UP_FINISHED && may_change(e) == FL_OK)
        (void)submit_edit(e, EDIT_PROMOTE, id, NULL);
}

/* Rule 17: libraft tells the successor to stand at its first acknowledgement, whether it has
 * everything or not, and only once. */
static void settle_transfer(struct fl_engine *e)
{
    struct raft_event event = {.type = RAFT_TRANSFER, .transfer = {.server_id = e->transfer_to}};

    if (e->now_ms >= e->transfer_until || !fl_engine__is_voter(e, e->transfer_to)) {
        e->transfer_to = 0;
        return;
    }
    if (FL_RULE_ON(e, TRANSFER_WAIT) &&
        fl_engine_match_index(e, e->transfer_to) != fl_engine_last_index(e)) {
        FL_RULE_ACTED(e, TRANSFER_WAIT);
        return;
    }
    e->transfer_to = 0;
    (void)fl_engine__step(e, &event, NULL); /* refused: we lead on */
}

void fl_engine__membership_settle(struct fl_engine *e)
{
    if (!fl_engine__leads(e))
        return;
    if (e->promoting != 0)
        settle_promotion(e);
    if (e->transfer_to != 0)
        settle_transfer(e);
}

unsigned fl_engine_members(const struct fl_engine *e, struct fl_member_info *out, unsigned max)
{
    const struct raft_configuration *c = &e->raft.configuration;

    for (unsigned i = 0; i < c->n && i < max; i++) {
        const struct raft_server *s = &c->servers[i];

        out[i] = (struct fl_member_info){.id = s->id, .address = s->address};
        out[i].role = s->role == RAFT_VOTER     ? FL_MEMBER_VOTER
                      : s->role == RAFT_STANDBY ? FL_MEMBER_STANDBY
                                                : FL_MEMBER_SPARE;
    }
    return c->n;
}

uint64_t fl_engine_members_index(const struct fl_engine *e)
{
    return e->raft.configuration_uncommitted_index == 0 ? e->raft.configuration_committed_index : 0;
}
