/* Effects and states as text: what is compared, and what a failure prints. */
#ifndef FL_TESTS_TRACE_H
#define FL_TESTS_TRACE_H

#include "base/buf.h"
#include "core/machine.h"

void trace_effect(struct fl_buf *text, const struct fl_effect *effect);
void trace_command(struct fl_buf *text, const struct fl_command *command);
void trace_totals(struct fl_buf *text, fl_token token, uint64_t next_due, bool backlog,
                  uint64_t grants);
void trace_session(struct fl_buf *text, const struct fl_session_info *info);
void trace_request(struct fl_buf *text, const struct fl_request_info *info);
void trace_name(struct fl_buf *text, const struct fl_name_info *info);

/* Every query there is, asked. */
void trace_machine(struct fl_buf *text, const struct fl_machine *machine);

#endif
