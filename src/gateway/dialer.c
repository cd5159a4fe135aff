#include "gateway/dialer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "net/framed.h"
#include "net/handshake.h"

#define CONNECT_TIMEOUT_MS  1000
#define GREETING_TIMEOUT_MS 2000
#define BACKOFF_MIN_MS      50
/* Short: a node that is back may lead soon, and nothing else tells us that it is. */
#define BACKOFF_MAX_MS 250
/* What a node that is stopped may have us keep before the link is given up. */
#define OUTPUT_BYTES_MAX (32u * 1024 * 1024)

struct fl_dialer {
    struct fl_loop *loop;
    uint8_t cluster_id[16];
    uint64_t node_id;
    char *address; /* owned */
    const struct fl_dialer_ops *ops;
    void *ctx;
    struct fl_framed *connection;
    bool is_up, is_freed;
    bool was_warned; /* one line per outage */
    unsigned backoff_ms;
    struct fl_timer redial;
    struct fl_random random;
};

static void dial(struct fl_dialer *d);

static void free_now(struct fl_dialer *d)
{
    fl_timer_clear(d->loop, &d->redial);
    free(d->address);
    free(d);
}

static void redial_later(struct fl_dialer *d)
{
    uint64_t wait_ms;

    d->backoff_ms = d->backoff_ms == 0 ? BACKOFF_MIN_MS : d->backoff_ms * 2;
    if (d->backoff_ms > BACKOFF_MAX_MS)
        d->backoff_ms = BACKOFF_MAX_MS;
    wait_ms = fl_random_between(&d->random, d->backoff_ms / 2, d->backoff_ms);
    FL_REQUIRE(fl_timer_set(d->loop, &d->redial, fl_loop_now_ms(d->loop) + wait_ms) == FL_OK);
}

static void on_redial(struct fl_timer *timer, uint64_t now_ms)
{
    (void)now_ms;
    dial(FL_CONTAINER_OF(timer, struct fl_dialer, redial));
}

static void on_open(struct fl_framed *c, void *ctx)
{
    struct fl_dialer *d = ctx;
    struct fl_handshake ours = {
        .version = FL_HANDSHAKE_VERSION,
        .role = FL_SPEAKS_LINK,
        .to = d->node_id,
    };
    struct fl_buf buf = FL_BUF_INIT;

    memcpy(ours.cluster_id, d->cluster_id, sizeof ours.cluster_id);
    fl_framed_set_limit(c, OUTPUT_BYTES_MAX);
    fl_framed_set_idle_timeout(c, GREETING_TIMEOUT_MS);
    fl_handshake_encode(&buf, &ours);
    (void)fl_framed_send(c, buf.data,
                         buf.len); /* an empty queue takes it, or the connection is gone */
    fl_buf_deinit(&buf);
}

static int check_greeting(struct fl_dialer *d, const uint8_t *data, size_t len)
{
    struct fl_handshake theirs;
    const char *fault;
    int r = fl_handshake_decode(data, len, &theirs);

    if (r < 0)
        return r;
    fault = fl_handshake_fault(&theirs, d->cluster_id, 0, d->node_id);
    if (fault != NULL) {
        if (!d->was_warned)
            fl_warn("gateway", "node %llu at %s is refused: %s; dialling again",
                    (unsigned long long)d->node_id, d->address, fault);
        d->was_warned = true;
        return FL_E_WRONG_PEER;
    }
    return FL_OK;
}

static int on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_dialer *d = ctx;
    int r;

    if (d->is_freed)
        return FL_E_CLOSED;
    if (d->is_up)
        return d->ops->frame(d->ctx, data, len);
    r = check_greeting(d, data, len);
    if (r < 0)
        return r;
    fl_framed_set_idle_timeout(c, 0);
    if (d->was_warned)
        fl_info("gateway", "node %llu at %s is reachable again", (unsigned long long)d->node_id,
                d->address);
    d->was_warned = false;
    d->backoff_ms = 0;
    d->is_up = true;
    d->ops->up(d->ctx);
    return FL_OK;
}

static void on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct fl_dialer *d = ctx;
    bool was_up = d->is_up;

    (void)c;
    (void)error;
    d->connection = NULL;
    d->is_up = false;
    if (d->is_freed) {
        free_now(d);
        return;
    }
    if (!d->was_warned)
        fl_warn("gateway", "node %llu at %s is not reachable: %s; dialling again",
                (unsigned long long)d->node_id, d->address, why);
    d->was_warned = true;
    redial_later(d);
    if (was_up)
        d->ops->down(d->ctx, why);
}

static const struct fl_framed_handler handler = {
    .on_open = on_open,
    .on_frame = on_frame,
    .on_close = on_close,
};

static void dial(struct fl_dialer *d)
{
    d->connection = fl_framed_connect(d->loop, d->address, CONNECT_TIMEOUT_MS, &handler, d);
    if (d->connection == NULL)
        redial_later(d);
}

struct fl_dialer *fl_dialer_new(struct fl_loop *loop, const char *cluster, uint64_t node_id,
                                const char *address, const struct fl_dialer_ops *ops, void *ctx)
{
    struct fl_dialer *d = fl_xcalloc(1, sizeof *d);

    d->loop = loop;
    d->node_id = node_id;
    d->address = fl_xstrdup(address);
    d->ops = ops;
    d->ctx = ctx;
    d->redial = FL_TIMER_INIT(on_redial);
    fl_handshake_cluster_id(cluster, d->cluster_id);
    /* Jitter only: dialers of one process must differ, and processes by their start. */
    fl_random_init(&d->random, node_id ^ fl_loop_update_now_ms(loop) << 16);
    dial(d);
    return d;
}

void fl_dialer_free(struct fl_dialer *d)
{
    if (d == NULL)
        return;
    d->is_freed = true;
    if (d->connection != NULL)
        fl_framed_close(d->connection, "no longer wanted");
    else
        free_now(d);
}

int fl_dialer_send(struct fl_dialer *d, const void *data, size_t len)
{
    int r;

    if (!d->is_up)
        return FL_E_CLOSED;
    r = fl_framed_send(d->connection, data, len);
    if (r == FL_E_BUSY)
        fl_framed_close(d->connection, "the node takes too slowly");
    return r;
}

void fl_dialer_reset(struct fl_dialer *d, const char *why)
{
    if (d->connection != NULL)
        fl_framed_close(d->connection, why);
}
