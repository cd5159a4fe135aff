/* Assertions: a bug of ours stops the process, in release builds too, since a lock service that
 * goes on with a broken invariant can grant twice.
 *
 * Never for bytes from a peer, a client, a file or the log: one poison entry would stop every node
 * that applies it, and again after each restart. Those fail with a code (base/error.h). */
#ifndef FL_BASE_ASSERT_H
#define FL_BASE_ASSERT_H

#define FL_REQUIRE(condition)                                                                      \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            fl_assert_failed(#condition, __FILE__, __LINE__, __func__);                            \
    } while (0)

#define FL_UNREACHABLE() fl_assert_failed("unreachable", __FILE__, __LINE__, __func__)

__attribute__((noreturn)) void fl_assert_failed(const char *condition, const char *file, int line,
                                                const char *function);

#endif
