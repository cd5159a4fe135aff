#include "replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "door.h"
#include "raft/store_state.h"

typedef unsigned long long ull;

#define MEMBERS_MAX FL_ARRAY_LEN(((struct fl_status_info *)0)->members)

/* What the engine told inside a call, to be acted on after the call has returned. */
struct replica_event {
    enum { EVENT_APPLY, EVENT_ROLE, EVENT_CONFIRMED, EVENT_INSTALL } type;
    uint64_t index, term, leader_id, round;
    bool is_leader;
    struct fl_entry *entry;       /* APPLY: a reference */
    struct fl_snapshot *snapshot; /* INSTALL: a reference */
};

static uint64_t now_ms(const struct replica *r)
{
    return place_now_ms(&r->place);
}

/* --- The engine's wishes --- */

static struct replica_event *queue_event(struct replica *r)
{
    struct replica_event *event;

    if (r->n_events == r->events_capacity) {
        r->events_capacity =
            fl_grow_capacity(r->events_capacity, r->n_events + 1, sizeof *r->events);
        r->events = fl_xrealloc(r->events, r->events_capacity * sizeof *r->events);
    }
    event = &r->events[r->n_events++];
    *event = (struct replica_event){.type = EVENT_APPLY};
    return event;
}

/* Written in the loop's own thread: everything waits for it. */
static void op_set_vote(void *ctx, uint64_t term, uint64_t voted_for)
{
    struct replica *r = ctx;
    uint64_t cost_us = timeline_between(r->place.time, 200, 3000) * r->disk_factor;

    replica__promise_vote(r, term, voted_for);
    fl_store_set_vote(r->store, term, voted_for);
    if (r->busy_until_us < r->place.time->now_us + cost_us)
        r->busy_until_us = r->place.time->now_us + cost_us;
}

static void op_append(void *ctx, struct fl_append *append)
{
    struct replica *r = ctx;

    r->counts.appends++;
    replica__note_append(r, append);
    fl_store_append(r->store, append);
}

static void op_install(void *ctx, struct fl_snapshot *snapshot)
{
    struct replica_event *event = queue_event(ctx);

    event->type = EVENT_INSTALL;
    event->snapshot = snapshot;
}

static void op_compact(void *ctx, uint64_t first)
{
    struct replica *r = ctx;

    fl_store_compact(r->store, first);
}

static void on_message(void *ctx, const void *data, size_t len);
static void on_snapshot(void *ctx, const void *data, size_t len);

static void op_send(void *ctx, const struct fl_raft_message *message)
{
    struct replica *r = ctx;
    struct fl_buf buf = FL_BUF_INIT;

    if (message->to == 0 || message->to > r->n_peers)
        return;
    fl_buf_put_u64(&buf, r->id);
    fl_raft_message_encode(&buf, message);
    net_datagram(r->net, &r->place, r->busy_until_us, &r->peers[message->to].place, on_message,
                 &r->peers[message->to], buf.data, buf.len);
    fl_buf_deinit(&buf);
}

static void read_all(struct replica *r, struct fl_buf *buf)
{
    const struct fl_store_snapshot *content = r->newest->content;
    struct fl_snapshot_reader *reader;
    struct fl_store_fault fault;
    long n;

    if (fl_snapshot_reader_new(r->store, content->path, &reader, &fault) < 0) {
        timeline_fail(r->place.time, "node %u cannot read its snapshot: %.100s", r->id, fault.text);
        return;
    }
    do {
        uint8_t *room = fl_buf_reserve(buf, 4096);

        n = fl_snapshot_reader_read(reader, room, 4096);
        if (n > 0)
            fl_buf_commit(buf, (size_t)n);
    } while (n > 0);
    fl_snapshot_reader_free(reader);
}

/* One transfer at a time (rule 9): as long as one may be under way, no other begins. */
static void op_send_snapshot(void *ctx, uint64_t to, const struct fl_raft_message *message)
{
    struct replica *r = ctx;
    struct fl_buf header = FL_BUF_INIT, buf = FL_BUF_INIT;
    uint64_t sent_us = r->place.time->now_us + timeline_between(r->place.time, MS, 200 * MS);

    if (to == 0 || to > r->n_peers || r->newest == NULL ||
        r->sending_until_us[to] > r->place.time->now_us)
        return;
    r->sending_until_us[to] = sent_us + S;
    fl_raft_message_encode(&header, message);
    fl_buf_put_u64(&buf, r->id);
    fl_buf_put_u32(&buf, (uint32_t)header.len);
    fl_buf_put(&buf, header.data, header.len);
    read_all(r, &buf);
    net_datagram(r->net, &r->place, sent_us, &r->peers[to].place, on_snapshot, &r->peers[to],
                 buf.data, buf.len);
    fl_buf_deinit(&header);
    fl_buf_deinit(&buf);
}

static void op_apply(void *ctx, uint64_t index, struct fl_entry *entry)
{
    struct replica_event *event = queue_event(ctx);

    event->index = index;
    event->entry = fl_entry_ref(entry);
}

static void op_role(void *ctx, enum fl_engine_role role, uint64_t term, uint64_t leader_id)
{
    struct replica_event *event = queue_event(ctx);

    event->type = EVENT_ROLE;
    event->is_leader = role == FL_ROLE_LEADER;
    event->term = term;
    event->leader_id = leader_id;
}

static void op_confirmed(void *ctx, uint64_t round, uint64_t read_index)
{
    struct replica_event *event = queue_event(ctx);

    event->type = EVENT_CONFIRMED;
    event->round = round;
    event->index = read_index;
}

static const struct fl_engine_ops engine_ops = {
    .set_vote = op_set_vote,
    .append = op_append,
    .install = op_install,
    .compact = op_compact,
    .send = op_send,
    .send_snapshot = op_send_snapshot,
    .apply = op_apply,
    .role = op_role,
    .confirmed = op_confirmed,
};

/* --- The node's wishes --- */

static uint64_t node_propose(void *ctx, const void *data, size_t len)
{
    struct replica *r = ctx;
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, 0, data, (uint32_t)len);
    int64_t index = fl_engine_submit(r->engine, now_ms(r), entry);

    fl_entry_unref(entry);
    if (index <= 0)
        return 0;
    replica__check_proposal(r, data, len, (uint64_t)index);
    return (uint64_t)index;
}

static void node_confirm(void *ctx, uint64_t round)
{
    struct replica *r = ctx;

    r->round_begun_us[round % REPLICA_ROUNDS] = r->place.time->now_us;
    r->last_round = round;
    fl_engine_confirm(r->engine, now_ms(r), round);
}

static void node_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    struct replica *r = ctx;

    replica__check_frame(r, link, data, len);
    for (unsigned i = 0; i < REPLICA_LINKS_MAX; i++)
        if (r->links[i].conn != NULL && r->links[i].id == link)
            conn_send(r->links[i].conn, &r->place, data, len);
}

static int node_transfer(void *ctx, uint64_t node_id)
{
    struct replica *r = ctx;

    return fl_engine_transfer(r->engine, now_ms(r), node_id);
}

static void node_observe(void *ctx, const struct fl_effect *effect)
{
    struct replica *r = ctx;

    r->effects = truth_hash_effect(r->effects, effect);
}

static const struct fl_node_ops node_ops = {
    .propose = node_propose,
    .confirm = node_confirm,
    .send = node_send,
    .transfer = node_transfer,
    .observe = node_observe,
};

/* --- Snapshots --- */

struct bytes {
    const uint8_t *data;
    size_t len, at;
};

static struct fl_machine *load_machine(struct replica *r, const struct fl_snapshot *snapshot)
{
    const struct fl_store_snapshot *content = snapshot->content;
    const uint64_t hash_key[2] = {r->id, r->place.life};
    struct fl_machine *machine = NULL;
    struct fl_snapshot_reader *reader;
    struct fl_store_fault fault;
    int e = fl_snapshot_reader_new(r->store, content->path, &reader, &fault);

    if (e == FL_OK) {
        e = fl_machine_load(hash_key, fl_snapshot_reader_read, reader, &machine);
        fl_snapshot_reader_free(reader);
    }
    if (e < 0) {
        timeline_fail(r->place.time, "node %u cannot load the snapshot up to %llu: %s", r->id,
                      (ull)snapshot->index, fl_error_text(e));
        return NULL;
    }
    if (snapshot->index > r->truth->committed)
        timeline_fail(r->place.time, "R9: node %u has a snapshot of what is not committed", r->id);
    else
        r->effects = r->truth->facts[snapshot->index].effects;
    return machine;
}

static int save_piece(void *ctx, const void *data, size_t len)
{
    fl_buf_put(ctx, data, len);
    return FL_OK;
}

static int write_snapshot(struct replica *r, const struct fl_snapshot *meta, const void *data,
                          size_t len, char *path)
{
    struct fl_snapshot_writer *writer;
    int e = fl_snapshot_writer_new(r->store, meta, &writer);

    if (e < 0)
        return e;
    e = fl_snapshot_writer_write(writer, data, len);
    if (e < 0) {
        fl_snapshot_writer_abort(writer);
        return e;
    }
    return fl_snapshot_writer_finish(writer, path);
}

static void set_newest(struct replica *r, struct fl_snapshot *snapshot)
{
    fl_snapshot_ref(snapshot);
    fl_snapshot_unref(r->newest);
    r->newest = snapshot;
    r->snapshot_index = snapshot->index;
}

static void finish_taking(struct replica *r)
{
    struct fl_snapshot *snapshot = r->taking;
    char path[512];
    int e = write_snapshot(r, snapshot, r->taken.data, r->taken.len, path);

    if (e == FL_OK)
        e = fl_snapshot_file_commit(r->store, path, snapshot);
    r->taking = NULL;
    fl_buf_clear(&r->taken);
    if (e == FL_OK) {
        r->counts.snapshots++;
        replica__promise_snapshot(r, snapshot->index, false);
        set_newest(r, snapshot);
        fl_engine_snapshot_finish(r->engine, now_ms(r), snapshot);
    } else {
        fl_engine_snapshot_abort(r->engine);
    }
    fl_snapshot_unref(snapshot);
}

struct received {
    struct fl_store_snapshot stored;
    struct fl_disk *disk;
};

/* Content that is not in place yet: the file goes when nobody wants it. */
static void free_received(void *content)
{
    struct received *received = content;

    (void)received->disk->unlink(received->disk, received->stored.path);
    free(received);
}

static void receive_snapshot(struct replica *r, const void *data, size_t len)
{
    struct fl_reader reader = fl_reader_from(data, len);
    uint64_t from = fl_reader_u64(&reader);
    size_t header_len = fl_reader_u32(&reader);
    const uint8_t *header = fl_reader_bytes(&reader, header_len);
    size_t size = fl_reader_left(&reader);
    const uint8_t *content = fl_reader_bytes(&reader, size);
    struct received *received;
    struct fl_raft_message *message;
    char path[512];

    if (header == NULL || fl_raft_message_decode(header, header_len, &message) < 0 ||
        message->type != FL_RAFT_INSTALL_SNAPSHOT) {
        timeline_fail(r->place.time, "node %u cannot read a snapshot's header", r->id);
        return;
    }
    if (write_snapshot(r, message->snapshot, content, size, path) == FL_OK) {
        received = fl_xcalloc(1, sizeof *received);
        snprintf(received->stored.path, sizeof received->stored.path, "%s", path);
        received->disk = &r->disk->disk;
        message->snapshot->content = received;
        message->snapshot->free_content = free_received;
        fl_engine_receive(r->engine, now_ms(r), from, message);
    }
    fl_raft_message_free(message);
}

static void install(struct replica *r, struct fl_snapshot *snapshot)
{
    struct received *received = snapshot->content;
    struct fl_machine *machine;
    char path[512];
    int e;

    snprintf(path, sizeof path, "%s", received->stored.path);
    free(received);
    snapshot->content = NULL;
    e = fl_snapshot_file_commit(r->store, path, snapshot);
    if (e < 0) { /* the daemon ends here */
        r->disk->disk.fail(&r->disk->disk, "a snapshot cannot be put in place");
        return;
    }
    machine = load_machine(r, snapshot);
    if (machine == NULL)
        return;
    fl_store_reset(r->store, snapshot->index + 1);
    r->counts.installs++;
    replica__promise_snapshot(r, snapshot->index, true);
    set_newest(r, snapshot);
    fl_node_take_machine(r->node, now_ms(r), machine);
    fl_engine_installed(r->engine, now_ms(r));
}

/* --- A turn of its loop --- */

static void tell_members(struct replica *r)
{
    struct fl_member_info members[MEMBERS_MAX];
    unsigned n = fl_engine_members(r->engine, members, MEMBERS_MAX);
    struct fl_buf buf = FL_BUF_INIT;

    for (unsigned i = 0; i < n; i++)
        fl_buf_printf(&buf, "%s%llu=%s", i == 0 ? "" : ",", (ull)members[i].id, members[i].address);
    fl_node_set_members(r->node, fl_engine_members_index(r->engine),
                        (struct fl_str){(const char *)buf.data, buf.len});
    fl_buf_deinit(&buf);
}

static void apply(struct replica *r, const struct replica_event *event)
{
    const struct fl_entry *entry = event->entry;
    bool is_command = entry->type == FL_ENTRY_COMMAND;

    truth_applies(r->truth, r->id, event->index, entry, fl_engine_term(r->engine));
    if (fl_node_applied(r->node, now_ms(r), event->index, entry->term,
                        is_command ? entry->data : NULL, is_command ? entry->len : 0) != FL_OK)
        timeline_fail(r->place.time, "node %u cannot apply entry %llu", r->id, (ull)event->index);
    truth_applied(r->truth, r->id, event->index, r->effects);
    replica__note_applied(r, event->index, entry->term);
    if (entry->type == FL_ENTRY_CHANGE)
        tell_members(r);
}

static void follow_role(struct replica *r, const struct replica_event *event)
{
    replica__note_role(r, event->term, event->is_leader);
    if (event->is_leader) {
        r->counts.leaders++;
        truth_leads(r->truth, r->id, event->term, fl_engine_last_index(r->engine));
        timeline_tell(r->place.time, "%s leads term %llu", r->place.name, (ull)event->term);
    }
    fl_node_role(r->node, now_ms(r), event->term, event->is_leader, event->leader_id);
}

static void confirmed(struct replica *r, const struct replica_event *event)
{
    uint64_t begun_us = r->round_begun_us[event->round % REPLICA_ROUNDS];

    if (event->round + REPLICA_ROUNDS > r->last_round && begun_us > r->confirmed_begun_us)
        r->confirmed_begun_us = begun_us;
    fl_node_confirmed(r->node, now_ms(r), event->round, event->index);
}

static void handle_events(struct replica *r)
{
    while (r->events_at < r->n_events) {
        struct replica_event event = r->events[r->events_at++];

        switch (event.type) {
        case EVENT_APPLY:
            apply(r, &event);
            fl_entry_unref(event.entry);
            break;
        case EVENT_ROLE:
            follow_role(r, &event);
            break;
        case EVENT_CONFIRMED:
            confirmed(r, &event);
            break;
        case EVENT_INSTALL:
            timeline_tell(r->place.time, "%s installs the snapshot up to entry %llu", r->place.name,
                          (ull)event.snapshot->index);
            install(r, event.snapshot);
            fl_snapshot_unref(event.snapshot);
            break;
        }
    }
    r->events_at = r->n_events = 0;
}

static void on_disk(void *ctx, uint64_t life, const void *data, size_t len);
static void on_taken(void *ctx, uint64_t life, const void *data, size_t len);

static void begin_disk(struct replica *r)
{
    struct timeline *t = r->place.time;
    uint64_t us = timeline_between(t, 150, 1500) * r->disk_factor;

    if (r->disk_is_busy || r->store->queued.n + r->store->batch.n == 0)
        return;
    if (fl_store_is_full(r->store))
        us += 200 * MS;
    r->disk_is_busy = true;
    timeline_in(t, us, on_disk, r, r->place.life);
}

static void maybe_take_snapshot(struct replica *r)
{
    struct fl_snapshot *snapshot;

    if (r->taking != NULL ||
        fl_engine_applied_index(r->engine) < r->snapshot_index + r->config->snapshot_every ||
        !fl_engine_snapshot_begin(r->engine, &snapshot))
        return;
    r->taking = snapshot;
    FL_REQUIRE(fl_machine_save(fl_node_machine(r->node), save_piece, &r->taken) == FL_OK);
    timeline_in(r->place.time, timeline_between(r->place.time, MS, 300 * MS) * r->disk_factor,
                on_taken, r, r->place.life);
}

static void end_turn(struct replica *r)
{
    uint64_t deadline;

    handle_events(r);
    fl_node_flush(r->node, now_ms(r));
    handle_events(r);
    maybe_take_snapshot(r);
    begin_disk(r);
    fl_node_set_disk_full(r->node, fl_store_is_full(r->store));
    deadline = fl_engine_deadline(r->engine);
    if (fl_node_deadline(r->node) < deadline)
        deadline = fl_node_deadline(r->node);
    alarm_set(&r->alarm, deadline > now_ms(r) ? deadline : now_ms(r) + 1);
}

/* Everything that happens to it goes through here: the disk may fail in it, which ends it. */
typedef void (*turn_fn)(struct replica *r, const void *data, size_t len);

static void turn(struct replica *r, turn_fn fn, const void *data, size_t len)
{
    r->disk->failed = &r->gave_up;
    if (_setjmp(r->gave_up) == 0) {
        fn(r, data, len);
        end_turn(r);
        r->disk->failed = NULL;
        return;
    }
    r->disk->failed = NULL;
    timeline_tell(r->place.time, "%s gives up: %s", r->place.name, r->disk->failure);
    r->counts.gave_up++;
    replica_crash(r, false);
}

static void do_alarm(struct replica *r, const void *data, size_t len)
{
    (void)data;
    (void)len;
    if (now_ms(r) >= fl_engine_deadline(r->engine))
        fl_engine_tick(r->engine, now_ms(r));
    if (now_ms(r) >= fl_node_deadline(r->node))
        fl_node_tick(r->node, now_ms(r));
}

static void on_alarm(void *ctx)
{
    struct replica *r = ctx;

    if (replica_is_up(r))
        turn(r, do_alarm, NULL, 0);
}

static void do_disk(struct replica *r, const void *data, size_t len)
{
    struct fl_append *append;

    (void)data;
    (void)len;
    r->disk_is_busy = false;
    if (r->disk_fault_in != 0) {
        r->disk->fault = r->disk_fault;
        r->disk->fault_at = r->disk->calls + r->disk_fault_in;
        r->disk_fault_in = 0;
    }
    fl_store_run(r->store);
    r->disk->fault_at = 0;
    while ((append = fl_store_complete(r->store)) != NULL) {
        replica__promise_append(r, append);
        fl_engine_appended(r->engine, now_ms(r), append);
    }
}

static void on_disk(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct replica *r = ctx;

    if (life != r->place.life || !replica_is_up(r))
        return;
    if (place_is_paused(&r->place))
        timeline_at(r->place.time, r->place.paused_until_us, on_disk, r, life, data, len);
    else
        turn(r, do_disk, NULL, 0);
}

static void do_taken(struct replica *r, const void *data, size_t len)
{
    (void)data;
    (void)len;
    finish_taking(r);
}

static void on_taken(void *ctx, uint64_t life, const void *data, size_t len)
{
    struct replica *r = ctx;

    if (life != r->place.life || !replica_is_up(r))
        return;
    if (place_is_paused(&r->place))
        timeline_at(r->place.time, r->place.paused_until_us, on_taken, r, life, data, len);
    else
        turn(r, do_taken, NULL, 0);
}

/* --- From other nodes --- */

static void do_message(struct replica *r, const void *data, size_t len)
{
    struct fl_reader reader = fl_reader_from(data, len);
    uint64_t from = fl_reader_u64(&reader);
    struct fl_raft_message *message;
    int e = fl_raft_message_decode((const uint8_t *)data + 8, len - 8, &message);

    if (e < 0) {
        timeline_fail(r->place.time, "node %u cannot read a message", r->id);
        return;
    }
    fl_engine_receive(r->engine, now_ms(r), from, message);
    fl_raft_message_free(message);
}

static void on_message(void *ctx, const void *data, size_t len)
{
    struct replica *r = ctx;

    if (replica_is_up(r))
        turn(r, do_message, data, len);
}

static void on_snapshot(void *ctx, const void *data, size_t len)
{
    struct replica *r = ctx;

    if (replica_is_up(r))
        turn(r, receive_snapshot, data, len);
}

/* --- From gateways --- */

struct frame {
    struct replica_link *link;
    const uint8_t *data;
    size_t len;
};

static void do_frame(struct replica *r, const void *data, size_t len)
{
    const struct frame *frame = data;

    (void)len;
    if (frame->data == NULL) {
        frame->link->conn = NULL;
        fl_node_link_down(r->node, now_ms(r), frame->link->id);
        return;
    }
    replica__note_request(r, frame->link->id, frame->data + 1, frame->len - 1);
    if (fl_node_request(r->node, now_ms(r), frame->link->id, frame->data + 1, frame->len - 1) < 0)
        timeline_fail(r->place.time, "node %u cannot read a request", r->id);
}

static void hear_gateway(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct replica_link *link = ctx;
    struct frame frame = {link, data, len};

    (void)conn;
    turn(link->replica, do_frame, &frame, sizeof frame);
}

static void do_link_up(struct replica *r, const void *data, size_t len)
{
    const struct frame *frame = data;

    (void)len;
    fl_node_link_up(r->node, now_ms(r), frame->link->id);
}

void replica_hear_newcomer(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct replica *r = ctx;
    struct frame frame = {NULL, NULL, 0};

    (void)len;
    for (unsigned i = 0; i < REPLICA_LINKS_MAX && frame.link == NULL; i++)
        if (r->links[i].conn == NULL)
            frame.link = &r->links[i];
    if (data == NULL || frame.link == NULL)
        return;
    *frame.link = (struct replica_link){r, ++r->last_link, conn};
    conn_set_hearer(conn, &r->place, hear_gateway, frame.link);
    conn_send(conn, &r->place, DOOR_HELLO, sizeof DOOR_HELLO);
    turn(r, do_link_up, &frame, sizeof frame);
}

/* --- From operators --- */

struct order {
    int (*fn)(struct fl_engine *engine, uint64_t now_ms, uint64_t id);
    unsigned id;
    int *ret;
};

static int add(struct fl_engine *engine, uint64_t at_ms, uint64_t id)
{
    char address[16];

    snprintf(address, sizeof address, "n%u:1", (unsigned)id);
    return fl_engine_add(engine, at_ms, id, address);
}

static void do_order(struct replica *r, const void *data, size_t len)
{
    const struct order *order = data;

    (void)len;
    *order->ret = order->fn(r->engine, now_ms(r), order->id);
}

static int obey(struct replica *r, int (*fn)(struct fl_engine *, uint64_t, uint64_t), unsigned id)
{
    int ret = FL_E_CLOSED;
    struct order order = {fn, id, &ret};

    if (replica_is_up(r) && !place_is_paused(&r->place))
        turn(r, do_order, &order, sizeof order);
    return ret;
}

int replica_add(struct replica *r, unsigned id)
{
    return obey(r, add, id);
}

int replica_promote(struct replica *r, unsigned id)
{
    return obey(r, fl_engine_promote, id);
}

int replica_remove(struct replica *r, unsigned id)
{
    return obey(r, fl_engine_remove, id);
}

int replica_transfer(struct replica *r, unsigned id)
{
    return obey(r, fl_engine_transfer, id);
}

void replica_pause(struct replica *r, uint64_t until_us)
{
    if (until_us > r->place.paused_until_us)
        r->place.paused_until_us = until_us;
}

/* --- Life --- */

void replica_init(struct replica *r, struct net *net, struct truth *truth, unsigned id,
                  const struct replica_config *config)
{
    r->net = net;
    r->truth = truth;
    r->id = id;
    r->config = config;
    r->place.time = net->time;
    r->disk = mem_disk_new();
    r->disk_factor = 1;
    r->heard = fl_xcalloc(REPLICA_SESSIONS, sizeof *r->heard);
    r->promise.floor = UINT64_MAX;
    alarm_init(&r->alarm, &r->place, on_alarm, r);
}

static struct fl_append *first_append(const struct replica *r)
{
    struct fl_member_info members[REPLICAS_MAX];
    char addresses[REPLICAS_MAX][16];
    struct fl_append *append = fl_xcalloc(1, sizeof *append);

    for (unsigned i = 0; i < r->config->voters; i++) {
        snprintf(addresses[i], sizeof addresses[i], "n%u:1", i + 1);
        members[i] = (struct fl_member_info){i + 1, addresses[i], FL_MEMBER_VOTER};
    }
    append->index = 1;
    append->n = 1;
    append->entries = fl_xalloc(sizeof *append->entries);
    append->entries[0] = fl_engine_bootstrap_entry(members, r->config->voters);
    return append;
}

static bool open_store(struct replica *r, struct fl_store_recovered *found)
{
    struct fl_store_config config = {.directory = MEM_DIRECTORY,
                                     .identity = {.cluster_id = {1}, .node_id = r->id},
                                     .disk = &r->disk->disk,
                                     .segment_bytes = r->config->segment_bytes,
                                     .reserve_bytes = r->config->reserve_bytes,
                                     .synchronous = true};
    struct fl_store_fault fault = {{0}};
    int e = fl_store_open(&config, found, &r->store, &fault);

    if (e == FL_OK)
        return true;
    r->store = NULL;
    if (e != FL_E_NOSPACE && !r->is_ruined)
        timeline_fail(r->place.time, "node %u does not start: %.150s", r->id, fault.text);
    return false;
}

static bool recover(struct replica *r, struct fl_store_recovered *found)
{
    if (!open_store(r, found))
        return false;
    replica__check_recovered(r, found);
    if (!found->is_new || r->is_joiner)
        return true;
    fl_store_recovered_deinit(found);
    fl_store_set_vote(r->store, 1, 0);
    fl_store_append(r->store, first_append(r));
    fl_store_run(r->store);
    fl_append_free(fl_store_complete(r->store));
    fl_store_close(r->store);
    if (!open_store(r, found))
        return false;
    replica__check_recovered(r, found);
    return true;
}

static void start(struct replica *r, const void *data, size_t len)
{
    struct fl_store_recovered found = {0};
    char address[16];
    struct fl_engine_config config = {.id = r->id,
                                      .address = address,
                                      .election_timeout_ms = r->config->election_ms,
                                      .tick_ms = r->config->tick_ms,
                                      .trailing = r->config->trailing,
                                      .rules_off = r->config->rules_off,
                                      .seed = (unsigned)fl_random_u64(&r->place.time->random)};
    struct fl_node_config node_config = {.node_id = r->id,
                                         .hash_key = {r->id, r->place.life},
                                         .election_timeout_ms = r->config->election_ms,
                                         .pending_max = r->config->pending_max};

    (void)data;
    (void)len;
    snprintf(address, sizeof address, "n%u:1", r->id);
    if (!recover(r, &found))
        r->disk->disk.fail(&r->disk->disk, "it does not start");
    r->effects = 0;
    r->node = fl_node_new(&node_config, &node_ops, r);
    if (found.snapshot != NULL) {
        struct fl_machine *machine = load_machine(r, found.snapshot);

        set_newest(r, found.snapshot);
        if (machine != NULL)
            fl_node_take_machine(r->node, now_ms(r), machine);
    }
    r->engine = fl_engine_new(&config, &engine_ops, r);
    if (fl_engine_start(r->engine, now_ms(r), found.term, found.voted_for, found.snapshot,
                        found.start_index, found.entries, found.n) < 0)
        timeline_fail(r->place.time, "node %u: log and snapshot do not fit", r->id);
    fl_store_recovered_deinit(&found);
}

void replica_start(struct replica *r)
{
    if (replica_is_up(r) || r->is_ruined)
        return;
    r->place.is_up = true;
    r->place.life++;
    r->place.paused_until_us = r->busy_until_us = 0;
    r->counts.starts++;
    r->settled_ms = r->confirmed_begun_us = r->term = 0;
    r->leads = false;
    memset(r->beats, 0, sizeof r->beats);
    memset(r->sending_until_us, 0, sizeof r->sending_until_us);
    turn(r, start, NULL, 0);
}

/* --- Death --- */

struct cut_short {
    struct mem_disk *disk;
    unsigned left;
    jmp_buf *jump;
};

static void on_change(void *ctx)
{
    struct cut_short *cut = ctx;

    if (cut->left-- == 0)
        longjmp(*cut->jump, 1);
}

/* The power goes in the middle of what was being written. */
static void write_some(struct replica *r)
{
    jmp_buf cut_off;
    struct cut_short cut = {r->disk, (unsigned)timeline_between(r->place.time, 0, 12), &cut_off};

    if (r->store == NULL || r->store->queued.n == 0)
        return;
    r->disk->failed = &cut_off;
    r->disk->changed = on_change;
    r->disk->ctx = &cut;
    if (_setjmp(cut_off) == 0)
        fl_store_run(r->store);
    r->disk->changed = NULL;
    r->disk->failed = NULL;
}

static struct mem_disk *disk_after(struct replica *r, bool loses_power)
{
    struct mem_choices choices = {.random = &r->place.time->random};

    if (!loses_power)
        return mem_disk_kill(r->disk);
    write_some(r);
    return mem_disk_crash(r->disk, &choices);
}

static void free_parts(struct replica *r)
{
    while (r->events_at < r->n_events) {
        fl_entry_unref(r->events[r->events_at].entry);
        fl_snapshot_unref(r->events[r->events_at++].snapshot);
    }
    r->events_at = r->n_events = 0;
    fl_engine_free(r->engine);
    fl_node_free(r->node);
    fl_snapshot_unref(r->newest);
    fl_snapshot_unref(r->taking);
    fl_buf_clear(&r->taken);
    if (r->store != NULL)
        fl_store__free(r->store);
    r->engine = NULL;
    r->node = NULL;
    r->newest = r->taking = NULL;
    r->store = NULL;
    r->snapshot_index = 0;
    r->disk_is_busy = false;
}

void replica_crash(struct replica *r, bool loses_power)
{
    struct mem_disk *disk;
    uint64_t capacity = r->disk->capacity;

    if (!r->place.is_up)
        return;
    timeline_tell(r->place.time, "%s %s", r->place.name,
                  loses_power ? "loses its power" : "is killed");
    r->counts.crashes++;
    disk = disk_after(r, loses_power);
    disk->capacity = capacity;
    r->place.is_up = false;
    r->place.life++;
    net_end_place(r->net, &r->place, loses_power);
    memset(r->links, 0, sizeof r->links);
    alarm_set(&r->alarm, UINT64_MAX);
    free_parts(r);
    mem_disk_free(r->disk);
    r->disk = disk;
}

void replica_deinit(struct replica *r)
{
    if (r->disk == NULL)
        return;
    if (r->place.is_up)
        replica_crash(r, false);
    mem_disk_free(r->disk);
    free(r->events);
    free(r->heard);
    free(r->promise.terms);
    fl_buf_deinit(&r->taken);
}
