/* Runs a story's script from an empty disk and, after each change to the disk, opens what a power
 * cut at that moment could leave: all of it when there are few ways, else some in order and some at
 * random. Stops at the first problem. */
#ifndef FL_TESTS_CRASH_POWER_CUT_H
#define FL_TESTS_CRASH_POWER_CUT_H

#include "story.h"

void power_cut_everywhere(struct story *story, unsigned steps);

#endif
