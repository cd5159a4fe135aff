/* libfencelock from the outside, with its real threads, over a channel without sockets. Times are
 * in real milliseconds: tests wait for what must happen, and never ask how soon it did. */
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bugs.h"
#include "client/clock.h"
#include "fake_channel.h"

#include <fencelock/fencelock.h>

#ifdef FL_BUGS
enum fl_bug fl_bug_on;
#endif

/* ---- What the linker puts in the place of malloc and of the clock (see meson.build) ---- */

static long fail_at = -1; /* this many allocations from now; negative: none fails */
static atomic_long live;
static pthread_mutex_t count_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_long wall_jump_s;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

static bool fails_now(void)
{
    bool fails;

    pthread_mutex_lock(&count_mutex);
    fails = fail_at >= 0 && fail_at-- == 0;
    pthread_mutex_unlock(&count_mutex);
    return fails;
}

static void *counted(void *memory)
{
    if (memory != NULL)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails_now())
        return NULL;
    return old == NULL ? counted(__real_realloc(NULL, size)) : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *memory)
{
    if (memory != NULL)
        atomic_fetch_sub(&live, 1);
    __real_free(memory);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);

    if (clock == CLOCK_REALTIME)
        ret->tv_sec += atomic_load(&wall_jump_s);
    return r;
}

/* ---- Helpers ---- */

static const struct fl_acquire_options patient = {.wait_ms = 60000};

static struct fl_client *connect_with(const struct fl_client_options *options)
{
    struct fl_client *client = NULL;
    struct fl_client_options short_ttl = {0};

    if (options != NULL)
        short_ttl = *options;
    if (short_ttl.ttl_ms == 0)
        short_ttl.ttl_ms = 1000;
    fake_reset();
    assert_int_equal(fl_client_new("127.0.0.1:1", &short_ttl, &client, NULL), 0);
    return client;
}

static void nap(void)
{
    const struct timespec ten_ms = {.tv_nsec = 10 * 1000 * 1000};

    nanosleep(&ten_ms, NULL);
}

static void wait_until_invalid(const struct fl_lock *lock)
{
    while (fl_lock_valid(lock, 0))
        nap();
}

struct losses {
    sem_t told;
    atomic_int n;
    enum fl_lost_cause cause;
};

static void count_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                       const char *reason)
{
    struct losses *losses = ctx;

    (void)by, (void)reason;
    if (fl_lock_valid(lock, 0))
        atomic_fetch_add(&losses->n, 100); /* told before it was invalid */
    losses->cause = cause;
    atomic_fetch_add(&losses->n, 1);
    sem_post(&losses->told);
}

/* ---- Tests ---- */

static void a_lock_is_held_valid_and_given_back(void **state)
{
    struct fl_client *client = connect_with(NULL);
    struct fl_lock *lock = NULL, *other = NULL;
    struct fl_why why;
    char id[40];

    (void)state;
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, &why), 0);
    assert_true(fl_lock_token(lock) > 0);
    assert_string_equal(fl_lock_name(lock), "L");
    assert_true(fl_lock_valid(lock, 100));
    assert_true(fl_lock_remaining_ms(lock) <= 930);
    assert_false(fl_lock_valid(lock, 5000));
    assert_string_equal(fl_client_session_id(client, id), "s_fake");
    assert_int_equal(fl_acquire(client, "L", NULL, &other, &why), FL_E_HELD);
    assert_string_equal(why.reason, "HELD");
    assert_int_equal(fl_release(lock, &why), 0);
    assert_false(fl_lock_valid(lock, 0));
    assert_int_equal(fl_release(lock, &why), 0); /* safe to repeat */
    fl_lock_free(lock);
    fl_client_free(client);
    assert_int_equal(fake.closed, 1);
}

static void bad_arguments_name_their_field(void **state)
{
    struct fl_client *client = NULL;
    struct fl_lock *lock;
    struct fl_why why;
    char longer[514];

    (void)state;
    assert_int_equal(fl_client_new("nonsense", NULL, &client, &why), FL_E_INVALID);
    assert_string_equal(why.field, "endpoints");
    assert_int_equal(
        fl_client_new("h:1", &(struct fl_client_options){.ttl_ms = 999}, &client, &why),
        FL_E_INVALID);
    assert_string_equal(why.field, "ttl_ms");
    client = connect_with(NULL);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(fl_acquire(client, longer, NULL, &lock, &why), FL_E_INVALID);
    assert_string_equal(why.field, "name");
    assert_int_equal(fl_acquire(client, "a\nb", NULL, &lock, &why), FL_E_INVALID);
    assert_int_equal(
        fl_acquire(client, "L", &(struct fl_acquire_options){.mode = FL_COUNTED}, &lock, &why),
        FL_E_INVALID);
    assert_string_equal(why.field, "limit");
    fl_client_free(client);
}

/* C53. */
struct counter {
    struct fl_client *client;
    int value, inside;
};

static void *count_up(void *arg)
{
    struct counter *counter = arg;
    struct fl_lock *lock;

    for (int i = 0; i < 200; i++) {
        if (fl_acquire(counter->client, "counter", &patient, &lock, NULL) != 0)
            return arg;
        counter->inside++;
        if (counter->inside != 1)
            return arg;
        counter->value++;
        counter->inside--;
        if (i % 2 == 0 && fl_release(lock, NULL) != 0)
            return arg;
        fl_lock_free(lock);
    }
    return NULL;
}

static void threads_that_share_a_client_exclude_each_other(void **state)
{
    struct counter counter = {.client = connect_with(NULL)};
    pthread_t threads[4];
    void *failed;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &counter), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(counter.value, 800);
    fl_client_free(counter.client);
}

static void silence_ends_the_lease_and_is_told_once(void **state)
{
    struct losses losses = {0};
    struct fl_client *client;
    struct fl_lock *lock;

    (void)state;
    sem_init(&losses.told, 0, 0);
    client = connect_with(&(struct fl_client_options){.on_lost = count_loss, .ctx = &losses});
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    fake.is_silent = true;
    wait_until_invalid(lock);
    sem_wait(&losses.told);
    assert_int_equal(losses.cause, FL_LOST_LEASE);
    assert_int_equal(fl_release(lock, NULL), FL_E_LOST);
    fl_lock_free(lock);
    fake.is_silent = false;
    assert_int_equal(fl_acquire(client, "M", NULL, &lock, NULL), 0); /* C37: a new session */
    assert_int_equal(fake.opened, 2);
    fl_lock_free(lock);
    fl_client_free(client);
    assert_int_equal(losses.n, 1);
    sem_destroy(&losses.told);
}

static void a_session_that_is_gone_is_told_at_once(void **state)
{
    struct losses losses = {0};
    struct fl_client *client;
    struct fl_lock *lock;

    (void)state;
    sem_init(&losses.told, 0, 0);
    client = connect_with(&(struct fl_client_options){.on_lost = count_loss, .ctx = &losses});
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    fake.is_session_gone = true;
    sem_wait(&losses.told);
    assert_int_equal(losses.cause, FL_LOST_EXPIRED);
    assert_false(fl_lock_valid(lock, 0));
    fl_lock_free(lock);
    fl_client_free(client);
    assert_int_equal(losses.n, 1);
    sem_destroy(&losses.told);
}

/* C37: the callback of one lock sits there while the heartbeats of the others go on. */
static void block(void *ctx, struct fl_lock *lock, int code, const struct fl_why *why)
{
    (void)lock, (void)code, (void)why;
    sem_wait(ctx);
}

static void a_slow_callback_holds_up_no_heartbeat(void **state)
{
    struct fl_client *client = connect_with(NULL);
    struct fl_lock *kept, *released;
    sem_t go_on;
    int before;

    (void)state;
    sem_init(&go_on, 0, 0);
    assert_int_equal(fl_acquire(client, "kept", NULL, &kept, NULL), 0);
    assert_int_equal(fl_acquire(client, "released", NULL, &released, NULL), 0);
    assert_int_equal(fl_release_async(released, block, &go_on), 0);
    before = fake.heartbeats;
    while (fake.heartbeats < before + 5)
        nap();
    assert_true(fl_lock_valid(kept, 0));
    sem_post(&go_on);
    fl_client_free(client);
    fl_lock_free(kept);
    fl_lock_free(released);
    sem_destroy(&go_on);
}

/* T8, C50. */
static void the_wall_clock_does_not_count(void **state)
{
    struct fl_client *client = connect_with(&(struct fl_client_options){.ttl_ms = 60000});
    struct fl_lock *lock;

    (void)state;
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    atomic_store(&wall_jump_s, 86400);
    assert_true(fl_lock_valid(lock, 0));
    atomic_store(&wall_jump_s, -86400);
    assert_false(fl_lock_valid(lock, 61000));
    atomic_store(&wall_jump_s, 0);
    fl_lock_free(lock);
    fl_client_free(client);
}

static void a_forked_child_holds_nothing(void **state)
{
    struct fl_client *client = connect_with(NULL);
    struct fl_lock *lock, *other;
    struct fl_why why;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    pid = fork();
    if (pid == 0) {
        bool right = !fl_lock_valid(lock, 0) && fl_release(lock, &why) == FL_E_FORKED &&
                     fl_acquire(client, "M", NULL, &other, &why) == FL_E_FORKED;

        fl_lock_free(lock);
        fl_client_free(client);
        _exit(right ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_true(fl_lock_valid(lock, 0));
    fl_lock_free(lock);
    fl_client_free(client);
}

static void locks_may_outlive_their_client(void **state)
{
    struct fl_client *client = connect_with(NULL);
    struct fl_lock *lock;

    (void)state;
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    fl_client_free(client);
    assert_false(fl_lock_valid(lock, 0));
    assert_int_equal(fl_release(lock, NULL), FL_E_CLOSED);
    fl_lock_free(lock);
}

static void an_unreachable_cluster_is_said_so(void **state)
{
    struct fl_client *client = connect_with(&(struct fl_client_options){.timeout_ms = 300});
    struct fl_description *description;
    struct fl_lock *lock;
    struct fl_why why;

    (void)state;
    fake.is_down = true;
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, &why), FL_E_UNREACHABLE);
    assert_int_equal(fl_describe(client, "L", false, 0, &description, &why), FL_E_UNREACHABLE);
    fake.is_down = false;
    assert_int_equal(fl_describe(client, "L", false, 0, &description, &why), 0);
    assert_int_equal(description->waiter_count, 5);
    fl_description_free(description);
    fl_client_free(client);
}

struct answer {
    sem_t told;
    int code;
    struct fl_lock *lock;
};

static void take_answer(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct answer *answer = ctx;

    (void)why;
    answer->code = code;
    answer->lock = lock;
    sem_post(&answer->told);
}

static void waits_can_be_cancelled(void **state)
{
    struct fl_client *client = connect_with(NULL);
    struct answer answer = {0};
    struct fl_lock *lock;

    (void)state;
    sem_init(&answer.told, 0, 0);
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0);
    assert_int_equal(fl_acquire_async(client, "L", &patient, take_answer, &answer, NULL), 0);
    fl_client_cancel_waits(client);
    sem_wait(&answer.told);
    assert_int_equal(answer.code, FL_E_CLOSED);
    assert_null(answer.lock);
    assert_int_equal(fl_release(lock, NULL), 0);
    fl_lock_free(lock);
    assert_int_equal(fl_acquire(client, "L", NULL, &lock, NULL), 0); /* nobody was left behind */
    fl_lock_free(lock);
    fl_client_free(client);
    sem_destroy(&answer.told);
}

/* Whatever fails, it is said or made up for, and all memory comes back. */
static int use_with_failing_allocation(long n)
{
    struct fl_client_options options = {.ttl_ms = 1000, .timeout_ms = 300, .on_lost = count_loss};
    struct fl_description *description = NULL;
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    int r;

    fake_reset();
    fail_at = n;
    r = fl_client_new("127.0.0.1:1", &options, &client, NULL);
    if (r == 0)
        r = fl_acquire(client, "L", NULL, &lock, NULL);
    if (r == 0)
        r = fl_describe(client, "L", false, 3, &description, NULL);
    if (r == 0)
        r = fl_release(lock, NULL);
    fl_description_free(description);
    fl_lock_free(lock);
    fl_client_free(client);
    return r;
}

static void memory_that_runs_out_is_said_and_none_is_lost(void **state)
{
    long before = atomic_load(&live);

    (void)state;
    for (long n = 0; n < 1000; n++) {
        int r = use_with_failing_allocation(n);

        assert_true(r == 0 || r == FL_E_NOMEM || r == FL_E_UNREACHABLE || r == FL_E_HELD ||
                    r == FL_E_PROTOCOL);
        assert_int_equal(atomic_load(&live), before);
        if (fail_at >= 0) { /* there were fewer allocations than that */
            fail_at = -1;
            assert_int_equal(r, 0);
            return;
        }
    }
    fail();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_lock_is_held_valid_and_given_back),
    cmocka_unit_test(bad_arguments_name_their_field),
    cmocka_unit_test(threads_that_share_a_client_exclude_each_other),
    cmocka_unit_test(silence_ends_the_lease_and_is_told_once),
    cmocka_unit_test(a_session_that_is_gone_is_told_at_once),
    cmocka_unit_test(a_slow_callback_holds_up_no_heartbeat),
    cmocka_unit_test(a_forked_child_holds_nothing),
    cmocka_unit_test(locks_may_outlive_their_client),
    cmocka_unit_test(an_unreachable_cluster_is_said_so),
    cmocka_unit_test(waits_can_be_cancelled),
    cmocka_unit_test(memory_that_runs_out_is_said_and_none_is_lost),
    cmocka_unit_test(the_wall_clock_does_not_count),
};

int main(void)
{
#ifdef FL_BUGS
    fl_bug_on = FL_BUG_CLIENT_WALL_CLOCK;
    cmocka_set_test_filter("the_wall_clock*");
    return cmocka_run_group_tests(tests, NULL, NULL) == 0; /* the bug must be seen */
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
