#include "raft/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "raft/engine.h"

struct fl_entry *fl_entry_new(uint8_t type, uint64_t term, const void *data, uint32_t len)
{
    struct fl_entry *entry = fl_xalloc(sizeof *entry + len);

    entry->refs = 1;
    entry->type = type;
    entry->term = term;
    entry->len = len;
    if (len != 0)
        memcpy(entry->data, data, len);
    return entry;
}

struct fl_entry *fl_entry_ref(struct fl_entry *entry)
{
    FL_REQUIRE(entry->refs > 0);
    entry->refs++;
    return entry;
}

void fl_entry_unref(struct fl_entry *entry)
{
    if (entry == NULL)
        return;
    FL_REQUIRE(entry->refs > 0);
    if (--entry->refs == 0)
        free(entry);
}

void fl_append_free(struct fl_append *append)
{
    if (append == NULL)
        return;
    for (unsigned i = 0; i < append->n; i++)
        fl_entry_unref(append->entries[i]);
    free(append->entries);
    free(append);
}

struct fl_snapshot *fl_snapshot_new(uint64_t index, uint64_t term, uint64_t configuration_index,
                                    const void *configuration, uint32_t configuration_len)
{
    struct fl_snapshot *snapshot = fl_xcalloc(1, sizeof *snapshot);

    snapshot->refs = 1;
    snapshot->index = index;
    snapshot->term = term;
    snapshot->configuration_index = configuration_index;
    if (configuration_len != 0)
        snapshot->configuration = fl_xmemdup(configuration, configuration_len);
    snapshot->configuration_len = configuration_len;
    return snapshot;
}

struct fl_snapshot *fl_snapshot_ref(struct fl_snapshot *snapshot)
{
    FL_REQUIRE(snapshot->refs > 0);
    snapshot->refs++;
    return snapshot;
}

void fl_snapshot_unref(struct fl_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    FL_REQUIRE(snapshot->refs > 0);
    if (--snapshot->refs != 0)
        return;
    if (snapshot->content != NULL && snapshot->free_content != NULL)
        snapshot->free_content(snapshot->content);
    free(snapshot->configuration);
    free(snapshot);
}
