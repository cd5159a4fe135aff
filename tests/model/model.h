/* The lock service a second time, written to be obviously right: arrays and linear searches, no
 * index, no limit of memory worth keeping. The property test drives it beside core/ and compares
 * every effect and every query. It shares nothing with core/ but the public headers. */
#ifndef FL_TESTS_MODEL_H
#define FL_TESTS_MODEL_H

#include "base/buf.h"
#include "core/machine.h"

struct model;

/* As FL_MACHINE_WORK_PER_ENTRY and FL_MACHINE_LOOKS. */
struct model *model_new(uint32_t work, uint32_t looks);
void model_free(struct model *model);
void model_apply(struct model *model, uint64_t index, uint64_t term, const struct fl_batch *batch,
                 fl_machine_sink sink, void *ctx);
fl_token model_token(const struct model *model);
/* The text that trace_machine() gives for a machine in the same state. */
void model_describe(const struct model *model, struct fl_buf *text);

#endif
