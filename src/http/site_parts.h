/* The inside of the site, shared by the files of this folder. */
#ifndef FL_HTTP_SITE_PARTS_H
#define FL_HTTP_SITE_PARTS_H

#include <jansson.h>

#include "gateway/outcome.h"
#include "http/server.h"
#include "http/site.h"
#include "lock.pb-c.h"

struct fl_site {
    struct fl_gateway *gateway;
    struct fl_http_server *server;
    bool is_draining;
    char *version; /* owned */
    struct fl_figures *(*take_figures)(void *ctx);
    void *figures_ctx;
    struct fl_figures *figures; /* owned; the newest seen, or NULL */
};

/* The body of every error: {"error": {"code": 400, "status": "INVALID_ARGUMENT", "reason": ...,
 * "message": ..., "field": ..., "retry_after_ms": ...}}. */
json_t *fl_site__error(const struct fl_rpc_status *status); /* owned by the caller */
void fl_site__fail(struct fl_http_exchange *x, const struct fl_rpc_status *status);
/* The same for what only HTTP knows; `headers` as in struct fl_http_answer. */
void fl_site__refuse(struct fl_http_exchange *x, unsigned status, const char *reason,
                     const char *message, const char *headers);
/* Its events go out as lines of JSON, for as long as the client listens. */
void fl_site__serve_watch(struct fl_site *site, struct fl_http_exchange *x,
                          const Fencelock__V1__WatchRequest *request);

/* Takes `document`. Status 200. */
void fl_site__reply_json(struct fl_http_exchange *x, json_t *document);

/* Whether the path is the API's; it is then answered, now or later. */
bool fl_site__serve_api(struct fl_site *site, struct fl_http_exchange *x);

/* The newest figures of this process's node, or NULL. */
const struct fl_figures *fl_site__figures(struct fl_site *site);

/* Whether the path is a file of the dashboard's; it is then answered. */
bool fl_site__serve_asset(struct fl_http_exchange *x);
void fl_site__serve_monitor(struct fl_site *site, struct fl_http_exchange *x);
void fl_site__serve_metrics(struct fl_site *site, struct fl_http_exchange *x);

#endif
