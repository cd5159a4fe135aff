#include "engine_disk.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void disk_init(struct disk *disk)
{
    *disk = (struct disk){.first = 1};
    disk->ops_end = &disk->ops;
}

uint64_t disk_last(const struct disk *disk)
{
    return disk->first + disk->n - 1;
}

bool disk_has(const struct disk *disk, uint64_t index, uint64_t term)
{
    if (disk->snapshot != NULL && disk->snapshot->index >= index)
        return true;
    return index >= disk->first && index <= disk_last(disk) &&
           disk->log[index - disk->first]->term == term;
}

void disk_push(struct disk *disk, struct fl_entry *entry)
{
    if (disk->n == disk->capacity) {
        disk->capacity = disk->capacity != 0 ? disk->capacity * 2 : 64;
        disk->log = fl_xrealloc(disk->log, disk->capacity * sizeof(struct fl_entry *));
    }
    disk->log[disk->n++] = fl_entry_ref(entry);
}

static void truncate_log(struct disk *disk, uint64_t from)
{
    while (disk->n != 0 && disk_last(disk) >= from)
        fl_entry_unref(disk->log[--disk->n]);
}

static void drop_below(struct disk *disk, uint64_t first)
{
    size_t k = 0;

    while (k < disk->n && disk->first + k < first)
        fl_entry_unref(disk->log[k++]);
    memmove(disk->log, disk->log + k, (disk->n - k) * sizeof(struct fl_entry *));
    disk->n -= k;
    disk->first += k;
}

static void set_snapshot(struct disk *disk, struct fl_snapshot *snapshot)
{
    fl_snapshot_ref(snapshot);
    fl_snapshot_unref(disk->snapshot);
    disk->snapshot = snapshot;
}

void disk_recover(struct disk *disk)
{
    if (disk->snapshot == NULL || disk_last(disk) >= disk->snapshot->index)
        return;
    truncate_log(disk, 0);
    disk->first = disk->snapshot->index + 1;
}

/* Of an append only the first `part` entries. */
static bool perform(struct disk *disk, const struct disk_op *op, uint64_t part)
{
    switch (op->type) {
    case DISK_APPEND:
        if (op->append->index > disk_last(disk) + 1)
            return false;
        truncate_log(disk, op->append->index);
        for (unsigned i = 0; i < op->append->n && i < part; i++)
            disk_push(disk, op->append->entries[i]);
        break;
    case DISK_INSTALL:
        set_snapshot(disk, op->snapshot);
        truncate_log(disk, 0);
        disk->first = op->snapshot->index + 1;
        break;
    case DISK_SAVE:
        if (disk->snapshot == NULL || disk->snapshot->index < op->snapshot->index)
            set_snapshot(disk, op->snapshot);
        break;
    case DISK_COMPACT:
        drop_below(disk, op->first);
        break;
    }
    return true;
}

void disk_queue(struct disk *disk, struct disk_op op)
{
    struct disk_op *copy = fl_xmemdup(&op, sizeof op);

    *disk->ops_end = copy;
    disk->ops_end = &copy->next;
}

static struct disk_op *take_op(struct disk *disk)
{
    struct disk_op *op = disk->ops;

    disk->ops = op->next;
    if (disk->ops == NULL)
        disk->ops_end = &disk->ops;
    return op;
}

struct disk_op *disk_do(struct disk *disk)
{
    if (!perform(disk, disk->ops, UINT64_MAX))
        return NULL;
    return take_op(disk);
}

void disk_op_free(struct disk_op *op)
{
    fl_append_free(op->append);
    fl_snapshot_unref(op->snapshot);
    free(op);
}

bool disk_power_cut(struct disk *disk, struct fl_random *random)
{
    bool is_lost = false, is_sound = true;

    while (disk->ops != NULL) {
        struct disk_op *op = take_op(disk);
        uint64_t part = UINT64_MAX;
        bool is_done = !is_lost;

        if (!is_lost && !fl_random_chance(random, 4, 10)) {
            is_lost = true;
            is_done = op->type == DISK_APPEND && fl_random_chance(random, 1, 2);
            if (is_done)
                part = fl_random_below(random, op->append->n); /* torn */
        }
        if (is_done && is_sound)
            is_sound = perform(disk, op, part);
        disk_op_free(op);
    }
    return is_sound;
}

void disk_deinit(struct disk *disk)
{
    while (disk->ops != NULL)
        disk_op_free(take_op(disk));
    truncate_log(disk, 0);
    free(disk->log);
    fl_snapshot_unref(disk->snapshot);
}
