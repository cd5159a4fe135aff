/* The guard of `fencelock run`, with the test in the tool's place: what becomes of the command when
 * the tool says nothing, dies, or says the lock is lost. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/guard.h"

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The command writes into `out`; everything that holds its other end is gone when it ends. */
struct fixture {
    sigset_t old_mask;
    int socket, out;
    pid_t guard;
    struct guard_message last;
};

static void start_with(struct fixture *f, const char *script, uint64_t lease_ms, uint64_t grace_ms)
{
    char *command[] = {"/bin/sh", "-c", (char *)script, NULL};
    struct guard_message start = {
        .word = GUARD_START, .token = 42, .lease_ms = 7, .session = "s_x"};
    int saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), ends[2];
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &f->old_mask);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    dup2(ends[1], STDOUT_FILENO);
    f->socket = guard_fork(&(struct guard_config){.command = command,
                                                  .name = "a/name",
                                                  .grace_ms = grace_ms,
                                                  .command_mask = &f->old_mask,
                                                  .terminal = -1},
                           &f->guard);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends[1]);
    f->out = ends[0];
    assert_true(f->socket >= 0);
    start.value = now_ms() + lease_ms;
    assert_true(guard_send(f->socket, &start));
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    if (f->socket > 0)
        close(f->socket); /* also when the test failed: the guard kills what is left */
    if (f->guard > 0)
        waitpid(f->guard, NULL, 0);
    close(f->out);
    sigprocmask(SIG_SETMASK, &f->old_mask, NULL);
    free(f);
    return 0;
}

static void expect_word(struct fixture *f, enum guard_word word)
{
    struct pollfd polled = {.fd = f->socket, .events = POLLIN};

    assert_int_equal(poll(&polled, 1, 60000), 1);
    assert_true(guard_receive(f->socket, &f->last));
    assert_int_equal(f->last.word, word);
}

/* The command's output so far, at least `n` bytes unless it ended. */
static const char *output(struct fixture *f, size_t n)
{
    static char text[4096];
    size_t len = 0;

    while (len < n) {
        struct pollfd polled = {.fd = f->out, .events = POLLIN};
        ssize_t got;

        assert_int_equal(poll(&polled, 1, 60000), 1);
        got = read(f->out, text + len, sizeof text - 1 - len);
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    text[len] = '\0';
    return text;
}

/* Nobody holds the command's output any more: every process of it is gone. */
static void expect_all_gone(struct fixture *f)
{
    char rest[256];

    for (;;) {
        struct pollfd polled = {.fd = f->out, .events = POLLIN};
        ssize_t got;

        assert_int_equal(poll(&polled, 1, 60000), 1);
        got = read(f->out, rest, sizeof rest);
        if (got == 0)
            return;
        assert_true(got > 0);
    }
}

static void the_command_has_its_environment_and_its_exit_status(void **state)
{
    struct fixture *f = *state;

    start_with(f,
               "echo $FENCELOCK_NAME $FENCELOCK_TOKEN $FENCELOCK_SESSION $FENCELOCK_LEASE_MS;"
               "exit 42",
               60000, 100);
    expect_word(f, GUARD_STARTED);
    expect_word(f, GUARD_EXITED);
    assert_int_equal(WEXITSTATUS((int)f->last.value), 42);
    assert_string_equal(output(f, 4000), "a/name 42 s_x 7\n");
}

/* The numbers of the descriptors that whoever runs this test passes on, and the one at which `ls`
 * then opens the directory. */
static void expected_descriptors(char *out, size_t size)
{
    bool has_directory = false;
    size_t len = 0;

    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        bool is_passed_on = flags >= 0 && (flags & FD_CLOEXEC) == 0;

        if (!is_passed_on && has_directory)
            continue;
        has_directory |= !is_passed_on;
        len += (size_t)snprintf(out + len, size - len, "%d ", fd);
    }
}

static void the_command_inherits_no_descriptor_of_ours(void **state)
{
    struct fixture *f = *state;
    char expected[4096];

    start_with(f, "ls /proc/self/fd | sort -n | tr '\\n' ' '", 60000, 100);
    expect_word(f, GUARD_STARTED);
    expect_word(f, GUARD_EXITED);
    expected_descriptors(expected, sizeof expected);
    assert_string_equal(output(f, 4000), expected);
}

static void a_command_that_cannot_run_says_why(void **state)
{
    struct fixture *f = *state;
    char *command[] = {"/no/such/command", NULL};
    struct guard_message start = {.word = GUARD_START, .value = now_ms() + 60000};
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &f->old_mask);
    f->out = open("/dev/null", O_RDONLY);
    f->socket = guard_fork(
        &(struct guard_config){
            .command = command, .name = "L", .command_mask = &f->old_mask, .terminal = -1},
        &f->guard);
    guard_send(f->socket, &start);
    expect_word(f, GUARD_FAILED);
    assert_int_equal(f->last.value, ENOENT);
}

static void signals_are_delivered_and_told(void **state)
{
    struct fixture *f = *state;
    struct guard_message signal = {.word = GUARD_SIGNAL, .value = SIGUSR1};

    start_with(f, "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done", 60000, 100);
    expect_word(f, GUARD_STARTED);
    output(f, 3);
    guard_send(f->socket, &signal);
    assert_string_equal(output(f, 5), "usr1\n");
    signal.value = SIGKILL;
    guard_send(f->socket, &signal);
    expect_word(f, GUARD_EXITED);
    assert_int_equal(WTERMSIG((int)f->last.value), SIGKILL);
}

/* C14: the tool was stopped and extends nothing. The command ignores TERM, and has children in its
 * group and one that left it. */
static void silence_kills_everything_at_the_deadline(void **state)
{
    struct fixture *f = *state;
    uint64_t started_ms = now_ms();

    start_with(f,
               "trap 'echo term' TERM; echo up; (trap '' TERM; exec sleep 600) & "
               "setsid sleep 600 & while :; do sleep 0.02; done",
               1000, 400);
    expect_word(f, GUARD_STARTED);
    output(f, 3);
    expect_word(f, GUARD_ENDING);
    assert_true(now_ms() >= started_ms + 600);
    assert_string_equal(output(f, 5), "term\n");
    expect_word(f, GUARD_EXITED);
    assert_true(now_ms() >= started_ms + 1000);
    expect_all_gone(f);
}

static void what_is_extended_lives(void **state)
{
    struct fixture *f = *state;
    struct guard_message deadline = {.word = GUARD_DEADLINE};

    start_with(f, "sleep 1.2; echo done", 500, 100);
    expect_word(f, GUARD_STARTED);
    deadline.value = now_ms() + 60000;
    guard_send(f->socket, &deadline);
    assert_string_equal(output(f, 5), "done\n");
    expect_word(f, GUARD_EXITED);
    assert_int_equal(f->last.value, 0);
}

/* C15: kill -9 of the tool. */
static void a_tool_that_is_gone_kills_everything_at_once(void **state)
{
    struct fixture *f = *state;

    start_with(f, "trap '' TERM HUP INT; echo up; setsid sleep 600 & sleep 600", 60000, 100);
    expect_word(f, GUARD_STARTED);
    output(f, 3);
    close(f->socket);
    f->socket = 0;
    expect_all_gone(f);
}

static void a_guard_that_is_killed_takes_the_command_along(void **state)
{
    struct fixture *f = *state;

    start_with(f, "echo up; exec sleep 600", 60000, 100);
    expect_word(f, GUARD_STARTED);
    output(f, 3);
    kill(f->guard, SIGKILL);
    expect_all_gone(f);
}

static void a_lost_lock_ends_the_command_and_what_it_leaves(void **state)
{
    struct fixture *f = *state;
    struct guard_message end = {.word = GUARD_END};

    start_with(f, "trap 'exit 3' TERM; echo up; setsid sleep 600 & while :; do sleep 0.02; done",
               60000, 500);
    expect_word(f, GUARD_STARTED);
    output(f, 3);
    guard_send(f->socket, &end);
    expect_word(f, GUARD_ENDING);
    expect_word(f, GUARD_EXITED);
    assert_int_equal(WEXITSTATUS((int)f->last.value), 3);
    expect_all_gone(f);
}

/* The lock covers the command; what it chose to leave behind is not ours to kill. */
static void after_a_normal_end_what_was_left_behind_lives(void **state)
{
    struct fixture *f = *state;

    start_with(f, "sleep 0.6 && echo alive &", 60000, 100);
    expect_word(f, GUARD_STARTED);
    expect_word(f, GUARD_EXITED);
    assert_string_equal(output(f, 6), "alive\n");
}

static void a_stopped_command_is_told_of(void **state)
{
    struct fixture *f = *state;
    struct guard_message signal = {.word = GUARD_SIGNAL, .value = SIGCONT};

    start_with(f, "kill -STOP $$; echo went on", 60000, 100);
    expect_word(f, GUARD_STARTED);
    expect_word(f, GUARD_STOPPED);
    guard_send(f->socket, &signal);
    assert_string_equal(output(f, 8), "went on\n");
    expect_word(f, GUARD_EXITED);
}

/* Dead, and not reaped by its parent, who is stopped. */
static void await_zombie(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    char path[64], line[256] = "";

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    while (strstr(line, ") Z ") == NULL) {
        FILE *stat = fopen(path, "re");

        assert_non_null(stat);
        assert_non_null(fgets(line, sizeof line, stat));
        fclose(stat);
        nanosleep(&pause, NULL);
    }
}

static void the_end_is_told_though_words_to_the_guard_were_unread(void **state)
{
    struct fixture *f = *state;
    struct guard_message deadline = {.word = GUARD_DEADLINE, .value = now_ms() + 60000};

    start_with(f, "exec sleep 600", 60000, 100);
    expect_word(f, GUARD_STARTED);
    kill(f->guard, SIGSTOP);
    kill((pid_t)f->last.value, SIGKILL);
    await_zombie((pid_t)f->last.value);
    guard_send(f->socket, &deadline);
    kill(f->guard, SIGCONT);
    waitpid(f->guard, NULL, 0);
    f->guard = 0;
    expect_word(f, GUARD_EXITED);
    assert_int_equal(WTERMSIG((int)f->last.value), SIGKILL);
}

#define GUARD_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        GUARD_TEST(the_command_has_its_environment_and_its_exit_status),
        GUARD_TEST(the_command_inherits_no_descriptor_of_ours),
        GUARD_TEST(a_command_that_cannot_run_says_why),
        GUARD_TEST(signals_are_delivered_and_told),
        GUARD_TEST(silence_kills_everything_at_the_deadline),
        GUARD_TEST(what_is_extended_lives),
        GUARD_TEST(a_tool_that_is_gone_kills_everything_at_once),
        GUARD_TEST(a_guard_that_is_killed_takes_the_command_along),
        GUARD_TEST(a_lost_lock_ends_the_command_and_what_it_leaves),
        GUARD_TEST(after_a_normal_end_what_was_left_behind_lives),
        GUARD_TEST(a_stopped_command_is_told_of),
        GUARD_TEST(the_end_is_told_though_words_to_the_guard_were_unread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
