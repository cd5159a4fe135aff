/* /v1/SERVICE/CALL: the gateway's calls as JSON. What only reads can be asked with GET and a
 * query, everything with POST and a body. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "gateway/unary.h"
#include "http/json.h"
#include "http/site_parts.h"

#define PREFIX  "/v1/"
#define PACKAGE "/fencelock.v1."

struct api_call {
    struct fl_site *site;
    struct fl_http_exchange *x;
    struct fl_unary *unary;
};

/* --- Its answer --- */

static void on_reply(void *ctx, const ProtobufCMessage *response)
{
    struct api_call *call = ctx;

    fl_site__reply_json(call->x, fl_json_from_message(response));
    free(call);
}

static void on_fail(void *ctx, const struct fl_rpc_status *status)
{
    struct api_call *call = ctx;

    fl_site__fail(call->x, status);
    free(call);
}

static const struct fl_unary_sink sink = {on_reply, on_fail};

/* Like a gRPC call whose connection broke: who chose its request_id may ask again. */
static void on_gone(void *data)
{
    struct api_call *call = data;

    fl_unary_gone(call->unary, FL_UNARY_CUT_OFF);
    free(call);
}

/* --- Its arguments --- */

static bool is_json(struct fl_str type)
{
    struct fl_str wanted = FL_STR("application/json");

    return type.len >= wanted.len && strncasecmp(type.data, wanted.data, wanted.len) == 0 &&
           (type.len == wanted.len || strchr("; \t", type.data[wanted.len]) != NULL);
}

/* A session is opened with its options alone, as the stream's first message has them. */
static json_t *read_arguments(struct fl_http_exchange *x, bool is_open_session,
                              struct fl_outcome *outcome)
{
    const struct fl_http_request *request = fl_http_request(x);
    json_t *arguments = request->method == FL_HTTP_POST
                            ? fl_json_parse(request->body, outcome)
                            : fl_json_from_query(request->query, outcome);

    if (arguments != NULL && is_open_session)
        arguments = json_pack("{s:o}", "options", arguments);
    return arguments;
}

static void start(struct fl_site *site, struct fl_http_exchange *x,
                  const struct fl_unary_method *method, const ProtobufCMessage *message)
{
    struct api_call *call = fl_xcalloc(1, sizeof *call);
    struct fl_unary *unary;

    call->site = site;
    call->x = x;
    unary = fl_unary_start(site->gateway, method, message, fl_http_peer(x), &sink, call);
    if (unary == NULL) /* answered, and the call is gone */
        return;
    call->unary = unary;
    fl_http_on_gone(x, on_gone, call);
}

/* `method` NULL: Watch. */
static void call_method(struct fl_site *site, struct fl_http_exchange *x,
                        const struct fl_unary_method *method, bool is_open_session)
{
    const ProtobufCMessageDescriptor *type =
        method != NULL ? method->request : &fencelock__v1__watch_request__descriptor;
    struct fl_outcome outcome;
    struct fl_arena arena;
    json_t *arguments = read_arguments(x, is_open_session, &outcome);
    ProtobufCMessage *message = NULL;

    fl_arena_init(&arena);
    if (arguments != NULL)
        message = fl_json_to_message(arguments, type, &arena, &outcome);
    if (message != NULL && method == NULL)
        fl_site__serve_watch(site, x, (const Fencelock__V1__WatchRequest *)message);
    else if (message != NULL)
        start(site, x, method, message);
    else
        fl_site__fail(x, &outcome.status);
    json_decref(arguments);
    fl_arena_deinit(&arena);
}

/* --- Which call --- */

/* NULL: Watch. */
static bool only_reads(const struct fl_unary_method *method)
{
    return method == NULL || method->read == fl_arguments_describe ||
           method->read == fl_arguments_list || method->read == fl_arguments_status ||
           method->read == fl_arguments_list_sessions || method->read == fl_arguments_list_waits;
}

static const struct fl_unary_method *find_method(struct fl_str call, bool *ret_is_open_session)
{
    char path[128] = PACKAGE;

    *ret_is_open_session = fl_str_equal(call, FL_STR("LockService/OpenSession"));
    if (*ret_is_open_session)
        call = FL_STR("LockService/CreateSession");
    if (call.len >= sizeof path - strlen(PACKAGE))
        return NULL;
    memcpy(path + strlen(PACKAGE), call.data, call.len);
    return fl_unary_find(path);
}

/* GET /v1/: what there is. */
static void list_calls(struct fl_http_exchange *x)
{
    json_t *calls = json_array();

    for (size_t i = 0; i < fl_unary_n_methods; i++) {
        const struct fl_unary_method *method = &fl_unary_methods[i];
        json_t *fields = json_array();

        for (unsigned f = 0; f < method->request->n_fields; f++)
            json_array_append_new(fields, json_string(method->request->fields[f].name));
        json_array_append_new(calls, json_pack("{s:s+, s:s, s:o}", "path", PREFIX,
                                               method->path + strlen(PACKAGE), "method",
                                               only_reads(method) ? "GET or POST" : "POST",
                                               "fields", fields));
    }
    fl_site__reply_json(x, json_pack("{s:o}", "calls", calls));
}

bool fl_site__serve_api(struct fl_site *site, struct fl_http_exchange *x)
{
    const struct fl_http_request *request = fl_http_request(x);
    const struct fl_unary_method *method;
    struct fl_str call = request->path;
    bool is_watch, is_open_session,
        is_get = request->method == FL_HTTP_GET || request->method == FL_HTTP_HEAD;

    if (!fl_str_has_prefix(call, FL_STR(PREFIX)))
        return false;
    call.data += strlen(PREFIX);
    call.len -= strlen(PREFIX);
    is_watch = fl_str_equal(call, FL_STR("LockService/Watch"));
    method = find_method(call, &is_open_session);
    if (call.len == 0 && is_get)
        list_calls(x);
    else if (method == NULL && !is_watch)
        fl_site__refuse(x, 404, "NOT_FOUND", "there is no such call: see /v1/", NULL);
    else if (request->method != FL_HTTP_POST &&
             !(is_get && only_reads(method) && !(is_watch && request->method == FL_HTTP_HEAD)))
        fl_site__refuse(x, 405, "BAD_METHOD",
                        only_reads(method) ? "ask with GET and a query, or with POST and a body"
                                           : "this changes something: ask with POST",
                        only_reads(method) ? "Allow: GET, HEAD, POST\r\n" : "Allow: POST\r\n");
    else if (!is_get && !is_json(request->content_type))
        fl_site__refuse(x, 415, "BAD_CONTENT_TYPE",
                        "send the arguments as JSON, with the header \"Content-Type: "
                        "application/json\" (curl --json does)",
                        "Accept-Post: application/json\r\n");
    else
        call_method(site, x, method, is_open_session);
    return true;
}
