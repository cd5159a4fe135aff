#include "net/framed.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "net/address.h"

#define HEADER_BYTES        8
#define READ_BYTES          (64u * 1024)
#define LIMIT_BYTES_DEFAULT (8u * 1024 * 1024)
#define USER_TIMEOUT_MS     5000
/* A buffer that a large frame made is not kept for small ones. */
#define KEEP_BYTES (1024u * 1024)

enum state { RESOLVING, CONNECTING, OPEN, CLOSING };

struct fl_framed {
    struct fl_loop *loop;
    const struct fl_framed_handler *handler;
    void *ctx;
    enum state state;
    uv_tcp_t tcp;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    bool is_resolving, is_writing, is_handle_closed;
    struct fl_timer timer; /* connecting, or idle */
    struct fl_turn_hook flush;
    unsigned idle_timeout_ms;
    struct fl_buf in, out, inflight;
    size_t in_at; /* parsed so far */
    size_t limit_bytes;
    char peer[FL_ADDRESS_HOST_SIZE + 8];
    char why[128];
    int error;
};

struct fl_framed_listener {
    struct fl_loop *loop;
    uv_tcp_t tcp;
    const struct fl_framed_handler *handler;
    void *ctx;
    unsigned port;
};

static void free_when_done(struct fl_framed *c)
{
    const struct fl_framed_handler *handler = c->handler;

    if (c->is_resolving || !c->is_handle_closed)
        return;
    if (handler->on_close != NULL)
        handler->on_close(c, c->ctx, c->error, c->why);
    fl_buf_deinit(&c->in);
    fl_buf_deinit(&c->out);
    fl_buf_deinit(&c->inflight);
    free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct fl_framed *c = handle->data;

    c->is_handle_closed = true;
    free_when_done(c);
}

static void begin_close(struct fl_framed *c, int error, const char *why)
{
    if (c->state == CLOSING)
        return;
    if (c->is_resolving)
        uv_cancel((uv_req_t *)&c->resolve);
    c->state = CLOSING;
    c->error = error;
    snprintf(c->why, sizeof c->why, "%s", why);
    fl_timer_clear(c->loop, &c->timer);
    fl_turn_hook_clear(&c->flush);
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

void fl_framed_close(struct fl_framed *c, const char *why)
{
    begin_close(c, FL_E_CLOSED, why);
}

static void close_by_uv(struct fl_framed *c, int status)
{
    begin_close(c, status == UV_EOF ? FL_E_CLOSED : fl_error_from_errno(-status),
                status == UV_EOF ? "the other side closed" : uv_strerror(status));
}

/* --- Output: gathered in `out`, written once per turn --- */

static void start_write(struct fl_framed *c);

static void on_written(uv_write_t *write, int status)
{
    struct fl_framed *c = write->data;

    c->is_writing = false;
    if (c->state == CLOSING)
        return;
    if (status < 0) {
        close_by_uv(c, status);
        return;
    }
    fl_buf_clear(&c->inflight);
    if (c->inflight.capacity > KEEP_BYTES)
        fl_buf_deinit(&c->inflight);
    start_write(c);
}

static void report_drained(struct fl_framed *c)
{
    if (c->handler->on_drained != NULL)
        c->handler->on_drained(c, c->ctx);
}

static void start_write(struct fl_framed *c)
{
    uv_buf_t buf = uv_buf_init((char *)c->out.data, (unsigned)c->out.len);
    int written;

    if (c->out.len == 0) {
        report_drained(c);
        return;
    }
    written = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
    if (written == (int)c->out.len) {
        fl_buf_clear(&c->out);
        report_drained(c);
        return;
    }
    if (written < 0 && written != UV_EAGAIN) {
        close_by_uv(c, written);
        return;
    }
    if (written < 0)
        written = 0;
    /* The kernel is full: what is left waits as one write, and new output gathers beside it. */
    struct fl_buf spare = c->inflight;
    c->inflight = c->out;
    c->out = spare;
    fl_buf_clear(&c->out);
    buf = uv_buf_init((char *)c->inflight.data + written,
                      (unsigned)c->inflight.len - (unsigned)written);
    c->write.data = c;
    int r = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (r < 0) {
        close_by_uv(c, r);
        return;
    }
    c->is_writing = true;
}

static void on_turn_end(struct fl_turn_hook *hook)
{
    struct fl_framed *c = FL_CONTAINER_OF(hook, struct fl_framed, flush);

    if (c->state == OPEN && !c->is_writing && c->out.len != 0)
        start_write(c);
}

int fl_framed_send(struct fl_framed *c, const void *data, size_t len)
{
    FL_REQUIRE(len <= FL_FRAME_BYTES_MAX);
    if (c->state != OPEN)
        return FL_E_CLOSED;
    if (fl_framed_queued(c) + len + HEADER_BYTES > c->limit_bytes)
        return FL_E_BUSY;
    fl_buf_put_u32(&c->out, (uint32_t)len);
    fl_buf_put_u32(&c->out, fl_crc32c(0, data, len));
    fl_buf_put(&c->out, data, len);
    fl_turn_hook_mark(c->loop, &c->flush);
    return FL_OK;
}

void fl_framed_set_limit(struct fl_framed *c, size_t limit_bytes)
{
    c->limit_bytes = limit_bytes;
}

size_t fl_framed_queued(const struct fl_framed *c)
{
    return c->out.len + (c->is_writing ? c->inflight.len : 0);
}

/* --- Input --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct fl_framed *c = handle->data;

    (void)suggested;
    if (c->in_at != 0) {
        memmove(c->in.data, c->in.data + c->in_at, c->in.len - c->in_at);
        c->in.len -= c->in_at;
        c->in_at = 0;
    }
    if (c->in.len == 0 && c->in.capacity > KEEP_BYTES)
        fl_buf_deinit(&c->in);
    *buf = uv_buf_init((char *)fl_buf_reserve(&c->in, READ_BYTES), READ_BYTES);
}

static void parse_frames(struct fl_framed *c)
{
    while (c->state == OPEN && c->in.len - c->in_at >= HEADER_BYTES) {
        struct fl_reader r = fl_reader_from(c->in.data + c->in_at, c->in.len - c->in_at);
        uint32_t len = fl_reader_u32(&r), crc = fl_reader_u32(&r);
        const uint8_t *data;
        int error;

        if (len > FL_FRAME_BYTES_MAX) {
            begin_close(c, FL_E_PROTOCOL, "a frame is too big: not a Fencelock peer?");
            return;
        }
        data = fl_reader_bytes(&r, len);
        if (data == NULL)
            return; /* the rest is on its way */
        if (fl_crc32c(0, data, len) != crc) {
            begin_close(c, FL_E_PROTOCOL, "a frame's checksum is wrong: not a Fencelock peer?");
            return;
        }
        c->in_at += HEADER_BYTES + len;
        error = c->handler->on_frame(c, c->ctx, data, len);
        if (error < 0)
            begin_close(c, error, fl_error_text(error));
    }
}

static void arm_idle(struct fl_framed *c)
{
    if (c->idle_timeout_ms != 0 &&
        fl_timer_set(c->loop, &c->timer, fl_loop_now_ms(c->loop) + c->idle_timeout_ms) < 0)
        begin_close(c, FL_E_NOMEM, fl_error_text(FL_E_NOMEM));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fl_framed *c = stream->data;

    (void)buf;
    if (c->state != OPEN || n == 0)
        return;
    if (n < 0) {
        close_by_uv(c, (int)n);
        return;
    }
    fl_buf_commit(&c->in, (size_t)n);
    arm_idle(c);
    parse_frames(c);
}

static void on_timer(struct fl_timer *timer, uint64_t now_ms)
{
    struct fl_framed *c = FL_CONTAINER_OF(timer, struct fl_framed, timer);

    (void)now_ms;
    if (c->state == OPEN)
        begin_close(c, FL_E_TIMEOUT, "nothing was heard for too long");
    else
        begin_close(c, FL_E_TIMEOUT, "connecting took too long");
}

void fl_framed_set_idle_timeout(struct fl_framed *c, unsigned timeout_ms)
{
    c->idle_timeout_ms = timeout_ms;
    if (c->state != OPEN)
        return;
    fl_timer_clear(c->loop, &c->timer);
    arm_idle(c);
}

/* --- Opening --- */

static struct fl_framed *framed_new(struct fl_loop *loop, const struct fl_framed_handler *handler,
                                    void *ctx)
{
    struct fl_framed *c = fl_xcalloc(1, sizeof *c);

    c->loop = loop;
    c->handler = handler;
    c->ctx = ctx;
    c->limit_bytes = LIMIT_BYTES_DEFAULT;
    c->timer = FL_TIMER_INIT(on_timer);
    c->flush = FL_TURN_HOOK_INIT(on_turn_end);
    if (uv_tcp_init(fl_loop_uv(loop), &c->tcp) != 0) {
        free(c);
        return NULL;
    }
    c->tcp.data = c;
    return c;
}

/* Without it TCP retries into a cut network for a quarter of an hour, at intervals that grow to two
 * minutes, and would find the healed link that much later (RFC 5482). */
static void set_user_timeout(uv_tcp_t *tcp)
{
    unsigned timeout_ms = USER_TIMEOUT_MS;
    uv_os_fd_t fd;

    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

static void open_now(struct fl_framed *c)
{
    struct sockaddr_storage addr;
    int size = sizeof addr, r;

    fl_timer_clear(c->loop, &c->timer);
    c->state = OPEN;
    uv_tcp_nodelay(&c->tcp, 1);
    set_user_timeout(&c->tcp);
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&addr, &size) == 0)
        fl_address_format((struct sockaddr *)&addr, c->peer, sizeof c->peer);
    r = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (r < 0) {
        close_by_uv(c, r);
        return;
    }
    c->handler->on_open(c, c->ctx);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct fl_framed *c = connect->data;

    if (c->state == CLOSING)
        return;
    if (status < 0)
        close_by_uv(c, status);
    else
        open_now(c);
}

static void connect_to(struct fl_framed *c, const struct sockaddr *addr)
{
    int r;

    c->state = CONNECTING;
    c->connect.data = c;
    r = uv_tcp_connect(&c->connect, &c->tcp, addr, on_connected);
    if (r < 0)
        close_by_uv(c, r);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list)
{
    struct fl_framed *c = resolve->data;

    c->is_resolving = false;
    if (c->state == CLOSING)
        free_when_done(c);
    else if (status < 0)
        begin_close(c, FL_E_UNREACHABLE, uv_strerror(status));
    else
        connect_to(c, list->ai_addr);
    uv_freeaddrinfo(list);
}

static void resolve_and_connect(struct fl_framed *c, const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct fl_address address;
    struct sockaddr_storage addr;
    char port[8];
    int r;

    if (fl_address_parse(text, &address) < 0) {
        begin_close(c, FL_E_INVALID, "the address is not HOST:PORT");
        return;
    }
    if (fl_address_numeric(&address, &addr) == FL_OK) {
        connect_to(c, (struct sockaddr *)&addr);
        return;
    }
    snprintf(port, sizeof port, "%u", address.port);
    c->resolve.data = c;
    r = uv_getaddrinfo(fl_loop_uv(c->loop), &c->resolve, on_resolved, address.host, port, &hints);
    if (r < 0)
        begin_close(c, FL_E_UNREACHABLE, uv_strerror(r));
    else
        c->is_resolving = true;
}

struct fl_framed *fl_framed_connect(struct fl_loop *loop, const char *address, unsigned timeout_ms,
                                    const struct fl_framed_handler *handler, void *ctx)
{
    struct fl_framed *c = framed_new(loop, handler, ctx);

    if (c == NULL)
        return NULL;
    snprintf(c->peer, sizeof c->peer, "%s", address);
    if (fl_timer_set(loop, &c->timer, fl_loop_now_ms(loop) + timeout_ms) < 0)
        begin_close(c, FL_E_NOMEM, fl_error_text(FL_E_NOMEM));
    else
        resolve_and_connect(c, address);
    return c;
}

static void on_connection(uv_stream_t *server, int status)
{
    struct fl_framed_listener *listener = server->data;
    struct fl_framed *c;
    int r;

    if (status < 0)
        return; /* out of descriptors, say: the connection stays in the backlog */
    c = framed_new(listener->loop, listener->handler, listener->ctx);
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

int fl_framed_listen(struct fl_loop *loop, const char *text,
                     const struct fl_framed_handler *handler, void *ctx,
                     struct fl_framed_listener **ret_listener, char *why)
{
    struct fl_framed_listener *listener;
    struct fl_address address;
    struct sockaddr_storage addr;
    int size = sizeof addr, r;

    if (fl_address_parse(text, &address) < 0 || fl_address_numeric(&address, &addr) < 0) {
        snprintf(why, 256,
                 "cannot listen on \"%.100s\": give a numeric address and a port, or *:PORT", text);
        return FL_E_INVALID;
    }
    listener = fl_xcalloc(1, sizeof *listener);
    listener->loop = loop;
    listener->handler = handler;
    listener->ctx = ctx;
    r = uv_tcp_init(fl_loop_uv(loop), &listener->tcp);
    if (r < 0) {
        free(listener);
        snprintf(why, 256, "cannot make a socket: %s", uv_strerror(r));
        return fl_error_from_errno(-r);
    }
    listener->tcp.data = listener;
    r = uv_tcp_bind(&listener->tcp, (struct sockaddr *)&addr, 0);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&listener->tcp, 512, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&addr, &size);
    if (r < 0) {
        snprintf(why, 256, "cannot listen on %.100s: %s%s", text, uv_strerror(r),
                 r == UV_EADDRINUSE ? " (is another node running there?)" : "");
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
        return fl_error_from_errno(-r);
    }
    /* The port stands at the same place in both families' addresses. */
    listener->port = ntohs(((struct sockaddr_in *)&addr)->sin_port);
    *ret_listener = listener;
    return FL_OK;
}

unsigned fl_framed_listener_port(const struct fl_framed_listener *listener)
{
    return listener->port;
}

void fl_framed_listener_close(struct fl_framed_listener *listener)
{
    if (listener != NULL)
        uv_close((uv_handle_t *)&listener->tcp, on_listener_closed);
}

void fl_framed_set_handler(struct fl_framed *c, const struct fl_framed_handler *handler, void *ctx)
{
    c->handler = handler;
    c->ctx = ctx;
}

void *fl_framed_ctx(const struct fl_framed *c)
{
    return c->ctx;
}

const char *fl_framed_peer(const struct fl_framed *c)
{
    return c->peer;
}
