#include "net/framed.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "net/conn.h"

#define HEADER_BYTES        8
#define LIMIT_BYTES_DEFAULT (8u * 1024 * 1024)
/* A buffer that a large frame made is not kept for small ones. */
#define KEEP_BYTES (1024u * 1024)

struct fl_framed {
    struct fl_conn *conn;
    const struct fl_framed_handler *handler;
    void *ctx;
    struct fl_buf in; /* the beginning of a frame whose rest is on its way */
    size_t limit_bytes;
    bool is_closing;
};

struct fl_framed_listener {
    struct fl_conn_listener *conn_listener;
    const struct fl_framed_handler *handler;
    void *ctx;
};

/* --- Input --- */

/* Hands on the frames at the start of `data`; returns how many bytes they took, or a negative code.
 */
static long parse_frames(struct fl_framed *c, const uint8_t *data, size_t len)
{
    size_t at = 0;

    while (!c->is_closing && len - at >= HEADER_BYTES) {
        struct fl_reader r = fl_reader_from(data + at, len - at);
        uint32_t frame_len = fl_reader_u32(&r), crc = fl_reader_u32(&r);
        const uint8_t *frame;
        int result;

        if (frame_len > FL_FRAME_BYTES_MAX)
            return FL_E_PROTOCOL;
        frame = fl_reader_bytes(&r, frame_len);
        if (frame == NULL)
            break;
        if (fl_crc32c(0, frame, frame_len) != crc)
            return FL_E_PROTOCOL;
        at += HEADER_BYTES + frame_len;
        result = c->handler->on_frame(c, c->ctx, frame, frame_len);
        if (result < 0)
            return result;
    }
    return (long)at;
}

static int on_read(struct fl_conn *conn, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_framed *c = ctx;
    long taken;

    (void)conn;
    if (c->in.len == 0) {
        taken = parse_frames(c, data, len);
        if (taken < 0)
            return (int)taken;
        fl_buf_put(&c->in, data + taken, len - (size_t)taken);
        return FL_OK;
    }
    fl_buf_put(&c->in, data, len);
    taken = parse_frames(c, c->in.data, c->in.len);
    if (taken < 0)
        return (int)taken;
    if (taken > 0) {
        c->in.len -= (size_t)taken;
        memmove(c->in.data, c->in.data + taken, c->in.len);
    }
    if (c->in.len == 0 && c->in.capacity > KEEP_BYTES)
        fl_buf_deinit(&c->in);
    return FL_OK;
}

/* --- Life --- */

static void on_open(struct fl_conn *conn, void *ctx)
{
    struct fl_framed *c = ctx;

    (void)conn;
    c->handler->on_open(c, c->ctx);
}

static void on_drained(struct fl_conn *conn, void *ctx)
{
    struct fl_framed *c = ctx;

    (void)conn;
    if (c->handler->on_drained != NULL)
        c->handler->on_drained(c, c->ctx);
}

static void on_close(struct fl_conn *conn, void *ctx, int error, const char *why)
{
    struct fl_framed *c = ctx;

    (void)conn;
    if (c->handler->on_close != NULL)
        c->handler->on_close(c, c->ctx, error,
                             error == FL_E_PROTOCOL ? "what it sends is no frame of ours" : why);
    fl_buf_deinit(&c->in);
    free(c);
}

static const struct fl_conn_handler conn_handler = {
    .on_open = on_open,
    .on_read = on_read,
    .on_drained = on_drained,
    .on_close = on_close,
};

static struct fl_framed *framed_new(const struct fl_framed_handler *handler, void *ctx)
{
    struct fl_framed *c = fl_xcalloc(1, sizeof *c);

    c->handler = handler;
    c->ctx = ctx;
    c->limit_bytes = LIMIT_BYTES_DEFAULT;
    return c;
}

struct fl_framed *fl_framed_connect(struct fl_loop *loop, const char *address, unsigned timeout_ms,
                                    const struct fl_framed_handler *handler, void *ctx)
{
    struct fl_framed *c = framed_new(handler, ctx);

    c->conn = fl_conn_connect(loop, address, timeout_ms, &conn_handler, c);
    if (c->conn == NULL) {
        free(c);
        return NULL;
    }
    return c;
}

static void on_accepted(struct fl_conn *conn, void *ctx)
{
    const struct fl_framed_listener *listener = ctx;
    struct fl_framed *c = framed_new(listener->handler, listener->ctx);

    c->conn = conn;
    fl_conn_set_handler(conn, &conn_handler, c);
    c->handler->on_open(c, c->ctx);
}

static const struct fl_conn_handler door_handler = {
    .on_open = on_accepted,
};

int fl_framed_listen(struct fl_loop *loop, const char *address,
                     const struct fl_framed_handler *handler, void *ctx,
                     struct fl_framed_listener **ret_listener, char *why)
{
    struct fl_framed_listener *listener = fl_xcalloc(1, sizeof *listener);
    int r;

    listener->handler = handler;
    listener->ctx = ctx;
    r = fl_conn_listen(loop, address, &door_handler, listener, &listener->conn_listener, why);
    if (r < 0) {
        free(listener);
        return r;
    }
    *ret_listener = listener;
    return FL_OK;
}

unsigned fl_framed_listener_port(const struct fl_framed_listener *listener)
{
    return fl_conn_listener_port(listener->conn_listener);
}

void fl_framed_listener_close(struct fl_framed_listener *listener)
{
    if (listener == NULL)
        return;
    fl_conn_listener_close(listener->conn_listener);
    free(listener);
}

/* --- Use --- */

static void put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

int fl_framed_send(struct fl_framed *c, const void *data, size_t len)
{
    uint8_t header[HEADER_BYTES];
    int r;

    if (len > FL_FRAME_BYTES_MAX)
        return FL_E_TOO_BIG;
    if (c->is_closing || !fl_conn_is_open(c->conn))
        return FL_E_CLOSED;
    if (fl_conn_queued(c->conn) + len + HEADER_BYTES > c->limit_bytes)
        return FL_E_BUSY;
    put_u32(header, (uint32_t)len);
    put_u32(header + 4, fl_crc32c(0, data, len));
    r = fl_conn_write(c->conn, header, sizeof header);
    if (r == FL_OK)
        r = fl_conn_write(c->conn, data, len);
    if (r < 0) /* half a frame must not go out */
        fl_framed_close(c, fl_error_text(r));
    return r;
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
    return fl_conn_peer(c->conn);
}

void fl_framed_set_limit(struct fl_framed *c, size_t limit_bytes)
{
    c->limit_bytes = limit_bytes;
}

size_t fl_framed_queued(const struct fl_framed *c)
{
    return fl_conn_queued(c->conn);
}

void fl_framed_set_idle_timeout(struct fl_framed *c, unsigned timeout_ms)
{
    fl_conn_set_idle_timeout(c->conn, timeout_ms);
}

void fl_framed_close(struct fl_framed *c, const char *why)
{
    c->is_closing = true;
    fl_conn_close(c->conn, FL_E_CLOSED, why);
}
