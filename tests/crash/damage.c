#include "damage.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "raft/store_state.h"

/* Whether what was found is the state with its newest snapshot given up. */
static bool fell_back(struct story *story, const struct fl_store_recovered *found)
{
    struct story_state whole = story->states[0];
    int state;

    if (whole.snapshot == 0 || whole.snapshot_before + 1 < found->start_index)
        return false;
    for (unsigned i = 0; i < story->n_states; i++)
        story->states[i].snapshot = whole.snapshot_before;
    state = story_match(story, found);
    for (unsigned i = 0; i < story->n_states; i++)
        story->states[i].snapshot = whole.snapshot;
    return state >= 0;
}

/* Opens a damaged disk and frees it. */
static void judge(struct story *story, struct mem_disk *disk, const char *what,
                  struct damage_count *count)
{
    struct fl_store_config config = story->config;
    struct fl_store_recovered found;
    struct fl_store_fault fault = {""};
    struct fl_store *store;
    int r;

    if (story_is_broken(story)) {
        mem_disk_free(disk);
        return;
    }
    config.disk = &disk->disk;
    story->checks++;
    r = fl_store_open(&config, &found, &store, &fault);
    if (r < 0) {
        count->refused++;
        if (strstr(fault.text, MEM_DIRECTORY) == NULL)
            snprintf(story->problem, sizeof story->problem, "%s: refused without saying where: %s",
                     what, fault.text);
        mem_disk_free(disk);
        return;
    }
    if (story_match(story, &found) >= 0) {
        count->harmless++;
    } else {
        char problem[512];

        snprintf(problem, sizeof problem, "%s: %.400s", what, story->problem);
        story->problem[0] = '\0';
        if (fell_back(story, &found))
            count->repaired++;
        else
            snprintf(story->problem, sizeof story->problem, "%s", problem);
    }
    fl_store_recovered_deinit(&found);
    fl_store__free(store);
    mem_disk_free(disk);
}

/* Files whose content matters. */
static bool is_judged(const char *name)
{
    return strcmp(name, "lock") != 0 && strcmp(name, "reserve") != 0 &&
           strcmp(name, "spare.tmp") != 0;
}

void damage_every_byte(struct story *story, struct damage_count *count)
{
    const char *name;

    for (unsigned i = 0; (name = mem_disk_name(story->disk, i)) != NULL; i++) {
        size_t size;

        mem_disk_content(story->disk, name, &size);
        for (size_t at = 0; is_judged(name) && at < size; at++) {
            struct mem_disk *copy = mem_disk_copy(story->disk);
            uint8_t bit = (uint8_t)(1u << fl_random_below(&story->random, 8));
            char what[160];

            mem_disk_content(copy, name, &size)[at] ^= bit;
            snprintf(what, sizeof what, "%s with bit %#x of byte %zu flipped", name, bit, at);
            judge(story, copy, what, count);
        }
    }
}

static void misplace(struct story *story, const char *from, const char *to,
                     struct damage_count *count)
{
    size_t from_size, to_size;

    mem_disk_content(story->disk, from, &from_size);
    mem_disk_content(story->disk, to, &to_size);
    for (size_t a = 0; a + MEM_SECTOR <= from_size; a += MEM_SECTOR)
        for (size_t b = 0; b + MEM_SECTOR <= to_size; b += MEM_SECTOR) {
            struct mem_disk *copy = mem_disk_copy(story->disk);
            char what[256];

            memmove(mem_disk_content(copy, to, &to_size) + b,
                    mem_disk_content(copy, from, &from_size) + a, MEM_SECTOR);
            snprintf(what, sizeof what, "%s at %zu copied to %s at %zu", from, a, to, b);
            judge(story, copy, what, count);
        }
}

void damage_misplaced_sectors(struct story *story, struct damage_count *count)
{
    const char *from, *to;

    for (unsigned i = 0; (from = mem_disk_name(story->disk, i)) != NULL; i++)
        for (unsigned k = 0; (to = mem_disk_name(story->disk, k)) != NULL; k++)
            if (is_judged(from) && is_judged(to) && from[0] == to[0])
                misplace(story, from, to, count);
}

void damage_whole_files(struct story *story, struct damage_count *count)
{
    const char *name;

    for (unsigned i = 0; (name = mem_disk_name(story->disk, i)) != NULL; i++) {
        const size_t cuts[] = {0, 1, 100, 511, 512, 2000};
        struct mem_disk *copy;
        char what[160];
        size_t size;

        if (!is_judged(name))
            continue;
        mem_disk_content(story->disk, name, &size);
        for (unsigned k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
            if (cuts[k] >= size)
                continue;
            copy = mem_disk_copy(story->disk);
            mem_disk_resize(copy, name, cuts[k]);
            snprintf(what, sizeof what, "%s cut to %zu bytes", name, cuts[k]);
            judge(story, copy, what, count);
        }
        copy = mem_disk_copy(story->disk);
        mem_disk_resize(copy, name, 2 * size);
        snprintf(what, sizeof what, "%s with zeros behind", name);
        judge(story, copy, what, count);
    }
}

/* Both segments begin with a record of the same size (entry 1, which is empty; the one that voids
 * what is behind it), then hold entries 2 to 13 at the same places, each in one write. */
void damage_stale_record(struct story *story, struct damage_count *count)
{
    static const uint32_t lens[] = {0, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300, 168};
    const size_t first = FL_SEGMENT_HEADER_SIZE + FL_RECORD_HEADER_SIZE;
    const size_t record = fl_format_record_size(300);
    size_t size;

    story_open(story);
    story_append(story, 1, FL_ARRAY_LEN(lens), lens);
    story_append(story, 2, FL_ARRAY_LEN(lens) - 1, lens + 1);
    story_close(story);
    for (unsigned i = 0; i < 11; i++) {
        struct mem_disk *copy = mem_disk_copy(story->disk);
        const uint8_t *old = mem_disk_content(copy, "log-00000000000000000001", &size);
        uint8_t *new = mem_disk_content(copy, "log-00000000000000000002", &size);

        memcpy(new + first + i *record, old + first + i * record, record);
        judge(story, copy, "a record of the first segment in the second", count);
    }
}
