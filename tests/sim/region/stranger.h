/* A client without our SDK, and without manners: unary calls, request ids used again for other
 * things, tokens that it guesses, calls that it drops. What it does to others must be nothing. */
#ifndef FL_TESTS_SIM_STRANGER_H
#define FL_TESTS_SIM_STRANGER_H

#include "door.h"
#include "truth.h"

#define STRANGER_CALLS 4

struct stranger {
    struct place place;
    struct net *net;
    struct truth *truth;
    struct door *doors;
    unsigned n_doors;
    bool is_stopping;
    char session[48]; /* empty: none */
    uint32_t ttl_ms, lock_delay_ms;
    uint64_t beat_at_ms;
    struct alarm alarm;
    struct stranger_call {
        struct stranger *stranger;
        struct conn *conn; /* NULL: free */
        enum stranger_asks { CALL_CREATE, CALL_BEAT, CALL_ACQUIRE, CALL_OTHER } kind;
    } calls[STRANGER_CALLS];
    uint64_t n_calls;
};

void stranger_init(struct stranger *s, struct net *net, struct truth *truth, struct door *doors,
                   unsigned n_doors);
void stranger_start(struct stranger *s);
void stranger_end(struct stranger *s);

#endif
