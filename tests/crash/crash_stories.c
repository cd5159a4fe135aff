/* What a full disk does, and what the other tests of this folder found, kept as stories. */
#include "../unit/test.h"

#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/engine.h"
#include "raft/store_state.h"
#include "story.h"

static int setup(void **state)
{
    *state = story_new(1);
    return 0;
}

static int teardown(void **state)
{
    story_free(*state);
    return 0;
}

static void expect_no_problem(const struct story *story)
{
    if (story_is_broken(story))
        fail_msg("%s", story->problem);
}

static void append(struct story *story, uint32_t len)
{
    story_append(story, story->states[0].last + 1, 1, &len);
}

/* Bytes in all files. */
static uint64_t used(struct story *story)
{
    uint64_t sum = 0;
    const char *name;

    for (unsigned i = 0; (name = mem_disk_name(story->disk, i)) != NULL; i++) {
        size_t size;

        mem_disk_content(story->disk, name, &size);
        sum += size;
    }
    return sum;
}

/* Queues appends until one is not finished for want of space; returns how many were. Bounded,
 * since a disk that never fills would be an endless test. */
static unsigned append_until_full(struct story *story)
{
    for (unsigned n = 0; n < 10000; n++) {
        struct fl_append *append = fl_xcalloc(1, sizeof *append);

        append->index = story->store->queued_next;
        append->n = 1;
        append->entries = fl_xcalloc(1, sizeof(struct fl_entry *));
        append->entries[0] = fl_entry_new(FL_ENTRY_COMMAND, 1, "release", 7);
        fl_store_append(story->store, append);
        fl_store_run(story->store);
        append = fl_store_complete(story->store);
        if (append == NULL)
            return n;
        fl_append_free(append);
    }
    fail_msg("the disk never fills");
    return 0;
}

/* C58: grants are refused, but releases and expiries find space; when even that is used up they
 * wait; and when there is space again all goes on by itself. */
static void a_full_disk_lets_releases_through_and_heals(void **state)
{
    struct story *story = *state;
    struct fl_append *append;
    unsigned after_full;

    story->config.reserve_bytes = 64 * 1024;
    story_open(story);
    assert_false(fl_store_is_full(story->store));
    story->disk->capacity = used(story);
    fl_store_run(story->store);
    assert_true(fl_store_is_full(story->store));
    after_full = append_until_full(story);
    assert_in_range(after_full, 1000, 9999);
    assert_true(fl_store_is_full(story->store));
    story->disk->capacity += 256 * 1024;
    fl_store_run(story->store);
    append = fl_store_complete(story->store);
    assert_non_null(append);
    fl_append_free(append);
    fl_store_run(story->store);
    assert_false(fl_store_is_full(story->store));
    assert_int_equal(story->store->reserve.held, 64 * 1024);
}

static void a_full_disk_does_not_keep_a_node_from_starting(void **state)
{
    struct story *story = *state;

    story_open(story);
    append(story, 100);
    story_close(story);
    mem_disk_remove(story->disk, "reserve");
    mem_disk_remove(story->disk, "spare.tmp");
    story->disk->capacity = used(story);
    story_open(story);
    expect_no_problem(story);
    assert_true(fl_store_is_full(story->store));
    append(story, 100);
    story->disk->capacity = 0;
    fl_store_run(story->store);
    assert_false(fl_store_is_full(story->store));
    expect_no_problem(story);
}

/* A reset that waits behind appends with no space left voids them: they are told done. */
static void an_installed_snapshot_voids_appends_that_wait_for_space(void **state)
{
    struct story *story = *state;
    struct fl_append *append;

    story_open(story);
    story->disk->capacity = used(story);
    append_until_full(story);
    story->disk->capacity += 3 * 4096;
    fl_store_reset(story->store, 5000);
    append = fl_store_complete(story->store);
    assert_non_null(append);
    fl_append_free(append);
    assert_int_equal(story->store->log.next_index, 5000);
}

/* --- the same with the thread, which then is the only one to touch the disk --- */

static void on_wake(void *ctx)
{
    sem_post(ctx);
}

/* Opens a store with a thread on a disk that has no more space than it uses, and queues so many
 * entries of `len` bytes that the reserve does not hold them. */
static void fill_with_thread(struct story *story, sem_t *woken, unsigned n, uint32_t len)
{
    uint8_t *data = fl_xcalloc(1, len);
    struct fl_store_recovered found;
    struct fl_store_fault fault;

    story_open(story);
    story_close(story);
    story->disk->capacity = used(story);
    sem_init(woken, 0, 0);
    story->config.synchronous = false;
    story->config.wake = on_wake;
    story->config.ctx = woken;
    assert_int_equal(fl_store_open(&story->config, &found, &story->store, &fault), 0);
    fl_store_recovered_deinit(&found);
    for (unsigned i = 1; i <= n; i++) {
        struct fl_append *append = fl_xcalloc(1, sizeof *append);

        append->index = i;
        append->n = 1;
        append->entries = fl_xcalloc(1, sizeof(struct fl_entry *));
        append->entries[0] = fl_entry_new(FL_ENTRY_COMMAND, 1, data, len);
        fl_store_append(story->store, append);
    }
    free(data);
    while (!fl_store_is_full(story->store))
        sched_yield();
}

/* Fetches `n` completions, in order. */
static void expect_completed(struct story *story, sem_t *woken, uint64_t first, unsigned n)
{
    for (uint64_t index = first; index < first + n; index++) {
        struct fl_append *append;

        while ((append = fl_store_complete(story->store)) == NULL)
            sem_wait(woken);
        assert_int_equal(append->index, index);
        fl_append_free(append);
    }
}

static void the_thread_waits_for_space_and_goes_on_by_itself(void **state)
{
    struct story *story = *state;
    sem_t woken;

    fill_with_thread(story, &woken, 2000, 7);
    story->disk->capacity = 0;
    expect_completed(story, &woken, 1, 2000);
    while (fl_store_is_full(story->store))
        sched_yield();
    story_close(story);
    sem_destroy(&woken);
}

static void an_installed_snapshot_wakes_the_thread_that_waits_for_space(void **state)
{
    struct story *story = *state;
    sem_t woken;

    /* There is never space for such an entry, but there is for a new segment. */
    fill_with_thread(story, &woken, 1, 200000);
    story->disk->capacity += 8 * 4096;
    fl_store_reset(story->store, 9000);
    expect_completed(story, &woken, 1, 1);
    assert_null(fl_store_complete(story->store));
    story_close(story);
    sem_destroy(&woken);
}

static void closing_does_not_wait_for_space(void **state)
{
    struct story *story = *state;
    sem_t woken;

    fill_with_thread(story, &woken, 2000, 7);
    story_close(story);
    sem_destroy(&woken);
}

/* --- findings --- */

/* The mark of an opening took the room that is kept for it; the next append computed its room
 * below zero and wrote behind the end of the segment. */
static void an_append_behind_a_mark_that_fills_the_segment_goes_to_the_next(void **state)
{
    struct story *story = *state;
    size_t size;

    story_open(story);
    for (unsigned i = 0; i < 3; i++)
        append(story, 968);
    append(story, 904); /* 4096 - 128 - 3 * 1000 - 32 for this record - 32 for the mark */
    story_close(story);
    story_open(story);
    append(story, 0);
    story_close(story);
    story_open(story);
    expect_no_problem(story);
    assert_non_null(mem_disk_content(story->disk, "log-00000000000000000001", &size));
    assert_int_equal(size, 4096);
    assert_non_null(mem_disk_content(story->disk, "log-00000000000000000002", &size));
}

/* The mark that proves the last entry durable lies beside it. */
static void damage_to_the_last_sector_of_a_closed_log_is_seen(void **state)
{
    struct story *story = *state;
    uint8_t *data;
    size_t size;

    story_open(story);
    append(story, 100);
    append(story, 20);
    story_close(story);
    data = mem_disk_content(story->disk, "log-00000000000000000001", &size);
    memset(data + 128 + 136, 0, 512);
    assert_int_equal(story_open(story), FL_E_CORRUPT);
    assert_non_null(strstr(story->problem, "log-00000000000000000001, offset 264"));
    assert_non_null(strstr(story->problem, "as the vote tells"));
}

static void a_last_segment_that_is_gone_is_missed(void **state)
{
    struct story *story = *state;

    story_open(story);
    for (unsigned i = 0; i < 4; i++)
        append(story, 968);
    story_close(story);
    mem_disk_remove(story->disk, "log-00000000000000000002");
    assert_int_equal(story_open(story), FL_E_CORRUPT);
    assert_non_null(strstr(story->problem, "the segment behind this one is missing"));
}

static void a_start_that_could_not_sync_the_parent_is_made_good_by_the_next(void **state)
{
    struct story *story = *state;
    struct mem_choices first = {.n = 0};

    story->tolerates = true;
    story->disk->fault_at = 2; /* mkdir is the first */
    story->disk->fault = MEM_FAULT_IO;
    assert_int_equal(story_open(story), FL_E_IO);
    story->tolerates = false;
    assert_int_equal(story_open(story), 0);
    append(story, 10);
    story_check(story, mem_disk_crash(story->disk, &first));
    expect_no_problem(story);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORY(a_full_disk_lets_releases_through_and_heals),
        STORY(a_full_disk_does_not_keep_a_node_from_starting),
        STORY(an_installed_snapshot_voids_appends_that_wait_for_space),
        STORY(the_thread_waits_for_space_and_goes_on_by_itself),
        STORY(an_installed_snapshot_wakes_the_thread_that_waits_for_space),
        STORY(closing_does_not_wait_for_space),
        STORY(an_append_behind_a_mark_that_fills_the_segment_goes_to_the_next),
        STORY(damage_to_the_last_sector_of_a_closed_log_is_seen),
        STORY(a_last_segment_that_is_gone_is_missed),
        STORY(a_start_that_could_not_sync_the_parent_is_made_good_by_the_next),
    };

    fl_log_set_level(FL_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
