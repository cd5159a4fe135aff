#include "net/mailbox.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"

struct fl_mailbox {
    uv_async_t async;
    pthread_mutex_t lock;
    struct fl_buf queued;  /* under lock: {u32 len, bytes}... */
    struct fl_buf reading; /* loop thread only */
    fl_mailbox_receive receive;
    fl_mailbox_drained drained;
    void *ctx;
};

static void on_wake(uv_async_t *async)
{
    struct fl_mailbox *mailbox = async->data;
    struct fl_buf batch;
    struct fl_reader r;

    pthread_mutex_lock(&mailbox->lock);
    batch = mailbox->queued;
    mailbox->queued = mailbox->reading;
    pthread_mutex_unlock(&mailbox->lock);

    r = fl_reader_from(batch.data, batch.len);
    while (fl_reader_left(&r) != 0) {
        uint32_t len = fl_reader_u32(&r);
        const uint8_t *data = fl_reader_bytes(&r, len);

        FL_REQUIRE(data != NULL || len == 0);
        mailbox->receive(mailbox->ctx, data, len);
    }
    /* The memory serves the next turn, unless a flood made it huge. */
    if (batch.capacity > 4u * 1024 * 1024)
        fl_buf_deinit(&batch);
    fl_buf_clear(&batch);
    mailbox->reading = batch;
    if (mailbox->drained != NULL)
        mailbox->drained(mailbox->ctx);
}

struct fl_mailbox *fl_mailbox_new(struct fl_loop *loop, fl_mailbox_receive receive,
                                  fl_mailbox_drained drained, void *ctx)
{
    struct fl_mailbox *mailbox = fl_xcalloc(1, sizeof *mailbox);

    mailbox->receive = receive;
    mailbox->drained = drained;
    mailbox->ctx = ctx;
    pthread_mutex_init(&mailbox->lock, NULL);
    if (uv_async_init(fl_loop_uv(loop), &mailbox->async, on_wake) != 0) {
        pthread_mutex_destroy(&mailbox->lock);
        free(mailbox);
        return NULL;
    }
    mailbox->async.data = mailbox;
    return mailbox;
}

static void on_closed(uv_handle_t *handle)
{
    struct fl_mailbox *mailbox = handle->data;

    pthread_mutex_destroy(&mailbox->lock);
    fl_buf_deinit(&mailbox->queued);
    fl_buf_deinit(&mailbox->reading);
    free(mailbox);
}

void fl_mailbox_free(struct fl_mailbox *mailbox)
{
    if (mailbox != NULL)
        uv_close((uv_handle_t *)&mailbox->async, on_closed);
}

void fl_mailbox_send(struct fl_mailbox *mailbox, const void *data, size_t len)
{
    bool was_empty;

    FL_REQUIRE(len <= UINT32_MAX);
    pthread_mutex_lock(&mailbox->lock);
    was_empty = mailbox->queued.len == 0;
    fl_buf_put_u32(&mailbox->queued, (uint32_t)len);
    fl_buf_put(&mailbox->queued, data, len);
    pthread_mutex_unlock(&mailbox->lock);
    if (was_empty)
        uv_async_send(&mailbox->async);
}

size_t fl_mailbox_bytes(struct fl_mailbox *mailbox)
{
    size_t bytes;

    pthread_mutex_lock(&mailbox->lock);
    bytes = mailbox->queued.len;
    pthread_mutex_unlock(&mailbox->lock);
    return bytes;
}
