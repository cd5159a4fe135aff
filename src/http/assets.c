/* Serves the dashboard: everything that it needs is in this program, and its pages may load nothing
 * from anywhere else. */
#include "http/assets.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "http/site_parts.h"

static const char *type_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    if (strcmp(dot, ".html") == 0)
        return "text/html; charset=utf-8";
    if (strcmp(dot, ".css") == 0)
        return "text/css; charset=utf-8";
    if (strcmp(dot, ".svg") == 0)
        return "image/svg+xml";
    return "text/javascript; charset=utf-8";
}

static void serve(struct fl_http_exchange *x, const struct fl_asset *asset)
{
    struct fl_http_answer answer = {
        .status = 200,
        .type = type_of(asset->path),
        .body = {(const char *)asset->data, asset->len},
    };
    char tag[16], headers[512];

    snprintf(tag, sizeof tag, "\"%08x\"", fl_crc32c(0, asset->data, asset->len));
    snprintf(headers, sizeof headers,
             "ETag: %s\r\nCache-Control: no-cache\r\nReferrer-Policy: no-referrer\r\n"
             "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
             "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'\r\n",
             tag);
    answer.headers = headers;
    if (fl_str_equal(fl_http_request(x)->if_none_match, fl_str_from(tag))) {
        answer.status = 304;
        answer.body = (struct fl_str){NULL, 0};
    }
    fl_http_reply(x, &answer);
}

bool fl_site__serve_asset(struct fl_http_exchange *x)
{
    struct fl_str path = fl_http_request(x)->path;

    if (fl_str_equal(path, FL_STR("/")))
        path = FL_STR("/index.html");
    for (unsigned i = 0; i < fl_n_assets; i++) {
        if (!fl_str_equal(path, fl_str_from(fl_assets[i].path)))
            continue;
        if (fl_http_request(x)->method == FL_HTTP_GET || fl_http_request(x)->method == FL_HTTP_HEAD)
            serve(x, &fl_assets[i]);
        else
            fl_site__refuse(x, 405, "BAD_METHOD", "this can be read with GET only",
                            "Allow: GET, HEAD\r\n");
        return true;
    }
    return false;
}
