/* The properties (T, L and V of docs/testing.md), checked while a history unfolds. What clients
 * sent, were told and believed, and what the log did, is told to the judge in true time; the first
 * property that does not hold ends the run. Knows nothing of how the cluster is built. */
#ifndef FL_TESTS_SIM_JUDGE_H
#define FL_TESTS_SIM_JUDGE_H

#include "core/machine.h"
#include "timeline.h"

/* Every clock's rate is within 1 +- this; a lease is believed in for TTL (1 - rho) / (1 + rho). */
#define RHO_PPM 10000u

#define JUDGE_SESSIONS_MAX 4096
#define JUDGE_REQUESTS_MAX 256
#define JUDGE_NAMES_MAX    8
#define JUDGE_HOLDERS_MAX  32

struct judge_request {
    uint64_t asked_us, wait_ms;
    fl_token token;      /* of the grant, in the log */
    fl_token told_token; /* of the first reply that said granted */
    uint64_t told_index;
    bool is_refused; /* a reply said: not granted, and never will be */
};

struct judge_session {
    uint32_t ttl_ms;
    bool is_open, is_ended;
    uint64_t expired_us; /* when its expiry was committed; 0: not */
    uint64_t believed_until_us;
    uint64_t beat_us;          /* the last heartbeat that lay at the leader's door */
    uint64_t beating_since_us; /* since then with no gap of about half a TTL */
    struct judge_request requests[JUDGE_REQUESTS_MAX];
};

struct judge_hold {
    uint32_t session;
    uint64_t request;
    fl_token token;
    enum fl_mode mode;
    uint32_t limit; /* counted */
};

struct judge_name {
    struct judge_hold holders[JUDGE_HOLDERS_MAX]; /* by the log */
    size_t n_holders;
    struct judge_hold believers[JUDGE_HOLDERS_MAX]; /* by themselves */
    size_t n_believers;
    fl_token last_token;
};

struct judge {
    struct timeline *time;
    uint64_t disturbed_until_us; /* faults, and what they leave behind */
    uint64_t late_us;            /* what the simulated delays alone may add to an answer */
    uint64_t log_ms;             /* stamp of the last batch */
    bool clocks_are_off;         /* beyond the bound: T1 and what follows from it is not asked */
    uint64_t overlaps;           /* how often it would have been broken then */
    uint64_t grants, expiries, acks, reads;
    struct judge_session *sessions[JUDGE_SESSIONS_MAX]; /* owned; NULL: not heard of */
    struct judge_name names[JUDGE_NAMES_MAX];
};

void judge_init(struct judge *j, struct timeline *time);
void judge_deinit(struct judge *j);

/* A client begins a session. */
void judge_session(struct judge *j, uint32_t session, uint32_t ttl_ms);
uint32_t judge_ttl_ms(const struct judge *j, uint32_t session);

/* Session ids are numbers in `low`; names are "n0" to "n7". */
void judge_committed_batch(struct judge *j, uint64_t now_ms);       /* L14: log time */
void judge_effect(struct judge *j, const struct fl_effect *effect); /* once per effect */
void judge_asked(struct judge *j, uint32_t session, uint64_t request, uint32_t wait_ms);
void judge_granted(struct judge *j, uint32_t session, uint64_t request, fl_token token,
                   uint64_t index);
/* Told HELD, TIMED_OUT or CANCELLED. */
void judge_refused(struct judge *j, uint32_t session, uint64_t request, enum fl_answer answer);
/* A heartbeat reached the leader's door. */
void judge_beat(struct judge *j, uint32_t session);
/* A client may believe in its session until then. */
void judge_believes(struct judge *j, uint32_t session, uint64_t until_us);
void judge_lock_on(struct judge *j, unsigned name, struct judge_hold hold);
void judge_lock_off(struct judge *j, unsigned name, uint32_t session, uint64_t request);

#endif
