/* Standing for election: a lock that is waited for again and again. What happens is decided on the
 * callback thread alone; the mutex is for those who ask. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"
#include "client/client.h"
#include "client/clock.h"
#include "client/why.h"

#include <fencelock/admin.h>
#include <fencelock/election.h>

#define WAIT_MS_MAX 86400000u /* then we stand anew, at the end of the queue */
/* After trouble; the client has tried for its timeout_ms already. */
#define RETRY_MS_MIN 200
#define RETRY_MS_MAX 1000

struct fl_election {
    struct fl_client *client;
    struct fl_election_options options;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fl_lock *lock;    /* we lead; else NULL */
    struct fl_lock *request; /* we wait for it; else NULL */
    bool is_ending;
    bool is_at_rest; /* no request, and no pause before one, is under way */
    struct fl_op pause_op, cut_op;
    struct fl_timer pause;
    struct fl_callback again;
    char name[];
};

struct barrier {
    struct fl_callback callback;
    struct fl_election *election;
    bool is_passed;
};

static void stand(struct fl_election *e);

/* Nothing is under way. */
static void rest(struct fl_election *e)
{
    pthread_mutex_lock(&e->mutex);
    e->is_at_rest = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

static bool is_ending(struct fl_election *e)
{
    bool is;

    pthread_mutex_lock(&e->mutex);
    is = e->is_ending;
    pthread_mutex_unlock(&e->mutex);
    return is;
}

/* ---- A pause: on the loop's thread ---- */

static void pause_over(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_election *e = FL_CONTAINER_OF(timer, struct fl_election, pause);

    (void)now_ms;
    fl_client__call_back(e->client, &e->again);
}

static void begin_pause(struct fl_op *op, struct fl_client *client)
{
    struct fl_election *e = FL_CONTAINER_OF(op, struct fl_election, pause_op);
    uint64_t ms = fl_random_between(&client->session.random, RETRY_MS_MIN, RETRY_MS_MAX);

    if (is_ending(e) || fl_timer_set(client->loop, &e->pause, fl_client_now_ms() + ms) < 0)
        fl_client__call_back(client, &e->again);
}

static void run_again(struct fl_callback *callback)
{
    stand(FL_CONTAINER_OF(callback, struct fl_election, again));
}

static void pause_and_stand(struct fl_election *e)
{
    e->pause_op = (struct fl_op){.start = begin_pause};
    e->again.run = run_again;
    if (fl_client__post(e->client, &e->pause_op) < 0)
        rest(e);
}

/* Who ends does not wait for a pause to be over. */
static void cut_pause(struct fl_op *op, struct fl_client *client)
{
    struct fl_election *e = FL_CONTAINER_OF(op, struct fl_election, cut_op);

    if (fl_heap_contains(&e->pause.node)) {
        fl_timer_clear(client->loop, &e->pause);
        fl_client__call_back(client, &e->again);
    }
    fl_client__finish(client, op, NULL);
}

/* ---- On the callback thread ---- */

/* Takes the lock of office away from those who ask; the caller frees it. */
static struct fl_lock *take_office(struct fl_election *e, const struct fl_lock *lock)
{
    struct fl_lock *taken = NULL;

    pthread_mutex_lock(&e->mutex);
    if (lock == NULL || e->lock == lock) {
        taken = e->lock;
        e->lock = NULL;
    }
    pthread_mutex_unlock(&e->mutex);
    return taken;
}

static void on_lost(void *ctx, struct fl_lock *lock, enum fl_lost_cause cause, const char *by,
                    const char *reason)
{
    struct fl_election *e = ctx;

    (void)by, (void)reason;
    if (take_office(e, lock) == NULL)
        return; /* resigned meanwhile */
    fl_lock_free(lock);
    if (e->options.on_deposed != NULL)
        e->options.on_deposed(e->options.ctx, e, cause);
    stand(e);
}

static struct fl_lock *take_request(struct fl_election *e)
{
    struct fl_lock *request;

    pthread_mutex_lock(&e->mutex);
    request = e->request;
    e->request = NULL;
    pthread_mutex_unlock(&e->mutex);
    return request;
}

static void on_refused(struct fl_election *e, int code, const struct fl_why *why)
{
    if (code == FL_E_TIMEOUT || is_ending(e)) {
        stand(e);
        return;
    }
    if (e->options.on_trouble != NULL)
        e->options.on_trouble(e->options.ctx, e, why);
    pause_and_stand(e);
}

static void on_elected(struct fl_election *e, struct fl_lock *lock)
{
    bool leads;

    pthread_mutex_lock(&e->mutex);
    leads = !e->is_ending;
    if (leads)
        e->lock = lock;
    pthread_mutex_unlock(&e->mutex);
    if (!leads)
        fl_lock_free(lock);
    else if (e->options.on_elected != NULL)
        e->options.on_elected(e->options.ctx, e, fl_lock_token(lock));
    rest(e);
}

static void on_acquired(void *ctx, int code, struct fl_lock *lock, const struct fl_why *why)
{
    struct fl_election *e = ctx;
    struct fl_lock *request = take_request(e);

    if (request != NULL)
        fl_lock__unref(request);
    if (code == 0)
        on_elected(e, lock);
    else
        on_refused(e, code, why);
}

/* Under the mutex, so that the callback finds the request. */
static int ask(struct fl_election *e, struct fl_why *why)
{
    const struct fl_acquire_options options = {.wait_ms = WAIT_MS_MAX,
                                               .max_hold_ms = e->options.max_hold_ms,
                                               .on_lost = on_lost,
                                               .ctx = e};
    int r;

    pthread_mutex_lock(&e->mutex);
    r = fl_lock__acquire_async(e->client, e->name, &options, on_acquired, e, &e->request, why);
    e->is_at_rest = r < 0;
    pthread_mutex_unlock(&e->mutex);
    return r;
}

static void stand(struct fl_election *e)
{
    int r;

    if (is_ending(e)) {
        rest(e);
        return;
    }
    r = ask(e, NULL);
    if (r == FL_E_NOMEM)
        pause_and_stand(e);
    else if (r < 0)
        rest(e); /* the client is being freed */
}

/* ---- Callers ---- */

static void destroy(struct fl_election *e)
{
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    free(e);
}

int fl_election_new(struct fl_client *client, const char *name,
                    const struct fl_election_options *options, struct fl_election **ret_election,
                    struct fl_why *why)
{
    size_t size = strlen(name) + 1;
    struct fl_election *e;
    int r;

    for (size_t i = 0; i < FL_ARRAY_LEN(options->reserved); i++)
        if (options->reserved[i] != 0)
            return fl_why_set_invalid(why, "reserved", "is not zero: begin with {0}");
    e = calloc(1, sizeof *e + size);
    if (e == NULL)
        return fl_why_set_nomem(why);
    memcpy(e->name, name, size);
    e->client = client;
    e->options = *options;
    e->pause = FL_TIMER_INIT(pause_over);
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    *ret_election = e; /* before the first callback can come */
    r = ask(e, why);
    if (r < 0)
        destroy(e);
    return r;
}

/* Until the callbacks have made `*is_done` true. */
static void wait_for_callbacks(struct fl_election *e, const bool *is_done)
{
    int fd = fl_client_fd(e->client);

    pthread_mutex_lock(&e->mutex);
    while (!*is_done && fd < 0)
        pthread_cond_wait(&e->changed, &e->mutex);
    while (!*is_done) { /* nobody but us runs them */
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        pthread_mutex_unlock(&e->mutex);
        (void)poll(&ready, 1, -1);
        fl_client_dispatch(e->client);
        pthread_mutex_lock(&e->mutex);
    }
    pthread_mutex_unlock(&e->mutex);
}

static void run_barrier(struct fl_callback *callback)
{
    struct barrier *barrier = FL_CONTAINER_OF(callback, struct barrier, callback);

    pthread_mutex_lock(&barrier->election->mutex);
    barrier->is_passed = true;
    pthread_cond_broadcast(&barrier->election->changed);
    pthread_mutex_unlock(&barrier->election->mutex);
}

/* Callbacks that had begun have ended; those that follow see that we are ending. */
static void pass_barrier(struct fl_election *e)
{
    struct barrier barrier = {.callback.run = run_barrier, .election = e};

    fl_client__call_back(e->client, &barrier.callback);
    wait_for_callbacks(e, &barrier.is_passed);
}

void fl_election_free(struct fl_election *e)
{
    struct fl_lock *lock, *request;

    if (e == NULL || fl_client__is_forked(e->client))
        return;
    pthread_mutex_lock(&e->mutex);
    e->is_ending = true;
    lock = e->lock;
    e->lock = NULL;
    pthread_mutex_unlock(&e->mutex);
    fl_lock_free(lock);
    pass_barrier(e);
    request = take_request(e);
    if (request != NULL) {
        fl_lock__cancel(request);
        fl_lock__unref(request);
    }
    e->cut_op = (struct fl_op){.start = cut_pause};
    fl_client__run(e->client, &e->cut_op);
    wait_for_callbacks(e, &e->is_at_rest);
    destroy(e);
}

bool fl_election_leads(struct fl_election *e, uint32_t need_ms)
{
    bool leads;

    pthread_mutex_lock(&e->mutex);
    leads = e->lock != NULL && fl_lock_valid(e->lock, need_ms);
    pthread_mutex_unlock(&e->mutex);
    return leads;
}

uint64_t fl_election_token(struct fl_election *e)
{
    uint64_t token;

    pthread_mutex_lock(&e->mutex);
    token = e->lock != NULL ? fl_lock_token(e->lock) : 0;
    pthread_mutex_unlock(&e->mutex);
    return token;
}

void fl_election_progress(struct fl_election *e)
{
    pthread_mutex_lock(&e->mutex);
    if (e->lock != NULL)
        fl_lock_progress(e->lock);
    pthread_mutex_unlock(&e->mutex);
}

int fl_election_resign(struct fl_election *e, struct fl_why *why)
{
    struct fl_lock *lock = take_office(e, NULL);
    int r;

    if (lock == NULL)
        return FL_OK;
    r = fl_release(lock, why);
    fl_lock_free(lock);
    stand(e);
    return r;
}

/* ---- Observing ---- */

struct observer {
    bool (*on_leader)(void *ctx, const char *leader, uint64_t token);
    void *ctx;
    uint64_t token; /* of the leader that was told; 0: none */
    bool has_told;
};

static bool tell(struct observer *o, const char *leader, uint64_t token)
{
    if (o->has_told && o->token == token)
        return true;
    o->has_told = true;
    o->token = token;
    return o->on_leader(o->ctx, leader, token);
}

static bool on_event(void *ctx, const struct fl_watch_event *event)
{
    struct observer *o = ctx;

    switch (event->kind) {
    case FL_WATCH_PRESENT:
    case FL_WATCH_GRANTED:
        return tell(o, event->client, event->token);
    case FL_WATCH_ENDED: /* of an earlier one: we know that already */
        return o->token != event->token || tell(o, NULL, 0);
    default: /* FL_WATCH_CAUGHT_UP */
        return o->has_told || tell(o, NULL, 0);
    }
}

int fl_election_observe(struct fl_client *client, const char *name,
                        bool (*on_leader)(void *ctx, const char *leader, uint64_t token), void *ctx,
                        struct fl_why *why)
{
    struct observer observer = {.on_leader = on_leader, .ctx = ctx};

    return fl_watch(client, name, false, on_event, &observer, why);
}
