/* What the HTTP port serves: whether this process lives and is useful, the JSON API, metrics and
 * the dashboard (README.md). On the gateway's loop, beside its gateway. */
#ifndef FL_HTTP_SITE_H
#define FL_HTTP_SITE_H

#include "gateway/gateway.h"
#include "node/meter.h"

struct fl_site;

struct fl_site_config {
    const char *address; /* HOST:PORT, numeric; port 0 takes a free one */
    const char *version;
    /* The node's of this process, if there are newer ones than those taken last; else NULL. The
     * function may be NULL: there is no node. */
    struct fl_figures *(*take_figures)(void *ctx);
    void *ctx;
};

/* On failure `why` (256 bytes) says more. The gateway must outlive the site. */
int fl_site_new(struct fl_loop *loop, struct fl_gateway *gateway,
                const struct fl_site_config *config, struct fl_site **ret_site, char *why);
unsigned fl_site_port(const struct fl_site *site);
/* Requests in hand get `grace_ms` to end; `done` follows once. */
void fl_site_drain(struct fl_site *site, unsigned grace_ms, void (*done)(void *ctx), void *ctx);
/* Calls under way are given up before it returns. NULL is fine. */
void fl_site_free(struct fl_site *site);

#endif
