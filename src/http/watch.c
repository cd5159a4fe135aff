/* /v1/LockService/Watch: a line of JSON for each event, in a body that does not end by itself. What
 * is refused before the first event is an error like any other; later the error is the last line.
 */
#include "gateway/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "http/json.h"
#include "http/site_parts.h"

struct listener {
    struct fl_http_exchange *x;
    struct fl_watch *watch;
    bool has_begun; /* the answer's head is out */
};

/* Takes `document`. */
static void write_line(struct listener *listener, json_t *document)
{
    char *text = json_dumps(document, 0);
    size_t len;

    FL_REQUIRE(text != NULL);
    len = strlen(text);
    text[len] = '\n';
    if (!listener->has_begun)
        fl_http_stream_begin(listener->x, "application/x-ndjson");
    listener->has_begun = true;
    fl_http_stream(listener->x, (struct fl_str){text, len + 1});
    free(text);
    json_decref(document);
}

static bool on_event(void *ctx, const ProtobufCMessage *event)
{
    write_line(ctx, fl_json_from_message(event));
    return true;
}

static size_t on_queued(void *ctx)
{
    return fl_http_stream_queued(((struct listener *)ctx)->x);
}

static void on_end(void *ctx, const struct fl_rpc_status *status)
{
    struct listener *listener = ctx;

    if (listener->has_begun) {
        write_line(listener, fl_site__error(status));
        fl_http_stream_end(listener->x);
    } else {
        fl_site__fail(listener->x, status);
    }
    fl_watch_free(listener->watch);
    free(listener);
}

static const struct fl_watch_sink sink = {on_event, on_queued, on_end};

static void on_gone(void *data)
{
    struct listener *listener = data;

    fl_watch_free(listener->watch);
    free(listener);
}

void fl_site__serve_watch(struct fl_site *site, struct fl_http_exchange *x,
                          const Fencelock__V1__WatchRequest *request)
{
    struct listener *listener = fl_xcalloc(1, sizeof *listener);

    listener->x = x;
    listener->watch = fl_watch_new(site->gateway, &sink, listener);
    fl_http_on_gone(x, on_gone, listener);
    fl_watch_begin(listener->watch, request, fl_http_peer(x));
}
