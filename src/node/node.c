#include "node/node.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/bugs.h"
#include "base/error.h"
#include "base/hash.h"
#include "node/internal.h"

#define TICK_MS             50
#define ELECTION_TIMEOUT_MS 500
#define BATCH_COMMANDS_MAX  4096
#define BATCH_BYTES_MAX     (1024u * 1024)
#define PENDING_MAX         1000000

struct fl_node *fl_node_new(const struct fl_node_config *config, const struct fl_node_ops *ops,
                            void *ctx)
{
    struct fl_node *node = fl_xcalloc(1, sizeof *node);

    node->config = *config;
    if (node->config.election_timeout_ms == 0)
        node->config.election_timeout_ms = ELECTION_TIMEOUT_MS;
    if (node->config.batch_commands_max == 0)
        node->config.batch_commands_max = BATCH_COMMANDS_MAX;
    if (node->config.batch_bytes_max == 0)
        node->config.batch_bytes_max = BATCH_BYTES_MAX;
    if (node->config.pending_max == 0)
        node->config.pending_max = PENDING_MAX;
    node->ops = *ops;
    node->ctx = ctx;
    node->machine = fl_machine_new(config->hash_key);
    fl_list_init(&node->drafts);
    fl_list_init(&node->timed_out);
    fl_list_init(&node->spare_pendings);
    fl_node__rounds_init(node);
    fl_node__liveness_init(node);
    fl_node__watches_init(node);
    return node;
}

void fl_node_free(struct fl_node *node)
{
    if (node == NULL)
        return;
    fl_node__links_deinit(node);
    fl_node__drafts_deinit(node);
    fl_node__liveness_deinit(node);
    fl_node__watches_deinit(node);
    fl_map_deinit(&node->waiters);
    fl_buf_deinit(&node->contended);
    fl_buf_deinit(&node->entry);
    fl_buf_deinit(&node->frame);
    fl_buf_deinit(&node->status.texts);
    fl_buf_deinit(&node->members);
    fl_machine_free(node->machine);
    free(node);
}

uint64_t fl_node__session_hash(const struct fl_node *node, struct fl_session_id id)
{
    return fl_hash_mix64(fl_hash_mix64(id.high ^ node->config.hash_key[0]) ^ id.low);
}

/* A follower counts on from the last batch that it applied, so that log time goes on over a change
 * of leader, also when the old one had nothing to write for long. It never runs ahead: a batch is
 * applied after it was stamped. */
uint64_t fl_node__log_now(const struct fl_node *node)
{
    if (FL_BUG(NODE_LOG_TIME_OF_OWN_CLOCK))
        return node->now_ms;
    return node->log_base_ms + (node->now_ms - node->clock_base_ms);
}

/* N5: every event comes with the time. Ticks come every 50 ms, so a gap means that we stood still.
 */
static void enter(struct fl_node *node, uint64_t now_ms)
{
    uint64_t gap_ms;

    if (now_ms <= node->now_ms)
        return;
    gap_ms = now_ms - node->now_ms;
    node->now_ms = now_ms;
    if (gap_ms > node->config.election_timeout_ms / 2)
        fl_node__liveness_stalled(node, gap_ms);
}

void fl_node_tick(struct fl_node *node, uint64_t now_ms)
{
    enter(node, now_ms);
    node->tick_ms = node->now_ms;
    fl_node_flush(node, now_ms);
}

/* --- Leadership --- */

/* Whatever was asked is undecided, or decided without us: the gateway asks the next leader, with
 * the same ids. The table of deadlines dies with the term: what we heard in it says nothing about
 * what the sessions did meanwhile. */
static void step_down(struct fl_node *node)
{
    size_t cursor = 0;
    struct link *link;

    while ((link = fl_map_next(&node->links, &cursor)) != NULL) {
        FL_LIST_EACH(at, &link->pendings)
        {
            struct pending *p = FL_CONTAINER_OF(at, struct pending, in_link);

            if (FL_BUG(NODE_REPLY_MATCHED_BY_INDEX) && p->draft != NULL)
                continue;
            fl_node__answer_not_leader(node, p);
        }
        fl_node__watch_end_all(node, link, "the leader changed: go on at the next");
    }
    if (!FL_BUG(NODE_REPLY_MATCHED_BY_INDEX))
        fl_node__drafts_clear(node);
    fl_node__liveness_clear(node);
    fl_node__rounds_void(node);
}

void fl_node_role(struct fl_node *node, uint64_t now_ms, uint64_t term, bool is_leader,
                  uint64_t leader_id)
{
    bool was_leader = node->is_leader;
    bool is_over = was_leader && (!is_leader || term != node->term);
    bool is_news = leader_id != node->leader_id || term != node->term;
    size_t cursor = 0;
    struct link *link;

    enter(node, now_ms);
    node->term = term;
    node->leader_id = leader_id;
    node->is_leader = is_leader;
    if (is_over || !was_leader)
        node->is_settled = node->has_marked_level = false;
    if (is_over)
        step_down(node);
    while (is_news && (link = fl_map_next(&node->links, &cursor)) != NULL)
        fl_node__push_leader(node, link);
}

/* --- The log --- */

static bool is_ours(const struct fl_node *node, uint64_t index, uint64_t term)
{
    if (node->in_flight == NULL || node->in_flight->index != index)
        return false;
    return FL_BUG(NODE_REPLY_MATCHED_BY_INDEX) || (node->is_leader && term == node->term);
}

int fl_node_applied(struct fl_node *node, uint64_t now_ms, uint64_t index, uint64_t term,
                    const void *data, size_t len)
{
    int r = FL_OK;

    enter(node, now_ms);
    node->applied_index = index;
    node->applying = is_ours(node, index, term) ? node->in_flight : NULL;
    if (len > 0)
        r = fl_machine_apply(node->machine, index, term, data, len, fl_node__outcome, node);
    if (r == FL_E_VERSION)
        return r;
    if (node->applying == NULL && len > 0) { /* another leader's stamp */
        node->log_base_ms = fl_machine_now_ms(node->machine);
        node->clock_base_ms = node->now_ms;
    }
    fl_node__outcome_finish(node);
    if (node->applying != NULL)
        fl_node__draft_done(node);
    node->applying = NULL;
    if (node->is_leader && !node->is_settled && term == node->term) {
        node->is_settled = true;
        fl_node__liveness_begin(node);
    }
    fl_node__rounds_serve(node);
    return FL_OK;
}

void fl_node_confirmed(struct fl_node *node, uint64_t now_ms, uint64_t round, uint64_t read_index)
{
    enter(node, now_ms);
    if (!node->is_leader)
        return;
    fl_node__rounds_confirmed(node, round, read_index);
    fl_node__rounds_serve(node);
}

/* --- The turn of the loop --- */

int fl_node_request(struct fl_node *node, uint64_t now_ms, uint64_t link_id, const void *data,
                    size_t len)
{
    struct link *link = fl_node__link(node, link_id);
    struct fl_request request;
    int r;

    FL_REQUIRE(link != NULL);
    enter(node, now_ms);
    r = fl_request_decode(data, len, &request);
    if (r == FL_OK)
        fl_node__request(node, link, &request, data, len);
    return r;
}

static bool is_work_due(const struct fl_node *node)
{
    uint64_t log_now = fl_node__log_now(node);

    if (FL_BUG(NODE_WORKS_WITHOUT_CAUSE) && log_now > fl_machine_now_ms(node->machine))
        return true;
    return fl_machine_has_backlog(node->machine) || fl_machine_next_due(node->machine) <= log_now;
}

/* The one kind of command that not every release knows. */
static void mark_level(struct fl_node *node)
{
    struct fl_command mark = {.type = FL_CMD_MARK_LEVEL};

    if (fl_format_level < 2 || node->level < 2 || node->has_marked_level)
        return;
    node->has_marked_level = true;
    fl_node__draft_add(node, &mark, NULL);
}

/* Nothing is proposed before all that earlier leaders left is applied: the stamp of our first batch
 * must not be below theirs. */
void fl_node_flush(struct fl_node *node, uint64_t now_ms)
{
    enter(node, now_ms);
    if (!node->is_leader)
        return;
    fl_node__liveness_flush(node);
    if (node->is_settled)
        mark_level(node);
    if (node->is_settled)
        fl_node__draft_propose(node, is_work_due(node));
    fl_node__rounds_flush(node);
}

uint64_t fl_node_deadline(const struct fl_node *node)
{
    uint64_t at = node->tick_ms + TICK_MS;
    uint64_t log_now = fl_node__log_now(node);
    uint64_t due = fl_machine_next_due(node->machine);
    const struct fl_heap_node *timer = fl_heap_first(&node->liveness.timers);

    if (!node->is_settled)
        return at;
    if (node->in_flight == NULL && due != UINT64_MAX) {
        uint64_t due_at = node->now_ms + (due > log_now ? due - log_now : 0);

        at = due_at < at ? due_at : at;
    }
    if (timer != NULL && timer->key + node->liveness.stalled_ms < at)
        at = timer->key + node->liveness.stalled_ms;
    return at;
}

/* --- State --- */

const struct fl_machine *fl_node_machine(const struct fl_node *node)
{
    return node->machine;
}

void fl_node_take_machine(struct fl_node *node, uint64_t now_ms, struct fl_machine *machine)
{
    FL_REQUIRE(!node->is_leader);
    enter(node, now_ms);
    fl_machine_free(node->machine);
    node->machine = machine;
    node->applied_index = fl_machine_index(machine);
    fl_node__watch_lost(node, node->applied_index);
    node->log_base_ms = fl_machine_now_ms(machine);
    node->clock_base_ms = node->now_ms;
}

void fl_node_set_members(struct fl_node *node, uint64_t index, struct fl_str members)
{
    size_t cursor = 0;
    struct link *link;

    node->members_index = index;
    fl_buf_clear(&node->members);
    fl_buf_put(&node->members, members.data, members.len);
    while ((link = fl_map_next(&node->links, &cursor)) != NULL)
        fl_node__push_members(node, link);
}

void fl_node_set_level(struct fl_node *node, uint16_t level)
{
    node->level = level;
}

void fl_node_set_disk_full(struct fl_node *node, bool is_full)
{
    node->is_disk_full = is_full;
}
