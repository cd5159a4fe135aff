#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "client/client.h"
#include "client/clock.h"
#include "client/why.h"

#define NAME_BYTES_MAX 512
#define WAIT_MS_MAX    86400000u
#define LIMIT_MAX      1000000u

static void unref(struct fl_lock *lock)
{
    struct fl_client *client = lock->client;

    if (atomic_fetch_sub(&lock->refs, 1) != 1)
        return;
    free(lock->lost_by);
    free(lock->lost_reason);
    free(lock);
    fl_client__unref(client);
}

/* ---- The loop's thread ---- */

static struct fl_lock *lock_of(struct fl_bid *bid)
{
    return FL_CONTAINER_OF(bid, struct fl_lock, bid);
}

static void answer_acquire(struct fl_client *client, struct fl_lock *lock, const struct fl_why *why)
{
    struct fl_op *op = lock->acquire_op;

    lock->acquire_op = NULL;
    if (op != NULL)
        fl_client__finish(client, op, why);
}

static void refuse(struct fl_client *client, struct fl_lock *lock, const struct fl_why *why)
{
    struct fl_why fuller = *why;

    if (why->code == FL_E_UNREACHABLE && client->connect_why[0] != '\0')
        snprintf(fuller.message, sizeof fuller.message, "no endpoint can be reached: %s",
                 client->connect_why);
    answer_acquire(client, lock, &fuller);
}

static void answer_releases(struct fl_client *client, struct fl_lock *lock,
                            const struct fl_why *why)
{
    while (!fl_list_is_empty(&lock->release_ops)) {
        struct fl_op *op = FL_CONTAINER_OF(fl_list_first(&lock->release_ops), struct fl_op, link);

        fl_list_remove(&op->link);
        fl_client__finish(client, op, why->code != 0 ? why : NULL);
    }
}

/* The answer to a release of what is over already. */
static void end_why(const struct fl_lock *lock, struct fl_why *why)
{
    fl_why_set(why, lock->end_code, lock->end_code != 0 ? "LOST" : NULL, "%s: %s", lock->name,
               lock->end_code == FL_E_LOST ? fl_lost_cause_text(lock->lost_cause)
                                           : fl_error_text(lock->end_code));
}

static void run_lost(struct fl_callback *callback)
{
    struct fl_lock *lock = FL_CONTAINER_OF(callback, struct fl_lock, lost_callback);

    if (!atomic_load(&lock->is_given_back))
        lock->on_lost(lock->on_lost_ctx, lock, lock->lost_cause,
                      lock->lost_by != NULL ? lock->lost_by : "",
                      lock->lost_reason != NULL ? lock->lost_reason : "");
    unref(lock);
}

static void lose(struct fl_client *client, struct fl_lock *lock, enum fl_lost_cause cause,
                 const char *by, const char *reason)
{
    if (lock->end_code == FL_E_LOST)
        return; /* it was told: the session ended while we gave it back */
    atomic_store(&lock->is_over, true);
    lock->end_code = FL_E_LOST;
    lock->lost_cause = cause;
    if (lock->on_lost == NULL || atomic_load(&lock->is_given_back))
        return;
    lock->lost_by = strdup(by);
    lock->lost_reason = strdup(reason);
    lock->lost_callback.run = run_lost;
    atomic_fetch_add(&lock->refs, 1);
    fl_client__call_back(client, &lock->lost_callback);
}

static void finish(struct fl_client *client, struct fl_lock *lock)
{
    struct fl_why why;

    fl_timer_clear(client->loop, &lock->hold_timer);
    atomic_store(&lock->is_over, true);
    end_why(lock, &why);
    answer_releases(client, lock, &why);
    unref(lock);
}

static void begin_hold(struct fl_client *client, struct fl_lock *lock)
{
    uint64_t now_ms = fl_client_now_ms();

    if (lock->max_hold_ms == 0)
        return;
    atomic_store(&lock->progress_ms, now_ms);
    /* It was set when the request began: there is room for it. */
    (void)fl_timer_set(client->loop, &lock->hold_timer, now_ms + lock->max_hold_ms);
}

void fl_lock__effect(struct fl_client *client, const struct fl_session_effect *effect)
{
    struct fl_lock *lock = lock_of(effect->bid);

    switch (effect->type) {
    case FL_SESSION_FX_GRANTED:
        lock->lease_session = atomic_load(&client->lease_session);
        begin_hold(client, lock);
        answer_acquire(client, lock, NULL);
        break;
    case FL_SESSION_FX_REFUSED:
        refuse(client, lock, effect->why);
        break;
    case FL_SESSION_FX_RELEASED:
        if (lock->end_code != FL_E_LOST)
            lock->end_code = effect->why->code;
        atomic_store(&lock->is_over, true);
        answer_releases(client, lock, effect->why);
        break;
    case FL_SESSION_FX_UNRELEASED:
        answer_releases(client, lock, effect->why);
        break;
    case FL_SESSION_FX_LOST:
        lose(client, lock, effect->cause, effect->by, effect->reason);
        break;
    default: /* FL_SESSION_FX_DONE */
        finish(client, lock);
    }
}

static void step_bid(struct fl_client *client, struct fl_lock *lock,
                     enum fl_session_event_type type)
{
    struct fl_session_event event = {.type = type, .bid = &lock->bid};

    fl_stream__step(client, &event);
}

/* C73. The lock is over at once, for us; the server hears of it, and the next one has it. */
static void check_progress(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_lock *lock = FL_CONTAINER_OF(timer, struct fl_lock, hold_timer);
    struct fl_client *client = lock->client;
    uint64_t due_ms = atomic_load(&lock->progress_ms) + lock->max_hold_ms;

    if (lock->bid.state != FL_BID_HELD ||
        (now_ms < due_ms && fl_timer_set(client->loop, timer, due_ms) == 0))
        return;
    lose(client, lock, FL_LOST_NO_PROGRESS, "", "");
    step_bid(client, lock, FL_SESSION_EV_RELEASE);
}

static void start_acquire(struct fl_op *op, struct fl_client *client)
{
    struct fl_lock *lock = op->lock;
    struct fl_why why;

    if (lock->max_hold_ms != 0 && fl_timer_set(client->loop, &lock->hold_timer, UINT64_MAX) < 0) {
        fl_why_set_nomem(&why);
        fl_client__finish(client, op, &why);
        return;
    }
    lock->acquire_op = op;
    atomic_fetch_add(&lock->refs, 1); /* the session's, until FL_SESSION_FX_DONE */
    step_bid(client, lock, FL_SESSION_EV_ACQUIRE);
}

static void start_release(struct fl_op *op, struct fl_client *client)
{
    struct fl_lock *lock = op->lock;
    struct fl_why why;

    if (lock->bid.state != FL_BID_OVER) {
        fl_list_append(&lock->release_ops, &op->link);
        step_bid(client, lock, FL_SESSION_EV_RELEASE);
        return;
    }
    end_why(lock, &why);
    fl_client__finish(client, op, why.code != 0 ? &why : NULL);
}

static void start_free(struct fl_op *op, struct fl_client *client)
{
    if (op->lock->bid.state == FL_BID_HELD)
        step_bid(client, op->lock, FL_SESSION_EV_RELEASE);
    unref(op->lock);
}

static void start_cancel_waits(struct fl_op *op, struct fl_client *client)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_CANCEL};

    fl_stream__step(client, &event);
    fl_client__finish(client, op, NULL);
}

/* ---- Callers' threads ---- */

static int check_name(const char *name, struct fl_why *why)
{
    struct fl_str text = fl_str_from(name);

    if (text.len == 0)
        return fl_why_set_invalid(why, "name", "is empty");
    if (text.len > NAME_BYTES_MAX)
        return fl_why_set_invalid(why, "name", "is longer than 512 bytes");
    if (!fl_str_is_utf8(text))
        return fl_why_set_invalid(why, "name", "is not valid UTF-8");
    if (fl_str_has_control(text))
        return fl_why_set_invalid(why, "name", "has a control character");
    return FL_OK;
}

static int check_options(const struct fl_acquire_options *options, struct fl_why *why)
{
    if (options->mode > FL_COUNTED)
        return fl_why_set_invalid(why, "mode", "is none of exclusive, shared, counted");
    if (options->mode == FL_COUNTED && (options->limit == 0 || options->limit > LIMIT_MAX))
        return fl_why_set_invalid(why, "limit", "is not between 1 and 1,000,000");
    if (options->mode != FL_COUNTED && options->limit != 0)
        return fl_why_set_invalid(why, "limit", "is for counted locks only");
    if (options->wait_ms > WAIT_MS_MAX)
        return fl_why_set_invalid(why, "wait_ms", "is more than a day");
    for (size_t i = 0; i < FL_ARRAY_LEN(options->reserved); i++)
        if (options->reserved[i] != 0)
            return fl_why_set_invalid(why, "reserved", "is not zero: begin with {0}");
    return FL_OK;
}

static struct fl_lock *new_lock(struct fl_client *client, const char *name,
                                const struct fl_acquire_options *options)
{
    size_t size = strlen(name) + 1;
    struct fl_lock *lock = calloc(1, sizeof *lock + size);

    if (lock == NULL)
        return NULL;
    memcpy(lock->name, name, size);
    lock->client = client;
    lock->bid = (struct fl_bid){.name = lock->name,
                                .mode = options->mode != 0 ? (int)options->mode : FL_EXCLUSIVE,
                                .limit = options->limit,
                                .wait_ms = options->wait_ms};
    lock->max_hold_ms = options->max_hold_ms;
    lock->hold_timer = FL_TIMER_INIT(check_progress);
    lock->on_lost = options->on_lost != NULL ? options->on_lost : client->on_lost;
    lock->on_lost_ctx = options->on_lost != NULL ? options->ctx : client->on_lost_ctx;
    atomic_init(&lock->refs, 1);
    fl_list_init(&lock->release_ops);
    fl_client__ref(client);
    return lock;
}

/* The checks and the object, for both ways to acquire. */
static int prepare(struct fl_client *client, const char *name,
                   const struct fl_acquire_options *options, bool needs_callbacks,
                   struct fl_lock **ret_lock, struct fl_why *why)
{
    static const struct fl_acquire_options defaults;
    int r;

    if (fl_client__is_forked(client))
        return fl_client__forked_why(why);
    if (options == NULL)
        options = &defaults;
    r = check_name(name, why);
    if (r == 0)
        r = check_options(options, why);
    if (r < 0)
        return r;
    if ((needs_callbacks || options->on_lost != NULL) && fl_client__need_callbacks(client) < 0)
        return fl_why_set_nomem(why);
    *ret_lock = new_lock(client, name, options);
    return *ret_lock != NULL ? FL_OK : fl_why_set_nomem(why);
}

int fl_acquire(struct fl_client *client, const char *name, const struct fl_acquire_options *options,
               struct fl_lock **ret_lock, struct fl_why *why)
{
    struct fl_op op = {.start = start_acquire, .why = why};
    int r = prepare(client, name, options, false, &op.lock, why);

    if (r < 0)
        return r;
    r = fl_client__run(client, &op);
    if (r < 0)
        unref(op.lock);
    else
        *ret_lock = op.lock;
    return r;
}

int fl_release(struct fl_lock *lock, struct fl_why *why)
{
    struct fl_op op = {.start = start_release, .lock = lock, .why = why};

    if (fl_client__is_forked(lock->client))
        return fl_client__forked_why(why);
    atomic_store(&lock->is_given_back, true);
    return fl_client__run(lock->client, &op);
}

void fl_lock_free(struct fl_lock *lock)
{
    if (lock == NULL || fl_client__is_forked(lock->client))
        return;
    atomic_store(&lock->is_given_back, true);
    lock->free_op = (struct fl_op){.start = start_free, .lock = lock};
    if (atomic_load(&lock->is_over) || fl_client__post(lock->client, &lock->free_op) < 0)
        unref(lock);
}

uint64_t fl_lock_remaining_ms(const struct fl_lock *lock)
{
    const struct fl_client *client = lock->client;
    uint64_t until_ms, now_ms;

    if (atomic_load(&lock->is_over) || atomic_load(&lock->is_given_back) ||
        fl_client__is_forked(client))
        return 0;
    until_ms = atomic_load(&client->lease_until_ms);
    if (atomic_load(&client->lease_session) != lock->lease_session)
        return 0;
    now_ms = fl_client_now_ms();
    return until_ms > now_ms ? until_ms - now_ms : 0;
}

bool fl_lock_valid(const struct fl_lock *lock, uint32_t need_ms)
{
    return fl_lock_remaining_ms(lock) > need_ms;
}

uint64_t fl_lock_token(const struct fl_lock *lock)
{
    return lock->bid.token;
}

void fl_lock_progress(struct fl_lock *lock)
{
    atomic_store(&lock->progress_ms, fl_client_now_ms());
}

const char *fl_lock_name(const struct fl_lock *lock)
{
    return lock->name;
}

void fl_client_cancel_waits(struct fl_client *client)
{
    struct fl_op op = {.start = start_cancel_waits};

    if (!fl_client__is_forked(client))
        fl_client__run(client, &op);
}

/* ---- Without waiting ---- */

struct async {
    struct fl_op op;
    struct fl_callback callback;
    struct fl_why why;
    fl_acquired_callback acquired;
    fl_released_callback released;
    void *ctx;
};

static void finish_async(struct fl_op *op, struct fl_client *client)
{
    struct async *async = FL_CONTAINER_OF(op, struct async, op);

    fl_client__call_back(client, &async->callback);
}

static void run_acquired(struct fl_callback *callback)
{
    struct async *async = FL_CONTAINER_OF(callback, struct async, callback);
    bool is_granted = async->op.code == 0;

    async->acquired(async->ctx, async->op.code, is_granted ? async->op.lock : NULL, &async->why);
    if (!is_granted)
        unref(async->op.lock);
    free(async);
}

static void run_released(struct fl_callback *callback)
{
    struct async *async = FL_CONTAINER_OF(callback, struct async, callback);

    async->released(async->ctx, async->op.lock, async->op.code, &async->why);
    free(async);
}

static struct async *new_async(struct fl_lock *lock,
                               void (*start)(struct fl_op *, struct fl_client *),
                               void (*run)(struct fl_callback *), void *ctx)
{
    struct async *async = calloc(1, sizeof *async);

    if (async == NULL)
        return NULL;
    async->op =
        (struct fl_op){.start = start, .finished = finish_async, .lock = lock, .why = &async->why};
    async->callback.run = run;
    async->ctx = ctx;
    return async;
}

int fl_lock__acquire_async(struct fl_client *client, const char *name,
                           const struct fl_acquire_options *options, fl_acquired_callback done,
                           void *ctx, struct fl_lock **ret_request, struct fl_why *why)
{
    struct fl_lock *lock;
    struct async *async;
    int r = prepare(client, name, options, true, &lock, why);

    if (r < 0)
        return r;
    async = new_async(lock, start_acquire, run_acquired, ctx);
    if (async == NULL) {
        unref(lock);
        return fl_why_set_nomem(why);
    }
    async->acquired = done;
    if (ret_request != NULL) {
        atomic_fetch_add(&lock->refs, 1);
        *ret_request = lock;
    }
    r = fl_client__post(client, &async->op);
    if (r < 0) {
        if (ret_request != NULL)
            unref(lock);
        unref(lock);
        free(async);
        fl_why_set(why, r, "CLOSED", "the client is being freed");
    }
    return r;
}

int fl_acquire_async(struct fl_client *client, const char *name,
                     const struct fl_acquire_options *options, fl_acquired_callback done, void *ctx,
                     struct fl_why *why)
{
    return fl_lock__acquire_async(client, name, options, done, ctx, NULL, why);
}

static void start_cancel(struct fl_op *op, struct fl_client *client)
{
    if (op->lock->acquire_op != NULL)
        step_bid(client, op->lock, FL_SESSION_EV_CANCEL);
    fl_client__finish(client, op, NULL);
}

void fl_lock__cancel(struct fl_lock *request)
{
    struct fl_op op = {.start = start_cancel, .lock = request};

    fl_client__run(request->client, &op);
}

void fl_lock__unref(struct fl_lock *request)
{
    unref(request);
}

int fl_release_async(struct fl_lock *lock, fl_released_callback done, void *ctx)
{
    struct async *async;
    int r;

    if (fl_client__is_forked(lock->client))
        return FL_E_FORKED;
    if (fl_client__need_callbacks(lock->client) < 0)
        return FL_E_NOMEM;
    async = new_async(lock, start_release, run_released, ctx);
    if (async == NULL)
        return FL_E_NOMEM;
    async->released = done;
    atomic_store(&lock->is_given_back, true);
    r = fl_client__post(lock->client, &async->op);
    if (r < 0)
        free(async);
    return r;
}
