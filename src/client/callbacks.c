/* The application's callbacks, on a thread of their own: a slow one costs no heartbeat (C37). */
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/client.h"

/* The next one, or NULL: none is there, or, for those who wait, none will come. */
static struct fl_callback *next_callback(struct fl_client *client, bool waits)
{
    struct fl_list *link;

    pthread_mutex_lock(&client->mutex);
    while (waits && fl_list_is_empty(&client->callbacks) && !client->is_callback_stop)
        pthread_cond_wait(&client->callbacks_changed, &client->mutex);
    link = fl_list_first(&client->callbacks);
    if (link != NULL)
        fl_list_remove(link);
    pthread_mutex_unlock(&client->mutex);
    return link != NULL ? FL_CONTAINER_OF(link, struct fl_callback, link) : NULL;
}

static void *run_callbacks(void *arg)
{
    struct fl_callback *callback;

    while ((callback = next_callback(arg, true)) != NULL)
        callback->run(callback);
    return NULL;
}

int fl_client__need_callbacks(struct fl_client *client)
{
    int r = FL_OK;

    if (client->dispatch_fd >= 0)
        return FL_OK;
    pthread_mutex_lock(&client->mutex);
    if (!client->has_callback_thread) {
        r = fl_client__start_thread(&client->callback_thread, run_callbacks, client);
        client->has_callback_thread = r == 0;
    }
    pthread_mutex_unlock(&client->mutex);
    return r;
}

void fl_client__call_back(struct fl_client *client, struct fl_callback *callback)
{
    pthread_mutex_lock(&client->mutex);
    fl_list_append(&client->callbacks, &callback->link);
    pthread_cond_signal(&client->callbacks_changed);
    pthread_mutex_unlock(&client->mutex);
    if (client->dispatch_fd >= 0)
        (void)eventfd_write(client->dispatch_fd, 1); /* fails only when it is readable anyway */
}

int fl_client_fd(const struct fl_client *client)
{
    return client->dispatch_fd;
}

void fl_client_dispatch(struct fl_client *client)
{
    struct fl_callback *callback;
    eventfd_t count;

    if (client->dispatch_fd < 0 || fl_client__is_forked(client))
        return;
    (void)eventfd_read(client->dispatch_fd, &count); /* before the queue is looked at */
    while ((callback = next_callback(client, false)) != NULL)
        callback->run(callback);
}

void fl_client__stop_callbacks(struct fl_client *client)
{
    if (client->dispatch_fd >= 0) {
        fl_client_dispatch(client);
        close(client->dispatch_fd);
    }
    if (!client->has_callback_thread)
        return;
    pthread_mutex_lock(&client->mutex);
    client->is_callback_stop = true;
    pthread_cond_signal(&client->callbacks_changed);
    pthread_mutex_unlock(&client->mutex);
    pthread_join(client->callback_thread, NULL);
    client->has_callback_thread = false;
}
