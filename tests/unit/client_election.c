/* Elections, maximum hold times and callbacks on one's own thread, from the outside of
 * libfencelock, over the channel without sockets. Events are waited for; no time is asserted. */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fake_channel.h"

#include <fencelock/election.h>

static struct fl_client *connect_with(struct fl_client_options options)
{
    struct fl_client *client = NULL;

    options.ttl_ms = 1000;
    fake_reset();
    assert_int_equal(fl_client_new("127.0.0.1:1", &options, &client, NULL), 0);
    return client;
}

/* What was told, in order, as words. */
struct diary {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char text[512];
};

static void open_diary(struct diary *diary)
{
    *diary =
        (struct diary){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
}

static void note(struct diary *diary, const char *word)
{
    pthread_mutex_lock(&diary->mutex);
    strncat(diary->text, word, sizeof diary->text - strlen(diary->text) - 1);
    pthread_cond_signal(&diary->changed);
    pthread_mutex_unlock(&diary->mutex);
}

/* Waits until it says so much; it may not say anything else. */
static void expect(struct diary *diary, const char *text)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    pthread_mutex_lock(&diary->mutex);
    while (strlen(diary->text) < strlen(text))
        if (pthread_cond_timedwait(&diary->changed, &diary->mutex, &limit) != 0)
            break;
    pthread_mutex_unlock(&diary->mutex);
    assert_string_equal(diary->text, text);
}

static void note_elected(void *ctx, struct fl_election *election, uint64_t token)
{
    assert_true(token > 0 && token == fl_election_token(election));
    note(ctx, "elected ");
}

static void note_deposed(void *ctx, struct fl_election *election, enum fl_lost_cause cause)
{
    char word[32];

    snprintf(word, sizeof word, "deposed-%d%s ", (int)cause,
             fl_election_leads(election, 0) ? "-still" : "");
    note(ctx, word);
}

static void note_trouble(void *ctx, struct fl_election *election, const struct fl_why *why)
{
    (void)election, (void)why;
    note(ctx, "trouble ");
}

static void note_loss(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                      const char *reason)
{
    char word[32];

    (void)by, (void)reason;
    snprintf(word, sizeof word, "lost-%d%s ", (int)cause, fl_lock_valid(lock, 0) ? "-valid" : "");
    note(ctx, word);
}

static struct fl_election_options options_for(struct diary *diary)
{
    return (struct fl_election_options){.on_elected = note_elected,
                                        .on_deposed = note_deposed,
                                        .on_trouble = note_trouble,
                                        .ctx = diary};
}

/* ---- Elections ---- */

static void one_leads_and_the_next_follows_when_it_resigns(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct fl_election *a, *b;
    struct fl_election_options a_options, b_options;
    struct diary a_diary, b_diary;
    uint64_t first;

    (void)state;
    open_diary(&a_diary);
    open_diary(&b_diary);
    a_options = options_for(&a_diary);
    b_options = options_for(&b_diary);
    assert_int_equal(fl_election_new(client, "leader", &a_options, &a, NULL), 0);
    expect(&a_diary, "elected ");
    first = fl_election_token(a);
    assert_true(fl_election_leads(a, 100));
    assert_false(fl_election_leads(a, 5000));
    assert_int_equal(fl_election_new(client, "leader", &b_options, &b, NULL), 0);
    assert_false(fl_election_leads(b, 0));
    assert_int_equal(fl_election_resign(b, NULL), 0); /* nothing to give up */
    assert_int_equal(fl_election_resign(a, NULL), 0);
    expect(&b_diary, "elected ");
    assert_false(fl_election_leads(a, 0));
    assert_int_equal(fl_election_token(a), 0);
    assert_true(fl_election_token(b) > first);
    fl_election_free(b); /* gives way to the one that stands again */
    expect(&a_diary, "elected elected ");
    fl_election_free(a);
    expect(&b_diary, "elected ");
    fl_client_free(client);
}

static void who_is_deposed_is_told_and_stands_again(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct fl_election_options options;
    struct fl_election *election;
    struct diary diary;

    (void)state;
    open_diary(&diary);
    options = options_for(&diary);
    assert_int_equal(fl_election_new(client, "leader", &options, &election, NULL), 0);
    expect(&diary, "elected ");
    fake.is_session_gone = true;
    expect(&diary, "elected deposed-2 elected ");
    fl_election_free(election);
    fl_client_free(client);
}

static void standing_goes_on_when_nobody_answers(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){.timeout_ms = 200});
    struct fl_election_options options;
    struct fl_election *election;
    struct diary diary;

    (void)state;
    open_diary(&diary);
    options = options_for(&diary);
    fake.is_down = true;
    /* A day is how long it waits in the queue: the request is refused by the session's end. */
    assert_int_equal(fl_election_new(client, "leader", &options, &election, NULL), 0);
    fake.is_down = false;
    pthread_mutex_lock(&diary.mutex);
    while (strstr(diary.text, "elected ") == NULL)
        pthread_cond_wait(&diary.changed, &diary.mutex);
    pthread_mutex_unlock(&diary.mutex);
    fl_election_free(election);
    fl_client_free(client);
}

static void an_election_ends_while_it_waits(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct fl_election_options options;
    struct fl_election *election;
    struct fl_lock *lock, *again;
    struct diary diary;

    (void)state;
    open_diary(&diary);
    options = options_for(&diary);
    assert_int_equal(fl_acquire(client, "leader", NULL, &lock, NULL), 0);
    assert_int_equal(fl_election_new(client, "leader", &options, &election, NULL), 0);
    fl_election_free(election);
    assert_int_equal(fl_release(lock, NULL), 0);
    /* It left the queue: the name is free. */
    assert_int_equal(
        fl_acquire(client, "leader", &(struct fl_acquire_options){.wait_ms = 60000}, &again, NULL),
        0);
    expect(&diary, "");
    fl_lock_free(lock);
    fl_lock_free(again);
    fl_client_free(client);
}

static void elections_end_at_any_moment(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct diary diary;

    (void)state;
    open_diary(&diary);
    for (int i = 0; i < 300; i++) {
        const struct timespec nap = {.tv_nsec = (i % 10) * 100000};
        struct fl_election_options options = options_for(&diary);
        struct fl_election *election;

        diary.text[0] = '\0';
        assert_int_equal(fl_election_new(client, "leader", &options, &election, NULL), 0);
        nanosleep(&nap, NULL);
        if (i % 3 == 0)
            fake.is_session_gone = true;
        if (i % 3 == 1)
            fl_election_resign(election, NULL);
        fl_election_free(election);
    }
    fl_client_free(client);
}

/* ---- C73: heartbeats say that the process lives, not that its work goes on ---- */

static void a_hold_without_progress_is_given_back(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct fl_acquire_options limited = {.max_hold_ms = 200, .on_lost = note_loss};
    struct fl_lock *stuck, *next;
    struct diary diary;

    (void)state;
    open_diary(&diary);
    limited.ctx = &diary;
    assert_int_equal(fl_acquire(client, "L", &limited, &stuck, NULL), 0);
    /* Nobody releases it. */
    assert_int_equal(
        fl_acquire(client, "L", &(struct fl_acquire_options){.wait_ms = 60000}, &next, NULL), 0);
    expect(&diary, "lost-6 ");
    assert_false(fl_lock_valid(stuck, 0));
    assert_true(fl_lock_valid(next, 0));
    assert_int_equal(fl_release(stuck, NULL), FL_E_LOST);
    assert_true(fl_lock_valid(next, 0));
    fl_lock_free(stuck);
    fl_lock_free(next);
    fl_client_free(client);
}

static void progress_keeps_a_hold(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){0});
    struct fl_acquire_options limited = {.max_hold_ms = 1000, .on_lost = note_loss};
    const struct timespec nap = {.tv_nsec = 20000000};
    struct fl_lock *lock;
    struct diary diary;
    int before;

    (void)state;
    open_diary(&diary);
    limited.ctx = &diary;
    assert_int_equal(fl_acquire(client, "L", &limited, &lock, NULL), 0);
    before = fake.heartbeats;
    while (fake.heartbeats < before + 8) { /* every ttl/3: more than two holds */
        fl_lock_progress(lock);
        nanosleep(&nap, NULL);
    }
    assert_true(fl_lock_valid(lock, 0));
    assert_int_equal(fl_release(lock, NULL), 0);
    expect(&diary, "");
    fl_lock_free(lock);
    fl_client_free(client);
}

/* ---- Callbacks on one's own thread ---- */

static void note_thread(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    (void)why;
    *(pthread_t *)ctx = pthread_self();
    assert_int_equal(code, 0);
    fl_lock_free(lock);
}

static void callbacks_can_run_where_the_application_wants(void **state)
{
    struct fl_client *client = connect_with((struct fl_client_options){.dispatch = true});
    struct pollfd ready = {.fd = fl_client_fd(client), .events = POLLIN};
    struct fl_election_options options;
    struct fl_election *election;
    struct diary diary;
    pthread_t ran = 0;

    (void)state;
    assert_true(ready.fd >= 0);
    assert_int_equal(poll(&ready, 1, 0), 0);
    assert_int_equal(fl_acquire_async(client, "L", NULL, note_thread, &ran, NULL), 0);
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_int_equal(ran, 0);
    fl_client_dispatch(client);
    assert_true(pthread_equal(ran, pthread_self()));
    assert_int_equal(poll(&ready, 1, 0), 0);
    fl_client_dispatch(client); /* nothing is due */

    open_diary(&diary);
    options = options_for(&diary);
    assert_int_equal(fl_election_new(client, "leader", &options, &election, NULL), 0);
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_false(fl_election_leads(election, 0));
    fl_client_dispatch(client);
    expect(&diary, "elected ");
    fl_election_free(election);
    fl_client_free(client);
    client = connect_with((struct fl_client_options){0});
    assert_int_equal(fl_client_fd(client), -1);
    fl_client_dispatch(client);
    fl_client_free(client);
}

/* ---- Idempotency keys ---- */

static void keys_are_distinct_printable_and_whole(void **state)
{
    char key[32];

    (void)state;
    assert_int_equal(fl_idempotency_key("payout/INV-1", "settle", key, sizeof key), 0);
    assert_string_equal(key, "payout/INV-1#settle");
    assert_int_equal(fl_idempotency_key("a#b", "c", key, sizeof key), 0);
    assert_string_equal(key, "a%23b#c");
    assert_int_equal(fl_idempotency_key("a", "b#c", key, sizeof key), 0);
    assert_string_equal(key, "a#b%23c");
    assert_int_equal(fl_idempotency_key("%\xc3\xa9 \n", "", key, sizeof key), 0);
    assert_string_equal(key, "%25%C3%A9%20%0A#");
    for (size_t size = 0; size < 20; size++) {
        char exact[32];

        memset(exact, 'x', sizeof exact);
        assert_int_equal(fl_idempotency_key("payout/INV-1", "settle", exact, size), FL_E_INVALID);
        if (size != 0)
            assert_string_equal(exact, "");
        assert_int_equal(exact[size == 0 ? 0 : size], 'x');
    }
    assert_int_equal(fl_idempotency_key("payout/INV-1", "settle", key, 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_leads_and_the_next_follows_when_it_resigns),
        cmocka_unit_test(who_is_deposed_is_told_and_stands_again),
        cmocka_unit_test(standing_goes_on_when_nobody_answers),
        cmocka_unit_test(an_election_ends_while_it_waits),
        cmocka_unit_test(elections_end_at_any_moment),
        cmocka_unit_test(a_hold_without_progress_is_given_back),
        cmocka_unit_test(progress_keeps_a_hold),
        cmocka_unit_test(callbacks_can_run_where_the_application_wants),
        cmocka_unit_test(keys_are_distinct_printable_and_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
