#include "history.h"

#include <stdlib.h>

#include "base/alloc.h"

#define CLAIMS_MAX   512
#define SESSIONS_MAX 192
#define GRANTED_MAX  4096

/* What holds or waits, as the effects told. */
struct claim {
    bool used, waits, is_dead;
    uint64_t session, request, deadline_ms, arrival;
    char name[32];
    size_t name_len;
    enum fl_mode mode;
    uint32_t limit;
    fl_token token;
};

struct history {
    struct claim claims[CLAIMS_MAX];
    uint64_t open[SESSIONS_MAX]; /* 0: free */
    /* L10: every grant of the sessions that are open. */
    struct {
        uint64_t session, request;
    } granted[GRANTED_MAX];
    size_t n_granted;
    uint64_t now_ms, arrivals;
    fl_token last_token;
    const char *fault;
};

#define EACH(item, array)                                                                          \
    for (__typeof__(&(array)[0]) item = (array); item < (array) + FL_ARRAY_LEN(array); item++)     \
        if (item->used)

static void broken(struct history *h, const char *rule)
{
    if (h->fault == NULL)
        h->fault = rule;
}

static bool is_on(const struct claim *c, struct fl_str name)
{
    return fl_str_equal((struct fl_str){c->name, c->name_len}, name);
}

static struct claim *find(struct history *h, const struct fl_effect *e, bool waits)
{
    EACH(c, h->claims)
    if (c->waits == waits && c->session == e->session.low && c->request == e->request_id &&
        is_on(c, e->name) && (waits || c->token == e->token))
        return c;
    return NULL;
}

static bool is_open(const struct history *h, uint64_t session)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (h->open[i] == session)
            return true;
    }
    return false;
}

static struct claim *add(struct history *h, const struct fl_effect *e, bool waits)
{
    struct claim *c = h->claims;

    while (c->used)
        c++;
    *c = (struct claim){.used = true,
                        .waits = waits,
                        .session = e->session.low,
                        .request = e->request_id,
                        .deadline_ms = e->deadline_ms,
                        .arrival = h->arrivals++,
                        .name_len = e->name.len,
                        .mode = e->mode,
                        .limit = e->limit,
                        .token = e->token};
    memcpy(c->name, e->name.data, e->name.len);
    return c;
}

/* L3: who else holds it, and is not of a dead session (L9: those do not count any more). */
static void check_exclusion(struct history *h, const struct fl_effect *e)
{
    uint32_t n = 0;

    EACH(c, h->claims)
    {
        if (c->waits || c->is_dead || !is_on(c, e->name))
            continue;
        n++;
        if (c->mode != e->mode || e->mode == FL_MODE_EXCLUSIVE)
            broken(h, "L3: two hold a name and do not go together");
    }
    if (e->mode == FL_MODE_COUNTED && n >= e->limit)
        broken(h, "L3: more holders than permits");
}

/* L7: nobody may wait who came earlier and could still be granted. */
static void check_order(struct history *h, const struct fl_effect *e, const struct claim *granted)
{
    EACH(c, h->claims)
    if (c->waits && !c->is_dead && is_on(c, e->name) && c->deadline_ms > h->now_ms &&
        (granted == NULL || c->arrival < granted->arrival))
        broken(h, "L7: one who came later was granted first");
}

static void check_once(struct history *h, const struct fl_effect *e)
{
    for (size_t i = 0; i < h->n_granted; i++) {
        if (h->granted[i].session == e->session.low && h->granted[i].request == e->request_id)
            broken(h, "L10: a request was granted twice");
    }
    if (h->n_granted < GRANTED_MAX) {
        h->granted[h->n_granted].session = e->session.low;
        h->granted[h->n_granted++].request = e->request_id;
    }
}

static void on_grant(struct history *h, const struct fl_effect *e)
{
    struct claim *wait = find(h, e, true);

    if (e->token <= h->last_token)
        broken(h, "L1: tokens do not rise");
    h->last_token = e->token;
    if (!is_open(h, e->session.low))
        broken(h, "L8: a session that ended was granted");
    if (wait != NULL && wait->deadline_ms <= h->now_ms)
        broken(h, "L8: a wait whose deadline had passed was granted");
    check_exclusion(h, e);
    check_order(h, e, wait);
    check_once(h, e);
    if (wait != NULL)
        wait->used = false;
    add(h, e, false);
}

static void on_session_end(struct history *h, const struct fl_effect *e)
{
    size_t kept = 0;

    EACH(c, h->claims)
    if (c->session == e->session.low)
        c->is_dead = true;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (h->open[i] == e->session.low)
            h->open[i] = 0;
    }
    /* Its id may come again: then its requests are new ones. */
    for (size_t i = 0; i < h->n_granted; i++) {
        if (h->granted[i].session != e->session.low)
            h->granted[kept++] = h->granted[i];
    }
    h->n_granted = kept;
}

static void on_end(struct history *h, const struct fl_effect *e, bool waits)
{
    struct claim *c = find(h, e, waits);

    if (c == NULL)
        broken(h, waits ? "L4: a wait ended that was none" : "L4: a hold ended that was none");
    else
        c->used = false;
}

static void on_answer(struct history *h, const struct fl_effect *e)
{
    bool is_held = false;

    if (e->answer == FL_ANS_HELD && e->holder_token != 0) {
        EACH(c, h->claims)
        is_held |= !c->waits && !c->is_dead && is_on(c, e->name) && c->token == e->holder_token;
        if (!is_held)
            broken(h, "L12, L15: a refusal names one who does not hold it");
    }
}

void history_add(struct history *h, const struct fl_effect *e)
{
    switch (e->type) {
    case FL_EFF_GRANT:
        on_grant(h, e);
        break;
    case FL_EFF_ENQUEUE:
        add(h, e, true);
        break;
    case FL_EFF_HOLD_END:
        on_end(h, e, false);
        break;
    case FL_EFF_WAIT_END:
        on_end(h, e, true);
        break;
    case FL_EFF_SESSION_OPEN:
        for (size_t i = 0; i < SESSIONS_MAX; i++) {
            if (h->open[i] == 0) {
                h->open[i] = e->session.low;
                break;
            }
        }
        break;
    case FL_EFF_SESSION_END:
        on_session_end(h, e);
        break;
    case FL_EFF_ANSWER:
        on_answer(h, e);
        break;
    }
}

struct history *history_new(void)
{
    return fl_xcalloc(1, sizeof(struct history));
}

void history_free(struct history *h)
{
    free(h);
}

void history_set_time(struct history *h, uint64_t now_ms)
{
    if (now_ms > h->now_ms)
        h->now_ms = now_ms;
}

const char *history_fault(const struct history *h)
{
    return h->fault;
}
