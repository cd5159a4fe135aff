#include "engine_checks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "raft/message.h"

#define ENTRIES_SLOTS (1u << 17)

struct checked_entry {
    uint64_t index, term, chain;
};

void checks_broken(const struct checks *c, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    printf("%.3f s: ", (double)c->time->now_us / 1e6);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    _exit(BROKEN_STATUS);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    return fl_hash_mix64(a ^ (b + 0x9e3779b97f4a7c15u));
}

static uint64_t next_chain(uint64_t chain, const struct fl_entry *entry)
{
    return mix(mix(chain, entry->term), mix(fl_crc32c(0, entry->data, entry->len), entry->type));
}

/* The slot of an index and a term, or the free one where it belongs. */
static struct checked_entry *slot_of(struct checks *c, uint64_t index, uint64_t term)
{
    uint64_t i = mix(index, term);

    for (;; i++) {
        struct checked_entry *entry = &c->entries[i & (ENTRIES_SLOTS - 1)];

        if (entry->index == 0 || (entry->index == index && entry->term == term))
            return entry;
    }
}

static void remember(struct checks *c, unsigned id, uint64_t index, uint64_t term, uint64_t chain)
{
    struct checked_entry *entry = slot_of(c, index, term);

    if (entry->index == 0) {
        if (++c->n_entries > ENTRIES_SLOTS / 2)
            checks_broken(c, "too many entries to remember");
        *entry = (struct checked_entry){index, term, chain};
    } else if (entry->chain != chain) {
        checks_broken(c, "log matching: node %u has another log at entry %llu of term %llu", id,
                      (unsigned long long)index, (unsigned long long)term);
    }
}

void checks_init(struct checks *c, const struct timeline *time, const struct fl_entry *first)
{
    *c = (struct checks){.time = time, .committed = 1};
    c->entries = fl_xcalloc(ENTRIES_SLOTS, sizeof *c->entries);
    c->truth[1].chain = next_chain(0, first);
    c->truth[1].term = 1;
    c->truth[1].configuration = fl_crc32c(0, first->data, first->len);
}

void checks_deinit(struct checks *c)
{
    free(c->entries);
}

static void push(struct checks *c, struct checked_log *log, const struct fl_entry *entry)
{
    uint64_t index = ++log->last;

    if (index >= CHECKS_INDEX_MAX)
        checks_broken(c, "the log is too long");
    log->chains[index] = next_chain(log->chains[index - 1], entry);
    log->configurations[index] = entry->type == FL_ENTRY_CHANGE
                                     ? fl_crc32c(0, entry->data, entry->len)
                                     : log->configurations[index - 1];
    remember(c, log->id, index, entry->term, log->chains[index]);
}

void checks_appended(struct checks *c, struct checked_log *log, const struct fl_append *append)
{
    if (append->index <= log->applied)
        checks_broken(c, "node %u replaces entry %llu, which it applied", log->id,
                      (unsigned long long)append->index);
    if (append->index > log->last + 1)
        checks_broken(c, "node %u leaves a hole below entry %llu", log->id,
                      (unsigned long long)append->index);
    log->last = append->index - 1;
    for (unsigned i = 0; i < append->n; i++)
        push(c, log, append->entries[i]);
}

static void restore(struct checks *c, struct checked_log *log, const struct fl_snapshot *snapshot)
{
    const struct checked_state *state = snapshot->content;
    uint32_t configuration = fl_crc32c(0, snapshot->configuration, snapshot->configuration_len);

    if (snapshot->index > c->committed)
        checks_broken(c, "node %u has a snapshot of entry %llu, which is not committed", log->id,
                      (unsigned long long)snapshot->index);
    if (state->index != snapshot->index || state->chain != c->truth[snapshot->index].chain)
        checks_broken(c, "node %u has a snapshot of entry %llu with another state", log->id,
                      (unsigned long long)snapshot->index);
    if (configuration != c->truth[snapshot->index].configuration)
        checks_broken(c, "node %u has a snapshot of entry %llu with another configuration", log->id,
                      (unsigned long long)snapshot->index);
    log->configurations[state->index] = configuration;
    log->applied = state->index;
    log->chains[state->index] = state->chain;
    remember(c, log->id, snapshot->index, snapshot->term, state->chain);
}

void checks_installed(struct checks *c, struct checked_log *log, const struct fl_snapshot *snapshot)
{
    if (snapshot->index <= log->applied)
        checks_broken(c, "node %u goes back to a snapshot of entry %llu", log->id,
                      (unsigned long long)snapshot->index);
    restore(c, log, snapshot);
    log->last = snapshot->index;
}

void checks_started(struct checks *c, struct checked_log *log, const struct disk *disk)
{
    log->applied = 0;
    log->last = disk->first - 1;
    if (disk->snapshot != NULL)
        restore(c, log, disk->snapshot);
    for (size_t i = 0; i < disk->n; i++)
        push(c, log, disk->log[i]);
}

bool checks_applied(struct checks *c, struct checked_log *log, uint64_t index, uint64_t term)
{
    if (index != log->applied + 1 || index > log->last)
        checks_broken(c, "node %u applies entry %llu out of order", log->id,
                      (unsigned long long)index);
    log->applied = index;
    if (index <= c->committed) {
        if (c->truth[index].chain != log->chains[index])
            checks_broken(c, "states differ at entry %llu on node %u", (unsigned long long)index,
                          log->id);
        return false;
    }
    c->committed = index;
    c->truth[index].chain = log->chains[index];
    c->truth[index].configuration = log->configurations[index];
    c->truth[index].term = term;
    return true;
}

static uint32_t encoded(const struct fl_member_info *members, unsigned n)
{
    struct fl_entry *entry;
    uint32_t crc;

    if (n == 0)
        return 0;
    entry = fl_engine_bootstrap_entry(members, n);
    crc = fl_crc32c(0, entry->data, entry->len);
    fl_entry_unref(entry);
    return crc;
}

void checks_configuration(struct checks *c, struct checked_log *log, const struct fl_engine *engine)
{
    struct fl_member_info members[FL_RAFT_SERVERS_MAX];
    unsigned n = fl_engine_members(engine, members, FL_RAFT_SERVERS_MAX);
    uint64_t seen = n;

    for (unsigned i = 0; i < n; i++)
        seen = mix(seen, members[i].id * 8 + members[i].role);
    if (seen != log->seen_members) {
        log->seen_members = seen;
        log->seen_configuration = encoded(members, n);
    }
    if (log->seen_configuration != log->configurations[log->last])
        checks_broken(c, "node %u obeys a configuration that is not the last in its log", log->id);
}

void checks_leads(struct checks *c, const struct checked_log *log, uint64_t term)
{
    uint64_t index = c->committed;

    if (term >= CHECKS_TERM_MAX)
        checks_broken(c, "too many terms");
    if (c->leader_of[term] != 0 && c->leader_of[term] != log->id)
        checks_broken(c, "election safety: two leaders in term %llu", (unsigned long long)term);
    c->leader_of[term] = log->id;
    /* A late vote can make a leader of a term that is over: it need not have what came after. */
    while (index != 0 && c->truth[index].term >= term)
        index--;
    if (index > log->applied && (log->last < index || log->chains[index] != c->truth[index].chain))
        checks_broken(c, "leader completeness: node %u leads term %llu without entry %llu", log->id,
                      (unsigned long long)term, (unsigned long long)index);
}

void checks_voted(struct checks *c, unsigned id, const struct disk *disk, uint64_t term,
                  uint64_t vote)
{
    if (term < disk->term || (term == disk->term && disk->vote != 0 && vote != disk->vote))
        checks_broken(c, "one vote per term: node %u in term %llu", id, (unsigned long long)term);
}

void checks_fill_snapshot(const struct checks *c, const struct checked_log *log,
                          struct fl_snapshot *snapshot)
{
    struct checked_state state = {log->applied, log->chains[log->applied]};

    if (snapshot->index != log->applied)
        checks_broken(c, "node %u takes a snapshot of entry %llu, having applied %llu", log->id,
                      (unsigned long long)snapshot->index, (unsigned long long)log->applied);
    snapshot->content = fl_xmemdup(&state, sizeof state);
    snapshot->free_content = free;
}
