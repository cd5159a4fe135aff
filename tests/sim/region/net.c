#include "net.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

/* What a cut held up is sent again in such steps. */
#define RETRANSMIT_US (50 * MS)
/* The peers of a machine that died without a word find out. */
#define SILENT_END_US (8 * S)

struct parcel {
    struct parcel *next;
    uint64_t at_us;
    bool is_end, is_told;
    size_t len;
    uint8_t data[];
};

struct end {
    struct place *place;
    uint64_t life;
    conn_fn fn;
    void *ctx;
    bool is_open, is_pumping;
    struct parcel *first, **last; /* on their way to here */
    uint64_t last_us;
};

struct conn {
    struct net *net;
    struct fl_list in_net;
    struct end ends[2];
};

void net_init(struct net *net, struct timeline *time)
{
    *net = (struct net){.time = time, .delay_us = 500};
    fl_list_init(&net->conns);
}

static void drop_parcels(struct end *end)
{
    while (end->first != NULL) {
        struct parcel *parcel = end->first;

        end->first = parcel->next;
        free(parcel);
    }
    end->last = &end->first;
}

static void conn_free(struct conn *conn)
{
    drop_parcels(&conn->ends[0]);
    drop_parcels(&conn->ends[1]);
    fl_list_remove(&conn->in_net);
    free(conn);
}

void net_deinit(struct net *net)
{
    for (struct fl_list *at; (at = fl_list_first(&net->conns)) != NULL;)
        conn_free(FL_CONTAINER_OF(at, struct conn, in_net));
}

void net_heal(struct net *net)
{
    memset(net->cut, 0, sizeof net->cut);
}

static uint64_t travel_us(struct net *net)
{
    return net->delay_us + timeline_between(net->time, 0, net->delay_us * 2);
}

/* --- Datagrams --- */

struct datagram {
    struct net *net;
    struct place *to;
    uint64_t life;
    net_datagram_fn fn;
    void *ctx;
    unsigned from;
};

static void on_datagram(void *ctx, uint64_t a, const void *data, size_t len)
{
    const struct datagram *head = data;
    struct datagram d = *head;

    (void)ctx;
    if (d.to->life != d.life || !d.to->is_up || d.net->cut[d.from][d.to->number])
        return;
    if (place_is_paused(d.to)) { /* it lies in the socket */
        timeline_at(d.net->time, d.to->paused_until_us, on_datagram, NULL, a, data, len);
        return;
    }
    d.net->delivered++;
    d.fn(d.ctx, head + 1, len - sizeof *head);
}

void net_datagram(struct net *net, const struct place *from, uint64_t sent_us, struct place *to,
                  net_datagram_fn fn, void *ctx, const void *data, size_t len)
{
    struct datagram head = {net, to, to->life, fn, ctx, from->number};
    uint8_t stack[2048], *bytes = stack;
    unsigned copies = fl_random_chance(&net->time->random, net->repeat, 1000) ? 2 : 1;

    if (net->cut[from->number][to->number] || fl_random_chance(&net->time->random, net->drop, 1000))
        return;
    if (sizeof head + len > sizeof stack)
        bytes = fl_xalloc(sizeof head + len);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, data, len);
    if (sent_us < net->time->now_us)
        sent_us = net->time->now_us;
    for (; copies != 0; copies--) {
        uint64_t at_us = sent_us + travel_us(net);

        if (fl_random_chance(&net->time->random, net->late, 1000))
            at_us += timeline_between(net->time, 0, net->late_us);
        timeline_at(net->time, at_us, on_datagram, NULL, 0, bytes, sizeof head + len);
    }
    if (bytes != stack)
        free(bytes);
}

/* --- Connections --- */

static void pump_at(struct conn *conn, unsigned to, uint64_t at_us);

/* Nobody will look at it again. */
static bool free_if_done(struct conn *conn)
{
    if (conn->ends[0].is_open || conn->ends[1].is_open || conn->ends[0].is_pumping ||
        conn->ends[1].is_pumping)
        return false;
    conn_free(conn);
    return true;
}

static bool is_listening(const struct end *end)
{
    return end->is_open && end->place->is_up && end->place->life == end->life;
}

/* In true time: a place that stands still has it in its socket. */
static void tell_arrived(struct net *net, const struct end *to)
{
    struct parcel *parcel = to->first;

    if (parcel->is_told || parcel->is_end || net->arrived == NULL)
        return;
    parcel->is_told = true;
    net->arrived(net->arrived_ctx, to->place, parcel->data, parcel->len);
}

/* The moment at which the next parcel can be read; 0: now. */
static uint64_t held_up_until(const struct conn *conn, const struct end *to, const struct end *from)
{
    const struct net *net = conn->net;

    if (to->first->at_us > net->time->now_us)
        return to->first->at_us;
    if (net->cut[from->place->number][to->place->number])
        return net->time->now_us + RETRANSMIT_US;
    if (place_is_paused(to->place))
        return to->place->paused_until_us;
    return 0;
}

static void on_pump(void *ctx, uint64_t number, const void *data, size_t len)
{
    struct conn *conn = ctx;
    struct end *to = &conn->ends[number], *from = &conn->ends[1 - number];

    (void)data;
    (void)len;
    while (to->first != NULL && is_listening(to)) {
        uint64_t at_us = held_up_until(conn, to, from);
        struct parcel *parcel = to->first;

        if (at_us == 0 || at_us == to->place->paused_until_us)
            tell_arrived(conn->net, to);
        if (at_us != 0) {
            pump_at(conn, (unsigned)number, at_us);
            return;
        }
        to->first = parcel->next;
        if (to->first == NULL)
            to->last = &to->first;
        conn->net->delivered++;
        if (parcel->is_end)
            to->is_open = false;
        to->fn(to->ctx, conn, parcel->is_end ? NULL : parcel->data, parcel->len);
        free(parcel);
    }
    to->is_pumping = false;
    drop_parcels(to);
    if (!is_listening(to))
        to->is_open = false;
    free_if_done(conn);
}

static void pump_at(struct conn *conn, unsigned to, uint64_t at_us)
{
    conn->ends[to].is_pumping = true;
    timeline_at(conn->net->time, at_us, on_pump, conn, to, NULL, 0);
}

static void post(struct conn *conn, unsigned to, const void *data, size_t len, uint64_t extra_us)
{
    struct end *end = &conn->ends[to];
    struct parcel *parcel = fl_xalloc(sizeof *parcel + len);
    uint64_t at_us = conn->net->time->now_us + travel_us(conn->net) + extra_us;

    end->last_us = at_us > end->last_us ? at_us : end->last_us;
    *parcel = (struct parcel){.at_us = end->last_us, .is_end = data == NULL, .len = len};
    if (len > 0)
        memcpy(parcel->data, data, len);
    *end->last = parcel;
    end->last = &parcel->next;
    if (!end->is_pumping)
        pump_at(conn, to, end->last_us);
}

struct conn *conn_new(struct net *net, struct place *near, conn_fn near_fn, void *near_ctx,
                      struct place *far, conn_fn far_fn, void *far_ctx)
{
    struct conn *conn = fl_xcalloc(1, sizeof *conn);

    conn->net = net;
    conn->ends[0] = (struct end){near, near->life, near_fn, near_ctx, true, false, NULL, NULL, 0};
    conn->ends[1] = (struct end){far, far->life, far_fn, far_ctx, true, false, NULL, NULL, 0};
    conn->ends[0].last = &conn->ends[0].first;
    conn->ends[1].last = &conn->ends[1].first;
    fl_list_append(&net->conns, &conn->in_net);
    return conn;
}

static unsigned end_of(const struct conn *conn, const struct place *place)
{
    FL_REQUIRE(conn->ends[0].place == place || conn->ends[1].place == place);
    return conn->ends[0].place == place ? 0 : 1;
}

void conn_set_hearer(struct conn *conn, const struct place *at, conn_fn fn, void *ctx)
{
    struct end *end = &conn->ends[end_of(conn, at)];

    end->fn = fn;
    end->ctx = ctx;
}

void conn_send(struct conn *conn, const struct place *from, const void *data, size_t len)
{
    unsigned at = end_of(conn, from);

    if (conn->ends[at].is_open && conn->ends[1 - at].is_open)
        post(conn, 1 - at, data, len, 0);
}

static void close_end(struct conn *conn, unsigned at, uint64_t extra_us)
{
    struct end *end = &conn->ends[at];

    if (!end->is_open)
        return;
    end->is_open = false;
    if (conn->ends[1 - at].is_open)
        post(conn, 1 - at, NULL, 0, extra_us);
    /* It is freed by the pump that tells the other end, or by the one under way to here. */
    if (!conn->ends[0].is_pumping && !conn->ends[1].is_pumping)
        pump_at(conn, at, conn->net->time->now_us);
}

void conn_close(struct conn *conn, const struct place *at)
{
    close_end(conn, end_of(conn, at), 0);
}

void net_end_place(struct net *net, const struct place *place, bool is_silent)
{
    FL_LIST_EACH(link, &net->conns)
    {
        struct conn *conn = FL_CONTAINER_OF(link, struct conn, in_net);

        if (conn->ends[0].place == place)
            close_end(conn, 0, is_silent ? SILENT_END_US : 0);
        if (conn->ends[1].place == place)
            close_end(conn, 1, is_silent ? SILENT_END_US : 0);
    }
}
