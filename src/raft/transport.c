#include "raft/transport.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/random.h"
#include "raft/store.h"

#define CONNECT_TIMEOUT_MS  2000
#define GREETING_TIMEOUT_MS 5000
#define BACKOFF_MIN_MS      50
#define BACKOFF_MAX_MS      1000
/* What a slow peer may have us keep: a few full messages. Beyond it messages are dropped. */
#define REFUSED_TIMEOUT_MS 1000
/* And is told again in the log. */
#define REFUSED_EVERY_MS 10000
#define OUTPUT_BYTES_MAX (8u * 1024 * 1024)

/* Where we send to. */
struct peer {
    struct fl_list link;
    struct fl_transport *transport;
    uint64_t id;
    char *address; /* owned */
    struct fl_framed *connection;
    bool is_greeted, is_dropped;
    unsigned backoff_ms;
    bool was_warned, was_refused; /* one line per outage, not one per attempt */
    struct fl_timer redial;
};

/* A connection that came in and has not been handed on. */
struct guest {
    struct fl_list link;
    struct fl_transport *transport;
    struct fl_framed *connection;
    uint64_t from;   /* 0 until greeted */
    bool is_refused; /* it is left the time to read why */
};

struct fl_transport {
    struct fl_loop *loop;
    struct fl_transport_config config;
    const struct fl_transport_ops *ops;
    void *ctx;
    struct fl_framed_listener *listener;
    struct fl_list peers, guests;
    struct fl_random random;
    uint64_t refused, refused_ms; /* who was refused last, and when that was told */
    bool is_closing;
    void (*done)(void *ctx);
    void *done_ctx;
};

static void dial(struct peer *peer);

static void finish_close(struct fl_transport *t)
{
    void (*done)(void *ctx) = t->done;
    void *ctx = t->done_ctx;

    if (!t->is_closing || !fl_list_is_empty(&t->peers) || !fl_list_is_empty(&t->guests))
        return;
    free(t);
    done(ctx);
}

static void greet(const struct fl_transport *t, struct fl_framed *c, enum fl_handshake_role role,
                  uint64_t to, uint8_t verdict)
{
    struct fl_handshake ours = {
        .version = FL_HANDSHAKE_VERSION,
        .role = role,
        .group_id = t->config.group_id,
        .from = t->config.node_id,
        .to = to,
        .verdict = verdict,
    };
    struct fl_buf buf = FL_BUF_INIT;

    memcpy(ours.cluster_id, t->config.cluster_id, sizeof ours.cluster_id);
    t->ops->introduce(t->ctx, &ours);
    fl_handshake_encode(&buf, &ours);
    (void)fl_framed_send(c, buf.data,
                         buf.len); /* an empty queue takes it, or the connection is gone */
    fl_buf_deinit(&buf);
}

void fl_transport_greet(const struct fl_transport *t, struct fl_framed *c,
                        enum fl_handshake_role role, uint64_t to)
{
    greet(t, c, role, to, FL_PEER_WELCOME);
}

/* A sentence for the log, or NULL. */
static const char *verdict_text(uint8_t verdict)
{
    switch (verdict) {
    case FL_PEER_WELCOME:
        return NULL;
    case FL_PEER_REMOVED:
        return "it was removed from the cluster: stop it";
    default:
        return "its id is known with another directory: a node that lost its data must not vote "
               "under its old id; remove it, and add another under a new id";
    }
}

/* --- Outgoing --- */

static void free_peer(struct peer *peer)
{
    fl_timer_clear(peer->transport->loop, &peer->redial);
    fl_list_remove(&peer->link);
    free(peer->address);
    free(peer);
}

static void redial_later(struct peer *peer)
{
    struct fl_transport *t = peer->transport;
    uint64_t wait_ms;

    peer->backoff_ms = peer->backoff_ms == 0 ? BACKOFF_MIN_MS : peer->backoff_ms * 2;
    if (peer->backoff_ms > BACKOFF_MAX_MS)
        peer->backoff_ms = BACKOFF_MAX_MS;
    wait_ms = fl_random_between(&t->random, peer->backoff_ms / 2, peer->backoff_ms);
    FL_REQUIRE(fl_timer_set(t->loop, &peer->redial, fl_loop_now_ms(t->loop) + wait_ms) == FL_OK);
}

static void on_redial(struct fl_timer *timer, uint64_t now_ms)
{
    (void)now_ms;
    dial(FL_CONTAINER_OF(timer, struct peer, redial));
}

static void peer_on_open(struct fl_framed *c, void *ctx)
{
    struct peer *peer = ctx;

    fl_framed_set_limit(c, OUTPUT_BYTES_MAX);
    fl_framed_set_idle_timeout(c, GREETING_TIMEOUT_MS);
    fl_transport_greet(peer->transport, c, FL_SPEAKS_RAFT, peer->id);
}

static int peer_on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct peer *peer = ctx;
    struct fl_transport *t = peer->transport;
    struct fl_handshake theirs;
    const char *fault;
    int r = fl_handshake_decode(data, len, &theirs);

    if (r < 0)
        return r;
    fault = fl_handshake_fault(&theirs, t->config.cluster_id, t->config.node_id, peer->id);
    if (fault == NULL)
        fault = verdict_text(t->ops->meet(t->ctx, &theirs));
    if (fault != NULL) {
        if (!peer->was_refused)
            fl_warn("transport", "node %llu at %s is refused: %s; trying again",
                    (unsigned long long)peer->id, peer->address, fault);
        peer->was_refused = true;
        return FL_E_WRONG_PEER;
    }
    if (theirs.verdict != FL_PEER_WELCOME) {
        t->ops->refused(t->ctx, peer->id, theirs.verdict);
        return FL_E_WRONG_PEER;
    }
    peer->was_refused = false;
    fl_framed_set_idle_timeout(c, 0);
    peer->is_greeted = true;
    peer->backoff_ms = 0;
    if (peer->was_warned)
        fl_info("transport", "node %llu at %s is reachable again", (unsigned long long)peer->id,
                peer->address);
    peer->was_warned = false;
    return FL_OK;
}

static void peer_on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct peer *peer = ctx;
    struct fl_transport *t = peer->transport;

    (void)c;
    (void)error;
    peer->connection = NULL;
    peer->is_greeted = false;
    if (peer->is_dropped) {
        free_peer(peer);
        finish_close(t);
        return;
    }
    if (!peer->was_warned)
        fl_warn("transport", "node %llu at %s is not reachable: %s; dialling again",
                (unsigned long long)peer->id, peer->address, why);
    peer->was_warned = true;
    redial_later(peer);
}

static const struct fl_framed_handler peer_handler = {
    .on_open = peer_on_open,
    .on_frame = peer_on_frame,
    .on_close = peer_on_close,
};

static void dial(struct peer *peer)
{
    if (peer->connection != NULL)
        return;
    peer->connection = fl_framed_connect(peer->transport->loop, peer->address, CONNECT_TIMEOUT_MS,
                                         &peer_handler, peer);
    if (peer->connection == NULL)
        redial_later(peer);
}

static struct peer *find_peer(const struct fl_transport *t, uint64_t id)
{
    FL_LIST_EACH(link, &t->peers)
    {
        struct peer *peer = FL_CONTAINER_OF(link, struct peer, link);

        if (peer->id == id && !peer->is_dropped)
            return peer;
    }
    return NULL;
}

static void close_guests(struct fl_transport *t, uint64_t id, const struct guest *except,
                         const char *why)
{
    FL_LIST_EACH(link, &t->guests)
    {
        struct guest *guest = FL_CONTAINER_OF(link, struct guest, link);

        if (guest != except && guest->from == id)
            fl_framed_close(guest->connection, why);
    }
}

void fl_transport_drop_peer(struct fl_transport *t, uint64_t id)
{
    struct peer *peer = find_peer(t, id);

    close_guests(t, id, NULL, "no longer a member");
    if (peer == NULL)
        return;
    peer->is_dropped = true;
    if (peer->connection != NULL)
        fl_framed_close(peer->connection, "no longer a member");
    else
        free_peer(peer);
}

void fl_transport_set_peer(struct fl_transport *t, uint64_t id, const char *address)
{
    struct peer *peer = find_peer(t, id);

    FL_REQUIRE(id != t->config.node_id);
    if (peer != NULL && strcmp(peer->address, address) == 0)
        return;
    fl_transport_drop_peer(t, id);
    peer = fl_xcalloc(1, sizeof *peer);
    peer->transport = t;
    peer->id = id;
    peer->address = fl_xstrdup(address);
    peer->redial = FL_TIMER_INIT(on_redial);
    fl_list_append(&t->peers, &peer->link);
    dial(peer);
}

size_t fl_transport_peers(const struct fl_transport *t, uint64_t *out, size_t max)
{
    size_t n = 0;

    FL_LIST_EACH(link, &t->peers)
    {
        const struct peer *peer = FL_CONTAINER_OF(link, struct peer, link);

        if (!peer->is_dropped && n < max)
            out[n++] = peer->id;
    }
    return n;
}

const char *fl_transport_address(const struct fl_transport *t, uint64_t id)
{
    const struct peer *peer = find_peer(t, id);

    return peer != NULL ? peer->address : NULL;
}

bool fl_transport_is_reachable(const struct fl_transport *t, uint64_t id)
{
    const struct peer *peer = find_peer(t, id);

    return peer != NULL && peer->is_greeted;
}

void fl_transport_send(struct fl_transport *t, uint64_t to, const void *data, size_t len)
{
    struct peer *peer = find_peer(t, to);

    if (peer != NULL && peer->is_greeted)
        (void)fl_framed_send(peer->connection, data, len);
}

/* --- Incoming --- */

static const struct fl_framed_handler door_handler;

static void forget_guest(struct guest *guest)
{
    fl_list_remove(&guest->link);
    free(guest);
}

/* It is up again: waiting for the next attempt would keep half of the connections away. */
static void dial_back(struct fl_transport *t, uint64_t id)
{
    struct peer *peer = find_peer(t, id);

    if (peer == NULL || peer->connection != NULL)
        return;
    fl_timer_clear(t->loop, &peer->redial);
    peer->backoff_ms = 0;
    dial(peer);
}

/* Whoever is refused dials again and again. */
static void tell_refused(struct fl_transport *t, struct fl_framed *c,
                         const struct fl_handshake *theirs, const char *fault)
{
    uint64_t now_ms = fl_loop_now_ms(t->loop);

    if (t->refused == theirs->from && now_ms < t->refused_ms + REFUSED_EVERY_MS)
        return;
    t->refused = theirs->from;
    t->refused_ms = now_ms;
    fl_warn("transport", "node %llu from %s is refused: %s", (unsigned long long)theirs->from,
            fl_framed_peer(c), fault);
}

static int greet_guest(struct guest *guest, const uint8_t *data, size_t len)
{
    struct fl_transport *t = guest->transport;
    struct fl_framed *c = guest->connection;
    struct fl_handshake theirs;
    uint8_t verdict = FL_PEER_WELCOME;
    const char *fault;
    int r = fl_handshake_decode(data, len, &theirs);

    if (r < 0) {
        fl_warn("transport", "%s is refused: %s", fl_framed_peer(c),
                r == FL_E_VERSION ? "its release speaks another protocol version"
                                  : "it does not speak Fencelock's peer protocol (clients use the "
                                    "gRPC port)");
        return r;
    }
    fault = fl_handshake_fault(&theirs, t->config.cluster_id, t->config.node_id, 0);
    if (fault == NULL && theirs.group_id != t->config.group_id)
        fault = "it belongs to another group";
    if (fault == NULL && theirs.role != FL_SPEAKS_LINK &&
        (theirs.from == 0 || theirs.from == t->config.node_id))
        fault = "it claims an identity that it cannot have";
    if (fault == NULL && theirs.role != FL_SPEAKS_LINK)
        verdict = t->ops->meet(t->ctx, &theirs);
    greet(t, c, theirs.role, theirs.from, verdict);
    if (fault != NULL || verdict != FL_PEER_WELCOME) {
        tell_refused(t, c, &theirs, fault != NULL ? fault : verdict_text(verdict));
        guest->is_refused = true;
        fl_framed_set_idle_timeout(c, REFUSED_TIMEOUT_MS);
        return FL_OK;
    }
    fl_framed_set_idle_timeout(c, 0);
    if (theirs.role == FL_SPEAKS_RAFT) {
        guest->from = theirs.from;
        /* The newest connection of a peer is the one that counts: the older may be half open. */
        close_guests(t, theirs.from, guest, "replaced by a newer connection");
        dial_back(t, theirs.from);
        return FL_OK;
    }
    forget_guest(guest);
    fl_framed_set_handler(c, &door_handler, t); /* until the callee sets its own */
    t->ops->accepted(t->ctx, &theirs, c);
    return FL_OK;
}

static int guest_on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct guest *guest = ctx;
    struct fl_transport *t = guest->transport;

    (void)c;
    if (guest->is_refused)
        return FL_E_WRONG_PEER;
    if (guest->from == 0)
        return greet_guest(guest, data, len);
    return t->ops->message(t->ctx, guest->from, data, len);
}

static void guest_on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct guest *guest = ctx;
    struct fl_transport *t = guest->transport;

    (void)c;
    (void)error;
    (void)why;
    forget_guest(guest);
    finish_close(t);
}

static const struct fl_framed_handler guest_handler = {
    .on_frame = guest_on_frame,
    .on_close = guest_on_close,
};

static void accept_guest(struct fl_framed *c, void *ctx)
{
    struct fl_transport *t = ctx;
    struct guest *guest = fl_xcalloc(1, sizeof *guest);

    guest->transport = t;
    guest->connection = c;
    fl_list_append(&t->guests, &guest->link);
    fl_framed_set_handler(c, &guest_handler, guest);
    fl_framed_set_idle_timeout(c, GREETING_TIMEOUT_MS);
    if (t->is_closing)
        fl_framed_close(c, "shutting down");
}

static const struct fl_framed_handler door_handler = {
    .on_open = accept_guest,
};

/* --- Life --- */

int fl_transport_new(struct fl_loop *loop, const struct fl_transport_config *config,
                     const struct fl_transport_ops *ops, void *ctx,
                     struct fl_transport **ret_transport, char *why)
{
    struct fl_transport *t = fl_xcalloc(1, sizeof *t);
    int r;

    t->loop = loop;
    t->config = *config;
    t->config.listen = NULL;
    t->ops = ops;
    t->ctx = ctx;
    fl_list_init(&t->peers);
    fl_list_init(&t->guests);
    fl_random_init(&t->random, config->seed);
    r = fl_framed_listen(loop, config->listen, &door_handler, t, &t->listener, why);
    if (r < 0) {
        free(t);
        return r;
    }
    *ret_transport = t;
    return FL_OK;
}

unsigned fl_transport_port(const struct fl_transport *t)
{
    return fl_framed_listener_port(t->listener);
}

void fl_transport_close(struct fl_transport *t, void (*done)(void *ctx), void *ctx)
{
    t->is_closing = true;
    t->done = done;
    t->done_ctx = ctx;
    fl_framed_listener_close(t->listener);
    FL_LIST_EACH(link, &t->peers)
    {
        struct peer *peer = FL_CONTAINER_OF(link, struct peer, link);

        fl_transport_drop_peer(t, peer->id);
    }
    FL_LIST_EACH(guest_link, &t->guests)
    {
        fl_framed_close(FL_CONTAINER_OF(guest_link, struct guest, link)->connection,
                        "shutting down");
    }
    finish_close(t);
}
