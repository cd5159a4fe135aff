/* The rules of locks, checked on the effects alone, without a second implementation: what a client,
 * an operator or a checker of a recorded history could see. Each rule bears its number. */
#ifndef FL_TESTS_HISTORY_H
#define FL_TESTS_HISTORY_H

#include "core/machine.h"

struct history;

struct history *history_new(void);
void history_free(struct history *history);
/* The log time of the entry whose effects come next. */
void history_set_time(struct history *history, uint64_t now_ms);
void history_add(struct history *history, const struct fl_effect *effect);
/* The first rule that was broken, or NULL. */
const char *history_fault(const struct history *history);

#endif
