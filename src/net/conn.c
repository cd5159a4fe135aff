#include "net/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "net/address.h"

/* Without it TCP retries into a cut network for a quarter of an hour, at intervals that grow to two
 * minutes, and would find the healed link that much later (RFC 5482). It also ends a peer that
 * stopped reading. */
#define USER_TIMEOUT_MS 5000
/* A peer that takes nothing of what is queued for so long is stuck. */
#define STALL_MS 20000
/* The kernel's own buffer is kept short, so that what is urgent does not wait behind what is
 * queued. */
#define NOTSENT_LOWAT_BYTES (64 * 1024)
#define GENTLE_MS           1000
/* A buffer that a burst made is not kept for small ones. */
#define KEEP_BYTES (256u * 1024)

enum state { RESOLVING, CONNECTING, OPEN, CLOSING };

struct bytes {
    uint8_t *data; /* owned */
    size_t len, capacity;
};

struct fl_conn {
    struct fl_loop *loop;
    const struct fl_conn_handler *handler;
    void *ctx;
    enum state state;
    uv_tcp_t tcp;
    struct resolve *resolve; /* under way; NULL: none */
    uv_connect_t connect;
    uv_write_t write;
    struct addrinfo *addresses, *next_address; /* of a name, owned list; next NULL: none left */
    const struct addrinfo *first_address;      /* where the walk around began */
    unsigned begin_with;
    unsigned connect_timeout_ms;
    bool is_writing, is_handle_open, is_gentle;
    struct fl_timer read_timer;  /* connecting, or idle */
    struct fl_timer write_timer; /* stalled, or gentle close */
    struct fl_turn_hook turn;
    unsigned idle_timeout_ms;
    struct bytes out, inflight;
    size_t left; /* of what is in flight, when last looked at */
    char peer[FL_ADDRESS_HOST_SIZE + 8];
    char why[128];
    int error;
};

/* It cannot be stopped once it has begun, and may take long: it does not hold up the end of its
 * connection. */
struct resolve {
    uv_getaddrinfo_t request;
    struct fl_conn *conn; /* NULL: nobody waits for it any more */
};

struct fl_conn_listener {
    struct fl_loop *loop;
    uv_tcp_t tcp;
    const struct fl_conn_handler *handler;
    void *ctx;
    unsigned port;
};

/* --- Closing --- */

static void free_conn(struct fl_conn *c)
{
    if (c->handler->on_close != NULL)
        c->handler->on_close(c, c->ctx, c->error, c->why);
    if (c->addresses != NULL)
        uv_freeaddrinfo(c->addresses);
    free(c->out.data);
    free(c->inflight.data);
    free(c);
}

static void try_next_address(struct fl_conn *c);

static void on_handle_closed(uv_handle_t *handle)
{
    struct fl_conn *c = handle->data;

    c->is_handle_open = false;
    if (c->state == CLOSING)
        free_conn(c);
    else if (c->state == CONNECTING)
        try_next_address(c);
}

void fl_conn_close(struct fl_conn *c, int error, const char *why)
{
    if (c->state == CLOSING)
        return;
    if (c->resolve != NULL) {
        c->resolve->conn = NULL;
        (void)uv_cancel((uv_req_t *)&c->resolve->request);
        c->resolve = NULL;
    }
    c->state = CLOSING;
    c->error = error;
    snprintf(c->why, sizeof c->why, "%s", why);
    fl_timer_clear(c->loop, &c->read_timer);
    fl_timer_clear(c->loop, &c->write_timer);
    fl_turn_hook_clear(&c->turn);
    if (c->is_handle_open && !uv_is_closing((uv_handle_t *)&c->tcp))
        uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

static void close_by_uv(struct fl_conn *c, int status)
{
    if (status == UV_EOF)
        fl_conn_close(c, FL_E_CLOSED, "the other side closed");
    else
        fl_conn_close(c, fl_error_from_errno(-status), uv_strerror(status));
}

static void close_nomem(struct fl_conn *c)
{
    fl_conn_close(c, FL_E_NOMEM, fl_error_text(FL_E_NOMEM));
}

static void set_timer(struct fl_conn *c, struct fl_timer *timer, unsigned after_ms)
{
    if (fl_timer_set(c->loop, timer, fl_loop_now_ms(c->loop) + after_ms) < 0)
        close_nomem(c);
}

/* --- Output: gathered in `out`, written once per turn --- */

static void drop_large(struct bytes *bytes)
{
    bytes->len = 0;
    if (bytes->capacity > KEEP_BYTES) {
        free(bytes->data);
        *bytes = (struct bytes){0};
    }
}

static void send_out(struct fl_conn *c);

static void report_drained(struct fl_conn *c)
{
    fl_timer_clear(c->loop, &c->write_timer);
    if (c->is_gentle)
        fl_conn_close(c, FL_E_CLOSED, c->why);
    else if (c->handler->on_drained != NULL)
        c->handler->on_drained(c, c->ctx);
}

static void on_written(uv_write_t *write, int status)
{
    struct fl_conn *c = write->data;

    c->is_writing = false;
    if (c->state == CLOSING)
        return;
    if (status < 0) {
        close_by_uv(c, status);
        return;
    }
    drop_large(&c->inflight);
    if (c->out.len != 0)
        send_out(c);
    else
        report_drained(c);
}

/* The kernel is full: what is left waits as one write, and new output gathers beside it. */
static void write_rest(struct fl_conn *c, size_t taken)
{
    struct bytes spare = c->inflight;
    uv_buf_t buf;
    int r;

    c->inflight = c->out;
    c->out = spare;
    buf = uv_buf_init((char *)c->inflight.data + taken, (unsigned)(c->inflight.len - taken));
    c->write.data = c;
    r = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (r < 0) {
        close_by_uv(c, r);
        return;
    }
    c->is_writing = true;
    c->left = c->inflight.len - taken;
    if (!c->is_gentle)
        set_timer(c, &c->write_timer, STALL_MS);
}

static void send_out(struct fl_conn *c)
{
    uv_buf_t buf = uv_buf_init((char *)c->out.data, (unsigned)c->out.len);
    int written = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);

    if (written < 0 && written != UV_EAGAIN) {
        close_by_uv(c, written);
    } else if (written == (int)c->out.len) {
        drop_large(&c->out);
        report_drained(c);
    } else {
        write_rest(c, written > 0 ? (size_t)written : 0);
    }
}

static void run_turn_end(struct fl_turn_hook *hook)
{
    struct fl_conn *c = FL_CONTAINER_OF(hook, struct fl_conn, turn);

    if (c->handler->on_turn_end != NULL && fl_conn_is_open(c))
        c->handler->on_turn_end(c, c->ctx);
    if (c->state == OPEN && !c->is_writing && c->out.len != 0)
        send_out(c);
}

void fl_conn_mark(struct fl_conn *c)
{
    if (c->state == OPEN)
        fl_turn_hook_mark(c->loop, &c->turn);
}

static int reserve(struct bytes *bytes, size_t more)
{
    size_t capacity;
    uint8_t *data;

    if (bytes->capacity - bytes->len >= more)
        return FL_OK;
    capacity =
        fl_grow_capacity(bytes->capacity < 1024 ? 1024 : bytes->capacity, bytes->len + more, 1);
    data = realloc(bytes->data, capacity);
    if (data == NULL)
        return FL_E_NOMEM;
    bytes->data = data;
    bytes->capacity = capacity;
    return FL_OK;
}

int fl_conn_write(struct fl_conn *c, const void *data, size_t len)
{
    if (c->state != OPEN || c->is_gentle)
        return FL_E_CLOSED;
    if (len == 0)
        return FL_OK;
    if (reserve(&c->out, len) < 0)
        return FL_E_NOMEM;
    memcpy(c->out.data + c->out.len, data, len);
    c->out.len += len;
    fl_turn_hook_mark(c->loop, &c->turn);
    return FL_OK;
}

size_t fl_conn_queued(const struct fl_conn *c)
{
    return c->out.len + (c->is_writing ? c->inflight.len : 0);
}

void fl_conn_close_gently(struct fl_conn *c, const char *why)
{
    if (c->is_gentle && c->state == OPEN)
        return;
    if (c->state != OPEN || fl_conn_queued(c) == 0) {
        fl_conn_close(c, FL_E_CLOSED, why);
        return;
    }
    snprintf(c->why, sizeof c->why, "%s", why);
    c->is_gentle = true;
    uv_read_stop((uv_stream_t *)&c->tcp);
    set_timer(c, &c->write_timer, GENTLE_MS);
    fl_conn_mark(c);
}

static void on_write_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_conn *c = FL_CONTAINER_OF(timer, struct fl_conn, write_timer);
    size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);

    (void)now_ms;
    if (left < c->left && !c->is_gentle) { /* slow, and not stuck */
        c->left = left;
        set_timer(c, &c->write_timer, STALL_MS);
        return;
    }
    fl_conn_close(c, FL_E_TIMEOUT, c->is_gentle ? c->why : "the other side takes nothing");
}

/* --- Input --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct fl_conn *c = handle->data;
    size_t size;
    uint8_t *scratch = fl_loop_scratch(c->loop, &size);

    (void)suggested;
    *buf = uv_buf_init((char *)scratch, (unsigned)size);
}

static void arm_idle(struct fl_conn *c)
{
    if (c->idle_timeout_ms != 0)
        set_timer(c, &c->read_timer, c->idle_timeout_ms);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fl_conn *c = stream->data;
    int r;

    if (c->state != OPEN || n == 0)
        return;
    if (n < 0) {
        close_by_uv(c, (int)n);
        return;
    }
    arm_idle(c);
    r = c->handler->on_read(c, c->ctx, (const uint8_t *)buf->base, (size_t)n);
    if (r < 0)
        fl_conn_close(c, r, fl_error_text(r));
}

void fl_conn_set_idle_timeout(struct fl_conn *c, unsigned timeout_ms)
{
    c->idle_timeout_ms = timeout_ms;
    if (c->state != OPEN)
        return;
    fl_timer_clear(c->loop, &c->read_timer);
    arm_idle(c);
}

void fl_conn_set_keepalive(struct fl_conn *c, unsigned after_s)
{
    (void)uv_tcp_keepalive(&c->tcp, 1, after_s);
}

/* --- Opening --- */

/* The next one is tried once the socket is closed. */
static void leave_address(struct fl_conn *c)
{
    fl_timer_clear(c->loop, &c->read_timer);
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

static void on_read_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_conn *c = FL_CONTAINER_OF(timer, struct fl_conn, read_timer);

    (void)now_ms;
    if (c->state == OPEN)
        fl_conn_close(c, FL_E_TIMEOUT, "nothing was heard for too long");
    else if (c->state == CONNECTING && c->next_address != NULL)
        leave_address(c);
    else
        fl_conn_close(c, FL_E_TIMEOUT,
                      c->state == RESOLVING ? "its name could not be resolved in time"
                                            : "connecting took too long");
}

static struct fl_conn *conn_new(struct fl_loop *loop, const struct fl_conn_handler *handler,
                                void *ctx)
{
    struct fl_conn *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;
    c->loop = loop;
    c->handler = handler;
    c->ctx = ctx;
    c->read_timer = FL_TIMER_INIT(on_read_timer);
    c->write_timer = FL_TIMER_INIT(on_write_timer);
    c->turn = FL_TURN_HOOK_INIT(run_turn_end);
    if (uv_tcp_init(fl_loop_uv(loop), &c->tcp) != 0) {
        free(c);
        return NULL;
    }
    c->is_handle_open = true;
    c->tcp.data = c;
    return c;
}

static void tune_socket(uv_tcp_t *tcp)
{
    unsigned timeout_ms = USER_TIMEOUT_MS, lowat = NOTSENT_LOWAT_BYTES;
    uv_os_fd_t fd;

    uv_tcp_nodelay(tcp, 1);
    if (uv_fileno((uv_handle_t *)tcp, &fd) != 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
}

static void open_now(struct fl_conn *c)
{
    struct sockaddr_storage addr;
    int size = sizeof addr, r;

    fl_timer_clear(c->loop, &c->read_timer);
    c->state = OPEN;
    tune_socket(&c->tcp);
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&addr, &size) == 0)
        fl_address_format((struct sockaddr *)&addr, c->peer, sizeof c->peer);
    r = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (r < 0)
        close_by_uv(c, r);
    else
        c->handler->on_open(c, c->ctx);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct fl_conn *c = connect->data;

    if (c->state != CONNECTING || uv_is_closing((uv_handle_t *)&c->tcp))
        return;
    if (status == 0)
        open_now(c);
    else if (c->next_address != NULL)
        leave_address(c);
    else
        close_by_uv(c, status);
}

static void connect_to(struct fl_conn *c, const struct sockaddr *addr)
{
    int r;

    c->state = CONNECTING;
    c->connect.data = c;
    set_timer(c, &c->read_timer, c->connect_timeout_ms);
    if (c->state == CLOSING)
        return;
    r = uv_tcp_connect(&c->connect, &c->tcp, addr, on_connected);
    if (r < 0)
        on_connected(&c->connect, r);
}

/* Around the list, up to where it began. */
static void step_address(struct fl_conn *c)
{
    c->next_address = c->next_address->ai_next != NULL ? c->next_address->ai_next : c->addresses;
    if (c->next_address == c->first_address)
        c->next_address = NULL;
}

static void take_first_address(struct fl_conn *c)
{
    unsigned n = 0;

    for (const struct addrinfo *a = c->addresses; a != NULL; a = a->ai_next)
        n++;
    c->next_address = c->addresses;
    for (unsigned i = c->begin_with % n; i > 0; i--)
        c->next_address = c->next_address->ai_next;
    c->first_address = c->next_address;
    step_address(c);
    connect_to(c, c->first_address->ai_addr);
}

/* A socket that failed to connect is of no more use: a new one for the next address. */
static void try_next_address(struct fl_conn *c)
{
    const struct addrinfo *address = c->next_address;
    int r = uv_tcp_init(fl_loop_uv(c->loop), &c->tcp);

    c->is_handle_open = r == 0;
    if (r < 0) {
        fl_conn_close(c, FL_E_NOMEM, uv_strerror(r));
        free_conn(c);
        return;
    }
    step_address(c);
    connect_to(c, address->ai_addr);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct resolve *resolve = FL_CONTAINER_OF(request, struct resolve, request);
    struct fl_conn *c = resolve->conn;

    free(resolve);
    if (c == NULL) {
        uv_freeaddrinfo(list);
        return;
    }
    c->resolve = NULL;
    c->addresses = list;
    if (status < 0)
        fl_conn_close(c, FL_E_UNREACHABLE, uv_strerror(status));
    else
        take_first_address(c);
}

static void resolve_name(struct fl_conn *c, const struct fl_address *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct resolve *resolve = malloc(sizeof *resolve);
    char port[8];
    int r;

    if (resolve == NULL) {
        close_nomem(c);
        return;
    }
    snprintf(port, sizeof port, "%u", address->port);
    resolve->conn = c;
    r = uv_getaddrinfo(fl_loop_uv(c->loop), &resolve->request, on_resolved, address->host, port,
                       &hints);
    if (r < 0) {
        free(resolve);
        fl_conn_close(c, FL_E_UNREACHABLE, uv_strerror(r));
        return;
    }
    c->resolve = resolve;
    set_timer(c, &c->read_timer, c->connect_timeout_ms);
}

static void resolve_and_connect(struct fl_conn *c, const char *text)
{
    struct fl_address address;
    struct sockaddr_storage addr;

    if (fl_address_parse(text, &address) < 0 || address.host[0] == '\0' || address.port == 0) {
        fl_conn_close(c, FL_E_INVALID, "the address is not HOST:PORT");
        return;
    }
    if (fl_address_numeric(&address, &addr) == FL_OK)
        connect_to(c, (struct sockaddr *)&addr);
    else
        resolve_name(c, &address);
}

struct fl_conn *fl_conn_connect(struct fl_loop *loop, const char *address, unsigned timeout_ms,
                                const struct fl_conn_handler *handler, void *ctx)
{
    struct fl_conn *c = conn_new(loop, handler, ctx);

    if (c == NULL)
        return NULL;
    c->connect_timeout_ms = timeout_ms;
    snprintf(c->peer, sizeof c->peer, "%s", address);
    resolve_and_connect(c, address);
    return c;
}

void fl_conn_begin_with(struct fl_conn *c, unsigned nth)
{
    c->begin_with = nth;
}

/* --- Listening --- */

static void on_connection(uv_stream_t *server, int status)
{
    struct fl_conn_listener *listener = server->data;
    struct fl_conn *c;
    int r;

    if (status < 0)
        return; /* out of descriptors, say: the connection stays in the backlog */
    c = conn_new(listener->loop, listener->handler, listener->ctx);
    if (c == NULL)
        return;
    r = uv_accept(server, (uv_stream_t *)&c->tcp);
    if (r < 0)
        close_by_uv(c, r);
    else
        open_now(c);
}

static void on_listener_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Binds and listens; what failed, or 0. */
static int bind_and_listen(struct fl_conn_listener *listener, const struct sockaddr_storage *addr)
{
    struct sockaddr_storage bound;
    int size = sizeof bound, r;

    r = uv_tcp_bind(&listener->tcp, (const struct sockaddr *)addr, 0);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&listener->tcp, 4096, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&bound, &size);
    /* The port stands at the same place in both families' addresses. */
    if (r == 0)
        listener->port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    return r;
}

int fl_conn_listen(struct fl_loop *loop, const char *text, const struct fl_conn_handler *handler,
                   void *ctx, struct fl_conn_listener **ret_listener, char *why)
{
    struct fl_conn_listener *listener;
    struct fl_address address;
    struct sockaddr_storage addr;
    int r;

    if (fl_address_parse(text, &address) < 0 || fl_address_numeric(&address, &addr) < 0) {
        snprintf(why, 256,
                 "cannot listen on \"%.100s\": give a numeric address and a port, or *:PORT", text);
        return FL_E_INVALID;
    }
    listener = calloc(1, sizeof *listener);
    if (listener == NULL || uv_tcp_init(fl_loop_uv(loop), &listener->tcp) < 0) {
        free(listener);
        snprintf(why, 256, "cannot make a socket: %s", fl_error_text(FL_E_NOMEM));
        return FL_E_NOMEM;
    }
    listener->loop = loop;
    listener->handler = handler;
    listener->ctx = ctx;
    listener->tcp.data = listener;
    r = bind_and_listen(listener, &addr);
    if (r < 0) {
        snprintf(why, 256, "cannot listen on %.100s: %s%s", text, uv_strerror(r),
                 r == UV_EADDRINUSE ? " (is another node running there?)" : "");
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
        return fl_error_from_errno(-r);
    }
    *ret_listener = listener;
    return FL_OK;
}

unsigned fl_conn_listener_port(const struct fl_conn_listener *listener)
{
    return listener->port;
}

void fl_conn_listener_close(struct fl_conn_listener *listener)
{
    if (listener != NULL)
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
}

/* --- Small things --- */

void fl_conn_set_handler(struct fl_conn *c, const struct fl_conn_handler *handler, void *ctx)
{
    c->handler = handler;
    c->ctx = ctx;
}

void *fl_conn_ctx(const struct fl_conn *c)
{
    return c->ctx;
}

struct fl_loop *fl_conn_loop(const struct fl_conn *c)
{
    return c->loop;
}

const char *fl_conn_peer(const struct fl_conn *c)
{
    return c->peer;
}

bool fl_conn_is_open(const struct fl_conn *c)
{
    return c->state == OPEN && !c->is_gentle;
}
