/* ListWaits: the waits as the node told them, and the circles among them. */
#include "gateway/answers.h"

#include "gateway/cycles.h"

typedef Fencelock__V1__ListWaitsResponse Response;

static char *session_text(struct fl_arena *arena, struct fl_session_id id)
{
    char *text = fl_arena_alloc(arena, FL_SESSION_ID_TEXT_SIZE);

    fl_session_id_format(id, text);
    return text;
}

static Fencelock__V1__ListWaitsResponse__Request *request_of(struct fl_arena *arena,
                                                             const struct fl_reply_request *q)
{
    Fencelock__V1__ListWaitsResponse__Request *request = fl_arena_alloc(arena, sizeof *request);

    *request = (Fencelock__V1__ListWaitsResponse__Request)
        FENCELOCK__V1__LIST_WAITS_RESPONSE__REQUEST__INIT;
    request->session_id = session_text(arena, q->session);
    request->client = fl_arena_text(arena, q->client);
    request->token = q->token;
    request->for_ms = q->for_ms;
    request->mode = fl_arena_text(arena, fl_str_from(fl_mode_text(q->mode)));
    return request;
}

/* From `first` on, all of one name. Returns where the next begins. */
static size_t add_name(struct fl_arena *arena, const struct fl_reply *reply, size_t first,
                       Response *response)
{
    Fencelock__V1__ListWaitsResponse__Name *name = fl_arena_alloc(arena, sizeof *name);
    size_t end = first;

    while (end < reply->n_requests &&
           fl_str_equal(reply->requests[end].name, reply->requests[first].name))
        end++;
    *name = (Fencelock__V1__ListWaitsResponse__Name)FENCELOCK__V1__LIST_WAITS_RESPONSE__NAME__INIT;
    name->name = fl_arena_text(arena, reply->requests[first].name);
    name->holders = fl_arena_alloc(arena, (end - first) * sizeof *name->holders);
    name->waiters = fl_arena_alloc(arena, (end - first) * sizeof *name->waiters);
    for (size_t i = first; i < end; i++) {
        if (reply->requests[i].token != 0)
            name->holders[name->n_holders++] = request_of(arena, &reply->requests[i]);
        else
            name->waiters[name->n_waiters++] = request_of(arena, &reply->requests[i]);
    }
    response->names[response->n_names++] = name;
    return end;
}

static Fencelock__V1__ListWaitsResponse__Step *step_of(struct fl_arena *arena,
                                                       const struct fl_reply_request *wait)
{
    Fencelock__V1__ListWaitsResponse__Step *step = fl_arena_alloc(arena, sizeof *step);

    *step = (Fencelock__V1__ListWaitsResponse__Step)FENCELOCK__V1__LIST_WAITS_RESPONSE__STEP__INIT;
    step->session_id = session_text(arena, wait->session);
    step->client = fl_arena_text(arena, wait->client);
    step->waits_for = fl_arena_text(arena, wait->name);
    return step;
}

static void add_cycles(struct fl_arena *arena, const struct fl_reply *reply, Response *response)
{
    struct fl_cycles found;

    fl_cycles_find(arena, reply->requests, reply->n_requests, &found);
    response->cycles = fl_arena_alloc(arena, found.n * sizeof *response->cycles);
    for (size_t i = 0; i < found.n; i++) {
        Fencelock__V1__ListWaitsResponse__Cycle *cycle = fl_arena_alloc(arena, sizeof *cycle);

        *cycle = (Fencelock__V1__ListWaitsResponse__Cycle)
            FENCELOCK__V1__LIST_WAITS_RESPONSE__CYCLE__INIT;
        cycle->steps = fl_arena_alloc(arena, found.cycles[i].n_steps * sizeof *cycle->steps);
        for (; cycle->n_steps < found.cycles[i].n_steps; cycle->n_steps++)
            cycle->steps[cycle->n_steps] =
                step_of(arena, &reply->requests[found.cycles[i].steps[cycle->n_steps]]);
        response->cycles[response->n_cycles++] = cycle;
    }
}

FL_ANSWER(list_waits)
{
    Response *response = fl_arena_alloc(arena, sizeof *response);

    (void)context;
    *response = (Response)FENCELOCK__V1__LIST_WAITS_RESPONSE__INIT;
    response->more = reply->more;
    response->names = fl_arena_alloc(arena, reply->n_requests * sizeof *response->names);
    for (size_t i = 0; i < reply->n_requests;)
        i = add_name(arena, reply, i, response);
    add_cycles(arena, reply, response);
    return &response->base;
}
