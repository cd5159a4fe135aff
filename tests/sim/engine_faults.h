/* What happens to a world: its clients, its administrators, and its faults. */
#ifndef FL_TESTS_SIM_ENGINE_FAULTS_H
#define FL_TESTS_SIM_ENGINE_FAULTS_H

#include "engine_world.h"

/* From now on, until faults_end(), which heals all and leaves the world to itself; in half of the
 * seeds one server is lost for good at that moment, and a new voter may not know yet that it is
 * one. */
void faults_begin(struct world *w);
void faults_end(struct world *w);

#endif
