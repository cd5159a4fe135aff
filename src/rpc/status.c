#include "rpc/status.h"

#include <stddef.h>

static const char *const texts[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *fl_rpc_code_text(enum fl_rpc_code code)
{
    size_t i = (size_t)code;

    return i < sizeof texts / sizeof texts[0] ? texts[i] : "UNKNOWN";
}

enum fl_rpc_code fl_rpc_code_from_number(long number)
{
    return number >= 0 && number <= FL_RPC_UNAUTHENTICATED ? (enum fl_rpc_code)number
                                                           : FL_RPC_UNKNOWN;
}
