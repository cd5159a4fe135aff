/* T1 in true time: a client's session and a server's, each with a clock that runs up to 1 % wrong,
 * over a network that delays, loses and breaks, with a client that is stopped for up to two ttls.
 * Whenever the server ends the session, the client must have stopped believing in it. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "client/session.h"
#include "client/why.h"
#include "seeded.h"

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

#define TTL         10000u
#define FLIGHTS_MAX 64
#define SECONDS     600
#define SEEDS       300
#define NEVER       UINT64_MAX

/* A message on its way, to the server (an effect) or to the client (an event). */
struct flight {
    uint64_t at_us; /* true time of arrival; NEVER: free */
    uint32_t stream;
    bool to_server;
    enum fl_session_effect_type said;
    enum fl_session_event_type answer;
    uint64_t seq, request_id, token;
    unsigned session;
};

struct world {
    struct fl_random random;
    uint64_t true_us, stopped_until_us;
    double client_rate, server_rate;

    struct fl_session client;
    struct fl_bid bid;
    bool is_held, is_bidding;
    uint32_t stream; /* what is on its way in another is lost */
    bool is_connected;

    unsigned session, n_sessions; /* the server's; 0: none */
    uint64_t deadline_ms, token, held_by_request;

    struct flight flights[FLIGHTS_MAX];
    uint64_t n_expired, n_lost, n_granted, n_violations;
};

static uint64_t client_ms(const struct world *w)
{
    return 1000000 + (uint64_t)((double)w->true_us * w->client_rate / 1000);
}

static uint64_t server_ms(const struct world *w)
{
    return 5000000 + (uint64_t)((double)w->true_us * w->server_rate / 1000);
}

/* Mostly quick, at times as slow as half a ttl, at times lost. */
static void fly(struct world *w, struct flight flight)
{
    uint64_t delay_us = fl_random_chance(&w->random, 1, 8) ? fl_random_below(&w->random, TTL * 500)
                                                           : fl_random_below(&w->random, 20000);

    if (fl_random_chance(&w->random, 1, 20))
        return;
    flight.at_us = w->true_us + delay_us;
    flight.stream = w->stream;
    for (size_t i = 0; i < FLIGHTS_MAX; i++) {
        if (w->flights[i].at_us == NEVER) {
            w->flights[i] = flight;
            return;
        }
    }
}

static void hear(void *ctx, const struct fl_session_effect *fx)
{
    struct world *w = ctx;

    switch (fx->type) {
    case FL_SESSION_FX_CONNECT:
        w->is_connected = true;
        w->stream++;
        break;
    case FL_SESSION_FX_DROP:
        w->is_connected = false;
        w->stream++;
        break;
    case FL_SESSION_FX_GRANTED:
        w->is_held = true;
        w->n_granted++;
        break;
    case FL_SESSION_FX_LOST:
        assert_true(w->is_held); /* once for each grant */
        w->is_held = false;
        w->n_lost++;
        break;
    case FL_SESSION_FX_DONE:
        assert_false(w->is_held); /* never without a word */
        w->is_bidding = false;
        break;
    case FL_SESSION_FX_BELIEF:
    case FL_SESSION_FX_REFUSED:
    case FL_SESSION_FX_RELEASED:
    case FL_SESSION_FX_UNRELEASED:
        break;
    default:
        fly(w, (struct flight){.to_server = true,
                               .said = fx->type,
                               .seq = fx->seq,
                               .request_id = fx->request_id,
                               .session = fx->session_id != NULL && fx->session_id[0] != '\0'
                                              ? (unsigned)atoi(fx->session_id + 2)
                                              : 0});
    }
}

/* ---- The server: one session, one lock ---- */

static void expire(struct world *w)
{
    char id[FL_CLIENT_SESSION_ID_SIZE];

    if (w->session == 0 || server_ms(w) < w->deadline_ms)
        return;
    snprintf(id, sizeof id, "s_%u", w->session);
    if (w->client.state == FL_SESSION_LIVE && strcmp(w->client.id, id) == 0 &&
        client_ms(w) < w->client.believe_until_ms)
        w->n_violations++;
    w->session = 0;
    w->held_by_request = 0;
    w->n_expired++;
}

static void answer(struct world *w, enum fl_session_event_type type, const struct flight *to)
{
    fly(w, (struct flight){.answer = type,
                           .seq = to->seq,
                           .request_id = to->request_id,
                           .token = w->token,
                           .session = w->session});
}

static void serve(struct world *w, const struct flight *flight)
{
    switch (flight->said) {
    case FL_SESSION_FX_SEND_OPEN:
        w->session = ++w->n_sessions;
        w->held_by_request = 0;
        w->deadline_ms = server_ms(w) + TTL;
        answer(w, FL_SESSION_EV_OPENED, flight);
        break;
    case FL_SESSION_FX_SEND_RESUME:
        answer(w, flight->session == w->session ? FL_SESSION_EV_OPENED : FL_SESSION_EV_ENDED,
               flight);
        break;
    case FL_SESSION_FX_SEND_HEARTBEAT:
        if (w->session != 0) {
            w->deadline_ms = server_ms(w) + TTL;
            answer(w, FL_SESSION_EV_ACK, flight);
        }
        break;
    case FL_SESSION_FX_SEND_ACQUIRE:
        if (w->session != 0) {
            w->token += w->held_by_request == flight->request_id ? 0 : 1;
            w->held_by_request = flight->request_id;
            answer(w, FL_SESSION_EV_ACQUIRED, flight);
        }
        break;
    default:
        break;
    }
}

/* ---- The client ---- */

static void step(struct world *w, struct fl_session_event event)
{
    event.now_ms = client_ms(w);
    fl_session_step(&w->client, &event);
    assert_null(fl_session__check(&w->client));
}

static void receive(struct world *w, const struct flight *flight)
{
    struct fl_session_known known = {
        .request_id = w->held_by_request, .token = w->token, .name = "L"};
    char id[FL_CLIENT_SESSION_ID_SIZE];

    snprintf(id, sizeof id, "s_%u", flight->session);
    step(w, (struct fl_session_event){.type = flight->answer,
                                      .session_id = id,
                                      .ttl_ms = TTL,
                                      .known = &known,
                                      .n_known = w->held_by_request != 0,
                                      .seq = flight->seq,
                                      .request_id = flight->request_id,
                                      .is_granted = true,
                                      .token = flight->token,
                                      .cause = FL_LOST_EXPIRED});
}

static void break_stream(struct world *w)
{
    struct fl_why why;

    fl_why_set(&why, FL_E_UNREACHABLE, NULL, "broken");
    w->is_connected = false;
    w->stream++;
    step(w, (struct fl_session_event){.type = FL_SESSION_EV_DOWN, .why = &why});
}

static void run_client(struct world *w)
{
    if (!w->is_bidding) {
        w->bid = (struct fl_bid){.name = "L", .mode = FL_EXCLUSIVE, .wait_ms = 60000};
        w->is_bidding = true;
        step(w, (struct fl_session_event){.type = FL_SESSION_EV_ACQUIRE, .bid = &w->bid});
    }
    if (w->is_connected && fl_random_chance(&w->random, 1, 2000))
        break_stream(w);
    if (fl_session_next_ms(&w->client) <= client_ms(w))
        step(w, (struct fl_session_event){.type = FL_SESSION_EV_TICK});
    if (fl_random_chance(&w->random, 1, 3000))
        w->stopped_until_us = w->true_us + fl_random_below(&w->random, 2 * TTL * 1000);
}

/* What arrived for a client that is stopped lies in its socket. */
static void deliver(struct world *w)
{
    for (size_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight flight = w->flights[i];

        if (flight.at_us > w->true_us || (!flight.to_server && w->true_us < w->stopped_until_us))
            continue;
        w->flights[i].at_us = NEVER;
        if (flight.stream != w->stream)
            continue;
        if (flight.to_server)
            serve(w, &flight);
        else
            receive(w, &flight);
    }
}

static void run_world(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    fl_random_init(&w->random, seed);
    w->client_rate = 0.99 + (double)fl_random_below(&w->random, 20001) / 1000000;
    w->server_rate = 0.99 + (double)fl_random_below(&w->random, 20001) / 1000000;
    for (size_t i = 0; i < FLIGHTS_MAX; i++)
        w->flights[i].at_us = NEVER;
    fl_session_init(&w->client, TTL, 5000, seed, hear, w);
    for (; w->true_us < SECONDS * UINT64_C(1000000); w->true_us += 5000) {
        deliver(w);
        expire(w);
        if (w->true_us >= w->stopped_until_us)
            run_client(w);
    }
}

static void belief_never_outlives_the_servers_lease(void **state)
{
    uint64_t n_expired = 0, n_lost = 0, n_granted = 0, n_violations = 0;
    struct world *w = malloc(sizeof *w);

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS && n_violations == 0; seed++) {
        run_world(w, seed);
        n_expired += w->n_expired;
        n_lost += w->n_lost;
        n_granted += w->n_granted;
        n_violations += w->n_violations;
        if (w->n_violations > 0)
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    }
    free(w);
    assert_int_equal(n_violations, 0);
    assert_true(n_expired > SEEDS && n_lost > SEEDS && n_granted > SEEDS); /* it was tried */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(belief_never_outlives_the_servers_lease),
    };
#ifdef FL_BUGS
    static const enum fl_bug bugs[] = {
        FL_BUG_CLIENT_BELIEF_FROM_RECEIPT,
        FL_BUG_CLIENT_GRANT_RENEWS_BELIEF,
    };

    return RUN_SEEDED(tests, bugs);
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
