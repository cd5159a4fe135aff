/* Damage to files at rest: each must be repaired, refused or without effect, never go unseen. */
#ifndef FL_TESTS_CRASH_DAMAGE_H
#define FL_TESTS_CRASH_DAMAGE_H

#include "story.h"

struct damage_count {
    uint64_t refused, repaired, harmless;
};

/* Flips one bit in every byte of every file that the closed story left. */
void damage_every_byte(struct story *story, struct damage_count *count);
/* Puts every sector of every file in the place of every other of the same kind of file. */
void damage_misplaced_sectors(struct story *story, struct damage_count *count);
/* Cuts, doubles and removes every file. */
void damage_whole_files(struct story *story, struct damage_count *count);
/* A record in the place of an equal one of another segment: only the checksum can tell. */
void damage_stale_record(struct story *story, struct damage_count *count);

#endif
