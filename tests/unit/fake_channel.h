/* A double of rpc/channel.h for tests of libfencelock's threads: a lock service of a few lines
 * behind the channel, on the loop's own thread, with no socket. It grants what is free, queues the
 * rest, and answers heartbeats, unless it is told not to. */
#ifndef FL_TESTS_UNIT_FAKE_CHANNEL_H
#define FL_TESTS_UNIT_FAKE_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>

struct fake {
    /* Any thread. */
    atomic_bool is_silent;       /* answers nothing */
    atomic_bool is_session_gone; /* the next heartbeat ends the stream: SESSION_NOT_FOUND */
    atomic_bool is_down;         /* no connection can be made, unary calls fail at once */
    atomic_int heartbeats, opened, resumed, closed, unary_calls;
};
extern struct fake fake;

/* Nothing is held, nothing is counted. No client may live. */
void fake_reset(void);

#endif
