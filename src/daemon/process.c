#include "daemon/process.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "gateway/dialer.h"
#include "gateway/gateway.h"
#include "http/site.h"
#include "net/loop.h"
#include "net/mailbox.h"
#include "raft/member.h"

/* How long calls may go on when the process is asked to stop: waits for locks would hold it for
 * hours. */
#define DRAIN_MS  1000
#define WHY_BYTES 512

struct front;

/* A node of another process, as the gateway sees it. */
struct remote {
    struct front *front;
    unsigned link;
    uint64_t node_id;
    char *address;            /* owned */
    struct fl_dialer *dialer; /* NULL: this slot is free */
};

/* The gateway's thread. */
struct front {
    const struct fl_options *options;
    pthread_t thread;
    struct fl_loop *loop;
    struct fl_gateway *gateway;
    struct fl_site *site; /* NULL: no HTTP port */
    struct remote remotes[FL_ROUTER_LINKS_MAX];

    /* The node of this process, if any. */
    unsigned local_link;
    struct fl_mailbox *from_node; /* on the gateway's loop */
    struct fl_mailbox *to_node;   /* on the node's loop */
    struct fl_member *member;     /* for its figures only */

    /* Stopping is told twice by the node's thread: first to drain, and, once that is told back and
     * the node has closed our link, to end. Until then the node may send to us. */
    uv_async_t stop;
    unsigned n_draining; /* of gateway and site */
    bool is_drained;
    struct fl_mailbox *to_main; /* on the node's loop: "drained" */
};

struct process {
    const struct fl_options *options;
    struct fl_loop *loop; /* the node's, and the signals' */
    struct fl_member *member;
    uint64_t link;
    struct front front;
    struct fl_mailbox *from_front; /* frames of the gateway in this process */
    struct fl_mailbox *drained;
    uv_signal_t signals[2];
    bool is_stopping;
};

/* --- The gateway's side --- */

static void front_send_local(void *ctx, const void *data, size_t len)
{
    struct front *front = ctx;

    fl_mailbox_send(front->to_node, data, len);
}

static void front_receive_local(void *ctx, const uint8_t *data, size_t len)
{
    struct front *front = ctx;

    if (fl_gateway_link_frame(front->gateway, front->local_link, data, len) < 0)
        fl_error("gateway", "the node of this process sent what cannot be read: dropped");
}

static void remote_send(void *ctx, const void *data, size_t len)
{
    const struct remote *remote = ctx;

    (void)fl_dialer_send(remote->dialer, data,
                         len); /* what is lost with a link is sent to the next */
}

static void remote_reset(void *ctx, const char *why)
{
    const struct remote *remote = ctx;

    fl_dialer_reset(remote->dialer, why);
}

static void remote_up(void *ctx)
{
    const struct remote *remote = ctx;

    fl_gateway_link_up(remote->front->gateway, remote->link);
}

static void remote_down(void *ctx, const char *why)
{
    const struct remote *remote = ctx;

    (void)why;
    fl_gateway_link_down(remote->front->gateway, remote->link);
}

static int remote_frame(void *ctx, const uint8_t *data, size_t len)
{
    const struct remote *remote = ctx;

    return fl_gateway_link_frame(remote->front->gateway, remote->link, data, len);
}

static const struct fl_dialer_ops remote_ops = {
    .up = remote_up,
    .down = remote_down,
    .frame = remote_frame,
};

static struct remote *find_remote(struct front *front, uint64_t node_id)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(front->remotes); i++) {
        struct remote *remote = &front->remotes[i];

        if (node_id == 0 ? remote->dialer == NULL
                         : remote->dialer != NULL && remote->node_id == node_id)
            return remote;
    }
    return NULL;
}

static void add_remote(struct front *front, uint64_t node_id, const char *address)
{
    struct remote *remote = find_remote(front, 0);
    struct fl_gateway_link link = {
        .node_id = node_id,
        .send = remote_send,
        .reset = remote_reset,
        .ctx = remote,
    };

    FL_REQUIRE(remote != NULL); /* there are far fewer members */
    remote->front = front;
    remote->node_id = node_id;
    remote->address = fl_xstrdup(address);
    remote->link = fl_gateway_add_link(front->gateway, &link);
    remote->dialer =
        fl_dialer_new(front->loop, front->options->cluster, node_id, address, &remote_ops, remote);
}

static void free_remote(struct remote *remote)
{
    fl_dialer_free(remote->dialer);
    free(remote->address);
    *remote = (struct remote){0};
}

/* Members that came, went or moved. */
static void front_on_members(void *ctx, struct fl_str members)
{
    struct front *front = ctx;
    struct fl_options told = {0};
    char *text = fl_xcalloc(members.len + 1, 1);

    memcpy(text, members.data, members.len);
    if (fl_options_parse_peers(&told, text)) {
        for (size_t i = 0; i < FL_ARRAY_LEN(front->remotes); i++) {
            struct remote *remote = &front->remotes[i];
            const char *address = fl_options_peer(&told, remote->node_id);

            if (remote->dialer == NULL ||
                (address != NULL && strcmp(address, remote->address) == 0))
                continue;
            fl_gateway_retire_link(front->gateway, remote->link);
            free_remote(remote);
        }
        for (unsigned i = 0; i < told.n_peers; i++) {
            if (told.peers[i].id != front->options->node_id &&
                find_remote(front, told.peers[i].id) == NULL)
                add_remote(front, told.peers[i].id, told.peers[i].address);
        }
    }
    fl_options_deinit(&told);
    free(text);
}

static void add_links(struct front *front)
{
    const struct fl_options *options = front->options;

    for (unsigned i = 0; i < options->n_peers; i++) {
        struct fl_gateway_link local = {
            .node_id = options->node_id,
            .is_local = true,
            .send = front_send_local,
            .ctx = front,
        };

        if (options->peers[i].id == options->node_id)
            front->local_link = fl_gateway_add_link(front->gateway, &local);
        else
            add_remote(front, options->peers[i].id, options->peers[i].address);
    }
}

static void front_on_drained(void *ctx)
{
    struct front *front = ctx;

    if (--front->n_draining > 0)
        return;
    front->is_drained = true;
    fl_mailbox_send(front->to_main, "", 0);
}

/* Leaves nothing on the loop, so that it ends. */
static void front_end(struct front *front)
{
    for (size_t i = 0; i < FL_ARRAY_LEN(front->remotes); i++)
        free_remote(&front->remotes[i]);
    fl_site_free(front->site);
    fl_gateway_free(front->gateway);
    fl_mailbox_free(front->from_node);
    uv_close((uv_handle_t *)&front->stop, NULL);
}

static void front_on_stop(uv_async_t *async)
{
    struct front *front = async->data;

    if (front->is_drained) {
        front_end(front);
        return;
    }
    front->n_draining = front->site != NULL ? 2 : 1;
    if (front->site != NULL)
        fl_site_drain(front->site, DRAIN_MS, front_on_drained, front);
    fl_gateway_drain(front->gateway, DRAIN_MS, front_on_drained, front);
}

static void *run_front(void *ctx)
{
    struct front *front = ctx;

    if (front->to_node != NULL)
        fl_gateway_link_up(front->gateway, front->local_link);
    fl_loop_run(front->loop);
    fl_loop_free(front->loop);
    return NULL;
}

static struct fl_figures *take_figures(void *ctx)
{
    return fl_member_take_figures(ctx);
}

/* On the calling thread, so that a failure is told before anything runs. */
static int prepare_front(struct front *front, char *why)
{
    struct fl_gateway_config config = {
        .address = front->options->listen,
        .members = front_on_members,
        .members_ctx = front,
    };
    struct fl_site_config site = {
        .address = front->options->http_listen,
        .version = FL_VERSION,
        .take_figures = front->member != NULL ? take_figures : NULL,
        .ctx = front->member,
    };
    int r;

    front->loop = fl_loop_new();
    FL_REQUIRE(front->loop != NULL);
    r = fl_gateway_new(front->loop, &config, &front->gateway, why);
    if (r == FL_OK && site.address != NULL)
        r = fl_site_new(front->loop, front->gateway, &site, &front->site, why);
    if (r < 0)
        return r;
    front->from_node = fl_mailbox_new(front->loop, front_receive_local, NULL, front);
    FL_REQUIRE(uv_async_init(fl_loop_uv(front->loop), &front->stop, front_on_stop) == 0);
    front->stop.data = front;
    add_links(front);
    return FL_OK;
}

/* --- The node's side --- */

static void node_send_local(void *ctx, const void *data, size_t len)
{
    struct process *p = ctx;

    fl_mailbox_send(p->front.from_node, data, len);
}

static void node_receive_local(void *ctx, const uint8_t *data, size_t len)
{
    struct process *p = ctx;

    fl_member_link_receive(p->member, p->link, data, len);
}

static int start_member(struct process *p, char *why)
{
    const struct fl_options *o = p->options;
    struct fl_member_peer peers[FL_PEERS_MAX];
    struct fl_member_config config = {
        .node_id = o->node_id,
        .cluster = o->cluster,
        .directory = o->directory,
        .listen = o->peer_listen,
        .peers = peers,
        .n_peers = o->n_peers,
        .election_timeout_ms = o->election_timeout_ms,
        .snapshot_every = o->snapshot_every,
        .bootstrap = o->bootstrap,
        .join = o->join,
        .version = FL_VERSION,
        .meter_prefixes = (const char *const *)o->metrics_prefixes,
        .n_meter_prefixes = o->n_metrics_prefixes,
    };

    for (unsigned i = 0; i < o->n_peers; i++)
        peers[i] = (struct fl_member_peer){o->peers[i].id, o->peers[i].address};
    return fl_member_new(p->loop, &config, &p->member, why);
}

/* --- Stopping: first the clients, then the node --- */

static void end_loop(void *ctx)
{
    struct process *p = ctx;

    fl_mailbox_free(p->from_front);
    fl_mailbox_free(p->drained);
    for (size_t i = 0; i < FL_ARRAY_LEN(p->signals); i++)
        uv_close((uv_handle_t *)&p->signals[i], NULL);
}

static void on_front_drained(void *ctx, const uint8_t *data, size_t len)
{
    struct process *p = ctx;

    (void)data;
    (void)len;
    if (p->member != NULL)
        fl_member_link_close(p->member, p->link);
    uv_async_send(&p->front.stop);
    pthread_join(p->front.thread, NULL);
    if (p->member != NULL)
        fl_member_stop(p->member, end_loop, p);
    else
        end_loop(p);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct process *p = handle->data;

    if (p->is_stopping) {
        fl_warn("daemon", "asked to stop a second time: stopping at once");
        _exit(128 + number);
    }
    p->is_stopping = true;
    fl_info("daemon", "stopping: clients are told, leadership is handed over");
    uv_async_send(&p->front.stop);
}

static void watch_signals(struct process *p)
{
    static const int numbers[] = {SIGTERM, SIGINT};

    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < FL_ARRAY_LEN(numbers); i++) {
        uv_signal_init(fl_loop_uv(p->loop), &p->signals[i]);
        p->signals[i].data = p;
        uv_signal_start(&p->signals[i], on_signal, numbers[i]);
    }
}

/* --- Starting --- */

/* Each client is a descriptor, and what a login or a service manager gives is often 1,024: enough
 * for programs that use select(), which we do not. */
static void take_all_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* The host of an address that was given with port 0, with the port that it got. */
static void format_bound(const char *address, unsigned port, char *out, size_t size)
{
    snprintf(out, size, "%.*s:%u", (int)(strrchr(address, ':') - address), address, port);
}

static void say_ready(const struct process *p)
{
    const struct fl_options *o = p->options;
    char grpc[300], peer[300], http[300];

    format_bound(o->listen, fl_gateway_port(p->front.gateway), grpc, sizeof grpc);
    if (p->member == NULL) {
        printf("ready gateway grpc=%s", grpc);
    } else {
        format_bound(o->peer_listen, fl_member_port(p->member), peer, sizeof peer);
        printf("ready node=%llu grpc=%s peer=%s", (unsigned long long)o->node_id, grpc, peer);
    }
    if (p->front.site != NULL) {
        format_bound(o->http_listen, fl_site_port(p->front.site), http, sizeof http);
        printf(" http=%s", http);
    }
    putchar('\n');
    fflush(stdout);
}

int fl_process_run(const struct fl_options *options)
{
    struct process p = {.options = options};
    char why[WHY_BYTES] = {0};
    int r = FL_OK;

    take_all_descriptors();
    p.loop = fl_loop_new();
    FL_REQUIRE(p.loop != NULL);
    p.front.options = options;
    if (!options->gateway)
        r = start_member(&p, why);
    p.front.member = p.member;
    if (r == FL_OK)
        r = prepare_front(&p.front, why);
    if (r < 0) {
        fl_error("daemon", "%s", why);
        return EXIT_FAILURE;
    }
    watch_signals(&p);
    p.drained = fl_mailbox_new(p.loop, on_front_drained, NULL, &p);
    p.front.to_main = p.drained;
    if (p.member != NULL) {
        p.from_front = fl_mailbox_new(p.loop, node_receive_local, NULL, &p);
        p.front.to_node = p.from_front;
        p.link = fl_member_link_open(p.member, node_send_local, &p);
    }
    FL_REQUIRE(pthread_create(&p.front.thread, NULL, run_front, &p.front) == 0);
    say_ready(&p);
    fl_loop_run(p.loop);
    fl_loop_free(p.loop);
    fl_info("daemon", "stopped");
    return EXIT_SUCCESS;
}
