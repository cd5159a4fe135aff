#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "client/why.h"
#include "lock.pb-c.h"

/* The judge remembers so many requests of a session. */
#define REQUESTS_PER_SESSION (JUDGE_REQUESTS_MAX - 40)

static const char *const names[APP_NAMES] = {"n0", "n1", "n2", "n3"};

static void on_worker(void *ctx);
static void settle(struct app *app);

static uint64_t now_us(const struct app *app)
{
    return app->place.time->now_us;
}

static void worker_in(struct app_worker *worker, uint64_t least_ms, uint64_t most_ms)
{
    struct place *place = &worker->app->place;

    alarm_set(&worker->alarm,
              place_now_ms(place) + timeline_between(place->time, least_ms, most_ms));
}

/* --- The stream --- */

static void step(struct app *app, struct fl_session_event *event)
{
    event->now_ms = place_now_ms(&app->place);
    fl_session_step(&app->session, event);
    settle(app);
}

static void step_down(struct app *app, const struct fl_rpc_status *status)
{
    struct fl_why why;
    struct fl_session_event event = {.type = FL_SESSION_EV_DOWN, .why = &why};

    fl_wire_why(status, &why);
    step(app, &event);
}

static const struct fl_rpc_status unreachable = {.code = FL_RPC_UNAVAILABLE,
                                                 .message = "the connection broke"};

/* What the log decided, told to the client with its index. */
static void note_answer(struct app *app, const uint8_t *data, size_t len)
{
    Fencelock__V1__OpenSessionResponse *response =
        fencelock__v1__open_session_response__unpack(NULL, len, data);
    uint64_t id = 0, index = 0;

    if (response == NULL) {
        timeline_fail(app->place.time, "%s is told what it cannot read", app->place.name);
        return;
    }
    if (response->message_case == FENCELOCK__V1__OPEN_SESSION_RESPONSE__MESSAGE_ACQUIRED) {
        id = response->acquired->request_id;
        index = response->acquired->response->log_index;
    }
    timeline_mix(app->place.time, (uint64_t)response->message_case << 32 ^ index ^ id);
    for (unsigned i = 0; i < app->config->workers && index != 0; i++) {
        struct app_worker *worker = &app->workers[i];

        if (worker->bid.id == id && worker->state == WORKER_ASKS)
            linear_add(app->linear, index, false, worker->asked_us, now_us(app));
    }
    fencelock__v1__open_session_response__free_unpacked(response, NULL);
}

static void hear_stream(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct app *app = ctx;
    const uint8_t *bytes = data;
    struct fl_rpc_status status = unreachable;

    if (conn != app->stream)
        return;
    if (data != NULL && bytes[0] == DOOR_MESSAGE) {
        note_answer(app, bytes + 1, len - 1);
        if (fl_wire_deliver(&app->session, place_now_ms(&app->place), bytes + 1, len - 1) < 0)
            timeline_fail(app->place.time, "%s is told what it cannot read", app->place.name);
        settle(app);
        return;
    }
    if (data != NULL) {
        door_read_status(bytes + 1, len - 1, &status);
        conn_close(conn, &app->place);
    }
    app->stream = NULL;
    step_down(app, &status);
}

static void move_on(struct app *app)
{
    app->door = (app->door + 1) % app->n_doors;
}

static void begin_stream(struct app *app)
{
    app->stream_number++;
    app->stream = door_call(&app->doors[app->door], &app->place, hear_stream, app,
                            "/fencelock.v1.LockService/OpenSession");
    app->is_refused = app->stream == NULL;
}

static void drop_stream(struct app *app)
{
    if (app->stream != NULL)
        conn_close(app->stream, &app->place);
    app->stream = NULL;
    app->is_refused = false;
}

static void send_effect(struct app *app, const struct fl_session_effect *effect)
{
    uint8_t *message;
    size_t len;

    if (app->stream == NULL || fl_wire_pack(effect, &app->wire, &message, &len) < 0)
        return;
    door_say(app->stream, &app->place, DOOR_MESSAGE, message, len);
    free(message);
    if (effect->type == FL_SESSION_FX_SEND_CLOSE)
        door_say(app->stream, &app->place, DOOR_HALF_CLOSE, NULL, 0);
}

/* --- What the session says --- */

static struct app_worker *worker_of(struct fl_bid *bid)
{
    return FL_CONTAINER_OF(bid, struct app_worker, bid);
}

static void hold_on(struct app_worker *worker)
{
    struct app *app = worker->app;
    struct judge_hold hold = {app->number, worker->bid.id, worker->bid.token,
                              (enum fl_mode)worker->bid.mode, worker->bid.limit};

    app->counts.granted++;
    if (app->session.believe_until_ms <= place_now_ms(&app->place))
        timeline_fail(app->place.time, "T10: %s is told that it has %s after its lease",
                      app->place.name, worker->bid.name);
    judge_granted(app->truth->judge, app->number, worker->bid.id, worker->bid.token, 0);
    judge_lock_on(app->truth->judge, worker->name, hold);
    worker->is_held = true;
    worker->state = WORKER_HOLDS;
    worker->will_release = false;
    timeline_tell(app->place.time, "%s has %s, token %llu", app->place.name, worker->bid.name,
                  (unsigned long long)worker->bid.token);
}

static void hold_off(struct app_worker *worker)
{
    if (worker->is_held)
        judge_lock_off(worker->app->truth->judge, worker->name, worker->app->number,
                       worker->bid.id);
    worker->is_held = false;
}

static void on_refused(struct app_worker *worker, const struct fl_why *why)
{
    struct app *app = worker->app;

    app->counts.refused++;
    if (why->code == FL_E_HELD || why->code == FL_E_TIMEOUT)
        app->done_us = now_us(app);
    if (why->code == FL_E_HELD)
        judge_refused(app->truth->judge, app->number, worker->bid.id, FL_ANS_HELD);
    else if (why->code == FL_E_TIMEOUT)
        judge_refused(app->truth->judge, app->number, worker->bid.id, FL_ANS_TIMED_OUT);
}

static void on_belief(struct app *app, uint64_t until_ms)
{
    struct fl_session_id id;

    if (until_ms == 0) {
        app->counts.ended += !app->session.is_closing;
        return;
    }
    if (fl_session_id_parse(fl_str_from(app->session.id), &id) < 0) {
        timeline_fail(app->place.time, "no session id: %s", app->session.id);
        return;
    }
    if (app->number != (uint32_t)id.low) {
        app->number = (uint32_t)id.low;
        app->n_asked = 0;
        app->counts.sessions++;
        timeline_tell(app->place.time, "%s opens session %u", app->place.name, app->number);
    }
    if (until_ms != app->believed_ms)
        judge_believes(app->truth->judge, app->number, place_when_us(&app->place, until_ms));
    app->believed_ms = until_ms;
}

static void on_effect(void *ctx, const struct fl_session_effect *effect)
{
    struct app *app = ctx;
    struct app_worker *worker = effect->bid != NULL ? worker_of(effect->bid) : NULL;

    switch (effect->type) {
    case FL_SESSION_FX_CONNECT:
        begin_stream(app);
        break;
    case FL_SESSION_FX_DROP:
        drop_stream(app);
        if (effect->move_on)
            move_on(app);
        break;
    case FL_SESSION_FX_BELIEF:
        on_belief(app, effect->until_ms);
        break;
    case FL_SESSION_FX_GRANTED:
        hold_on(worker);
        break;
    case FL_SESSION_FX_REFUSED:
        on_refused(worker, effect->why);
        break;
    case FL_SESSION_FX_LOST:
        app->counts.lost++;
        timeline_tell(app->place.time, "%s loses %s", app->place.name, worker->bid.name);
        hold_off(worker);
        break;
    case FL_SESSION_FX_RELEASED:
        app->counts.released++;
        app->done_us = now_us(app);
        break;
    case FL_SESSION_FX_UNRELEASED:
        break;
    case FL_SESSION_FX_DONE:
        if (worker->is_held && !app->session.is_closing)
            timeline_fail(app->place.time, "T10: %s loses %s and is not told", app->place.name,
                          worker->bid.name);
        hold_off(worker);
        worker->state = WORKER_IDLE;
        break;
    default:
        send_effect(app, effect);
    }
}

/* After each step, when nothing of the session is on the stack. */
static void settle(struct app *app)
{
    const char *broken = fl_session__check(&app->session);

    if (broken != NULL)
        timeline_fail(app->place.time, "the SDK's invariant %s", broken);
    if (app->session.state == FL_SESSION_LIVE) /* whether or not it says so */
        on_belief(app, app->session.believe_until_ms);
    if (app->is_refused) {
        app->is_refused = false;
        step_down(app, &unreachable);
        move_on(app);
        return;
    }
    alarm_set(&app->tick, fl_session_next_ms(&app->session));
    if (app->config->is_scripted)
        return;
    for (unsigned i = 0; i < app->config->workers; i++) {
        struct app_worker *worker = &app->workers[i];

        if (worker->alarm.at_us != UINT64_MAX)
            continue;
        if (worker->state == WORKER_IDLE)
            worker_in(worker, 0, app->config->think_ms_max);
        else if (worker->state == WORKER_HOLDS)
            worker_in(worker, 0, app->config->hold_ms_max / 2);
    }
}

static void on_tick(void *ctx)
{
    struct app *app = ctx;
    struct fl_session_event event = {.type = FL_SESSION_EV_TICK};

    if (app->place.is_up)
        step(app, &event);
}

/* --- A look at a name --- */

static void check_holders(struct app *app, const Fencelock__V1__DescribeResponse *response)
{
    fl_token sum = 0, expected;

    for (size_t i = 0; i < response->n_holders; i++)
        sum += response->holders[i]->token;
    if (truth_holders(app->truth, app->look_name, response->log_index, &expected) &&
        sum != expected)
        timeline_fail(app->place.time,
                      "L13, L15: %s is shown with other holders than at entry %llu",
                      names[app->look_name], (unsigned long long)response->log_index);
}

static void hear_look(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct app *app = ctx;
    const uint8_t *bytes = data;
    Fencelock__V1__DescribeResponse *response;

    if (conn != app->look)
        return;
    if (data == NULL || bytes[0] != DOOR_MESSAGE) {
        if (data != NULL)
            conn_close(conn, &app->place);
        app->look = NULL;
        return;
    }
    response = fencelock__v1__describe_response__unpack(NULL, len - 1, bytes + 1);
    if (response == NULL) {
        timeline_fail(app->place.time, "a description that cannot be read");
        return;
    }
    app->counts.reads++;
    app->truth->judge->reads++;
    timeline_mix(app->place.time, response->log_index);
    if (response->log_index < app->look_committed)
        timeline_fail(app->place.time, "L13: a read at %llu began when %llu was committed",
                      (unsigned long long)response->log_index,
                      (unsigned long long)app->look_committed);
    linear_add(app->linear, response->log_index, true, app->looked_us, now_us(app));
    check_holders(app, response);
    fencelock__v1__describe_response__free_unpacked(response, NULL);
}

static void look(struct app *app)
{
    Fencelock__V1__DescribeRequest request = FENCELOCK__V1__DESCRIBE_REQUEST__INIT;
    uint8_t bytes[64];
    size_t len;

    if (app->look != NULL)
        conn_close(app->look, &app->place);
    app->look_name = (unsigned)timeline_between(app->place.time, 0, APP_NAMES - 1);
    request.name = (char *)(uintptr_t)names[app->look_name];
    app->looked_us = now_us(app);
    app->look_committed = app->truth->committed;
    app->look = door_call(&app->doors[app->door], &app->place, hear_look, app,
                          "/fencelock.v1.LockService/Describe");
    if (app->look == NULL)
        return;
    len = protobuf_c_message_pack(&request.base, bytes);
    door_say(app->look, &app->place, DOOR_MESSAGE, bytes, len);
}

/* --- The workers --- */

static void do_ask(struct app_worker *worker)
{
    struct app *app = worker->app;
    struct fl_session_event event = {.type = FL_SESSION_EV_ACQUIRE, .bid = &worker->bid};

    worker->state = WORKER_ASKS;
    worker->asked_us = now_us(app);
    app->counts.asked++;
    app->n_asked++;
    step(app, &event);
    if (worker->state == WORKER_ASKS && app->number != 0)
        judge_asked(app->truth->judge, app->number, worker->bid.id, worker->bid.wait_ms);
}

static void ask(struct app_worker *worker)
{
    struct app *app = worker->app;
    struct timeline *t = app->place.time;
    bool tries_once = timeline_one_in(t, 5);

    worker->name = (unsigned)timeline_between(t, 0, APP_NAMES - 1);
    worker->bid = (struct fl_bid){.name = names[worker->name], .mode = FL_EXCLUSIVE};
    if (app->config->uses_shared && timeline_one_in(t, 4))
        worker->bid.mode = FL_SHARED;
    if (app->config->uses_counted && worker->name == APP_NAMES - 1) {
        worker->bid.mode = FL_COUNTED;
        worker->bid.limit = 2;
    }
    worker->bid.wait_ms =
        tries_once ? 0 : (uint32_t)timeline_between(t, 1, app->config->wait_ms_max);
    do_ask(worker);
    if (worker->bid.wait_ms > 0 && timeline_one_in(t, app->config->cancel_one_in))
        worker_in(worker, 0, worker->bid.wait_ms);
}

static void cancel(struct app_worker *worker)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_CANCEL, .bid = &worker->bid};

    step(worker->app, &event);
}

static void give_back(struct app_worker *worker)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_RELEASE, .bid = &worker->bid};

    hold_off(worker);
    worker->state = WORKER_RELEASES;
    step(worker->app, &event);
}

/* The classic mistake: it looks at nothing and writes. The store is what stops it when it slept. */
struct store_write {
    unsigned resource;
    fl_token token;
};

static void on_write(void *ctx, uint64_t a, const void *data, size_t len)
{
    const struct store_write *write = data;

    (void)a;
    (void)len;
    fence_write(ctx, write->resource, write->token);
}

static void write_to_store(struct app_worker *worker)
{
    struct app *app = worker->app;
    struct store_write write = {worker->name, worker->bid.token};
    uint64_t at_us = now_us(app) + timeline_between(app->place.time, 100, 5 * MS);

    if (worker->bid.mode != FL_EXCLUSIVE)
        return;
    if (timeline_one_in(app->place.time, 30))
        at_us += timeline_between(app->place.time, 0, 20 * S); /* stuck in some queue */
    timeline_at(app->place.time, at_us, on_write, app->fence, 0, &write, sizeof write);
}

static void close_session(struct app *app)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_CLOSE};

    if (app->session.is_closing && place_now_ms(&app->place) < app->close_by_ms)
        return;
    if (app->session.is_closing)
        event = (struct fl_session_event){.type = FL_SESSION_EV_ENDED, .cause = FL_LOST_LEASE};
    app->close_by_ms = place_now_ms(&app->place) + app->config->timeout_ms;
    timeline_tell(app->place.time, "%s closes session %u", app->place.name, app->number);
    step(app, &event);
}

static bool is_idle(const struct app *app)
{
    for (unsigned i = 0; i < app->config->workers; i++)
        if (app->workers[i].state != WORKER_IDLE)
            return false;
    return true;
}

static void init_session(struct app *app)
{
    fl_session_init(&app->session, app->config->ttl_ms, app->config->timeout_ms,
                    fl_random_u64(&app->place.time->random), on_effect, app);
    app->number = 0;
    app->n_asked = 0;
    app->wants_close = false;
}

/* It waits for the others, closes the session, and begins with another. */
static bool is_renewing(struct app *app)
{
    if (app->n_asked > REQUESTS_PER_SESSION || timeline_one_in(app->place.time, 150))
        app->wants_close = true;
    if (!app->wants_close)
        return false;
    if (!is_idle(app))
        return true;
    if (fl_session_is_closed(&app->session))
        init_session(app);
    else
        close_session(app);
    return true;
}

static void on_worker(void *ctx)
{
    struct app_worker *worker = ctx;
    struct app *app = worker->app;

    if (!app->place.is_up)
        return;
    switch (worker->state) {
    case WORKER_IDLE:
        if (app->is_stopping)
            return;
        if (is_renewing(app))
            worker_in(worker, 50, 200);
        else if (timeline_one_in(app->place.time, app->config->look_one_in))
            look(app);
        else
            ask(worker);
        break;
    case WORKER_ASKS:
        cancel(worker);
        break;
    case WORKER_HOLDS:
        if (worker->will_release) {
            give_back(worker);
        } else {
            write_to_store(worker);
            worker->will_release = true;
        }
        break;
    case WORKER_RELEASES:
        break;
    }
    settle(app);
}

/* --- Scripts --- */

void app_ask(struct app *app, unsigned worker, unsigned name, int mode, uint32_t wait_ms)
{
    struct app_worker *w = &app->workers[worker];

    w->name = name;
    w->bid = (struct fl_bid){.name = names[name], .mode = mode, .wait_ms = wait_ms};
    do_ask(w);
}

void app_give_back(struct app *app, unsigned worker)
{
    give_back(&app->workers[worker]);
}

void app_write(struct app *app, unsigned worker)
{
    write_to_store(&app->workers[worker]);
}

bool app_holds(const struct app *app, unsigned worker)
{
    return app->workers[worker].state == WORKER_HOLDS;
}

/* --- Life --- */

void app_init(struct app *app, struct net *net, struct truth *truth, struct fence *fence,
              struct linear *linear, struct door *doors, unsigned n_doors,
              const struct app_config *config)
{
    app->place.time = net->time;
    app->net = net;
    app->truth = truth;
    app->fence = fence;
    app->linear = linear;
    app->doors = doors;
    app->n_doors = n_doors;
    app->config = config;
    app->wire = (struct fl_wire_options){
        .name = app->place.name, .ttl_ms = config->ttl_ms, .lock_delay_ms = config->lock_delay_ms};
    alarm_init(&app->tick, &app->place, on_tick, app);
    for (unsigned i = 0; i < APP_WORKERS_MAX; i++) {
        app->workers[i].app = app;
        alarm_init(&app->workers[i].alarm, &app->place, on_worker, &app->workers[i]);
    }
}

void app_start(struct app *app)
{
    if (app->place.is_up)
        return;
    app->place.is_up = true;
    app->place.life++;
    app->place.paused_until_us = 0;
    app->door = (unsigned)timeline_between(app->place.time, 0, app->n_doors - 1);
    init_session(app);
    settle(app);
}

void app_crash(struct app *app, bool is_silent)
{
    if (!app->place.is_up)
        return;
    timeline_tell(app->place.time, "%s crashes", app->place.name);
    app->counts.crashes++;
    for (unsigned i = 0; i < APP_WORKERS_MAX; i++) {
        hold_off(&app->workers[i]);
        app->workers[i].state = WORKER_IDLE;
        alarm_set(&app->workers[i].alarm, UINT64_MAX);
    }
    alarm_set(&app->tick, UINT64_MAX);
    app->place.is_up = false;
    app->place.life++;
    net_end_place(app->net, &app->place, is_silent);
    app->stream = app->look = NULL;
}

void app_pause(struct app *app, uint64_t until_us)
{
    if (until_us > app->place.paused_until_us)
        app->place.paused_until_us = until_us;
}

void app_wake(struct app *app)
{
    uint64_t now_ms = place_now_ms(&app->place);

    if (!app->place.is_up || !place_is_paused(&app->place))
        return;
    app->place.paused_until_us = 0;
    alarm_set(&app->tick, now_ms);
    for (unsigned i = 0; i < app->config->workers; i++)
        alarm_set(&app->workers[i].alarm, now_ms);
}

void app_deinit(struct app *app)
{
    app->place.is_up = false;
}
