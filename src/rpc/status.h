/* gRPC status codes, and what Fencelock says beside them in trailers. */
#ifndef FL_RPC_STATUS_H
#define FL_RPC_STATUS_H

#include <stdint.h>

/* https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
enum fl_rpc_code {
    FL_RPC_OK = 0,
    FL_RPC_CANCELLED = 1,
    FL_RPC_UNKNOWN = 2,
    FL_RPC_INVALID_ARGUMENT = 3,
    FL_RPC_DEADLINE_EXCEEDED = 4,
    FL_RPC_NOT_FOUND = 5,
    FL_RPC_ALREADY_EXISTS = 6,
    FL_RPC_PERMISSION_DENIED = 7,
    FL_RPC_RESOURCE_EXHAUSTED = 8,
    FL_RPC_FAILED_PRECONDITION = 9,
    FL_RPC_ABORTED = 10,
    FL_RPC_OUT_OF_RANGE = 11,
    FL_RPC_UNIMPLEMENTED = 12,
    FL_RPC_INTERNAL = 13,
    FL_RPC_UNAVAILABLE = 14,
    FL_RPC_DATA_LOSS = 15,
    FL_RPC_UNAUTHENTICATED = 16,
};

/* How a call ended. Strings are borrowed; NULL or 0: absent. */
struct fl_rpc_status {
    enum fl_rpc_code code;
    const char *message;     /* a sentence that says what to do */
    const char *reason;      /* trailer fencelock-reason: stable, e.g. "SESSION_NOT_FOUND" */
    const char *field;       /* trailer fencelock-field: the field that is wrong */
    uint32_t retry_after_ms; /* trailer fencelock-retry-after-ms */
};

const char *fl_rpc_code_text(enum fl_rpc_code code); /* "NOT_FOUND" */
/* Unknown numbers become UNKNOWN. */
enum fl_rpc_code fl_rpc_code_from_number(long number);

#endif
