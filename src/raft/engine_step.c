#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "raft/engine_state.h"

uint64_t fl_engine__term_at(const struct fl_engine *e, uint64_t index)
{
    const struct fl_entry *entry = fl_engine_log_get(&e->log, index);

    if (entry != NULL)
        return entry->term;
    return e->snapshot != NULL && e->snapshot->index == index ? e->snapshot->term : 0;
}

void fl_engine__fill_heads(struct raft_entry *heads, struct fl_entry **entries, unsigned n,
                           void *batch)
{
    for (unsigned i = 0; i < n; i++)
        heads[i] = (struct raft_entry){
            .term = entries[i]->term,
            .type = entries[i]->type,
            .buf = {.base = entries[i]->data, .len = entries[i]->len},
            .batch = batch,
        };
}

/* libraft's own entry, made at an election, is the only one that did not come from us. */
static struct fl_entry *barrier_from(const struct raft_entry *head)
{
    FL_REQUIRE(head->type == RAFT_BARRIER);
    return fl_entry_new(FL_ENTRY_BARRIER, head->term, head->buf.base, (uint32_t)head->buf.len);
}

static void take_entries(struct fl_engine *e, const struct raft_update *update,
                         const struct fl_engine_source *source)
{
    struct fl_append *append = fl_xcalloc(1, sizeof *append);
    bool is_ours = source != NULL && source->entries != NULL;

    FL_REQUIRE(update->entries.n != 0 && (is_ours || update->entries.n == 1));
    append->index = update->entries.index;
    append->n = update->entries.n;
    append->epoch = e->epoch;
    append->entries = fl_xcalloc(append->n, sizeof(struct fl_entry *));
    for (unsigned i = 0; i < append->n; i++)
        append->entries[i] = is_ours
                                 ? fl_entry_ref(source->entries[append->index - source->first + i])
                                 : barrier_from(&update->entries.batch[i]);
    /* With the entries comes the batch back: the stand-in that we gave, or the barrier's bytes. */
    raft_free(update->entries.batch[0].batch);
    fl_engine_log_truncate(&e->log, append->index);
    FL_REQUIRE(fl_engine_log_last(&e->log) + 1 == append->index);
    for (unsigned i = 0; i < append->n; i++)
        fl_engine_log_push(&e->log, append->entries[i]);
    e->ops->append(e->ctx, append);
}

static void take_snapshot(struct fl_engine *e, const struct raft_update *update,
                          const struct fl_engine_source *source)
{
    FL_REQUIRE(source != NULL && source->snapshot != NULL && e->installing == NULL);
    e->installing_conf = update->snapshot.metadata.configuration;
    e->installing = fl_snapshot_ref(source->snapshot);
    e->epoch++;
    fl_engine_log_reset(&e->log, e->installing->index + 1);
    e->ops->install(e->ctx, fl_snapshot_ref(e->installing));
}

static void begin_leading(struct fl_engine *e)
{
    e->term_start = fl_engine_log_last(&e->log);
    e->n_peers = 0;
    e->leading_since_ms = e->now_ms;
    if (fl_engine__term_at(e, e->term_start) == fl_engine_term(e))
        return;
    /* Rule 4: libraft leaves its barrier out when it knows the whole log to be committed. */
    if (FL_RULE_ON(e, OWN_ENTRY)) {
        FL_RULE_ACTED(e, OWN_ENTRY);
        e->needs_own_entry = true;
        e->term_start++;
    }
}

static void notice_role(struct fl_engine *e)
{
    enum fl_engine_role role = fl_engine_role(e);
    uint64_t leader = fl_engine_leader(e), term = fl_engine_term(e);

    if (role == e->role && leader == e->leader && term == e->term)
        return;
    if (role != e->role || term != e->term) {
        e->n_rounds = 0;
        e->promoting = 0;
        e->transfer_to = 0;
        e->needs_own_entry = false;
        if (role == FL_ROLE_LEADER)
            begin_leading(e);
    }
    e->role = role;
    e->leader = leader;
    e->term = term;
    e->ops->role(e->ctx, role, term, leader);
}

int fl_engine__step(struct fl_engine *e, struct raft_event *event,
                    const struct fl_engine_source *source)
{
    struct raft_update update;

    event->time = e->now_ms;
    event->capacity = 0;
    if (raft_step(&e->raft, event, &update) != 0)
        return FL_E_INTERNAL;
    /* The order matters: what is promised must be durable before anybody hears of it. */
    if (update.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR))
        e->ops->set_vote(e->ctx, raft_current_term(&e->raft), raft_voted_for(&e->raft));
    if (update.flags & RAFT_UPDATE_ENTRIES)
        take_entries(e, &update, source);
    if (update.flags & RAFT_UPDATE_SNAPSHOT)
        take_snapshot(e, &update, source);
    if (update.flags & RAFT_UPDATE_MESSAGES)
        for (unsigned i = 0; i < update.messages.n; i++)
            fl_engine__send(e, &update.messages.batch[i]);
    notice_role(e);
    if (update.flags & RAFT_UPDATE_COMMIT_INDEX) {
        if (e->installing != NULL && FL_RULE_ON(e, INSTALL_COMMIT))
            FL_RULE_ACTED(e, INSTALL_COMMIT);
        else if (raft_commit_index(&e->raft) > e->commit)
            e->commit = raft_commit_index(&e->raft);
    }
    return 0;
}

int64_t fl_engine__submit(struct fl_engine *e, struct fl_entry *entry)
{
    struct raft_event event = {.type = RAFT_SUBMIT};
    struct fl_engine_source source = {.entries = &entry, .first = fl_engine_log_last(&e->log) + 1};
    struct raft_entry head;

    entry->term = fl_engine_term(e);
    fl_engine__fill_heads(&head, &entry, 1, raft_malloc(1));
    event.submit.entries = &head;
    event.submit.n = 1;
    if (fl_engine__step(e, &event, &source) != 0) {
        raft_free(head.batch);
        return fl_engine__leads(e) ? FL_E_BUSY : FL_E_NOT_LEADER;
    }
    return (int64_t)source.first;
}

void fl_engine__set_configuration(struct fl_engine *e, const void *data, uint32_t len,
                                  uint64_t index)
{
    free(e->configuration);
    e->configuration = fl_xmemdup(data, len);
    e->configuration_len = len;
    e->configuration_index = index;
}

void fl_engine__confirm_change(struct fl_engine *e, uint64_t index, const void *data, uint32_t len)
{
    struct raft_event event = {.type = RAFT_CONFIGURATION};

    event.configuration.index = index;
    FL_REQUIRE(fl_engine__configuration_decode(data, len, &event.configuration.conf) == 0);
    FL_REQUIRE(fl_engine__step(e, &event, NULL) == 0);
}

static void submit_own_entry(struct fl_engine *e)
{
    static const uint8_t zeros[8];
    struct fl_entry *barrier;
    int64_t index;

    e->needs_own_entry = false;
    if (!fl_engine__leads(e))
        return;
    barrier = fl_entry_new(FL_ENTRY_BARRIER, 0, zeros, sizeof zeros);
    index = fl_engine__submit(e, barrier);
    if (index > 0)
        e->term_start = (uint64_t)index;
    fl_entry_unref(barrier);
}

static bool apply_next(struct fl_engine *e)
{
    struct fl_entry *entry;

    if (e->applied >= e->commit)
        return false;
    entry = fl_engine_log_get(&e->log, e->applied + 1);
    if (entry == NULL) {
        FL_REQUIRE(e->installing != NULL);
        return false;
    }
    e->applied++;
    fl_entry_ref(entry); /* a change may step down and truncate */
    e->ops->apply(e->ctx, e->applied, entry);
    if (entry->type == FL_ENTRY_CHANGE) {
        fl_engine__set_configuration(e, entry->data, entry->len, e->applied);
        fl_engine__confirm_change(e, e->applied, entry->data, entry->len);
    }
    fl_entry_unref(entry);
    return true;
}

void fl_engine__settle(struct fl_engine *e)
{
    do {
        if (e->needs_own_entry)
            submit_own_entry(e);
        while (apply_next(e))
            continue;
        fl_engine__membership_settle(e);
    } while (e->needs_own_entry || (e->applied < e->commit && e->installing == NULL));
    fl_engine__confirm_settle(e);
}
