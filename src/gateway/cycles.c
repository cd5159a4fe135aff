#include "gateway/cycles.h"

#include <stdlib.h>

#include "base/alloc.h"

/* One name, and how many of its holders' sessions are stuck. */
struct group {
    size_t first, n_holders, end;
    size_t n_stuck;
};

/* A session, by its number in the order of ids. */
struct waiter {
    bool is_stuck;
    bool is_still_stuck; /* as this pass finds */
    size_t wait;         /* one that cannot end: an index of a request */
    size_t next;         /* a stuck session that holds what it waits for */
    unsigned seen;       /* by which walk; 0: none */
};

struct search {
    const struct fl_reply_request *requests;
    size_t n, n_groups, n_sessions;
    struct group *groups;
    size_t *group_of, *session_of; /* by request */
    size_t *n_own;                 /* by request: holders of a wait's name that are its session's */
    struct waiter *sessions;
};

/* --- Names and sessions as numbers --- */

static void find_groups(struct search *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct fl_reply_request *q = &s->requests[i];

        if (i == 0 || !fl_str_equal(q->name, s->requests[i - 1].name))
            s->groups[s->n_groups++] = (struct group){.first = i};
        s->group_of[i] = s->n_groups - 1;
        s->groups[s->n_groups - 1].end = i + 1;
        if (q->token != 0)
            s->groups[s->n_groups - 1].n_holders++;
    }
}

static int compare_ids(const void *a, const void *b)
{
    const struct fl_session_id *x = &(*(const struct fl_reply_request *const *)a)->session;
    const struct fl_session_id *y = &(*(const struct fl_reply_request *const *)b)->session;

    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    return (x->low > y->low) - (x->low < y->low);
}

static void find_sessions(struct search *s)
{
    const struct fl_reply_request **sorted = fl_xcalloc(s->n, sizeof *sorted);

    for (size_t i = 0; i < s->n; i++)
        sorted[i] = &s->requests[i];
    qsort(sorted, s->n, sizeof *sorted, compare_ids);
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0 && compare_ids(&sorted[i], &sorted[i - 1]) != 0)
            s->n_sessions++;
        s->session_of[sorted[i] - s->requests] = s->n_sessions;
        s->sessions[s->n_sessions].is_stuck |= sorted[i]->token == 0;
    }
    s->n_sessions += s->n != 0;
    free(sorted);
}

static void count_own(struct search *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct group *group = &s->groups[s->group_of[i]];

        for (size_t h = group->first;
             s->requests[i].token == 0 && h < group->first + group->n_holders; h++)
            s->n_own[i] += s->session_of[h] == s->session_of[i];
    }
}

/* --- Who cannot go on: all who wait, less those whose waits can end, until nothing changes --- */

static void count_stuck_holders(struct search *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        struct group *group = &s->groups[g];

        group->n_stuck = 0;
        for (size_t h = group->first; h < group->first + group->n_holders; h++)
            group->n_stuck += s->sessions[s->session_of[h]].is_stuck;
    }
}

/* Of a session that is stuck itself, so that its own holds count among the stuck. */
static bool cannot_end(const struct search *s, size_t wait)
{
    const struct group *group = &s->groups[s->group_of[wait]];
    size_t others = group->n_holders - s->n_own[wait], stuck = group->n_stuck - s->n_own[wait];

    if (s->requests[group->first].mode == FL_MODE_COUNTED)
        return others > 0 && stuck == others;
    return stuck > 0;
}

static size_t stuck_holder(const struct search *s, size_t wait)
{
    const struct group *group = &s->groups[s->group_of[wait]];
    size_t h = group->first;

    while (s->session_of[h] == s->session_of[wait] || !s->sessions[s->session_of[h]].is_stuck)
        h++;
    return s->session_of[h];
}

/* Whether anybody came free. */
static bool set_free(struct search *s)
{
    bool has_changed = false;

    count_stuck_holders(s);
    for (size_t i = 0; i < s->n_sessions; i++)
        s->sessions[i].is_still_stuck = false;
    for (size_t i = 0; i < s->n; i++) {
        struct waiter *waiter = &s->sessions[s->session_of[i]];

        if (s->requests[i].token != 0 || !waiter->is_stuck || !cannot_end(s, i))
            continue;
        waiter->is_still_stuck = true;
        waiter->wait = i;
        waiter->next = stuck_holder(s, i);
    }
    for (size_t i = 0; i < s->n_sessions; i++) {
        has_changed |= s->sessions[i].is_stuck != s->sessions[i].is_still_stuck;
        s->sessions[i].is_stuck = s->sessions[i].is_still_stuck;
    }
    return has_changed;
}

/* --- The circles among the stuck: each has one next, and whoever walks on comes round --- */

static struct fl_cycle cycle_from(struct fl_arena *arena, const struct search *s, size_t first)
{
    struct fl_cycle cycle = {0};
    size_t at = first, *steps;

    do
        cycle.n_steps++;
    while ((at = s->sessions[at].next) != first);
    steps = fl_arena_alloc(arena, cycle.n_steps * sizeof *steps);
    for (size_t i = 0; i < cycle.n_steps; i++, at = s->sessions[at].next)
        steps[i] = s->sessions[at].wait;
    cycle.steps = steps;
    return cycle;
}

static void find_cycles(struct fl_arena *arena, struct search *s, struct fl_cycles *cycles)
{
    cycles->cycles = fl_arena_alloc(arena, s->n_sessions * sizeof *cycles->cycles);
    for (size_t i = 0; i < s->n_sessions; i++) {
        unsigned walk = (unsigned)i + 1;
        size_t at = i;

        if (!s->sessions[i].is_stuck)
            continue;
        for (; s->sessions[at].seen == 0; at = s->sessions[at].next)
            s->sessions[at].seen = walk;
        if (s->sessions[at].seen == walk) /* this walk's own track: not seen by an earlier one */
            cycles->cycles[cycles->n++] = cycle_from(arena, s, at);
    }
}

void fl_cycles_find(struct fl_arena *arena, const struct fl_reply_request *requests, size_t n,
                    struct fl_cycles *ret_cycles)
{
    struct search s = {.requests = requests, .n = n};

    *ret_cycles = (struct fl_cycles){0};
    if (n == 0)
        return;
    s.groups = fl_arena_alloc(arena, n * sizeof *s.groups);
    s.group_of = fl_arena_alloc(arena, n * sizeof *s.group_of);
    s.session_of = fl_arena_alloc(arena, n * sizeof *s.session_of);
    s.n_own = fl_arena_alloc(arena, n * sizeof *s.n_own);
    s.sessions = fl_arena_alloc(arena, n * sizeof *s.sessions);
    find_groups(&s);
    find_sessions(&s);
    count_own(&s);
    while (set_free(&s))
        ;
    find_cycles(arena, &s, ret_cycles);
}
