/* Errors: what a function returns when the world failed.
 *
 * Three kinds of "no" are kept apart. A bug stops the process (base/assert.h). The world (disk,
 * network, memory, bytes from outside) fails with a negative code from the table below. A rule of
 * the lock service answers with an outcome (core/outcome.h), which is not an error. */
#ifndef FL_BASE_ERROR_H
#define FL_BASE_ERROR_H

#define FL_ERROR_TABLE(X)                                                                          \
    X(NOMEM, -1, "out of memory")                                                                  \
    X(INVALID, -2, "invalid argument")                                                             \
    X(MALFORMED, -3, "malformed data")                                                             \
    X(TOO_BIG, -4, "too big")                                                                      \
    X(CORRUPT, -5, "damaged data")                                                                 \
    X(VERSION, -6, "unknown version")                                                              \
    X(IO, -7, "input/output error")                                                                \
    X(NOSPACE, -8, "no space left")                                                                \
    X(EXISTS, -9, "exists already")                                                                \
    X(NOT_FOUND, -10, "not found")                                                                 \
    X(NOT_LEADER, -11, "not the leader")                                                           \
    X(BUSY, -12, "busy")                                                                           \
    X(AGAIN, -13, "try again")                                                                     \
    X(CLOSED, -14, "closed")                                                                       \
    X(TIMEOUT, -15, "timed out")                                                                   \
    X(UNREACHABLE, -16, "unreachable")                                                             \
    X(DENIED, -17, "denied")                                                                       \
    X(WRONG_PEER, -18, "wrong peer")                                                               \
    X(STALE, -19, "stale token")                                                                   \
    X(LOST, -20, "lock lost")                                                                      \
    X(SESSION_GONE, -21, "session gone")                                                           \
    X(PROTOCOL, -22, "protocol error")                                                             \
    X(UNSUPPORTED, -23, "not supported")                                                           \
    X(INTERNAL, -24, "internal error")                                                             \
    X(HELD, -25, "held by somebody else")                                                          \
    X(NO_LEADER, -26, "no leader")                                                                 \
    X(LIMITED, -27, "over a limit")                                                                \
    X(CONFLICT, -28, "in use in another mode")                                                     \
    X(FORKED, -29, "used after a fork")

enum fl_error {
    FL_OK = 0,
#define X(name, value, text) FL_E_##name = (value),
    FL_ERROR_TABLE(X)
#undef X
};

/* The sentence of the table, never NULL; "unknown error" for a number that is not in it. */
const char *fl_error_text(int error);

/* The nearest code for an errno value. */
int fl_error_from_errno(int errnum);

#endif
