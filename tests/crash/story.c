#include "story.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"
#include "raft/engine.h"
#include "raft/store_state.h"

#define SEGMENT_BYTES 4096
#define RESERVE_BYTES 1024

static void problem(struct story *story, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void problem(struct story *story, const char *format, ...)
{
    va_list args;

    if (story_is_broken(story))
        return; /* the first one tells most */
    va_start(args, format);
    vsnprintf(story->problem, sizeof story->problem, format, args);
    va_end(args);
}

bool story_is_broken(const struct story *story)
{
    return story->problem[0] != '\0';
}

static void payload(uint64_t id, uint32_t len, uint8_t *out)
{
    for (uint32_t i = 0; i < len; i++)
        out[i] = (uint8_t)(fl_hash_mix64(id + i / 8) >> (i % 8 * 8));
}

/* A snapshot's state follows from its index. */
static uint32_t snapshot_size(uint64_t index)
{
    return (uint32_t)(index * 37 % 700);
}

static struct story_entry *entry_of_state(struct story *story, unsigned state, uint64_t index)
{
    for (unsigned i = state; i > 0; i--)
        if (story->states[i].adds && story->states[i].last == index)
            return &story->states[i].added;
    return &story->entries[index];
}

static struct story_state *step_from(struct story *story)
{
    FL_REQUIRE(story->n_states < STORY_STATES_MAX);
    story->states[story->n_states] = story->states[story->n_states - 1];
    story->states[story->n_states].adds = false;
    return &story->states[story->n_states++];
}

/* All that was under way is acknowledged. */
static void acknowledge(struct story *story)
{
    for (unsigned i = 1; i < story->n_states; i++)
        if (story->states[i].adds)
            story->entries[story->states[i].last] = story->states[i].added;
    story->states[0] = story->states[story->n_states - 1];
    story->states[0].adds = false;
    story->n_states = 1;
}

/* --- comparing --- */

/* NULL when they are equal. */
static const char *differs(struct story *story, unsigned state,
                           const struct fl_store_recovered *found)
{
    const struct story_state *s = &story->states[state];
    uint64_t next = found->start_index + found->n;
    uint64_t floor = s->snapshot_before + 1 > s->floor ? s->snapshot_before + 1 : s->floor;

    if (found->term != s->term || found->voted_for != s->voted_for)
        return "term and vote";
    if ((found->snapshot != NULL ? found->snapshot->index : 0) != s->snapshot)
        return "the snapshot";
    if (s->snapshot > s->last)
        return found->n == 0 && found->start_index == s->snapshot + 1 ? NULL : "an old log";
    if (next != s->last + 1)
        return "the end of the log";
    if (found->start_index > floor)
        return "the start of the log: the older snapshot needs more";
    for (uint64_t index = found->start_index; index < next; index++) {
        const struct fl_entry *entry = found->entries[index - found->start_index];
        const struct story_entry *want = entry_of_state(story, state, index);
        uint8_t bytes[STORY_PAYLOAD_MAX];

        payload(want->id, want->len, bytes);
        if (entry->term != want->term || entry->len != want->len ||
            memcmp(entry->data, bytes, want->len) != 0)
            return "an entry";
    }
    return NULL;
}

int story_match(struct story *story, const struct fl_store_recovered *found)
{
    const struct story_state *last = &story->states[story->n_states - 1];
    const char *difference = NULL;

    for (unsigned state = 0; state < story->n_states; state++) {
        if (story->only_state != 0 && state != story->only_state - 1)
            continue;
        difference = differs(story, state, found);
        if (difference == NULL)
            return (int)state;
    }
    problem(story,
            "found term %" PRIu64 ", vote %" PRIu64 ", snapshot %" PRIu64 ", log %" PRIu64
            " + %u; acknowledged were term %" PRIu64 ", vote %" PRIu64 ", snapshot %" PRIu64
            ", last %" PRIu64 "; under way term %" PRIu64 ", vote %" PRIu64 ", snapshot %" PRIu64
            ", last %" PRIu64 ", %u steps; other than the last step: %s",
            found->term, found->voted_for, found->snapshot != NULL ? found->snapshot->index : 0,
            found->start_index, found->n, story->states[0].term, story->states[0].voted_for,
            story->states[0].snapshot, story->states[0].last, last->term, last->voted_for,
            last->snapshot, last->last, story->n_states - 1, difference);
    return -1;
}

/* Whether the content is what belongs to the index; else the fault tells. */
static bool read_snapshot(struct fl_store *store, const struct fl_snapshot *snapshot,
                          struct fl_store_fault *fault)
{
    const struct fl_store_snapshot *content = snapshot->content;
    uint32_t size = snapshot_size(snapshot->index);
    uint8_t want[STORY_PAYLOAD_MAX], got[STORY_PAYLOAD_MAX];
    struct fl_snapshot_reader *reader;
    bool is_good;

    payload(snapshot->index, size, want);
    if (fl_snapshot_reader_new(store, content->path, &reader, fault) < 0)
        return false;
    snprintf(fault->text, sizeof fault->text, "its content is another");
    is_good = content->size == size &&
              fl_snapshot_reader_read(reader, got, sizeof got) == (long)size &&
              memcmp(want, got, size) == 0 && fl_snapshot_reader_read(reader, got, sizeof got) == 0;
    fl_snapshot_reader_free(reader);
    return is_good;
}

static void check_snapshot(struct story *story, struct fl_store *store,
                           const struct fl_snapshot *snapshot)
{
    struct fl_store_fault fault;

    if (read_snapshot(store, snapshot, &fault))
        return;
    if (story->tolerates && read_snapshot(store, snapshot, &fault))
        return; /* the call that fails once */
    problem(story, "the snapshot: %s", fault.text);
}

static struct fl_append *append_new(uint64_t index, unsigned n)
{
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    append->index = index;
    append->n = n;
    append->entries = fl_xcalloc(n, sizeof(struct fl_entry *));
    return append;
}

static struct fl_entry *entry_new(const struct story_entry *entry)
{
    uint8_t bytes[STORY_PAYLOAD_MAX];

    payload(entry->id, entry->len, bytes);
    return fl_entry_new(FL_ENTRY_COMMAND, entry->term, bytes, entry->len);
}

/* What a node does that finds itself in `state`: it goes on in a new term, with an entry of just
 * the size of the one that was not finished. That entry, and nothing else, must be there then. */
static void live_on(struct story *story, struct mem_disk *disk, struct fl_store *store,
                    unsigned state)
{
    const struct story_state *s = &story->states[state];
    uint64_t last = s->last > s->snapshot ? s->last : s->snapshot;
    struct story_entry entry = {s->term + 1, UINT64_MAX - 1000, 40};
    struct fl_append *append = append_new(last + 1, 1);
    struct fl_store_recovered found;
    struct fl_store_config config = story->config;
    struct fl_store_fault fault;
    uint8_t bytes[STORY_PAYLOAD_MAX];
    const struct fl_entry *got;

    if (state + 1 < story->n_states && story->states[state + 1].adds)
        entry.len = story->states[state + 1].added.len;
    append->entries[0] = entry_new(&entry);
    fl_store_append(store, append);
    fl_store_run(store);
    fl_append_free(fl_store_complete(store));
    fl_store__free(store);
    config.disk = &disk->disk;
    if (fl_store_open(&config, &found, &store, &fault) < 0) {
        problem(story, "after going on, refused: %s", fault.text);
        return;
    }
    payload(entry.id, entry.len, bytes);
    got = found.n != 0 ? found.entries[found.n - 1] : NULL;
    if (found.start_index + found.n != last + 2)
        problem(story, "went on with entry %" PRIu64 ", found %" PRIu64 " + %u", last + 1,
                found.start_index, found.n);
    else if (got->len != entry.len || memcmp(got->data, bytes, got->len) != 0)
        problem(story, "went on with entry %" PRIu64 ", found another one", last + 1);
    fl_store_recovered_deinit(&found);
    fl_store__free(store);
}

/* A second power cut while the first is being recovered from. */
struct second_crash {
    struct story *story;
    struct mem_disk *disk, *left;
    unsigned countdown;
};

static void on_recovery_change(void *ctx)
{
    struct second_crash *second = ctx;
    struct mem_choices choices = {.random = &second->story->random};

    if (second->left == NULL && second->countdown-- == 0)
        second->left = mem_disk_crash(second->disk, &choices);
}

static void check_once(struct story *story, struct mem_disk *disk)
{
    struct fl_store_config config = story->config;
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    struct fl_store *store;
    jmp_buf failed;
    int r, state;

    config.disk = &disk->disk;
    story->checks++;
    disk->failed = &failed;
    if (setjmp(failed) != 0) {
        problem(story, "gave up: %s", disk->failure);
        return;
    }
    r = fl_store_open(&config, &found, &store, &fault);
    disk->changed = NULL; /* the second power cut comes while opening, or not at all */
    if (r < 0) {
        problem(story, "refused: %s", fault.text);
        return;
    }
    state = story_match(story, &found);
    if (found.snapshot != NULL)
        check_snapshot(story, store, found.snapshot);
    fl_store_recovered_deinit(&found);
    if (state >= 0 && story->life_after)
        live_on(story, disk, store, (unsigned)state);
    else
        fl_store__free(store);
}

void story_check(struct story *story, struct mem_disk *disk)
{
    struct second_crash second = {story, disk, NULL, 0};

    if (story->life_after) {
        second.countdown = (unsigned)fl_random_below(&story->random, 24);
        disk->changed = on_recovery_change;
        disk->ctx = &second;
    }
    check_once(story, disk);
    mem_disk_free(disk);
    if (second.left != NULL) {
        story->life_after = false;
        if (!story_is_broken(story))
            check_once(story, second.left);
        mem_disk_free(second.left);
    }
}

void story_check_kill(struct story *story)
{
    struct mem_disk *disk = mem_disk_kill(story->disk);
    struct mem_choices sampled = {.random = &story->random};
    struct fl_store_config config = story->config;
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    struct fl_store *store;
    int state;

    config.disk = &disk->disk;
    story->checks++;
    if (fl_store_open(&config, &found, &store, &fault) < 0) {
        problem(story, "after a kill, refused: %s", fault.text);
        mem_disk_free(disk);
        return;
    }
    state = story_match(story, &found);
    fl_store_recovered_deinit(&found);
    fl_store__free(store);
    if (state >= 0) {
        story->only_state = (unsigned)state + 1;
        story->life_after = false;
        for (unsigned i = 0; i < 4 && !story_is_broken(story); i++)
            story_check(story, mem_disk_crash(disk, &sampled));
        story->only_state = 0;
    }
    mem_disk_free(disk);
}

/* --- the script --- */

static struct story_state *now(struct story *story)
{
    return &story->states[0];
}

/* Queues one append, and adds what it does to the states. */
static void queue_append(struct story *story, uint64_t index, unsigned n, const uint32_t *lens)
{
    struct fl_append *append = append_new(index, n);

    if (index <= story->states[story->n_states - 1].last)
        step_from(story)->last = index - 1;
    for (unsigned k = 0; k < n; k++) {
        struct story_state *step = step_from(story);

        step->last = index + k;
        step->adds = true;
        step->added = (struct story_entry){step->term, story->next_id, lens[k]};
        story->next_id += 1000;
        append->entries[k] = entry_new(&step->added);
    }
    fl_store_append(story->store, append);
}

static void wait_for_appends(struct story *story, unsigned n_appends)
{
    for (unsigned tries = 0; n_appends > 0; tries++) {
        struct fl_append *append;

        FL_REQUIRE(tries < 10);
        fl_store_run(story->store);
        while ((append = fl_store_complete(story->store)) != NULL) {
            fl_append_free(append);
            n_appends--;
        }
    }
}

void story_append(struct story *story, uint64_t index, unsigned n, const uint32_t *lens)
{
    queue_append(story, index, n, lens);
    wait_for_appends(story, 1);
    acknowledge(story);
}

void story_append_and_kill(struct story *story, uint32_t len)
{
    queue_append(story, story->states[0].last + 1, 1, &len);
    wait_for_appends(story, 1);
    story_kill(story);
}

static void do_append(struct story *story)
{
    unsigned n_appends = (unsigned)fl_random_between(&story->random, 1, 4);

    for (unsigned i = 0; i < n_appends; i++) {
        const struct story_state *s = &story->states[story->n_states - 1];
        uint64_t floor = s->snapshot + 1 > s->floor ? s->snapshot + 1 : s->floor;
        uint64_t index = s->last + 1;
        unsigned n = (unsigned)fl_random_between(&story->random, 1, 3);
        uint32_t lens[3];

        if (fl_random_chance(&story->random, 1, 6) && floor < index)
            index = fl_random_between(&story->random, floor, index);
        for (unsigned k = 0; k < n; k++)
            lens[k] = fl_random_chance(&story->random, 1, 8)
                          ? (uint32_t)fl_random_below(&story->random, 900)
                          : (uint32_t)fl_random_below(&story->random, 5) * 40;
        queue_append(story, index, n, lens);
    }
    wait_for_appends(story, n_appends);
    acknowledge(story);
}

static void do_vote(struct story *story)
{
    struct story_state *step = step_from(story);

    if (step->voted_for == 0 && fl_random_chance(&story->random, 1, 2)) {
        step->voted_for = fl_random_between(&story->random, 1, 5);
    } else {
        step->term++;
        step->voted_for = fl_random_below(&story->random, 6);
    }
    fl_store_set_vote(story->store, step->term, step->voted_for);
    acknowledge(story);
}

/* False when the disk did not let it. */
static bool write_snapshot(struct story *story, uint64_t index, uint64_t term)
{
    struct fl_snapshot *meta = fl_snapshot_new(index, term, 1, "members", 7);
    uint8_t bytes[STORY_PAYLOAD_MAX];
    struct fl_snapshot_writer *writer;
    struct story_state *step;
    char path[512];
    int r = fl_snapshot_writer_new(story->store, meta, &writer);

    payload(index, snapshot_size(index), bytes);
    if (r == 0) {
        r = fl_snapshot_writer_write(writer, bytes, snapshot_size(index));
        if (r < 0)
            fl_snapshot_writer_abort(writer);
    }
    if (r == 0)
        r = fl_snapshot_writer_finish(writer, path);
    if (r == 0) {
        step = step_from(story);
        step->snapshot_before = step->snapshot;
        step->snapshot = index;
        r = fl_snapshot_file_commit(story->store, path, meta);
        if (r == 0)
            acknowledge(story);
    }
    fl_snapshot_unref(meta);
    if (r < 0 && !story->tolerates)
        problem(story, "a snapshot could not be written: %s", fl_error_text(r));
    story->n_states = 1;
    return r == 0;
}

static void do_snapshot(struct story *story)
{
    const struct story_state *s = now(story);
    uint64_t index;

    if (s->last <= s->snapshot)
        return;
    index = fl_random_between(&story->random, s->snapshot + 1, s->last);
    write_snapshot(story, index, story->entries[index].term);
}

static void do_compact(struct story *story)
{
    fl_store_compact(story->store, now(story)->snapshot + 1);
    fl_store_run(story->store);
}

/* A snapshot far ahead comes from the leader. */
static void do_install(struct story *story)
{
    uint64_t index = now(story)->last + fl_random_between(&story->random, 1, 9);
    struct story_state *step;

    if (!write_snapshot(story, index, now(story)->term))
        return;
    step = step_from(story);
    step->last = index;
    step->floor = index + 1;
    fl_store_reset(story->store, index + 1);
    acknowledge(story);
}

/* A call that failed once is why opening may be refused once. */
static void reopen(struct story *story)
{
    if (story_open(story) < 0 && story->tolerates) {
        story->tolerates = false;
        story_open(story);
    }
}

void story_step(struct story *story)
{
    switch (fl_random_below(&story->random, 20)) {
    case 0:
    case 1:
        do_vote(story);
        break;
    case 2:
    case 3:
        do_snapshot(story);
        break;
    case 4:
    case 5:
        do_compact(story);
        break;
    case 6:
        if (fl_random_chance(&story->random, 1, 2))
            do_install(story);
        break;
    case 7:
        story_close(story);
        reopen(story);
        break;
    case 8:
        story_kill(story);
        reopen(story);
        break;
    default:
        do_append(story);
    }
}

int story_open(struct story *story)
{
    struct fl_store_recovered found;
    struct fl_store_fault fault;
    struct fl_store *store;
    int r = fl_store_open(&story->config, &found, &store, &fault);

    if (r < 0) {
        if (!story->tolerates)
            problem(story, "refused: %s", fault.text);
        return r;
    }
    story->store = store;
    story_match(story, &found);
    if (found.snapshot != NULL)
        check_snapshot(story, story->store, found.snapshot);
    fl_store_recovered_deinit(&found);
    return 0;
}

void story_close(struct story *story)
{
    fl_store_close(story->store);
    story->store = NULL;
}

void story_kill(struct story *story)
{
    if (story->store != NULL)
        fl_store__free(story->store);
    story->store = NULL;
}

struct story *story_new(uint64_t seed)
{
    struct story *story = fl_xcalloc(1, sizeof *story);

    story->disk = mem_disk_new();
    fl_random_init(&story->random, seed);
    story->next_id = 1;
    story->n_states = 1;
    story->states[0].floor = 1;
    story->config = (struct fl_store_config){
        .directory = MEM_DIRECTORY,
        .identity = {.cluster_id = "cluster of tests", .group_id = 1, .node_id = 3},
        .disk = &story->disk->disk,
        .segment_bytes = SEGMENT_BYTES,
        .reserve_bytes = RESERVE_BYTES,
        .synchronous = true,
    };
    return story;
}

void story_free(struct story *story)
{
    story_kill(story);
    mem_disk_free(story->disk);
    free(story);
}
