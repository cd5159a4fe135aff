/* The session's effects as messages of the OpenSession stream, and back; the outcome of a call as
 * a code of ours. */
#ifndef FL_CLIENT_WIRE_H
#define FL_CLIENT_WIRE_H

#include "client/session.h"
#include "rpc/status.h"

struct fl_wire_options {
    const char *name; /* of the client */
    uint32_t ttl_ms, lock_delay_ms;
    bool release_on_disconnect;
};

/* A message block for fl_rpc_client_call_send(). `effect` is one of FL_SESSION_FX_SEND_*.
 * FL_E_NOMEM. */
int fl_wire_pack(const struct fl_session_effect *effect, const struct fl_wire_options *options,
                 uint8_t **ret_message, size_t *ret_len);
/* Steps the session with what the message says. FL_E_PROTOCOL when it is none of ours; FL_E_NOMEM;
 * a message of a later release that we do not know is passed over. */
int fl_wire_deliver(struct fl_session *session, uint64_t now_ms, const uint8_t *data, size_t len);

/* FL_OK or a code for a call's status; fills `why` (NULL is fine), returns the code. */
int fl_wire_why(const struct fl_rpc_status *status, struct fl_why *why);

#endif
