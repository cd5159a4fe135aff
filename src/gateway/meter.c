#include "gateway/meter.h"

static const char *const operations[FL_METER_OPERATIONS] = {
    [FL_REQ_OPEN_SESSION] = "OpenSession",
    [FL_REQ_RESUME_SESSION] = "ResumeSession",
    [FL_REQ_KEEP_ALIVE] = "KeepAlive",
    [FL_REQ_CLOSE_SESSION] = "CloseSession",
    [FL_REQ_ACQUIRE] = "Acquire",
    [FL_REQ_RELEASE] = "Release",
    [FL_REQ_DESCRIBE] = "Describe",
    [FL_REQ_LIST] = "List",
    [FL_REQ_SESSIONS] = "ListSessions",
    [FL_REQ_FORCE_RELEASE] = "ForceRelease",
    [FL_REQ_END_SESSION] = "EndSession",
    [FL_REQ_STATUS] = "Status",
    [FL_REQ_WATCH] = "Watch",
    [FL_REQ_TRANSFER_LEADER] = "TransferLeader",
    [FL_REQ_ADD_NODE] = "AddNode",
    [FL_REQ_PROMOTE_NODE] = "PromoteNode",
    [FL_REQ_REMOVE_NODE] = "RemoveNode",
    [FL_REQ_WAITS] = "ListWaits",
};

const char *fl_meter_operation_text(unsigned operation)
{
    return operation < FL_METER_OPERATIONS ? operations[operation] : NULL;
}

const char *fl_meter_outcome_text(unsigned outcome)
{
    switch (outcome) {
    case FL_METER_OK:
        return "OK";
    case FL_METER_GRANTED:
        return "GRANTED";
    case FL_METER_NOT_GRANTED:
        return "NOT_GRANTED";
    default:
        return fl_reason_text((enum fl_reason)outcome);
    }
}

/* An outcome's reason is one of the table's texts. */
static unsigned reason_of(const struct fl_outcome *outcome)
{
    for (unsigned i = 0; i < FL_REASON_COUNT; i++)
        if (outcome->status.reason == fl_reason_text((enum fl_reason)i))
            return i;
    return FL_REASON_INTERNAL;
}

void fl_gateway_meter_ended(struct fl_gateway_meter *meter, unsigned operation, uint64_t us,
                            enum fl_ask_end how, const struct fl_reply *reply)
{
    struct fl_outcome error;
    unsigned outcome = FL_METER_OK;

    if (fl_meter_operation_text(operation) == NULL)
        return;
    if (!fl_outcome_of(&error, how, reply))
        outcome = reason_of(&error);
    else if (operation == FL_REQ_ACQUIRE)
        outcome = reply->answer == FL_ANS_GRANTED ? FL_METER_GRANTED : FL_METER_NOT_GRANTED;
    meter->counts[operation][outcome]++;
    fl_timing_record(&meter->times[operation][fl_meter_time_of(outcome)], us);
}

void fl_gateway_meter_refused(struct fl_gateway_meter *meter, unsigned operation,
                              const struct fl_outcome *outcome)
{
    if (fl_meter_operation_text(operation) != NULL)
        meter->counts[operation][reason_of(outcome)]++;
}
