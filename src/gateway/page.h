/* Page tokens: where a list goes on. Opaque to clients, so that what stands in them can change:
 * today the last key of the page, in hexadecimal digits behind a version letter. */
#ifndef FL_GATEWAY_PAGE_H
#define FL_GATEWAY_PAGE_H

#include "base/str.h"
#include "core/types.h"
#include "gateway/arena.h"

#define FL_PAGE_DEFAULT 100u
#define FL_PAGE_MAX     1000u

char *fl_page_token(struct fl_arena *arena, struct fl_str last);
/* `out` holds FL_NAME_MAX bytes. FL_E_INVALID: not one of ours. An empty token begins at the start.
 */
int fl_page_parse(const char *token, char *out, struct fl_str *ret_last);

#endif
