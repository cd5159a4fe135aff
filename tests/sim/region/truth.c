#include "truth.h"

#include <stdlib.h>
#include <string.h>

#include "../../model/trace.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"

typedef unsigned long long ull;

/* A walk over everything, once in so many entries. */
#define CHECK_EVERY 256
/* Every question that can be asked is asked, of the machine and of the model. */
#define LOOK_EVERY 24

void truth_init(struct truth *t, struct timeline *time, struct judge *judge)
{
    *t = (struct truth){.time = time, .judge = judge, .theirs = FL_BUF_INIT, .ours = FL_BUF_INIT};
    t->machine = fl_machine_new((const uint64_t[2]){1, 2});
    t->model = model_new(FL_MACHINE_WORK_PER_ENTRY, FL_MACHINE_LOOKS);
    t->history = history_new();
}

void truth_deinit(struct truth *t)
{
    fl_machine_free(t->machine);
    model_free(t->model);
    history_free(t->history);
    fl_buf_deinit(&t->theirs);
    fl_buf_deinit(&t->ours);
    free(t->facts);
}

uint64_t truth_hash_effect(uint64_t hash, const struct fl_effect *e)
{
    const uint64_t words[] = {
        e->index, e->sub,         (uint64_t)e->command, e->type,     e->answer,
        e->cause, e->session.low, e->request_id,        e->token,    e->mode,
        e->limit, e->position,    e->waiters,           e->name.len, e->holder_token};

    for (size_t i = 0; i < FL_ARRAY_LEN(words); i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u + (hash >> 29);
    return hash;
}

/* --- One entry --- */

/* A session's end changes names before their holds are told to have ended. */
static void note_change(struct truth *t, const struct fl_effect *effect)
{
    for (unsigned i = 0; i < JUDGE_NAMES_MAX; i++)
        if (effect->type == FL_EFF_SESSION_END || (unsigned)(effect->name.data[1] - '0') == i)
            t->changed_at[i] = effect->index;
}

static void hear_machine(void *ctx, const struct fl_effect *effect)
{
    struct truth *t = ctx;

    t->effects = truth_hash_effect(t->effects, effect);
    timeline_mix(t->time, t->effects);
    trace_effect(&t->theirs, effect);
    history_add(t->history, effect);
    judge_effect(t->judge, effect);
    if (effect->type == FL_EFF_GRANT || effect->type == FL_EFF_HOLD_END ||
        effect->type == FL_EFF_SESSION_END)
        note_change(t, effect);
    if (effect->type != FL_EFF_SESSION_OPEN)
        return;
    FL_REQUIRE(t->n_sessions_opened < TRUTH_SESSIONS_MAX);
    t->sessions_opened[t->n_sessions_opened++] = effect->session.low;
}

static void hear_model(void *ctx, const struct fl_effect *effect)
{
    trace_effect(&((struct truth *)ctx)->ours, effect);
}

static void compare_states(struct truth *t, uint64_t index)
{
    fl_buf_clear(&t->theirs);
    fl_buf_clear(&t->ours);
    trace_machine(&t->theirs, t->machine);
    model_describe(t->model, &t->ours);
    if (t->theirs.len != t->ours.len || memcmp(t->theirs.data, t->ours.data, t->ours.len) != 0)
        timeline_fail(t->time, "L9, L15: the machine shows another state than the model after %llu",
                      (ull)index);
}

static void compare(struct truth *t, uint64_t index)
{
    const char *fault = history_fault(t->history);
    char why[128];

    if (fault != NULL)
        timeline_fail(t->time, "rule: %s", fault);
    if (t->theirs.len != t->ours.len ||
        (t->ours.len > 0 && memcmp(t->theirs.data, t->ours.data, t->ours.len) != 0))
        timeline_fail(t->time, "L13: the machine tells other effects of entry %llu than the model",
                      (ull)index);
    if (index % LOOK_EVERY == 0)
        compare_states(t, index);
    if (index % CHECK_EVERY == 0 && fl_machine_check(t->machine, why, sizeof why) != FL_OK)
        timeline_fail(t->time, "invariant: %s", why);
}

static void follow(struct truth *t, uint64_t index, const struct fl_entry *entry)
{
    struct fl_batch batch;

    fl_buf_clear(&t->theirs);
    fl_buf_clear(&t->ours);
    if (fl_batch_decode(entry->data, entry->len, &batch) != FL_OK) {
        timeline_fail(t->time, "entry %llu is no batch", (ull)index);
        return;
    }
    history_set_time(t->history, batch.now_ms);
    t->n_sessions_opened = 0;
    fl_machine_apply(t->machine, index, entry->term, entry->data, entry->len, hear_machine, t);
    model_apply(t->model, index, entry->term, &batch, hear_model, t);
    fl_batch_deinit(&batch);
    judge_committed_batch(t->judge, fl_machine_now_ms(t->machine));
    for (unsigned i = 0; i < t->n_sessions_opened; i++) {
        struct fl_session_info info;

        /* Whoever asked learns the TTL by the reply; the judge from here. */
        if (fl_machine_session(t->machine, (struct fl_session_id){1, t->sessions_opened[i]}, &info))
            judge_session(t->judge, (uint32_t)t->sessions_opened[i], info.ttl_ms);
    }
    compare(t, index);
}

static uint64_t content_of(const struct fl_entry *entry)
{
    return fl_hash_mix64(entry->type) ^ fl_crc32c(0, entry->data, entry->len);
}

void truth_applies(struct truth *t, unsigned node, uint64_t index, const struct fl_entry *entry,
                   uint64_t commit_term)
{
    struct fact *fact;

    if (index <= t->committed) {
        fact = &t->facts[index];
        if (fact->term != entry->term || fact->content != content_of(entry))
            timeline_fail(t->time, "R2: node %u applies another entry %llu", node, (ull)index);
        return;
    }
    if (index != t->committed + 1) {
        timeline_fail(t->time, "node %u applies entry %llu after %llu", node, (ull)index,
                      (ull)t->committed);
        return;
    }
    if (index >= t->capacity) {
        t->capacity = fl_grow_capacity(t->capacity, index + 1, sizeof *t->facts);
        t->facts = fl_xrealloc(t->facts, t->capacity * sizeof *t->facts);
    }
    t->committed = index;
    if (entry->type == FL_ENTRY_COMMAND)
        follow(t, index, entry);
    t->facts[index] = (struct fact){.term = entry->term,
                                    .content = content_of(entry),
                                    .commit_term = commit_term,
                                    .effects = t->effects,
                                    .at_us = t->time->now_us};
    if (t->committed_entry != NULL)
        t->committed_entry(t->ctx, index, entry->term);
}

void truth_applied(struct truth *t, unsigned node, uint64_t index, uint64_t effects)
{
    if (index <= t->committed && t->facts[index].effects != effects)
        timeline_fail(t->time, "R2: node %u tells other effects up to entry %llu", node,
                      (ull)index);
}

/* --- Leaders --- */

void truth_leads(struct truth *t, unsigned node, uint64_t term, uint64_t last)
{
    uint64_t i = t->committed;

    if (term >= TRUTH_TERMS_MAX)
        return;
    if (t->leaders[term].node != 0 && t->leaders[term].node != node)
        timeline_fail(t->time, "R1: nodes %u and %u both lead term %llu", t->leaders[term].node,
                      node, (ull)term);
    if (t->leaders[term].node == 0) {
        t->leaders[term].node = node;
        t->leaders[term].at_us = t->time->now_us;
    }
    if (term > t->last_term)
        t->last_term = term;
    while (i > 0 && t->facts[i].commit_term >= term)
        i--;
    if (i > last)
        timeline_fail(t->time,
                      "R5: node %u leads term %llu without entry %llu, which was committed", node,
                      (ull)term, (ull)i);
}

unsigned truth_leader(const struct truth *t)
{
    return t->leaders[t->last_term].node;
}

static void add_token(void *ctx, const struct fl_request_info *info)
{
    *(fl_token *)ctx += info->token;
}

bool truth_holders(const struct truth *t, unsigned name, uint64_t index, fl_token *ret_sum)
{
    char text[] = {'n', (char)('0' + name)};
    struct fl_name_info info;

    *ret_sum = 0;
    if (t->changed_at[name] > index || index > t->committed)
        return false;
    fl_machine_describe(t->machine, (struct fl_str){text, 2}, 0, &info, add_token, ret_sum);
    return true;
}

bool truth_was_deposed(const struct truth *t, uint64_t term, uint64_t at_us)
{
    for (uint64_t later = t->last_term; later > term; later--) {
        if (t->leaders[later].node != 0 && t->leaders[later].at_us < at_us)
            return true;
    }
    return false;
}
