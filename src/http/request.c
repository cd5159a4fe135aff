#include "http/request.h"

#include <string.h>
#include <strings.h>

#include "http/limits.h"

static const char *const kept_headers[FL_HTTP_HEADERS_KEPT] = {
    [FL_HTTP_HOST] = "host",
    [FL_HTTP_ORIGIN] = "origin",
    [FL_HTTP_CONTENT_TYPE] = "content-type",
    [FL_HTTP_IF_NONE_MATCH] = "if-none-match",
    [FL_HTTP_EXPECT] = "expect",
};

static struct fl_http_connection *connection_of(http_parser *parser)
{
    return parser->data;
}

/* What a callback returns to end the parsing. */
static int refuse(struct fl_http_connection *c, unsigned status)
{
    c->refusal = status;
    return -1;
}

static struct fl_str str_of(const struct fl_buf *buf)
{
    return (struct fl_str){(const char *)buf->data, buf->len};
}

/* --- What the parser tells --- */

static int on_url(http_parser *parser, const char *data, size_t len)
{
    struct fl_http_connection *c = connection_of(parser);

    if (c->url.len + len > FL_HTTP_URL_BYTES_MAX)
        return refuse(c, 414);
    fl_buf_put(&c->url, data, len);
    return 0;
}

static int on_header_field(http_parser *parser, const char *data, size_t len)
{
    struct fl_http_connection *c = connection_of(parser);

    if (c->is_in_value || c->n_headers == 0) {
        c->is_in_value = false;
        c->header_len = 0;
        if (++c->n_headers > FL_HTTP_HEADERS_MAX)
            return refuse(c, 431);
    }
    for (size_t i = 0; i < len && c->header_len < sizeof c->header; i++)
        c->header[c->header_len++] = data[i];
    return 0;
}

/* Which of the headers that anybody asks for has just been named. A second one of the same name
 * could be read differently by others on the way. */
static int find_header(struct fl_http_connection *c)
{
    c->is_in_value = true;
    c->kept = -1;
    for (int i = 0; i < FL_HTTP_HEADERS_KEPT; i++) {
        if (strlen(kept_headers[i]) != c->header_len ||
            strncasecmp(kept_headers[i], c->header, c->header_len) != 0)
            continue;
        if (c->has[i])
            return refuse(c, 400);
        c->has[i] = true;
        c->kept = i;
    }
    return 0;
}

static int on_header_value(http_parser *parser, const char *data, size_t len)
{
    struct fl_http_connection *c = connection_of(parser);

    if (!c->is_in_value && find_header(c) != 0)
        return -1;
    if (c->kept >= 0)
        fl_buf_put(&c->values[c->kept], data, len);
    return 0;
}

static bool is_text(struct fl_str s, const char *text)
{
    return s.len == strlen(text) && strncasecmp(s.data, text, s.len) == 0;
}

static int on_headers_complete(http_parser *parser)
{
    struct fl_http_connection *c = connection_of(parser);
    bool is_1_1 = parser->http_major == 1 && parser->http_minor >= 1;

    if (parser->http_major != 1)
        return refuse(c, 505);
    if (is_1_1 && !c->has[FL_HTTP_HOST])
        return refuse(c, 400);
    if ((parser->flags & F_CONTENTLENGTH) != 0 && parser->content_length > FL_HTTP_BODY_BYTES_MAX)
        return refuse(c, 413);
    c->has_head = true;
    c->keeps_alive = http_should_keep_alive(parser) != 0;
    if (!c->has[FL_HTTP_EXPECT])
        return 0;
    if (!is_text(str_of(&c->values[FL_HTTP_EXPECT]), "100-continue"))
        return refuse(c, 417);
    if (is_1_1)
        (void)fl_conn_write(c->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return 0;
}

static int on_body(http_parser *parser, const char *data, size_t len)
{
    struct fl_http_connection *c = connection_of(parser);

    if (c->body.len + len > FL_HTTP_BODY_BYTES_MAX)
        return refuse(c, 413);
    fl_buf_put(&c->body, data, len);
    return 0;
}

/* What comes behind belongs to the next request, and to a parser of its own. */
static int on_message_complete(http_parser *parser)
{
    connection_of(parser)->is_whole = true;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* --- Reading --- */

static unsigned status_of_error(const struct fl_http_connection *c)
{
    switch (HTTP_PARSER_ERRNO(&c->parser)) {
    case HPE_HEADER_OVERFLOW:
        return c->has_head ? 413 : 431;
    case HPE_INVALID_VERSION:
        return 505;
    case HPE_INVALID_TRANSFER_ENCODING:
        return 501;
    default:
        return 400;
    }
}

/* Empty lines before a request, which old clients send behind a body, are no request. */
static size_t skip_empty_lines(const uint8_t *data, size_t len)
{
    size_t n = 0;

    while (n < len && (data[n] == '\r' || data[n] == '\n'))
        n++;
    return n;
}

size_t fl_http__request_read(struct fl_http_connection *c, const uint8_t *data, size_t len)
{
    size_t skipped = c->has_begun ? 0 : skip_empty_lines(data, len), n = len - skipped, taken;
    bool had_head = c->has_head;

    if (n == 0)
        return skipped;
    c->has_begun = true;
    if (!had_head && n > FL_HTTP_HEAD_BYTES_MAX - c->head_bytes)
        n = FL_HTTP_HEAD_BYTES_MAX - c->head_bytes;
    taken = http_parser_execute(&c->parser, &settings, (const char *)data + skipped, n);
    c->bytes += taken;
    if (!had_head)
        c->head_bytes += taken;
    if (c->refusal == 0 && !c->is_whole) {
        if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK)
            c->refusal = status_of_error(c);
        else if (!c->has_head && c->head_bytes >= FL_HTTP_HEAD_BYTES_MAX)
            c->refusal = 431;
        else if (c->bytes > FL_HTTP_REQUEST_BYTES_MAX)
            c->refusal = 413;
    }
    return skipped + taken;
}

static struct fl_str part_of(const struct fl_http_connection *c, const struct http_parser_url *url,
                             enum http_parser_url_fields field)
{
    if ((url->field_set & (1u << field)) == 0)
        return (struct fl_str){NULL, 0};
    return (struct fl_str){(const char *)c->url.data + url->field_data[field].off,
                           url->field_data[field].len};
}

static enum fl_http_method method_of(const http_parser *parser)
{
    switch (parser->method) {
    case HTTP_GET:
        return FL_HTTP_GET;
    case HTTP_HEAD:
        return FL_HTTP_HEAD;
    case HTTP_POST:
        return FL_HTTP_POST;
    default:
        return FL_HTTP_OTHER;
    }
}

bool fl_http__request_tell(struct fl_http_connection *c)
{
    struct fl_http_request *request = &c->exchange.request;
    struct http_parser_url url;

    *request = (struct fl_http_request){
        .method = method_of(&c->parser),
        .path = str_of(&c->url),
        .body = str_of(&c->body),
        .host = str_of(&c->values[FL_HTTP_HOST]),
        .origin = str_of(&c->values[FL_HTTP_ORIGIN]),
        .content_type = str_of(&c->values[FL_HTTP_CONTENT_TYPE]),
        .if_none_match = str_of(&c->values[FL_HTTP_IF_NONE_MATCH]),
    };
    /* "*" and what CONNECT names are no path, and stay as they are. */
    if (c->parser.method == HTTP_CONNECT || is_text(request->path, "*"))
        return true;
    http_parser_url_init(&url);
    if (http_parser_parse_url((const char *)c->url.data, c->url.len, 0, &url) != 0) {
        c->refusal = 400;
        return false;
    }
    request->path = part_of(c, &url, UF_PATH);
    request->query = part_of(c, &url, UF_QUERY);
    if ((url.field_set & (1u << UF_HOST)) != 0) /* a whole URL: its host is the one that counts */
        request->host = part_of(c, &url, UF_HOST);
    return true;
}

/* --- Life --- */

void fl_http__request_reset(struct fl_http_connection *c)
{
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
    c->has_begun = c->has_head = c->is_whole = c->is_in_value = false;
    c->head_bytes = c->bytes = c->header_len = 0;
    c->n_headers = c->refusal = 0;
    c->kept = -1;
    fl_buf_clear(&c->url);
    fl_buf_clear(&c->body);
    for (int i = 0; i < FL_HTTP_HEADERS_KEPT; i++) {
        c->has[i] = false;
        fl_buf_clear(&c->values[i]);
    }
    c->exchange = (struct fl_http_exchange){0};
}

void fl_http__request_deinit(struct fl_http_connection *c)
{
    fl_buf_deinit(&c->url);
    fl_buf_deinit(&c->body);
    for (int i = 0; i < FL_HTTP_HEADERS_KEPT; i++)
        fl_buf_deinit(&c->values[i]);
}
