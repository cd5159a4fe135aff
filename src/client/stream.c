/* The session's stream: its effects on the channel, and the channel's news to it. Effects are
 * carried out where they arise, but for ending a call: that waits until no callback of the channel
 * is on the stack. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "client/client.h"
#include "client/clock.h"
#include "client/why.h"

static void defer(struct fl_client *client)
{
    fl_timer_set(client->loop, &client->later, fl_loop_now_ms(client->loop));
}

static void break_stream(struct fl_client *client, int code)
{
    client->broken_code = code;
}

/* ---- Effects ---- */

static void cancel_dropped(struct fl_client *client)
{
    struct fl_rpc_client_call *call = client->dropped;

    client->dropped = NULL;
    if (call != NULL)
        fl_rpc_client_call_cancel(call);
}

static void drop(struct fl_client *client, bool move_on)
{
    if (client->stream != NULL) {
        FL_REQUIRE(client->dropped == NULL); /* a stream begins only after the last is ended */
        client->dropped = client->stream;
        client->stream = NULL;
    }
    client->is_moving_on |= move_on;
    defer(client);
}

static void finish_stop(struct fl_client *client)
{
    client->stream = client->dropped = NULL; /* what they still say is heard by nobody */
    fl_rpc_channel_free(client->channel);
    fl_rpc_channel_free(client->calls);
    fl_timer_clear(client->loop, &client->tick);
    fl_timer_clear(client->loop, &client->later);
    fl_timer_clear(client->loop, &client->stop_timer);
    uv_close((uv_handle_t *)&client->wake, NULL);
    fl_loop_stop(client->loop);
}

/* Who does not answer one of them, or has no leader, is of no use to the other. */
static void leave_endpoint(struct fl_client *client)
{
    fl_rpc_channel_move_on(client->channel, "it does not answer");
    fl_rpc_channel_move_on(client->calls, "it does not answer");
}

static void do_deferred(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_client *client = FL_CONTAINER_OF(timer, struct fl_client, later);

    (void)now_ms;
    if (client->is_stopping && fl_session_is_closed(&client->session)) {
        finish_stop(client);
        return;
    }
    cancel_dropped(client);
    if (client->is_moving_on)
        leave_endpoint(client);
    client->is_moving_on = false;
}

static void hear_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data,
                         size_t len);
static void hear_done(struct fl_rpc_client_call *call, void *ctx,
                      const struct fl_rpc_status *status, bool was_sent);

static void begin_stream(struct fl_client *client)
{
    static const struct fl_rpc_call_handler handler = {.on_message = hear_message,
                                                       .on_done = hear_done};

    cancel_dropped(client);
    client->stream =
        fl_rpc_channel_call(client->channel, FL_SESSION_PATH, 0, true, &handler, client);
    if (client->stream == NULL)
        break_stream(client, FL_E_NOMEM);
}

static void send_message(struct fl_client *client, const struct fl_session_effect *effect)
{
    uint8_t *message;
    size_t len;
    int r;

    if (client->stream == NULL)
        return; /* it could not be begun, and the session is told so after this step */
    r = fl_wire_pack(effect, &client->wire, &message, &len);
    if (r == 0)
        r = fl_rpc_client_call_send(client->stream, message, len);
    if (r < 0)
        break_stream(client, r);
    else if (effect->type == FL_SESSION_FX_SEND_CLOSE)
        fl_rpc_client_call_half_close(client->stream);
}

static void set_belief(struct fl_client *client, uint64_t until_ms)
{
    atomic_store(&client->lease_until_ms, until_ms);
    if (until_ms == 0)
        atomic_fetch_add(&client->lease_session, 1);
    if (strcmp(client->session_id, client->session.id) == 0)
        return;
    pthread_mutex_lock(&client->mutex);
    memcpy(client->session_id, client->session.id, sizeof client->session_id);
    pthread_mutex_unlock(&client->mutex);
}

static void carry_out(void *ctx, const struct fl_session_effect *effect)
{
    struct fl_client *client = ctx;

    switch (effect->type) {
    case FL_SESSION_FX_CONNECT:
        begin_stream(client);
        break;
    case FL_SESSION_FX_DROP:
        drop(client, effect->move_on);
        break;
    case FL_SESSION_FX_SEND_OPEN:
    case FL_SESSION_FX_SEND_RESUME:
    case FL_SESSION_FX_SEND_HEARTBEAT:
    case FL_SESSION_FX_SEND_ACQUIRE:
    case FL_SESSION_FX_SEND_RELEASE:
    case FL_SESSION_FX_SEND_CANCEL:
    case FL_SESSION_FX_SEND_CLOSE:
        send_message(client, effect);
        break;
    case FL_SESSION_FX_BELIEF:
        set_belief(client, effect->until_ms);
        break;
    default:
        fl_lock__effect(client, effect);
    }
}

/* ---- Steps ---- */

static void step_down(struct fl_client *client, const struct fl_why *why)
{
    struct fl_session_event event = {
        .type = FL_SESSION_EV_DOWN, .now_ms = fl_client_now_ms(), .why = why};

    fl_session_step(&client->session, &event);
}

static void arm(struct fl_client *client)
{
    uint64_t next_ms = fl_session_next_ms(&client->session);

    if (next_ms == UINT64_MAX)
        fl_timer_clear(client->loop, &client->tick);
    else
        fl_timer_set(client->loop, &client->tick, next_ms);
}

/* After each step: a stream that broke in it, the next tick, the end. */
static void settle(struct fl_client *client)
{
    struct fl_why why;

    if (client->broken_code != 0) {
        fl_why_set(&why, client->broken_code, NULL, "the stream was given up: %s",
                   fl_error_text(client->broken_code));
        client->broken_code = 0;
        drop(client, false);
        step_down(client, &why);
    }
    arm(client);
    if (client->is_stopping && fl_session_is_closed(&client->session))
        defer(client);
}

void fl_stream__step(struct fl_client *client, struct fl_session_event *event)
{
    event->now_ms = fl_client_now_ms();
    fl_session_step(&client->session, event);
    settle(client);
}

static void hear_message(struct fl_rpc_client_call *call, void *ctx, const uint8_t *data,
                         size_t len)
{
    struct fl_client *client = ctx;
    int r;

    if (call != client->stream)
        return;
    r = fl_wire_deliver(&client->session, fl_client_now_ms(), data, len);
    if (r < 0)
        break_stream(client, r);
    settle(client);
}

static void hear_done(struct fl_rpc_client_call *call, void *ctx,
                      const struct fl_rpc_status *status, bool was_sent)
{
    struct fl_client *client = ctx;
    struct fl_why why;

    (void)was_sent;
    if (call == client->dropped)
        client->dropped = NULL;
    if (call != client->stream)
        return;
    client->stream = NULL;
    fl_wire_why(status, &why);
    step_down(client, &why);
    settle(client);
}

static void tick(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_client *client = FL_CONTAINER_OF(timer, struct fl_client, tick);
    struct fl_session_event event = {.type = FL_SESSION_EV_TICK};

    (void)now_ms;
    fl_stream__step(client, &event);
}

/* The server did not confirm the close in time: its ttl will end the session. */
static void stop_waiting(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_client *client = FL_CONTAINER_OF(timer, struct fl_client, stop_timer);
    struct fl_session_event event = {.type = FL_SESSION_EV_ENDED, .cause = FL_LOST_LEASE};

    (void)now_ms;
    fl_stream__step(client, &event);
}

void fl_stream__init(struct fl_client *client, uint64_t seed)
{
    client->tick = FL_TIMER_INIT(tick);
    client->later = FL_TIMER_INIT(do_deferred);
    client->stop_timer = FL_TIMER_INIT(stop_waiting);
    fl_session_init(&client->session, client->wire.ttl_ms, client->timeout_ms, seed, carry_out,
                    client);
}

void fl_stream__stop(struct fl_client *client)
{
    struct fl_session_event event = {.type = FL_SESSION_EV_CLOSE};

    client->is_stopping = true;
    fl_timer_set(client->loop, &client->stop_timer, fl_client_now_ms() + client->timeout_ms);
    fl_stream__step(client, &event);
}
