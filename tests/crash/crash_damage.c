/* Every byte of a closed store flipped, every sector misplaced, every file cut: nothing of it may
 * go unseen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "damage.h"

#define STEPS 45

static bool report(struct story *story, const char *what, const struct damage_count *count)
{
    printf("%s: %" PRIu64 " refused, %" PRIu64 " repaired, %" PRIu64 " harmless\n", what,
           count->refused, count->repaired, count->harmless);
    if (story_is_broken(story))
        fprintf(stderr, "%s\n", story->problem);
    return !story_is_broken(story);
}

static bool run_after_kill(uint64_t seed)
{
    struct story *story = story_new(seed);
    struct damage_count count = {0, 0, 0};
    bool is_good;

    story_open(story);
    for (unsigned step = 0; step < STEPS; step++)
        story_step(story);
    story_append_and_kill(story, 50);
    damage_every_byte(story, &count);
    is_good = report(story, "every byte after a kill", &count) && count.refused != 0;
    story_free(story);
    return is_good;
}

static bool run_at_rest(uint64_t seed, const char *what,
                        void (*damage)(struct story *, struct damage_count *))
{
    struct story *story = story_new(seed);
    struct damage_count count = {0, 0, 0};
    bool is_good;

    story_open(story);
    for (unsigned step = 0; step < STEPS; step++)
        story_step(story);
    story_close(story);
    damage(story, &count);
    is_good = report(story, what, &count) && count.refused != 0;
    story_free(story);
    return is_good;
}

static bool run_stale_record(void)
{
    struct story *story = story_new(1);
    struct damage_count count = {0, 0, 0};
    bool is_good;

    damage_stale_record(story, &count);
    is_good = report(story, "stale records", &count) && count.refused == 11;
    story_free(story);
    return is_good;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 4;
    bool is_good;

    fl_log_set_level(FL_LOG_NONE);
    is_good = run_at_rest(seed, "every byte", damage_every_byte);
    is_good &= run_at_rest(seed, "misplaced sectors", damage_misplaced_sectors);
    is_good &= run_at_rest(seed, "whole files", damage_whole_files);
    is_good &= run_after_kill(seed);
    is_good &= run_stale_record();
    return is_good ? 0 : 1;
}
