/* Every call to the disk fails once, in each way: the store tells, waits or gives up, and what it
 * acknowledged is there afterwards.
 *
 *     crash_calls [SEED [CALL]]      one call of the script again */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "story.h"

#define STEPS      60
#define POWER_CUTS 6
#define SEEDS      3

struct tally {
    uint64_t calls, gave_up, went_on, not_hit, states;
};

static const char *const fault_names[] = {"none", "EIO", "ENOSPC", "short"};

/* Runs the script to its end, or to where the store gives up. */
static void run_script(struct story *story, struct tally *tally)
{
    jmp_buf failed;

    story->disk->failed = &failed;
    if (setjmp(failed) != 0) {
        tally->gave_up++;
    } else {
        if (story_open(story) < 0) {
            story->tolerates = false; /* it fails but once */
            story_open(story);
        }
        for (unsigned step = 0; step < STEPS && !story_is_broken(story); step++)
            story_step(story);
        tally->went_on++;
    }
    story_kill(story);
    story->disk->failed = NULL;
    story->disk->fault_at = 0;
}

/* What is there after the process ended, and after the power went. */
static void check_what_is_left(struct story *story)
{
    struct mem_choices sampled = {.random = &story->random};

    story->tolerates = false;
    story_check(story, mem_disk_copy(story->disk));
    for (unsigned i = 0; i < POWER_CUTS && !story_is_broken(story); i++) {
        story->life_after = i % 2 == 0;
        story_check(story, mem_disk_crash(story->disk, &sampled));
    }
    story->life_after = false;
}

static uint64_t count_calls(uint64_t seed)
{
    struct story *story = story_new(seed);
    struct tally tally = {0};
    uint64_t calls;

    run_script(story, &tally);
    calls = story->disk->calls;
    story_free(story);
    return calls;
}

static bool fail_call(uint64_t seed, uint64_t call, enum mem_fault fault, struct tally *tally)
{
    struct story *story = story_new(seed);
    bool is_good;

    story->disk->fault_at = call;
    story->disk->fault = fault;
    story->tolerates = true;
    run_script(story, tally);
    if (!story_is_broken(story))
        check_what_is_left(story);
    is_good = !story_is_broken(story);
    if (!is_good)
        fprintf(stderr, "seed %" PRIu64 ", call %" PRIu64 " %s (%s): %s\n", seed, call,
                fault_names[fault], story->disk->failure, story->problem);
    tally->calls++;
    tally->not_hit += !story->disk->fault_hit;
    tally->states += story->checks;
    story_free(story);
    return is_good;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t only = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    bool is_good = true;

    fl_log_set_level(FL_LOG_NONE);
    for (enum mem_fault fault = MEM_FAULT_IO; fault <= MEM_FAULT_SHORT; fault++) {
        struct tally tally = {0};

        for (uint64_t seed = first; seed < first + (argc > 1 ? 1 : SEEDS); seed++) {
            uint64_t calls = count_calls(seed);

            for (uint64_t call = 1; call <= calls; call++)
                if (only == 0 || call == only)
                    is_good &= fail_call(seed, call, fault, &tally);
        }
        printf("%s: %" PRIu64 " calls failed, gave up %" PRIu64 ", went on %" PRIu64
               ", not a write %" PRIu64 "; %" PRIu64 " states compared\n",
               fault_names[fault], tally.calls - tally.not_hit, tally.gave_up, tally.went_on,
               tally.not_hit, tally.states);
    }
    return is_good ? 0 : 1;
}
