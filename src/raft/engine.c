#include "raft/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "raft/engine_state.h"

#define ELECTION_TIMEOUT_MS  500
#define TICK_MS              50
#define MAX_INFLIGHT_ENTRIES 256
#define TRAILING             4096
/* A transfer of a snapshot that was not heard of for so long is asked for again. */
#define INSTALL_TIMEOUT_MS 30000
#define CATCH_UP_ROUND_MS  5000

struct fl_engine *fl_engine_new(const struct fl_engine_config *config,
                                const struct fl_engine_ops *ops, void *ctx)
{
    struct fl_engine *e = fl_xcalloc(1, sizeof *e);

    FL_REQUIRE(config->id != 0 && config->address != NULL);
    e->id = config->id;
    e->ops = ops;
    e->ctx = ctx;
    e->tick_ms = config->tick_ms != 0 ? config->tick_ms : TICK_MS;
    e->trailing = config->trailing != 0 ? config->trailing : TRAILING;
#ifdef FL_BUGS
    e->rules_off = config->rules_off;
#else
    FL_REQUIRE(config->rules_off == 0);
#endif
    fl_engine_log_init(&e->log);
    FL_REQUIRE(raft_init(&e->raft, NULL, NULL, config->id, config->address) == 0);
    /* The default tracer formats each message into static buffers even when it is silent. */
    e->raft.tracer = NULL;
    raft_seed(&e->raft, config->seed);
    raft_set_election_timeout(&e->raft, config->election_timeout_ms != 0
                                            ? config->election_timeout_ms
                                            : ELECTION_TIMEOUT_MS);
    /* With 1 each of our ticks is a heartbeat, and a submit sends to a server that is probed. */
    raft_set_heartbeat_timeout(&e->raft, FL_RULE_ON(e, OWN_TICK) ? 1 : e->tick_ms);
    raft_set_pre_vote(&e->raft, true);
    raft_set_install_snapshot_timeout(&e->raft, INSTALL_TIMEOUT_MS);
    raft_set_max_catch_up_round_duration(&e->raft, CATCH_UP_ROUND_MS);
    raft_set_max_inflight_entries(&e->raft, config->max_inflight_entries != 0
                                                ? config->max_inflight_entries
                                                : MAX_INFLIGHT_ENTRIES);
    return e;
}

void fl_engine_free(struct fl_engine *e)
{
    if (e == NULL)
        return;
    raft_close(&e->raft, NULL);
    if (e->installing != NULL)
        raft_configuration_close(&e->installing_conf);
    fl_engine_log_deinit(&e->log);
    fl_snapshot_unref(e->snapshot);
    fl_snapshot_unref(e->installing);
    free(e->configuration);
    free(e);
}

struct fl_entry *fl_engine_bootstrap_entry(const struct fl_member_info *members, unsigned n)
{
    static const int roles[] = {RAFT_VOTER, RAFT_STANDBY, RAFT_SPARE};
    struct raft_configuration configuration;
    struct raft_buffer buf;
    struct fl_entry *entry;

    raft_configuration_init(&configuration);
    for (unsigned i = 0; i < n; i++)
        FL_REQUIRE(raft_configuration_add(&configuration, members[i].id, members[i].address,
                                          roles[members[i].role]) == 0);
    FL_REQUIRE(raft_configuration_encode(&configuration, &buf) == 0);
    entry = fl_entry_new(FL_ENTRY_CHANGE, 1, buf.base, (uint32_t)buf.len);
    raft_free(buf.base);
    raft_configuration_close(&configuration);
    return entry;
}

/* Whether what was stored is a log: contiguous with the snapshot, terms that never fall. */
static int check_stored(uint64_t term, const struct fl_snapshot *snapshot, uint64_t start_index,
                        struct fl_entry **entries, unsigned n)
{
    uint64_t last_term = 0;

    if (start_index == 0)
        return FL_E_CORRUPT;
    if (snapshot != NULL) {
        if (start_index > snapshot->index + 1 || start_index + n < snapshot->index + 1 ||
            fl_raft_configuration_check(snapshot->configuration, snapshot->configuration_len) < 0)
            return FL_E_CORRUPT;
    } else if (start_index != 1 || (n != 0 && entries[0]->type != FL_ENTRY_CHANGE)) {
        return FL_E_CORRUPT;
    }
    for (unsigned i = 0; i < n; i++) {
        if (entries[i]->term < last_term || entries[i]->term == 0 || entries[i]->term > term)
            return FL_E_CORRUPT;
        if (entries[i]->type == FL_ENTRY_CHANGE &&
            fl_raft_configuration_check(entries[i]->data, entries[i]->len) < 0)
            return FL_E_CORRUPT;
        last_term = entries[i]->term;
    }
    return FL_OK;
}

/* Rule 13: the only voter elects itself at once, without a new term; another server may have led
 * this one. So the term is raised for it. */
static uint64_t raise_term_of_single_voter(struct fl_engine *e, uint64_t term, uint64_t *voted_for)
{
    const uint8_t *data = e->snapshot != NULL ? e->snapshot->configuration : NULL;
    uint32_t len = e->snapshot != NULL ? e->snapshot->configuration_len : 0;
    struct raft_configuration configuration;
    bool is_single = false;

    for (uint64_t i = fl_engine_log_last(&e->log); i >= e->log.first; i--) {
        const struct fl_entry *entry = fl_engine_log_get(&e->log, i);

        if (entry == NULL || entry->type != FL_ENTRY_CHANGE)
            continue;
        data = entry->data;
        len = entry->len;
        break;
    }
    if (data == NULL || fl_engine__configuration_decode(data, len, &configuration) < 0)
        return term;
    for (unsigned i = 0; i < configuration.n; i++)
        is_single = is_single || (configuration.servers[i].id == e->id &&
                                  configuration.servers[i].role == RAFT_VOTER);
    is_single = is_single && fl_engine__voters(&configuration) == 1;
    raft_configuration_close(&configuration);
    if (!is_single || !FL_RULE_ON(e, SINGLE_VOTER))
        return term;
    FL_RULE_ACTED(e, SINGLE_VOTER);
    *voted_for = e->id;
    e->ops->set_vote(e->ctx, term + 1, e->id);
    return term + 1;
}

int fl_engine_start(struct fl_engine *e, uint64_t now_ms, uint64_t term, uint64_t voted_for,
                    struct fl_snapshot *snapshot, uint64_t start_index, struct fl_entry **entries,
                    unsigned n)
{
    struct raft_event event = {.type = RAFT_START};
    struct raft_snapshot_metadata metadata;
    struct raft_entry *heads = NULL;
    int r;

    r = check_stored(term, snapshot, start_index, entries, n);
    if (r < 0)
        return r;
    e->now_ms = now_ms;
    fl_engine_log_reset(&e->log, start_index);
    for (unsigned i = 0; i < n; i++)
        fl_engine_log_push(&e->log, entries[i]);
    if (snapshot != NULL) {
        metadata = (struct raft_snapshot_metadata){
            .index = snapshot->index,
            .term = snapshot->term,
            .configuration_index = snapshot->configuration_index,
        };
        if (fl_engine__configuration_decode(snapshot->configuration, snapshot->configuration_len,
                                            &metadata.configuration) < 0)
            return FL_E_CORRUPT;
        event.start.metadata = &metadata;
        e->snapshot = fl_snapshot_ref(snapshot);
        fl_engine__set_configuration(e, snapshot->configuration, snapshot->configuration_len,
                                     snapshot->configuration_index);
        e->applied = e->commit = snapshot->index;
    }
    event.start.term = raise_term_of_single_voter(e, term, &voted_for);
    event.start.voted_for = voted_for;
    event.start.start_index = start_index;
    event.start.n_entries = n;
    if (n != 0) {
        heads = fl_xcalloc(n, sizeof *heads);
        fl_engine__fill_heads(heads, entries, n, heads); /* only read */
        event.start.entries = heads;
    }
    r = fl_engine__step(e, &event, NULL) == 0 ? FL_OK : FL_E_CORRUPT;
    free(heads);
    if (r == FL_OK)
        fl_engine__settle(e);
    return r;
}

uint64_t fl_engine_deadline(const struct fl_engine *e)
{
    uint64_t at = raft_timeout(&e->raft);

    if (FL_RULE_ON(e, OWN_TICK)) {
        if (fl_engine__leads(e))
            return e->last_tick_ms + e->tick_ms;
        /* libraft's can lie in the past for ever: a loop that obeyed it would spin. */
        if (at <= e->last_tick_ms)
            return e->last_tick_ms + e->tick_ms;
    }
    return at;
}

void fl_engine_tick(struct fl_engine *e, uint64_t now_ms)
{
    struct raft_event event = {.type = RAFT_TIMEOUT};

    e->now_ms = now_ms;
    e->last_tick_ms = now_ms;
    FL_REQUIRE(fl_engine__step(e, &event, NULL) == 0);
    fl_engine__settle(e);
    if (e->n_rounds != 0)
        fl_engine__ping(e);
}

void fl_engine_appended(struct fl_engine *e, uint64_t now_ms, struct fl_append *append)
{
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES};
    uint64_t durable = 0;

    e->now_ms = now_ms;
    if (!FL_RULE_ON(e, STALE_WRITE)) {
        durable = append->index + append->n - 1;
    } else if (append->epoch == e->epoch && e->installing == NULL) {
        for (unsigned i = 0; i < append->n; i++) {
            uint64_t index = append->index + i;

            if (index >= e->log.first && fl_engine_log_get(&e->log, index) != append->entries[i])
                break;
            durable = index;
        }
    }
    if (durable != append->index + append->n - 1)
        FL_RULE_ACTED(e, STALE_WRITE);
    fl_append_free(append);
    if (durable == 0)
        return;
    event.persisted_entries.index = durable;
    FL_REQUIRE(fl_engine__step(e, &event, NULL) == 0);
    fl_engine__settle(e);
}

int64_t fl_engine_submit(struct fl_engine *e, uint64_t now_ms, struct fl_entry *entry)
{
    int64_t index;

    e->now_ms = now_ms;
    if (!fl_engine__leads(e))
        return FL_E_NOT_LEADER;
    if (e->transfer_to != 0 || raft_transferee(&e->raft) != 0)
        return FL_E_BUSY;
    index = fl_engine__submit(e, entry);
    fl_engine__settle(e);
    return index;
}

enum fl_engine_role fl_engine_role(const struct fl_engine *e)
{
    switch (e->raft.state) {
    case RAFT_LEADER:
        return FL_ROLE_LEADER;
    case RAFT_CANDIDATE:
        return FL_ROLE_CANDIDATE;
    default:
        return FL_ROLE_FOLLOWER;
    }
}

uint64_t fl_engine_term(const struct fl_engine *e)
{
    return raft_current_term(&e->raft);
}

/* libraft keeps the leader of the term before until the next one writes: it would be taken for the
 * leader of two terms. */
uint64_t fl_engine_leader(const struct fl_engine *e)
{
    if (e->raft.state == RAFT_LEADER)
        return e->id;
    if (e->raft.state != RAFT_FOLLOWER || e->leader_heard_term != fl_engine_term(e))
        return 0;
    return e->raft.follower_state.current_leader.id;
}

uint64_t fl_engine_commit_index(const struct fl_engine *e)
{
    return e->commit;
}

uint64_t fl_engine_applied_index(const struct fl_engine *e)
{
    return e->applied;
}

uint64_t fl_engine_last_index(const struct fl_engine *e)
{
    return fl_engine_log_last(&e->log);
}

uint64_t fl_engine_match_index(const struct fl_engine *e, uint64_t id)
{
    raft_index match;

    if (!fl_engine__leads(e) || raft_match_index(&e->raft, id, &match) != 0)
        return 0;
    return match;
}

uint64_t fl_engine_rule_count(const struct fl_engine *e, unsigned rule)
{
    return rule < FL_RULE_COUNT ? e->rule_counts[rule] : 0;
}
