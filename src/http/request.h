/* Reading one request into its connection. */
#ifndef FL_HTTP_REQUEST_H
#define FL_HTTP_REQUEST_H

#include "http/connection.h"

/* Forgets the request, ready for the next. */
void fl_http__request_reset(struct fl_http_connection *c);
void fl_http__request_deinit(struct fl_http_connection *c);

/* Takes what belongs to the present request, and returns how much that was. Afterwards either more
 * is needed, or c->is_whole, or c->refusal is the status to refuse it with. */
size_t fl_http__request_read(struct fl_http_connection *c, const uint8_t *data, size_t len);
/* Of a whole request: what the handler sees. False: c->refusal. */
bool fl_http__request_tell(struct fl_http_connection *c);

#endif
