#include "gateway/outcome.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/error.h"

/* When a node does not say how long to wait. */
#define RETRY_AFTER_MS 1000

static const struct reason {
    const char *name;
    enum fl_rpc_code code;
    const char *sentence;
} reasons[] = {
#define X(name, code, sentence) {#name, FL_RPC_##code, sentence},
    FL_REASON_TABLE(X)
#undef X
};

const char *fl_reason_text(enum fl_reason reason)
{
    return reasons[reason].name;
}

const char *fl_reason_sentence(enum fl_reason reason)
{
    return reasons[reason].sentence;
}

enum fl_rpc_code fl_reason_code(enum fl_reason reason)
{
    return reasons[reason].code;
}

void fl_outcome_set(struct fl_outcome *outcome, enum fl_reason reason)
{
    FL_REQUIRE(reason < FL_REASON_COUNT);
    outcome->status = (struct fl_rpc_status){.code = reasons[reason].code,
                                             .message = reasons[reason].sentence,
                                             .reason = reasons[reason].name};
    if (reason == FL_REASON_BUSY || reason == FL_REASON_DISK_FULL)
        outcome->status.retry_after_ms = RETRY_AFTER_MS;
}

void fl_outcome_set_fault(struct fl_outcome *outcome, const char *field, const char *why)
{
    fl_outcome_set(outcome, FL_REASON_BAD_ARGUMENT);
    snprintf(outcome->field, sizeof outcome->field, "%s", field);
    snprintf(outcome->text, sizeof outcome->text, "%s %s", field, why);
    outcome->status.field = outcome->field;
    outcome->status.message = outcome->text;
}

static void set_node_fault(struct fl_outcome *outcome, const struct fl_reply *reply)
{
    char field[64], why[400];

    snprintf(field, sizeof field, "%.*s", FL_STR_ARGS(reply->field));
    snprintf(why, sizeof why, "%.*s", FL_STR_ARGS(reply->text));
    fl_outcome_set_fault(outcome, field, why);
}

static void set_mode_conflict(struct fl_outcome *outcome, const struct fl_reply *reply)
{
    fl_outcome_set(outcome, FL_REASON_MODE_CONFLICT);
    if (reply->mode == FL_MODE_COUNTED)
        snprintf(
            outcome->text, sizeof outcome->text,
            "the name is in use in mode counted with limit %u: ask for the same, or wait until "
            "it is idle",
            reply->limit);
    else
        snprintf(outcome->text, sizeof outcome->text,
                 "the name is in use in mode %s: ask for the same, or wait until it is idle",
                 fl_mode_text(reply->mode));
    outcome->status.message = outcome->text;
}

static void set_stale_token(struct fl_outcome *outcome, const struct fl_reply *reply)
{
    fl_outcome_set(outcome, FL_REASON_STALE_TOKEN);
    if (reply->token == 0)
        return;
    snprintf(outcome->text, sizeof outcome->text, "%s; its present token is %llu",
             reasons[FL_REASON_STALE_TOKEN].sentence, (unsigned long long)reply->token);
    outcome->status.message = outcome->text;
}

static bool set_answer(struct fl_outcome *outcome, const struct fl_reply *reply)
{
    switch (reply->answer) {
    case FL_ANS_OK:
    case FL_ANS_GRANTED:
    case FL_ANS_HELD:
    case FL_ANS_TIMED_OUT:
    case FL_ANS_CANCELLED:
    case FL_ANS_NOT_WAITING:
        return true;
    case FL_ANS_SESSION_NOT_FOUND:
        fl_outcome_set(outcome, FL_REASON_SESSION_NOT_FOUND);
        break;
    case FL_ANS_STALE_TOKEN:
        set_stale_token(outcome, reply);
        break;
    case FL_ANS_MODE_CONFLICT:
        set_mode_conflict(outcome, reply);
        break;
    case FL_ANS_REQUEST_REUSED:
        fl_outcome_set(outcome, FL_REASON_REQUEST_REUSED);
        break;
    case FL_ANS_ENDED:
        fl_outcome_set(outcome, reply->request_type == FL_REQ_WATCH ? FL_REASON_WATCH_INTERRUPTED
                                                                    : FL_REASON_REQUEST_ENDED);
        break;
    case FL_ANS_TOKENS_EXHAUSTED:
        fl_outcome_set(outcome, FL_REASON_TOKENS_EXHAUSTED);
        break;
    case FL_ANS_QUEUED: /* the node answers when the wait is over */
    case FL_ANS_SESSION_EXISTS:
    case FL_ANS_TERM_OVER:
        fl_outcome_set(outcome, FL_REASON_INTERNAL);
        break;
    }
    return false;
}

static bool set_reply(struct fl_outcome *outcome, const struct fl_reply *reply)
{
    switch (reply->status) {
    case FL_REPLY_ANSWER:
        return set_answer(outcome, reply);
    case FL_REPLY_INVALID:
        set_node_fault(outcome, reply);
        return false;
    case FL_REPLY_BUSY:
    case FL_REPLY_DISK_FULL:
        fl_outcome_set(outcome,
                       reply->status == FL_REPLY_BUSY ? FL_REASON_BUSY : FL_REASON_DISK_FULL);
        if (reply->retry_ms != 0)
            outcome->status.retry_after_ms = reply->retry_ms;
        return false;
    case FL_REPLY_NOT_LEADER:
        fl_outcome_set(outcome, FL_REASON_NO_LEADER);
        return false;
    case FL_REPLY_CHANGING:
        fl_outcome_set(outcome, FL_REASON_CHANGE_RUNNING);
        return false;
    case FL_REPLY_NOT_READY:
        break;
    }
    fl_outcome_set(outcome, FL_REASON_NODE_STARTING);
    return false;
}

bool fl_outcome_of(struct fl_outcome *outcome, enum fl_ask_end how, const struct fl_reply *reply)
{
    switch (how) {
    case FL_ASK_REPLIED:
        return set_reply(outcome, reply);
    case FL_ASK_NO_LEADER:
        fl_outcome_set(outcome, FL_REASON_NO_LEADER);
        break;
    case FL_ASK_UNREACHABLE:
        fl_outcome_set(outcome, FL_REASON_NODE_UNREACHABLE);
        break;
    case FL_ASK_MOVED:
        fl_outcome_set(outcome, FL_REASON_WATCH_INTERRUPTED);
        break;
    case FL_ASK_STOPPED:
        fl_outcome_set(outcome, FL_REASON_SHUTTING_DOWN);
        break;
    }
    return false;
}

void fl_outcome_set_rate_limited(struct fl_outcome *outcome, uint32_t retry_after_ms)
{
    fl_outcome_set(outcome, FL_REASON_RATE_LIMITED);
    outcome->status.retry_after_ms = retry_after_ms;
}

void fl_outcome_of_error(struct fl_outcome *outcome, int error)
{
    if (error == FL_E_BUSY)
        fl_outcome_set(outcome, FL_REASON_BUSY);
    else if (error == FL_E_CLOSED)
        fl_outcome_set(outcome, FL_REASON_SHUTTING_DOWN);
    else
        fl_outcome_set(outcome, FL_REASON_NODE_UNREACHABLE);
}
