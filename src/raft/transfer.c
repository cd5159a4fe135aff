#include "raft/transfer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"

#define CONNECT_TIMEOUT_MS 2000
/* A side that says nothing for so long is gone; making a large snapshot durable takes a while. */
#define SILENCE_MS 30000

struct fl_outgoing {
    const struct fl_transport *transport;
    struct fl_framed *connection;
    struct fl_snapshot_reader *reader; /* owned; NULL when all was read */
    struct fl_buf header, chunk;
    uint64_t to;
    bool is_greeted, is_confirmed, is_cancelled;
    void (*done)(void *ctx, uint64_t to, bool is_ok, const char *why);
    void *ctx;
};

static int send_chunk(struct fl_outgoing *out)
{
    uint8_t *room = fl_buf_reserve(&out->chunk, FL_TRANSFER_CHUNK_BYTES);
    long n = fl_snapshot_reader_read(out->reader, room, FL_TRANSFER_CHUNK_BYTES);

    if (n < 0)
        return (int)n;
    if (n == 0) { /* the empty frame that ends it */
        fl_snapshot_reader_free(out->reader);
        out->reader = NULL;
    }
    return fl_framed_send(out->connection, room, (size_t)n);
}

static void outgoing_on_open(struct fl_framed *c, void *ctx)
{
    struct fl_outgoing *out = ctx;

    fl_framed_set_idle_timeout(c, SILENCE_MS);
    fl_transport_greet(out->transport, c, FL_SPEAKS_SNAPSHOT, out->to);
}

static void outgoing_on_drained(struct fl_framed *c, void *ctx)
{
    struct fl_outgoing *out = ctx;

    if (!out->is_greeted || out->reader == NULL)
        return;
    if (send_chunk(out) < 0)
        fl_framed_close(c, "the snapshot could not be read");
    /* Progress in sending is a sign of life too. */
    fl_framed_set_idle_timeout(c, SILENCE_MS);
}

static int outgoing_on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_outgoing *out = ctx;
    struct fl_handshake theirs;
    int r;

    if (out->is_greeted) {
        out->is_confirmed = out->reader == NULL;
        fl_framed_close(c, out->is_confirmed ? "done" : "the receiver spoke too early");
        return FL_OK;
    }
    r = fl_handshake_decode(data, len, &theirs);
    if (r < 0)
        return r;
    if (theirs.from != out->to)
        return FL_E_WRONG_PEER;
    out->is_greeted = true;
    return fl_framed_send(c, out->header.data, out->header.len); /* chunks follow as it drains */
}

static void outgoing_on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct fl_outgoing *out = ctx;

    (void)c;
    (void)error;
    if (!out->is_cancelled)
        out->done(out->ctx, out->to, out->is_confirmed, why);
    fl_snapshot_reader_free(out->reader);
    fl_buf_deinit(&out->header);
    fl_buf_deinit(&out->chunk);
    free(out);
}

static const struct fl_framed_handler outgoing_handler = {
    .on_open = outgoing_on_open,
    .on_frame = outgoing_on_frame,
    .on_drained = outgoing_on_drained,
    .on_close = outgoing_on_close,
};

struct fl_outgoing *
fl_outgoing_new(struct fl_loop *loop, const struct fl_transport *transport, uint64_t to,
                const void *header, size_t header_len, struct fl_snapshot_reader *reader,
                void (*done)(void *ctx, uint64_t to, bool is_ok, const char *why), void *ctx)
{
    const char *address = fl_transport_address(transport, to);
    struct fl_outgoing *out = fl_xcalloc(1, sizeof *out);

    out->transport = transport;
    out->reader = reader;
    out->to = to;
    out->done = done;
    out->ctx = ctx;
    fl_buf_put(&out->header, header, header_len);
    if (address != NULL)
        out->connection =
            fl_framed_connect(loop, address, CONNECT_TIMEOUT_MS, &outgoing_handler, out);
    if (out->connection == NULL) {
        fl_snapshot_reader_free(reader);
        fl_buf_deinit(&out->header);
        free(out);
        return NULL;
    }
    return out;
}

void fl_outgoing_cancel(struct fl_outgoing *out)
{
    out->is_cancelled = true;
    fl_framed_close(out->connection, "cancelled");
}

struct fl_incoming {
    struct fl_framed *connection;
    struct fl_snapshot_writer *writer; /* owned; NULL before the header and after the end */
    uint64_t from;
    bool has_begun, has_arrived;
    const struct fl_incoming_ops *ops;
    void *ctx;
};

static int receive_header(struct fl_incoming *in, const uint8_t *data, size_t len)
{
    in->writer = in->ops->begin(in->ctx, in->from, data, len);
    in->has_begun = in->writer != NULL;
    return in->writer != NULL ? FL_OK : FL_E_BUSY;
}

static int receive_end(struct fl_incoming *in)
{
    static const uint8_t confirmation = 1;
    char path[512];
    int r = fl_snapshot_writer_finish(in->writer, path);

    in->writer = NULL;
    if (r < 0)
        return r;
    in->has_arrived = true;
    in->ops->arrived(in->ctx, in->from, path);
    return fl_framed_send(in->connection, &confirmation, 1);
}

static int incoming_on_frame(struct fl_framed *c, void *ctx, const uint8_t *data, size_t len)
{
    struct fl_incoming *in = ctx;

    (void)c;
    if (in->has_arrived)
        return FL_E_PROTOCOL;
    if (!in->has_begun)
        return receive_header(in, data, len);
    if (len == 0)
        return receive_end(in);
    return fl_snapshot_writer_write(in->writer, data, len);
}

static void incoming_on_close(struct fl_framed *c, void *ctx, int error, const char *why)
{
    struct fl_incoming *in = ctx;

    (void)c;
    (void)error;
    if (in->writer != NULL)
        fl_snapshot_writer_abort(in->writer);
    if (in->has_begun && !in->has_arrived)
        in->ops->failed(in->ctx, in->from, why);
    in->ops->closed(in->ctx, in);
    free(in);
}

static const struct fl_framed_handler incoming_handler = {
    .on_frame = incoming_on_frame,
    .on_close = incoming_on_close,
};

struct fl_incoming *fl_incoming_new(struct fl_framed *c, uint64_t from,
                                    const struct fl_incoming_ops *ops, void *ctx)
{
    struct fl_incoming *in = fl_xcalloc(1, sizeof *in);

    in->connection = c;
    in->from = from;
    in->ops = ops;
    in->ctx = ctx;
    fl_framed_set_handler(c, &incoming_handler, in);
    fl_framed_set_idle_timeout(c, SILENCE_MS);
    return in;
}

void fl_incoming_cancel(struct fl_incoming *in)
{
    fl_framed_close(in->connection, "cancelled");
}
