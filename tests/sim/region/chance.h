/* What production code asks the system for, answered from the seed: getrandom(2), and the wall
 * clock, which jumps (T8). The linker puts these in the place of the system's. */
#ifndef FL_TESTS_SIM_CHANCE_H
#define FL_TESTS_SIM_CHANCE_H

#include "../timeline.h"

/* From now on, until the next. Session ids are numbers from 1 on in `low`, and 1 in `high`. */
void chance_begin(struct timeline *time);

#endif
