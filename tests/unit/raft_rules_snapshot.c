#include "raft_rules.h"

#include <raft.h>
#include <stdlib.h>

#include "base/error.h"

/* Node 1 leads, and has a snapshot that node 3, which is still cut off, needs. */
static uint64_t start_with_snapshot(struct rig *rig, uint32_t rules_off)
{
    uint64_t index;

    rig_start_led(rig, 3, 0, rules_off);
    rig_isolate(rig, 3);
    index = rig_submit(rig, 1, 10);
    rig_run(rig);
    rig_beats(rig, 3);
    rig_snapshot(rig, 1);
    return index;
}

/* Node 3 is back, and the snapshot is on its way to it. */
static struct fl_raft_message *begin_transfer(struct rig *rig)
{
    rig_heal(rig);
    while (rig->nodes[1].snapshots_sent == 0) {
        rig->now_ms += RIG_TICK_MS;
        rig_tick(rig, 1);
        while (rig->n_mail != 0 && rig->nodes[1].snapshots_sent == 0)
            rig_deliver(rig,
                        rig_take(rig, rig->mail[0]->from, rig->mail[0]->to, rig->mail[0]->type));
    }
    return rig_take(rig, 1, 3, FL_RAFT_INSTALL_SNAPSHOT);
}

/* libraft's memory, counted, so that what it forgets is seen (and given back by the story). */
struct heap {
    void *blocks[4096];
    unsigned n;
};

static void *heap_keep(struct heap *heap, void *block)
{
    assert_non_null(block);
    assert_true(heap->n < sizeof heap->blocks / sizeof heap->blocks[0]);
    heap->blocks[heap->n++] = block;
    return block;
}

static void heap_free(void *data, void *block)
{
    struct heap *heap = data;

    for (unsigned i = 0; block != NULL && i < heap->n; i++) {
        if (heap->blocks[i] != block)
            continue;
        heap->blocks[i] = heap->blocks[--heap->n];
        break;
    }
    free(block);
}

static void *heap_malloc(void *data, size_t size)
{
    return heap_keep(data, malloc(size));
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
    return heap_keep(data, calloc(n, size));
}

static void *heap_realloc(void *data, void *block, size_t size)
{
    struct heap *heap = data;

    for (unsigned i = 0; block != NULL && i < heap->n; i++) {
        if (heap->blocks[i] != block)
            continue;
        heap->blocks[i] = heap->blocks[--heap->n];
        break;
    }
    return heap_keep(heap, realloc(block, size));
}

/* A snapshot that comes again while it is being put into place costs nothing. */
bool story_install_once(uint32_t rules_off)
{
    struct heap heap = {.n = 0};
    struct raft_heap counted = {.data = &heap,
                                .malloc = heap_malloc,
                                .free = heap_free,
                                .calloc = heap_calloc,
                                .realloc = heap_realloc};
    struct fl_raft_message *m, *again;
    struct rig rig;
    uint64_t index;
    unsigned forgotten;

    raft_heap_set(&counted);
    index = start_with_snapshot(&rig, rules_off);
    rig.nodes[3].is_slow = true;
    m = begin_transfer(&rig);
    again = fl_raft_message_copy(m);
    rig_deliver(&rig, m);
    rig_deliver(&rig, again);
    rig.nodes[3].is_slow = false;
    rig_beats(&rig, 3);
    assert_int_equal(fl_engine_applied_index(rig_engine(&rig, 3)), index);
    rig_stop(&rig);
    raft_heap_set_default();
    forgotten = heap.n;
    while (heap.n != 0)
        free(heap.blocks[--heap.n]);
    return forgotten == 0;
}

/* Nothing is told committed that is not there yet. */
bool story_install_commit(uint32_t rules_off)
{
    struct rig rig;
    uint64_t index = start_with_snapshot(&rig, rules_off);
    bool kept;

    rig.nodes[3].is_slow = true;
    rig_deliver(&rig, begin_transfer(&rig));
    rig_submit(&rig, 1, 1); /* heartbeats come during the installation */
    rig_run(&rig);
    kept = fl_engine_commit_index(rig_engine(&rig, 3)) < index;
    rig.nodes[3].is_slow = false;
    rig_beats(&rig, 2);
    assert_int_equal(fl_engine_commit_index(rig_engine(&rig, 3)), index + 1);
    rig_stop(&rig);
    return kept;
}

/* A snapshot on its way is not sent again for each heartbeat that is refused meanwhile. */
bool story_one_transfer(uint32_t rules_off)
{
    struct fl_raft_message *m;
    struct rig rig;
    bool kept;

    start_with_snapshot(&rig, rules_off);
    m = begin_transfer(&rig);
    for (unsigned i = 0; i < 5; i++) {
        rig.now_ms += RIG_TICK_MS;
        rig_tick(&rig, 1);
        rig_run(&rig);
    }
    kept = rig.nodes[1].snapshots_sent == 1;
    rig_deliver(&rig, m);
    rig_stop(&rig);
    return kept;
}

/* An own snapshot that ends after a newer one was installed is forgotten: the follower goes on. */
bool story_own_snapshot(uint32_t rules_off)
{
    struct fl_snapshot *own;
    struct rig rig;
    uint64_t index;
    bool kept;

    start_with_snapshot(&rig, rules_off);
    assert_true(fl_engine_snapshot_begin(rig_engine(&rig, 3), &own));
    rig_deliver(&rig, begin_transfer(&rig));
    rig_run(&rig);
    fl_engine_snapshot_finish(rig_engine(&rig, 3), rig.now_ms, own);
    fl_snapshot_unref(own);
    index = rig_submit(&rig, 1, 1);
    rig_beats(&rig, 20);
    kept = fl_engine_match_index(rig_engine(&rig, 1), 3) == index;
    rig_stop(&rig);
    return kept;
}

/* A leader whose disk lags takes no snapshot of what it does not have itself. */
bool story_snapshot_ahead_of_disk(uint32_t rules_off)
{
    struct fl_snapshot *snapshot;
    struct rig rig;
    uint64_t index;
    bool kept;

    rig_start_led(&rig, 3, 0, rules_off);
    rig.nodes[1].is_slow = true;
    index = rig_submit(&rig, 1, 1);
    rig_run(&rig);
    assert_int_equal(fl_engine_applied_index(rig_engine(&rig, 1)), index);
    kept = !fl_engine_snapshot_begin(rig_engine(&rig, 1), &snapshot);
    if (!kept)
        fl_snapshot_unref(snapshot);
    rig_stop(&rig);
    return kept;
}
