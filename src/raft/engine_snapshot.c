#include "base/assert.h"
#include "base/error.h"
#include "raft/engine_state.h"

void fl_engine_installed(struct fl_engine *e, uint64_t now_ms)
{
    struct raft_event event = {.type = RAFT_PERSISTED_SNAPSHOT};
    struct raft_snapshot_metadata *metadata = &event.persisted_snapshot.metadata;

    FL_REQUIRE(e->installing != NULL);
    e->now_ms = now_ms;
    fl_snapshot_unref(e->snapshot);
    e->snapshot = e->installing;
    e->installing = NULL;
    e->applied = e->commit = e->snapshot->index;
    fl_engine__set_configuration(e, e->snapshot->configuration, e->snapshot->configuration_len,
                                 e->snapshot->configuration_index);
    metadata->index = e->snapshot->index;
    metadata->term = e->snapshot->term;
    metadata->configuration_index = e->snapshot->configuration_index;
    metadata->configuration = e->installing_conf; /* given back */
    event.persisted_snapshot.last = true;
    FL_REQUIRE(fl_engine__step(e, &event, NULL) == 0);
    fl_engine__settle(e);
}

bool fl_engine_snapshot_begin(struct fl_engine *e, struct fl_snapshot **ret_snapshot)
{
    if (e->is_snapshotting || e->installing != NULL || e->configuration == NULL ||
        fl_engine_log_get(&e->log, e->applied) == NULL ||
        (e->snapshot != NULL && e->applied <= e->snapshot->index))
        return false;
    /* A leader may have applied what its own disk does not have yet. */
    if (FL_RULE_ON(e, OWN_SNAPSHOT) && e->applied > e->raft.last_stored) {
        FL_RULE_ACTED(e, OWN_SNAPSHOT);
        return false;
    }
    e->is_snapshotting = true;
    *ret_snapshot = fl_snapshot_new(e->applied, fl_engine__term_at(e, e->applied),
                                    e->configuration_index, e->configuration, e->configuration_len);
    return true;
}

void fl_engine_snapshot_finish(struct fl_engine *e, uint64_t now_ms, struct fl_snapshot *snapshot)
{
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    struct raft_snapshot_metadata *metadata = &event.snapshot.metadata;
    uint64_t first;

    e->now_ms = now_ms;
    e->is_snapshotting = false;
    if (FL_RULE_ON(e, OWN_SNAPSHOT) &&
        (e->installing != NULL || (e->snapshot != NULL && e->snapshot->index >= snapshot->index))) {
        FL_RULE_ACTED(e, OWN_SNAPSHOT);
        return;
    }
    metadata->index = snapshot->index;
    metadata->term = snapshot->term;
    metadata->configuration_index = snapshot->configuration_index;
    FL_REQUIRE(fl_engine__configuration_decode(snapshot->configuration, snapshot->configuration_len,
                                               &metadata->configuration) == 0);
    event.snapshot.trailing = (unsigned)e->trailing;
    FL_REQUIRE(fl_engine__step(e, &event, NULL) == 0);
    fl_snapshot_unref(e->snapshot);
    e->snapshot = fl_snapshot_ref(snapshot);
    if (snapshot->index > e->trailing) {
        first = snapshot->index - e->trailing + 1;
        if (first > e->log.first) {
            fl_engine_log_drop_below(&e->log, first);
            e->ops->compact(e->ctx, first);
        }
    }
    fl_engine__settle(e);
}

void fl_engine_snapshot_abort(struct fl_engine *e)
{
    e->is_snapshotting = false;
}
