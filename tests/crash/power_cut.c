#include "power_cut.h"

#define ALL_MAX         64
#define SAMPLES         40
#define LIFE_AFTER_EACH 8 /* one in so many states is gone on from */

static void on_change(void *ctx)
{
    struct story *story = ctx;
    struct mem_choices all = {.n = 0};
    struct mem_choices sampled = {.random = &story->random};
    bool more = true;

    story_check_kill(story);
    for (unsigned n = 0; more && n < ALL_MAX + SAMPLES && !story_is_broken(story); n++) {
        story->life_after = story->checks % LIFE_AFTER_EACH == 0;
        if (n < ALL_MAX) {
            story_check(story, mem_disk_crash(story->disk, &all));
            more = mem_choices_next(&all);
        } else {
            story_check(story, mem_disk_crash(story->disk, &sampled));
        }
    }
}

void power_cut_everywhere(struct story *story, unsigned steps)
{
    story->disk->changed = on_change;
    story->disk->ctx = story;
    story_open(story);
    for (unsigned step = 0; step < steps && !story_is_broken(story); step++)
        story_step(story);
    story->disk->changed = NULL;
}
