#include "raft/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "raft/member_parts.h"
#include "raft/message.h"

#define ELECTION_TIMEOUT_MS_DEFAULT 500
#define SNAPSHOT_EVERY_DEFAULT      65536
#define STATUS_EVERY_MS             200
/* How long a clean stop waits for somebody else to lead. */
#define TRANSFER_MAX_MS    2000
#define MEMBER_ADDRESS_MAX 255
#define MEMBERS_MAX        FL_ARRAY_LEN(((struct fl_status_info *)0)->members)

static void draw(uint64_t *out, size_t size)
{
    FL_REQUIRE(getrandom(out, size, 0) == (ssize_t)size);
}

void fl_member__fresh_hash_key(uint64_t ret_key[2])
{
    draw(ret_key, 2 * sizeof *ret_key);
}

void fl_member__wake(struct fl_member *m)
{
    fl_turn_hook_mark(m->loop, &m->work);
}

/* --- What the engine says: queued, since no op may call back --- */

static struct fl_member_event *queue_event(struct fl_member *m)
{
    struct fl_member_event *event;

    if (m->n_events == m->events_capacity) {
        m->events_capacity =
            fl_grow_capacity(m->events_capacity, m->n_events + 1, sizeof *m->events);
        m->events = fl_xrealloc(m->events, m->events_capacity * sizeof *m->events);
    }
    event = &m->events[m->n_events++];
    memset(event, 0, sizeof *event);
    fl_member__wake(m);
    return event;
}

static void op_set_vote(void *ctx, uint64_t term, uint64_t voted_for)
{
    struct fl_member *m = ctx;

    fl_store_set_vote(m->store, term, voted_for);
}

static void op_append(void *ctx, struct fl_append *append)
{
    struct fl_member *m = ctx;

    fl_store_append(m->store, append);
}

static void op_install(void *ctx, struct fl_snapshot *snapshot)
{
    struct fl_member_event *event = queue_event(ctx);

    event->type = MEMBER_INSTALL;
    event->snapshot = snapshot;
}

static void op_compact(void *ctx, uint64_t first)
{
    struct fl_member *m = ctx;

    fl_store_compact(m->store, first);
}

static void op_send(void *ctx, const struct fl_raft_message *message)
{
    struct fl_member *m = ctx;

    if (m->transport == NULL)
        return;
    fl_buf_clear(&m->scratch);
    fl_raft_message_encode(&m->scratch, message);
    fl_transport_send(m->transport, message->to, m->scratch.data, m->scratch.len);
}

static void op_send_snapshot(void *ctx, uint64_t to, const struct fl_raft_message *message)
{
    fl_member__send_snapshot(ctx, to, message);
}

static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    struct fl_member_event *event = queue_event(ctx);

    event->type = MEMBER_APPLY;
    event->index = index;
    event->entry = fl_entry_ref(entry);
}

static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader_id)
{
    struct fl_member_event *event = queue_event(ctx);

    event->type = MEMBER_ROLE;
    event->is_leader = role == FL_ROLE_LEADER;
    event->term = term;
    event->leader_id = leader_id;
}

static void op_confirmed(void *ctx, uint64_t round, uint64_t read_index)
{
    struct fl_member_event *event = queue_event(ctx);

    event->type = MEMBER_CONFIRMED;
    event->round = round;
    event->index = read_index;
}

static const struct fl_engine_ops engine_ops = {
    .set_vote = op_set_vote,
    .append = op_append,
    .install = op_install,
    .compact = op_compact,
    .send = op_send,
    .send_snapshot = op_send_snapshot,
    .apply = op_apply,
    .role = op_role,
    .confirmed = op_confirmed,
};

/* --- What the node wants --- */

static uint64_t node_propose(void *ctx, const void *data, size_t len)
{
    struct fl_member *m = ctx;
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, data, (uint32_t)len);
    int64_t index = fl_engine_submit(m->engine, fl_loop_now_ms(m->loop), entry);

    fl_entry_unref(entry);
    if (index <= 0)
        return 0;
    m->proposed_index = (uint64_t)index;
    m->proposed_us = fl_monotonic_us();
    return (uint64_t)index;
}

static void node_confirm(void *ctx, uint64_t round)
{
    struct fl_member *m = ctx;

    fl_engine_confirm(m->engine, fl_loop_now_ms(m->loop), round);
}

static void node_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    fl_member__send_to_link(ctx, link, data, len);
}

static int node_transfer(void *ctx, uint64_t node_id)
{
    struct fl_member *m = ctx;

    return fl_engine_transfer(m->engine, fl_loop_now_ms(m->loop), node_id);
}

/* Removing ourselves begins with handing over: the gateway asks the next leader again. */
static int remove_self(struct fl_member *m, uint64_t now_ms)
{
    int r = fl_engine_transfer(m->engine, now_ms, 0);

    return r == FL_OK || r == FL_E_BUSY ? FL_E_NOT_LEADER : r;
}

static int node_change_members(void *ctx, enum fl_request_type type, uint64_t node_id,
                               struct fl_str address)
{
    struct fl_member *m = ctx;
    uint64_t now_ms = fl_loop_now_ms(m->loop);
    struct fl_member_info members[MEMBERS_MAX];
    char text[MEMBER_ADDRESS_MAX + 1];

    switch (type) {
    case FL_REQ_ADD_NODE:
        if (fl_engine_members(m->engine, members, MEMBERS_MAX) >= MEMBERS_MAX ||
            address.len > MEMBER_ADDRESS_MAX)
            return FL_E_INVALID;
        if (fl_store_is_removed(m->store, node_id))
            return FL_E_EXISTS;
        snprintf(text, sizeof text, "%.*s", FL_STR_ARGS(address));
        return fl_engine_add(m->engine, now_ms, node_id, text);
    case FL_REQ_PROMOTE_NODE:
        return fl_engine_promote(m->engine, now_ms, node_id);
    case FL_REQ_REMOVE_NODE:
        return node_id == m->node_id ? remove_self(m, now_ms)
                                     : fl_engine_remove(m->engine, now_ms, node_id);
    default:
        return FL_E_UNSUPPORTED;
    }
}

static void node_observe(void *ctx, const struct fl_effect *effect)
{
    struct fl_member *m = ctx;

    fl_meter_effect(m->meter, effect, fl_engine_role(m->engine) == FL_ROLE_LEADER);
}

static const struct fl_node_ops node_ops = {
    .observe = node_observe,
    .propose = node_propose,
    .confirm = node_confirm,
    .send = node_send,
    .transfer = node_transfer,
    .change_members = node_change_members,
};

/* --- The work of a turn --- */

static void follow_role(struct fl_member *m, const struct fl_member_event *event, uint64_t now_ms)
{
    if (event->is_leader)
        m->leading_since_ms = now_ms;
    if (event->is_leader)
        fl_info("member", "leads term %llu", (unsigned long long)event->term);
    else if (event->leader_id != 0)
        fl_info("member", "follows node %llu in term %llu", (unsigned long long)event->leader_id,
                (unsigned long long)event->term);
    else
        fl_info("member", "knows no leader in term %llu", (unsigned long long)event->term);
    m->status_due_ms = now_ms;
    m->proposed_index = 0;
    fl_meter_role(m->meter, event->is_leader);
    fl_node_role(m->node, now_ms, event->term, event->is_leader, event->leader_id);
}

static bool is_among(const struct fl_member_info *members, unsigned n, uint64_t id)
{
    for (unsigned i = 0; i < n; i++) {
        if (members[i].id == id)
            return true;
    }
    return false;
}

/* Whoever was a member and is none any more never comes back under its id. */
static void use_up_ids(struct fl_member *m, const struct fl_member_info *members, unsigned n)
{
    for (unsigned i = 0; i < m->n_members; i++) {
        if (m->members[i] != m->node_id && !is_among(members, n, m->members[i]))
            fl_store_remove_peer(m->store, m->members[i]);
    }
    m->n_members = n;
    for (unsigned i = 0; i < n; i++)
        m->members[i] = members[i].id;
}

static void tell_members(struct fl_member *m, const struct fl_member_info *members, unsigned n)
{
    uint64_t index = fl_engine_members_index(m->engine);

    if (index == 0 || index == m->members_index)
        return;
    use_up_ids(m, members, n);
    m->members_index = index;
    fl_buf_clear(&m->scratch);
    for (unsigned i = 0; i < n; i++) {
        char text[24];

        snprintf(text, sizeof text, "%s%llu=", i == 0 ? "" : ",",
                 (unsigned long long)members[i].id);
        fl_buf_put(&m->scratch, text, strlen(text));
        fl_buf_put(&m->scratch, members[i].address, strlen(members[i].address));
    }
    fl_node_set_members(m->node, index,
                        (struct fl_str){(const char *)m->scratch.data, m->scratch.len});
}

/* Members come and go by the log: whoever is in the configuration is dialled, nobody else. A node
 * that joins knows none yet, and keeps those that it was given. */
static void follow_membership(struct fl_member *m)
{
    struct fl_member_info members[MEMBERS_MAX];
    unsigned n = fl_engine_members(m->engine, members, MEMBERS_MAX);
    uint64_t peers[2 * MEMBERS_MAX];
    size_t n_peers;
    bool is_member;

    if (n == 0 || m->transport == NULL) /* it stops: nobody is dialled any more */
        return;
    n_peers = fl_transport_peers(m->transport, peers, FL_ARRAY_LEN(peers));
    FL_REQUIRE(n <= MEMBERS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (members[i].id != m->node_id)
            fl_transport_set_peer(m->transport, members[i].id, members[i].address);
    }
    for (size_t i = 0; i < n_peers; i++) {
        if (!is_among(members, n, peers[i]))
            fl_transport_drop_peer(m->transport, peers[i]);
    }
    is_member = is_among(members, n, m->node_id);
    if (m->was_member && !is_member)
        fl_warn("member", "this node is no member of the cluster any more: stop it");
    m->was_member = is_member;
    tell_members(m, members, n);
}

static void apply(struct fl_member *m, const struct fl_member_event *event, uint64_t now_ms)
{
    const struct fl_entry *entry = event->entry;
    bool is_command = entry->type == FL_ENTRY_COMMAND;
    int r;

    if (entry->type == FL_ENTRY_CHANGE)
        follow_membership(m);
    if (event->index == m->proposed_index) {
        fl_timing_record(&m->commit_time, fl_monotonic_us() - m->proposed_us);
        m->proposed_index = 0;
    }
    r = fl_node_applied(m->node, now_ms, event->index, entry->term, is_command ? entry->data : NULL,
                        is_command ? entry->len : 0);
    if (r == FL_E_VERSION) {
        fl_error("member",
                 "entry %llu was written by a later release: this node stops; install that release "
                 "here",
                 (unsigned long long)event->index);
        exit(EXIT_FAILURE);
    }
    if (r < 0)
        fl_error("member", "entry %llu is not a batch (%s): skipped, on every node alike",
                 (unsigned long long)event->index, fl_error_text(r));
}

static void handle_event(struct fl_member *m, struct fl_member_event *event, uint64_t now_ms)
{
    switch (event->type) {
    case MEMBER_APPLY:
        apply(m, event, now_ms);
        fl_entry_unref(event->entry);
        break;
    case MEMBER_ROLE:
        follow_role(m, event, now_ms);
        break;
    case MEMBER_CONFIRMED:
        fl_node_confirmed(m->node, now_ms, event->round, event->index);
        break;
    case MEMBER_INSTALL:
        fl_member__install_snapshot(m, event->snapshot);
        fl_snapshot_unref(event->snapshot);
        break;
    }
}

static void handle_events(struct fl_member *m, uint64_t now_ms)
{
    while (m->events_at < m->n_events) {
        struct fl_member_event event = m->events[m->events_at++];

        handle_event(m, &event, now_ms);
    }
    m->events_at = m->n_events = 0;
}

static void refresh_status(struct fl_member *m, uint64_t now_ms)
{
    struct fl_member_info members[MEMBERS_MAX];
    struct fl_status_info info = {
        .node_id = m->node_id,
        .leader_id = fl_engine_leader(m->engine),
        .term = fl_engine_term(m->engine),
        .commit_index = fl_engine_commit_index(m->engine),
        .applied_index = fl_engine_applied_index(m->engine),
        .last_index = fl_engine_last_index(m->engine),
        .snapshot_index = m->snapshot_index,
        .role = (uint8_t)fl_engine_role(m->engine),
        .version = fl_str_from(m->version),
    };
    unsigned n = fl_engine_members(m->engine, members, MEMBERS_MAX);

    follow_membership(m); /* a change may have been rolled back */
    info.n_members = n < MEMBERS_MAX ? n : (unsigned)MEMBERS_MAX;
    for (unsigned i = 0; i < info.n_members; i++) {
        info.members[i].id = members[i].id;
        info.members[i].address = fl_str_from(members[i].address);
        info.members[i].role = (uint8_t)members[i].role;
        info.members[i].reachable =
            members[i].id == m->node_id || fl_transport_is_reachable(m->transport, members[i].id);
        info.members[i].match_index = fl_engine_match_index(m->engine, members[i].id);
    }
    fl_node_set_status(m->node, &info);
    fl_member__publish_figures(m, &info, now_ms);
    fl_member__gossip_step(m, members, info.n_members, now_ms);
}

static void continue_stop(struct fl_member *m);
static void abandon(struct fl_member *m);

static void do_work(struct fl_turn_hook *hook)
{
    struct fl_member *m = FL_CONTAINER_OF(hook, struct fl_member, work);
    uint64_t now_ms = fl_loop_now_ms(m->loop), deadline;

    handle_events(m, now_ms);
    fl_node_flush(m->node, now_ms);
    handle_events(m, now_ms);
    fl_member__maybe_take_snapshot(m);
    fl_member__backup_step(m);
    if (now_ms >= m->status_due_ms) {
        m->status_due_ms = now_ms + STATUS_EVERY_MS;
        if (m->transport != NULL) /* else it stops: there are no peers to tell of, or to tell */
            refresh_status(m, now_ms);
    }

    deadline = fl_engine_deadline(m->engine);
    if (fl_node_deadline(m->node) < deadline)
        deadline = fl_node_deadline(m->node);
    if (m->status_due_ms < deadline)
        deadline = m->status_due_ms;
    FL_REQUIRE(fl_timer_set(m->loop, &m->timer, deadline) == FL_OK);
    if (m->is_stopping)
        continue_stop(m);
}

static void on_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_member *m = FL_CONTAINER_OF(timer, struct fl_member, timer);

    if (now_ms >= fl_engine_deadline(m->engine))
        fl_engine_tick(m->engine, now_ms);
    if (now_ms >= fl_node_deadline(m->node))
        fl_node_tick(m->node, now_ms);
    fl_member__wake(m);
}

static void on_store_wake(uv_async_t *async)
{
    struct fl_member *m = async->data;
    struct fl_append *append;

    while ((append = fl_store_complete(m->store)) != NULL)
        fl_engine_appended(m->engine, fl_loop_now_ms(m->loop), append);
    fl_member__wake(m);
}

static void wake_from_store(void *ctx)
{
    struct fl_member *m = ctx;

    uv_async_send(&m->store_wake);
}

/* --- The peers' port --- */

static int on_message(void *ctx, uint64_t from, const uint8_t *data, size_t len)
{
    struct fl_member *m = ctx;
    struct fl_raft_message *message;
    bool is_gossip = fl_member__gossip_is(data, len);
    int r = is_gossip ? fl_member__gossip_receive(m, from, data, len)
                      : fl_raft_message_decode(data, len, &message);

    if (r < 0) {
        fl_warn("member",
                "node %llu sent a message that cannot be read (%s): its connection is closed",
                (unsigned long long)from, fl_error_text(r));
        return r;
    }
    if (is_gossip)
        return FL_OK;
    fl_engine_receive(m->engine, fl_loop_now_ms(m->loop), from, message);
    fl_raft_message_free(message);
    fl_member__wake(m);
    return FL_OK;
}

static void on_accepted(void *ctx, const struct fl_handshake *theirs, struct fl_framed *c)
{
    struct fl_member *m = ctx;

    if (m->is_stopping)
        fl_framed_close(c, "the node stops"); /* nobody listens to it any more */
    else if (theirs->role == FL_SPEAKS_LINK)
        fl_member__accept_link(m, c);
    else
        fl_member__accept_snapshot(m, theirs->from, c);
}

static uint8_t on_meet(void *ctx, const struct fl_handshake *theirs)
{
    struct fl_member *m = ctx;

    for (unsigned i = 0; i < theirs->n_known; i++) {
        if (theirs->known[i].id != m->node_id)
            (void)fl_store_meet_peer(m->store, theirs->known[i].id, theirs->known[i].life);
    }
    /* A node that joins learns so where its leader is, to answer it. */
    if (m->transport != NULL && theirs->role == FL_SPEAKS_RAFT && theirs->address[0] != '\0' &&
        m->engine != NULL && fl_engine_members(m->engine, NULL, 0) == 0 &&
        fl_transport_address(m->transport, theirs->from) == NULL)
        fl_transport_set_peer(m->transport, theirs->from, theirs->address);
    fl_member__gossip_note_level(m, theirs->from, theirs->level);
    return (uint8_t)fl_store_meet_peer(m->store, theirs->from, theirs->life);
}

static void on_introduce(void *ctx, struct fl_handshake *ours)
{
    const struct fl_member *m = ctx;
    size_t n;
    const struct fl_known_peer *peers = fl_store_known_peers(m->store, &n);

    ours->life = fl_store_life(m->store);
    ours->level = fl_format_level;
    snprintf(ours->address, sizeof ours->address, "%s", m->address);
    for (size_t i = 0; i < n && ours->n_known < FL_HANDSHAKE_KNOWN_MAX; i++) {
        if (peers[i].life != 0 && !peers[i].is_removed)
            ours->known[ours->n_known++] = (struct fl_handshake_known){peers[i].id, peers[i].life};
    }
}

/* A new directory under a known id would begin another history: it ends before it can. An old one
 * is not given up for what one other node says. */
static void on_refused(void *ctx, uint64_t by, uint8_t verdict)
{
    struct fl_member *m = ctx;

    if (verdict == FL_PEER_REMOVED) {
        if (!m->was_refused)
            fl_warn("member", "node %llu says that this node was removed from the cluster: stop it",
                    (unsigned long long)by);
        m->was_refused = true;
        return;
    }
    if (m->is_new || !m->was_refused)
        fl_error(
            "member",
            "node %llu knows node %llu with another directory than ours: if this node lost its "
            "data, it must not vote under its old id. Remove it from the cluster and add "
            "another, with --join and a new id",
            (unsigned long long)by, (unsigned long long)m->node_id);
    m->was_refused = true;
    if (!m->is_new)
        return;
    fl_store_remove_peer(m->store, m->node_id); /* nor ever later */
    exit(EXIT_FAILURE);
}

static const struct fl_transport_ops transport_ops = {
    .meet = on_meet,
    .introduce = on_introduce,
    .refused = on_refused,
    .message = on_message,
    .accepted = on_accepted,
};

/* --- Starting --- */

static const char *own_address(const struct fl_member_config *config)
{
    for (unsigned i = 0; i < config->n_peers; i++) {
        if (config->peers[i].id == config->node_id)
            return config->peers[i].address;
    }
    return NULL;
}

/* Entry 1 of every voter is the same: the members of the beginning. */
static void bootstrap(const struct fl_member_config *config, struct fl_store *store)
{
    struct fl_member_info members[MEMBERS_MAX];
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    for (unsigned i = 0; i < config->n_peers; i++)
        members[i] =
            (struct fl_member_info){config->peers[i].id, config->peers[i].address, FL_MEMBER_VOTER};
    append->index = 1;
    append->n = 1;
    append->entries = fl_xalloc(sizeof *append->entries);
    append->entries[0] = fl_engine_bootstrap_entry(members, config->n_peers);
    fl_store_set_vote(store, 1, 0);
    fl_store_append(store, append);
    fl_store_run(store);
    append = fl_store_complete(store);
    FL_REQUIRE(append != NULL);
    fl_append_free(append);
}

static int open_store(struct fl_member *m, const struct fl_member_config *config,
                      struct fl_store_recovered *ret_recovered, char *why)
{
    struct fl_store_config store_config = {
        .directory = config->directory,
        .identity = {.group_id = 0, .node_id = config->node_id},
        .synchronous = true,
    };
    struct fl_store_fault fault = {{0}};
    int r;

    memcpy(store_config.identity.cluster_id, m->cluster_id, sizeof m->cluster_id);
    draw(&store_config.identity.life, sizeof store_config.identity.life);
    r = fl_store_open(&store_config, ret_recovered, &m->store, &fault);
    if (r == FL_OK)
        m->is_new = ret_recovered->is_new;
    if (m->is_new) {
        fl_store_recovered_deinit(ret_recovered);
        if (!config->bootstrap && !config->join) {
            fl_store_close(m->store);
            m->store = NULL;
            snprintf(
                why, 512,
                "%s holds no data of node %llu. If the cluster is new, start with --bootstrap; if "
                "the "
                "node is to join one, with --join. If this node lost its data, neither: it might "
                "vote twice. Remove it from the cluster and add another under a new id",
                config->directory, (unsigned long long)config->node_id);
            return FL_E_NOT_FOUND;
        }
        if (config->bootstrap)
            bootstrap(config, m->store);
    } else if (r == FL_OK) {
        fl_store_recovered_deinit(ret_recovered);
    }
    if (r == FL_OK) {
        fl_store_close(m->store);
        m->store = NULL;
        store_config.synchronous = false;
        store_config.wake = wake_from_store;
        store_config.ctx = m;
        r = fl_store_open(&store_config, ret_recovered, &m->store, &fault);
    }
    if (r == FL_OK && fl_store_is_removed(m->store, config->node_id)) {
        snprintf(why, 512,
                 "%s was refused by the cluster, which knows node %llu with another directory: add "
                 "this node with an empty directory, --join and a new id",
                 config->directory, (unsigned long long)config->node_id);
        return FL_E_WRONG_PEER;
    }
    if (r < 0)
        snprintf(why, 512, "%.400s (%s)", fault.text[0] != '\0' ? fault.text : config->directory,
                 fl_error_text(r));
    return r;
}

static int start_engine(struct fl_member *m, const struct fl_member_config *config,
                        const struct fl_store_recovered *recovered, uint64_t seed, char *why)
{
    struct fl_engine_config engine_config = {
        .id = config->node_id,
        .address = own_address(config),
        .election_timeout_ms = config->election_timeout_ms,
        .seed = (unsigned)seed,
    };
    int r;

    m->engine = fl_engine_new(&engine_config, &engine_ops, m);
    r = fl_engine_start(m->engine, fl_loop_update_now_ms(m->loop), recovered->term,
                        recovered->voted_for, recovered->snapshot, recovered->start_index,
                        recovered->entries, recovered->n);
    if (r < 0)
        snprintf(why, 512, "the log and the snapshot in %.300s do not fit together: %s",
                 config->directory, fl_error_text(r));
    return r;
}

static int start_node(struct fl_member *m, const struct fl_member_config *config,
                      const struct fl_store_recovered *recovered, char *why)
{
    struct fl_node_config node_config = {
        .node_id = config->node_id,
        .election_timeout_ms = config->election_timeout_ms,
    };
    struct fl_machine *machine;
    int r;

    fl_member__fresh_hash_key(node_config.hash_key);
    m->meter = fl_meter_new(config->meter_prefixes, config->n_meter_prefixes,
                            (struct fl_hash_key){node_config.hash_key[0], node_config.hash_key[1]});
    m->node = fl_node_new(&node_config, &node_ops, m);
    if (recovered->snapshot == NULL)
        return FL_OK;
    r = fl_member__load_machine(m, recovered->snapshot, node_config.hash_key, &machine, why);
    if (r < 0)
        return r;
    m->newest = fl_snapshot_ref(recovered->snapshot);
    m->snapshot_index = recovered->snapshot->index;
    fl_node_take_machine(m->node, fl_loop_now_ms(m->loop), machine);
    return FL_OK;
}

static int start_transport(struct fl_member *m, const struct fl_member_config *config,
                           uint64_t seed, char *why)
{
    struct fl_transport_config transport_config = {
        .listen = config->listen,
        .node_id = config->node_id,
        .seed = seed,
    };
    int r;

    memcpy(transport_config.cluster_id, m->cluster_id, sizeof m->cluster_id);
    r = fl_transport_new(m->loop, &transport_config, &transport_ops, m, &m->transport, why);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < config->n_peers; i++) {
        if (config->peers[i].id != config->node_id)
            fl_transport_set_peer(m->transport, config->peers[i].id, config->peers[i].address);
    }
    return FL_OK;
}

static int check_config(const struct fl_member_config *config, char *why)
{
    if (config->node_id == 0 || own_address(config) == NULL) {
        snprintf(why, 512, "node %llu is not among the peers: give its own address with --peer too",
                 (unsigned long long)config->node_id);
        return FL_E_INVALID;
    }
    if (config->n_peers > MEMBERS_MAX) {
        snprintf(why, 512, "%u peers are more than the %zu that a cluster may have",
                 config->n_peers, MEMBERS_MAX);
        return FL_E_INVALID;
    }
    return FL_OK;
}

int fl_member_new(struct fl_loop *loop, const struct fl_member_config *user_config,
                  struct fl_member **ret_member, char *why)
{
    struct fl_member_config config = *user_config;
    struct fl_store_recovered recovered = {0};
    struct fl_member *m;
    uint64_t seed[2];
    int r = check_config(&config, why);

    if (r < 0)
        return r;
    if (config.election_timeout_ms == 0)
        config.election_timeout_ms = ELECTION_TIMEOUT_MS_DEFAULT;
    fl_member__fresh_hash_key(seed);
    m = fl_xcalloc(1, sizeof *m);
    m->loop = loop;
    m->node_id = config.node_id;
    m->version = fl_xstrdup(config.version);
    m->address = fl_xstrdup(own_address(&config));
    m->snapshot_every = config.snapshot_every != 0 ? config.snapshot_every : SNAPSHOT_EVERY_DEFAULT;
    m->work = FL_TURN_HOOK_INIT(do_work);
    m->timer = FL_TIMER_INIT(on_timer);
    m->level = 1;
    fl_list_init(&m->link_list);
    fl_list_init(&m->sending);
    fl_handshake_cluster_id(config.cluster, m->cluster_id);
    FL_REQUIRE(uv_async_init(fl_loop_uv(loop), &m->store_wake, on_store_wake) == 0);
    m->store_wake.data = m;

    r = open_store(m, &config, &recovered, why);
    if (r == FL_OK)
        r = start_transport(m, &config, seed[0], why);
    if (r == FL_OK)
        r = start_node(m, &config, &recovered, why);
    if (r == FL_OK)
        r = start_engine(m, &config, &recovered, seed[1], why);
    fl_store_recovered_deinit(&recovered);
    if (r < 0) {
        abandon(m);
        return r;
    }
    follow_membership(m);
    fl_member__wake(m);
    *ret_member = m;
    return FL_OK;
}

unsigned fl_member_port(const struct fl_member *m)
{
    return fl_transport_port(m->transport);
}

/* --- Stopping --- */

static void free_memory(uv_handle_t *handle)
{
    struct fl_member *m = handle->data;
    void (*done)(void *ctx) = m->done;
    void *ctx = m->done_ctx;

    fl_engine_free(m->engine);
    fl_node_free(m->node);
    fl_member__drop_figures(m);
    fl_snapshot_unref(m->newest);
    fl_map_deinit(&m->links);
    fl_buf_deinit(&m->scratch);
    free(m->events);
    free(m->version);
    free(m->address);
    free(m);
    if (done != NULL)
        done(ctx);
}

static void close_rest(struct fl_member *m)
{
    fl_timer_clear(m->loop, &m->timer);
    fl_turn_hook_clear(&m->work);
    while (m->events_at < m->n_events) {
        fl_entry_unref(m->events[m->events_at].entry);
        fl_snapshot_unref(m->events[m->events_at++].snapshot);
    }
    if (m->store != NULL)
        fl_store_close(m->store);
    uv_close((uv_handle_t *)&m->store_wake, free_memory);
}

static void ignore_transport_closed(void *ctx)
{
    (void)ctx;
}

/* What fl_member_new() had built when it failed. */
static void abandon(struct fl_member *m)
{
    if (m->transport != NULL)
        fl_transport_close(m->transport, ignore_transport_closed, NULL);
    close_rest(m);
}

static void on_transport_closed(void *ctx)
{
    struct fl_member *m = ctx;

    m->transport = NULL;
    fl_member__wake(m);
}

/* First somebody else leads, then nobody is let in, then the disk has everything. */
static void continue_stop(struct fl_member *m)
{
    bool still_leads = fl_engine_role(m->engine) == FL_ROLE_LEADER;

    if (!m->is_closing) {
        if (still_leads && fl_loop_now_ms(m->loop) < m->stop_deadline_ms)
            return;
        m->is_closing = true;
        fl_member__stop_snapshots(m);
        fl_member__close_links(m);
        fl_transport_close(m->transport, on_transport_closed, m);
    }
    if (m->transport == NULL && fl_list_is_empty(&m->link_list) && fl_member__snapshots_are_idle(m))
        close_rest(m);
}

void fl_member_stop(struct fl_member *m, void (*done)(void *ctx), void *ctx)
{
    uint64_t now_ms = fl_loop_now_ms(m->loop);

    m->is_stopping = true;
    m->done = done;
    m->done_ctx = ctx;
    m->stop_deadline_ms = now_ms + TRANSFER_MAX_MS;
    if (fl_engine_role(m->engine) == FL_ROLE_LEADER && fl_engine_transfer(m->engine, now_ms, 0) < 0)
        m->stop_deadline_ms = now_ms;
    fl_member__wake(m);
}
