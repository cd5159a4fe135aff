/* The guard of `fencelock run`: a small process between the tool and its command, which stops the
 * command before the lease can end, also when the tool is stopped or killed.
 *
 *     tool ---- guard ---- command (a process group of its own, in the terminal's session)
 *
 * The tool forks the guard before it opens anything or starts a thread, so the command inherits
 * nothing of ours. The two talk over one socket pair. The guard is told up to when the lease lasts;
 * unless it is told of more, it sends TERM to the command's group `grace_ms` before, and KILL at
 * the end. When the tool is gone (end of file) it kills at once, and closes the session. When the
 * guard itself is gone, the kernel kills the command (PR_SET_PDEATHSIG), and the tool kills what it
 * has started, as the next reaper.
 *
 * It is the reaper of what the command leaves behind, so that killing reaches processes that left
 * the group. After a command that ended by itself they are left alone: the lock covers the command.
 */
#ifndef FL_CLI_GUARD_H
#define FL_CLI_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum guard_word {
    /* To the guard. */
    GUARD_START = 1, /* value: the first deadline; token, lease_ms, session */
    GUARD_DEADLINE,  /* value: CLOCK_BOOTTIME in ms: the command must be dead by then */
    GUARD_SIGNAL,    /* value: for the command's group */
    GUARD_END,       /* the lock is lost: TERM now, KILL after the grace */
    /* From the guard. */
    GUARD_STARTED, /* value: the command's process id, and its group's */
    GUARD_FAILED,  /* value: errno of running the command */
    GUARD_STOPPED, /* the command was stopped by a signal (job control) */
    GUARD_ENDING,  /* the lease is about to end: TERM was sent */
    GUARD_EXITED,  /* value: its wait status; the guard ends */
};

struct guard_message {
    uint32_t word;
    uint32_t lease_ms;
    uint64_t value;
    uint64_t token;
    char session[40];
};

struct guard_config {
    char **command; /* ends in NULL */
    const char *name;
    uint64_t grace_ms;
    const sigset_t *command_mask; /* the signal mask that the tool was started with */
    int terminal;                 /* hand it to the command; -1: none, or not ours to hand */
    /* Run in the guard's place when the tool was killed and the command is dead, with the session's
     * id at `obituary_session`: nobody has to wait for the session's ttl. NULL: nothing. */
    char **obituary;
    unsigned obituary_session;
};

/* Forks the guard. All signals must be blocked. Returns our end of the socket pair, or -1. */
int guard_fork(const struct guard_config *config, pid_t *ret_pid);
/* In place of a guard that died: kills the command's group, and what it left, and waits until they
 * are dead. */
void guard_take_over(pid_t command);
bool guard_send(int socket, const struct guard_message *message);
/* False: the other side is gone. Waits. */
bool guard_receive(int socket, struct guard_message *ret_message);

#endif
