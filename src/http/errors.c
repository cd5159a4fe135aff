/* Errors as JSON, and which HTTP status each gRPC code has: that of google.rpc.Code. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "http/json.h"
#include "http/site_parts.h"

static unsigned status_of_code(enum fl_rpc_code code)
{
    switch (code) {
    case FL_RPC_OK:
        return 200;
    case FL_RPC_CANCELLED:
        return 499;
    case FL_RPC_INVALID_ARGUMENT:
    case FL_RPC_FAILED_PRECONDITION:
    case FL_RPC_OUT_OF_RANGE:
        return 400;
    case FL_RPC_DEADLINE_EXCEEDED:
        return 504;
    case FL_RPC_NOT_FOUND:
        return 404;
    case FL_RPC_ALREADY_EXISTS:
    case FL_RPC_ABORTED:
        return 409;
    case FL_RPC_PERMISSION_DENIED:
        return 403;
    case FL_RPC_UNAUTHENTICATED:
        return 401;
    case FL_RPC_RESOURCE_EXHAUSTED:
        return 429;
    case FL_RPC_UNIMPLEMENTED:
        return 501;
    case FL_RPC_UNAVAILABLE:
        return 503;
    case FL_RPC_UNKNOWN:
    case FL_RPC_INTERNAL:
    case FL_RPC_DATA_LOSS:
        break;
    }
    return 500;
}

static const char *code_of_status(unsigned status)
{
    switch (status) {
    case 403:
        return fl_rpc_code_text(FL_RPC_PERMISSION_DENIED);
    case 404:
        return fl_rpc_code_text(FL_RPC_NOT_FOUND);
    case 405:
    case 501:
        return fl_rpc_code_text(FL_RPC_UNIMPLEMENTED);
    default:
        return fl_rpc_code_text(FL_RPC_INVALID_ARGUMENT);
    }
}

static void reply(struct fl_http_exchange *x, unsigned http_status, json_t *document,
                  const char *headers)
{
    char *text = json_dumps(document, 0);
    size_t len;
    struct fl_http_answer answer = {
        .status = http_status, .type = "application/json", .headers = headers};

    FL_REQUIRE(text != NULL);
    len = strlen(text);
    text[len] = '\n'; /* in the place of its end: a terminal's prompt goes on a line of its own */
    answer.body = (struct fl_str){text, len + 1};
    fl_http_reply(x, &answer);
    free(text);
    json_decref(document);
}

void fl_site__reply_json(struct fl_http_exchange *x, json_t *document)
{
    reply(x, 200, document, "Cache-Control: no-store\r\n");
}

static json_t *error_of(unsigned http_status, const char *code, const char *reason,
                        const char *message)
{
    json_t *error = json_pack("{s:i, s:s, s:o, s:o}", "code", (int)http_status, "status", code,
                              "reason", fl_json_text(reason != NULL ? reason : ""), "message",
                              fl_json_text(message != NULL ? message : ""));

    FL_REQUIRE(error != NULL);
    return error;
}

json_t *fl_site__error(const struct fl_rpc_status *status)
{
    json_t *error = error_of(status_of_code(status->code), fl_rpc_code_text(status->code),
                             status->reason, status->message);

    if (status->field != NULL)
        json_object_set_new(error, "field", fl_json_text(status->field));
    if (status->retry_after_ms != 0)
        json_object_set_new(error, "retry_after_ms", json_integer(status->retry_after_ms));
    return json_pack("{s:o}", "error", error);
}

void fl_site__fail(struct fl_http_exchange *x, const struct fl_rpc_status *status)
{
    char headers[64] = "";

    if (status->retry_after_ms != 0)
        snprintf(headers, sizeof headers, "Retry-After: %u\r\n",
                 (status->retry_after_ms + 999) / 1000);
    reply(x, status_of_code(status->code), fl_site__error(status), headers);
}

void fl_site__refuse(struct fl_http_exchange *x, unsigned status, const char *reason,
                     const char *message, const char *headers)
{
    reply(x, status,
          json_pack("{s:o}", "error", error_of(status, code_of_status(status), reason, message)),
          headers);
}
