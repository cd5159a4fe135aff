#include "trace.h"

#include <stdlib.h>

static const char *const answers[] = {
    "ok",          "granted",       "queued",         "held",       "timed-out",
    "cancelled",   "not-waiting",   "ended",          "no-session", "session-exists",
    "stale-token", "mode-conflict", "request-reused", "term-over",  "tokens-exhausted"};
static const char *const causes[] = {"",       "released", "abandoned", "cancelled", "timed-out",
                                     "closed", "expired",  "ended",     "forced"};
static const char *const effects[] = {"answer",   "grant",        "enqueue",    "hold-end",
                                      "wait-end", "session-open", "session-end"};
static const char *const commands[] = {"",       "open",          "close",      "expire",
                                       "end",    "silent",        "acquire",    "release",
                                       "cancel", "force-release", "raise-token"};

typedef unsigned long long number;

void trace_effect(struct fl_buf *text, const struct fl_effect *e)
{
    fl_buf_printf(text, "%llu.%u [%d] %s", (number)e->index, e->sub, e->command, effects[e->type]);
    if (e->type == FL_EFF_ANSWER)
        fl_buf_printf(text, " %s", answers[e->answer]);
    if (e->cause != FL_CAUSE_NONE)
        fl_buf_printf(text, " %s", causes[e->cause]);
    fl_buf_printf(text, " s%llu/%llu \"%.*s\" token %llu %s/%u", (number)e->session.low,
                  (number)e->request_id, FL_STR_ARGS(e->name), (number)e->token,
                  fl_mode_text(e->mode), e->limit);
    fl_buf_printf(text, " position %u waiters %u deadline %llu", e->position, e->waiters,
                  (number)e->deadline_ms);
    if (e->holder_token != 0)
        fl_buf_printf(text, " holder %.*s/%llu since %llu", FL_STR_ARGS(e->holder_client),
                      (number)e->holder_token, (number)e->holder_since_ms);
    fl_buf_printf(text, " by \"%.*s\" \"%.*s\"\n", FL_STR_ARGS(e->actor), FL_STR_ARGS(e->reason));
}

void trace_command(struct fl_buf *text, const struct fl_command *c)
{
    fl_buf_printf(text, "%s s%llu", commands[c->type], (number)c->session.low);
    if (c->type == FL_CMD_ACQUIRE)
        fl_buf_printf(text, "/%llu \"%.*s\" %s/%u wait %u", (number)c->request_id,
                      FL_STR_ARGS(c->name), fl_mode_text(c->mode), c->limit, c->wait_ms);
    if (c->type == FL_CMD_CANCEL)
        fl_buf_printf(text, "/%llu%s", (number)c->request_id, c->abandon ? " abandon" : "");
    if (c->asker != 0)
        fl_buf_printf(text, " by asker %u", c->asker);
    if (c->type == FL_CMD_RELEASE || c->type == FL_CMD_FORCE_RELEASE)
        fl_buf_printf(text, " \"%.*s\" token %llu", FL_STR_ARGS(c->name), (number)c->token);
    if (c->type == FL_CMD_RAISE_TOKEN)
        fl_buf_printf(text, " token %llu", (number)c->token);
    if (c->type == FL_CMD_EXPIRE_SESSION)
        fl_buf_printf(text, " decided in term %llu", (number)c->term);
    if (c->type == FL_CMD_OPEN_SESSION)
        fl_buf_printf(text, " ttl %u lock-delay %u", c->ttl_ms, c->lock_delay_ms);
}

void trace_totals(struct fl_buf *text, fl_token token, uint64_t next_due, bool backlog,
                  uint64_t grants)
{
    fl_buf_printf(text, "token %llu, due %llu, backlog %d, %llu grants\n", (number)token,
                  (number)next_due, backlog, (number)grants);
}

void trace_session(struct fl_buf *text, const struct fl_session_info *i)
{
    fl_buf_printf(text, "session s%llu \"%.*s\" ttl %u delay %u opened %llu silent %u: %u + %u\n",
                  (number)i->id.low, FL_STR_ARGS(i->client), i->ttl_ms, i->lock_delay_ms,
                  (number)i->opened_ms, i->silence_ms, i->holds, i->waits);
}

void trace_request(struct fl_buf *text, const struct fl_request_info *i)
{
    fl_buf_printf(text, "  s%llu/%llu %.*s \"%.*s\" %s token %llu since %llu until %llu at %u\n",
                  (number)i->session.low, (number)i->request_id, FL_STR_ARGS(i->client),
                  FL_STR_ARGS(i->name), fl_mode_text(i->mode), (number)i->token,
                  (number)i->since_ms, (number)i->deadline_ms, i->position);
}

void trace_name(struct fl_buf *text, const struct fl_name_info *i)
{
    fl_buf_printf(text, "name \"%.*s\" %s/%u: %u holders, %u waiters, closed until %llu\n",
                  FL_STR_ARGS(i->name), fl_mode_text(i->mode), i->limit, i->holders, i->waiters,
                  (number)i->closed_until_ms);
}

/* --- A machine --- */

struct asking {
    struct fl_buf *text;
    const struct fl_machine *machine;
};

static void write_request(void *ctx, const struct fl_request_info *info)
{
    trace_request(ctx, info);
}

static void write_session(void *ctx, const struct fl_session_info *info)
{
    const struct asking *asking = ctx;

    trace_session(asking->text, info);
    fl_machine_each_request(asking->machine, info->id, write_request, asking->text);
}

static bool write_name(void *ctx, const struct fl_name_info *listed)
{
    const struct asking *asking = ctx;
    struct fl_name_info info;

    trace_name(asking->text, listed);
    if (!fl_machine_describe(asking->machine, listed->name, UINT32_MAX, &info, write_request,
                             asking->text))
        fl_buf_printf(asking->text, "  listed, but not described\n");
    trace_name(asking->text, &info);
    return true;
}

void trace_machine(struct fl_buf *text, const struct fl_machine *machine)
{
    struct asking asking = {text, machine};
    struct fl_machine_stats stats;

    fl_machine_stats(machine, &stats);
    trace_totals(text, fl_machine_token(machine), fl_machine_next_due(machine),
                 fl_machine_has_backlog(machine), stats.grants);
    fl_machine_each_session(machine, write_session, &asking);
    fl_machine_list(machine, FL_STR(""), FL_STR(""), SIZE_MAX, write_name, &asking);
}
