/* Who waits in a circle: sessions of which none can go on unless one gives up. Pure.
 *
 * It is decided by sessions, since nobody knows a client's threads: a session that holds a name and
 * waits for it once more is no circle, and one that waits in one thread may still release in
 * another, so that a circle is a suspicion and nobody is chosen as its victim (C80). Of a name that
 * many hold with permits, all holders must be stuck before one who waits for it is. */
#ifndef FL_GATEWAY_CYCLES_H
#define FL_GATEWAY_CYCLES_H

#include "gateway/arena.h"
#include "node/message.h"

struct fl_cycles {
    size_t n;
    struct fl_cycle {
        size_t n_steps;
        /* Indexes of waits: the session of each waits for a name that the next one's holds. */
        const size_t *steps;
    } * cycles;
};

/* `requests` as a reply to WAITS has them: name by name, its holders, then its waiters. In the
 * arena. */
void fl_cycles_find(struct fl_arena *arena, const struct fl_reply_request *requests, size_t n,
                    struct fl_cycles *ret_cycles);

#endif
