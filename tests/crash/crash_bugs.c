/* The store with one rule broken on purpose: power cuts or damage must find it. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bugs.h"
#include "base/log.h"
#include "damage.h"
#include "power_cut.h"

#define SEEDS_MAX  5
#define STEPS      200
#define FLIP_STEPS 20

enum fl_bug fl_bug_on = FL_BUG_NONE;

static const struct {
    enum fl_bug bug;
    const char *name, *what;
} bugs[] = {
#define X(name, what) {FL_BUG_##name, #name, what},
    FL_BUG_TABLE(X)
#undef X
};

static bool is_found_by_power_cut(uint64_t seed)
{
    struct story *story = story_new(seed);
    bool is_found;

    power_cut_everywhere(story, STEPS);
    is_found = story_is_broken(story);
    if (is_found)
        printf("  found by a power cut, script %u, state %u\n", (unsigned)seed,
               (unsigned)story->checks);
    story_free(story);
    return is_found;
}

static bool is_found_by_stale_record(void)
{
    struct story *story = story_new(1);
    struct damage_count count = {0, 0, 0};
    bool is_found;

    damage_stale_record(story, &count);
    is_found = story_is_broken(story);
    if (is_found)
        printf("  found by a stale record\n");
    story_free(story);
    return is_found;
}

static bool is_found_by_flips(void)
{
    struct story *story = story_new(4);
    struct damage_count count = {0, 0, 0};
    bool is_found;

    story_open(story);
    for (unsigned step = 0; step < FLIP_STEPS && !story_is_broken(story); step++)
        story_step(story);
    if (!story_is_broken(story)) {
        story_append_and_kill(story, 50);
        damage_every_byte(story, &count);
    }
    is_found = story_is_broken(story);
    if (is_found)
        printf("  found by a flipped bit, or before\n");
    story_free(story);
    return is_found;
}

static bool is_found(void)
{
    if (is_found_by_stale_record() || is_found_by_flips())
        return true;
    for (uint64_t seed = 1; seed <= SEEDS_MAX; seed++)
        if (is_found_by_power_cut(seed))
            return true;
    return false;
}

int main(void)
{
    bool is_good = true;

    fl_log_set_level(FL_LOG_NONE);
    for (size_t i = 0; i < FL_ARRAY_LEN(bugs); i++) {
        if (strncmp(bugs[i].name, "STORE_", 6) != 0)
            continue;
        printf("%s: %s\n", bugs[i].name, bugs[i].what);
        fl_bug_on = bugs[i].bug;
        if (!is_found()) {
            fprintf(stderr, "%s was not found\n", bugs[i].name);
            is_good = false;
        }
        fl_bug_on = FL_BUG_NONE;
    }
    if (is_found()) {
        fprintf(stderr, "without a bug, one was found\n");
        is_good = false;
    }
    return is_good ? 0 : 1;
}
