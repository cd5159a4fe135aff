/* Rate limits: a token bucket for each session, name and peer that asks. Pure.
 *
 * Off unless configured: a fair share can only be known by who runs the cluster. Heartbeats,
 * releases, cancels and closes never come here. */
#ifndef FL_GATEWAY_RATES_H
#define FL_GATEWAY_RATES_H

#include <stdint.h>

#include "base/str.h"

struct fl_rates;

enum fl_rate_kind {
    FL_RATE_SESSION, /* acquires of one session: a client in a hot loop */
    FL_RATE_NAME,    /* acquires of one name: a thousand clients that all poll it */
    FL_RATE_PEER,    /* questions and new sessions from one address */
    FL_RATE_KINDS,
};

/* A second of nothing allows a second's worth at once, twice over: bursts are normal. */
#define FL_RATES_BURST_S 2u
/* Buckets in memory (80 bytes each); the one longest unused makes room. */
#define FL_RATES_BUCKETS_MAX 100000u

struct fl_rates_config {
    uint32_t per_s[FL_RATE_KINDS]; /* 0: no limit */
};

/* `hash_key` should be random per process. */
struct fl_rates *fl_rates_new(const struct fl_rates_config *config, const uint64_t hash_key[2]);
void fl_rates_free(struct fl_rates *rates);

/* 0: allowed, and counted. Else not: come again after so many milliseconds. */
uint32_t fl_rates_take(struct fl_rates *rates, uint64_t now_ms, enum fl_rate_kind kind,
                       struct fl_str who);

#endif
