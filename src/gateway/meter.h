/* What a gateway counts of its calls: how many ended how, and how long they took. Bounded: the
 * labels are ours, never a client's. */
#ifndef FL_GATEWAY_METER_H
#define FL_GATEWAY_METER_H

#include "base/timing.h"
#include "gateway/outcome.h"

/* Beside the reasons of errors. */
enum fl_meter_outcome {
    FL_METER_OK = FL_REASON_COUNT,
    FL_METER_GRANTED,
    FL_METER_NOT_GRANTED,
    FL_METER_OUTCOMES,
};

#define FL_METER_OPERATIONS (FL_REQ_LAST + 1)

struct fl_gateway_meter {
    uint64_t counts[FL_METER_OPERATIONS][FL_METER_OUTCOMES];
    /* Of what was asked of a node; for acquires the wait is in it. */
    struct fl_timing times[FL_METER_OPERATIONS][FL_METER_OUTCOMES - FL_METER_OK + 1];
};

/* "Acquire", or NULL for what no client asks for. */
const char *fl_meter_operation_text(unsigned operation);
const char *fl_meter_outcome_text(unsigned outcome);
/* Index into `times`: that of OK, GRANTED, NOT_GRANTED, and one for all errors. */
static inline unsigned fl_meter_time_of(unsigned outcome)
{
    return outcome >= FL_METER_OK ? outcome - FL_METER_OK : FL_METER_OUTCOMES - FL_METER_OK;
}

/* An ask has ended after `us`. */
void fl_gateway_meter_ended(struct fl_gateway_meter *meter, unsigned operation, uint64_t us,
                            enum fl_ask_end how, const struct fl_reply *reply);
/* What no node was asked: its arguments were bad, or it came too often. */
void fl_gateway_meter_refused(struct fl_gateway_meter *meter, unsigned operation,
                              const struct fl_outcome *outcome);

#endif
