#include "http/site.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "http/site_parts.h"

/* --- Whether it lives, and whether it is of use --- */

static void reply_text(struct fl_http_exchange *x, unsigned status, const char *text)
{
    struct fl_http_answer answer = {.status = status,
                                    .type = "text/plain; charset=utf-8",
                                    .headers = "Cache-Control: no-store\r\n",
                                    .body = fl_str_from(text)};

    fl_http_reply(x, &answer);
}

static void serve_healthz(struct fl_site *site, struct fl_http_exchange *x)
{
    (void)site;
    reply_text(x, 200, "alive\n");
}

static void serve_readyz(struct fl_site *site, struct fl_http_exchange *x)
{
    struct fl_gateway_stats stats;
    char text[64];

    fl_gateway_stats(site->gateway, &stats);
    if (site->is_draining) {
        reply_text(x, 503, "stopping\n");
    } else if (!stats.has_leader) {
        reply_text(x, 503, "no leader can be reached from here\n");
    } else {
        snprintf(text, sizeof text, "node %llu leads\n", (unsigned long long)stats.leader_id);
        reply_text(x, 200, text);
    }
}

/* --- Who may ask at all --- */

/* The host of "HOST", "HOST:PORT" or "[V6]:PORT". */
static struct fl_str host_of(struct fl_str authority)
{
    const char *end = authority.data + authority.len;

    if (authority.len == 0)
        return authority;
    for (const char *c = end - 1; c >= authority.data && *c != ']'; c--)
        if (*c == ':')
            return (struct fl_str){authority.data, (size_t)(c - authority.data)};
    return authority;
}

static bool is_local_name(struct fl_str host)
{
    return (host.len == 9 && strncasecmp(host.data, "localhost", 9) == 0) ||
           fl_str_equal(host, FL_STR("[::1]")) || fl_str_equal(host, FL_STR("::1")) ||
           (fl_str_has_prefix(host, FL_STR("127.")) &&
            strspn(host.data, "0123456789.") >= host.len);
}

/* A page of somebody else's, in the browser of somebody who can reach us, must neither act nor
 * read: its requests bear its origin; and where a name was bent to the loopback address for it, the
 * name stands in Host. */
static const char *foreign_page(const struct fl_site *site, const struct fl_http_request *request)
{
    struct fl_str origin = request->origin, host = request->host;
    size_t scheme = fl_str_has_prefix(origin, FL_STR("https://")) ? 8 : 7;

    if (host.len > 0 && fl_http_server_is_loopback(site->server) && !is_local_name(host_of(host)))
        return "this port listens on the loopback address only: ask for localhost";
    if (origin.len == 0)
        return NULL;
    if (origin.len == scheme + host.len &&
        fl_str_has_prefix(origin, scheme == 8 ? FL_STR("https://") : FL_STR("http://")) &&
        strncasecmp(origin.data + scheme, host.data, host.len) == 0)
        return NULL;
    return "pages from elsewhere may not use this port";
}

/* --- What is where --- */

static const struct page {
    const char *path;
    void (*serve)(struct fl_site *site, struct fl_http_exchange *x);
} pages[] = {
    {"/healthz", serve_healthz},
    {"/readyz", serve_readyz},
    {"/metrics", fl_site__serve_metrics},
    {"/v1/Monitor", fl_site__serve_monitor},
};

static void serve_page(struct fl_site *site, struct fl_http_exchange *x, const struct page *page)
{
    if (fl_http_request(x)->method == FL_HTTP_GET || fl_http_request(x)->method == FL_HTTP_HEAD)
        page->serve(site, x);
    else
        fl_site__refuse(x, 405, "BAD_METHOD", "this can be read with GET only",
                        "Allow: GET, HEAD\r\n");
}

static void handle(void *ctx, struct fl_http_exchange *x)
{
    struct fl_site *site = ctx;
    const struct fl_http_request *request = fl_http_request(x);
    const char *fault = foreign_page(site, request);

    if (fault != NULL) {
        fl_site__refuse(x, 403, "FOREIGN_PAGE", fault, NULL);
        return;
    }
    for (size_t i = 0; i < FL_ARRAY_LEN(pages); i++) {
        if (fl_str_equal(request->path, fl_str_from(pages[i].path))) {
            serve_page(site, x, &pages[i]);
            return;
        }
    }
    if (fl_site__serve_api(site, x) || fl_site__serve_asset(x))
        return;
    fl_site__refuse(x, 404, "NOT_FOUND",
                    "there is nothing here: see /, /v1/, /metrics, /healthz and /readyz", NULL);
}

/* --- Life --- */

int fl_site_new(struct fl_loop *loop, struct fl_gateway *gateway,
                const struct fl_site_config *config, struct fl_site **ret_site, char *why)
{
    struct fl_site *site = fl_xcalloc(1, sizeof *site);
    struct fl_http_config http = {.address = config->address, .handle = handle, .ctx = site};
    int r;

    site->gateway = gateway;
    site->version = fl_xstrdup(config->version);
    site->take_figures = config->take_figures;
    site->figures_ctx = config->ctx;
    r = fl_http_server_new(loop, &http, &site->server, why);
    if (r < 0) {
        fl_site_free(site);
        return r;
    }
    *ret_site = site;
    return FL_OK;
}

unsigned fl_site_port(const struct fl_site *site)
{
    return fl_http_server_port(site->server);
}

void fl_site_drain(struct fl_site *site, unsigned grace_ms, void (*done)(void *ctx), void *ctx)
{
    site->is_draining = true;
    fl_http_server_drain(site->server, grace_ms, done, ctx);
}

void fl_site_free(struct fl_site *site)
{
    if (site == NULL)
        return;
    fl_http_server_free(site->server);
    free(site->version);
    free(site->figures);
    free(site);
}

const struct fl_figures *fl_site__figures(struct fl_site *site)
{
    struct fl_figures *newer =
        site->take_figures != NULL ? site->take_figures(site->figures_ctx) : NULL;

    if (newer != NULL) {
        free(site->figures);
        site->figures = newer;
    }
    return site->figures;
}
