/* The memory of one nghttp2 session, which goes all at once.
 *
 * When nghttp2 runs out of memory while it submits a frame, it may leave a stream that points to
 * what it has freed, and ending the session would free that again. So we never let it take the
 * session apart: every allocation of the session is in a list, and the list is freed. */
#ifndef FL_NET_H2_MEMORY_H
#define FL_NET_H2_MEMORY_H

#include <nghttp2/nghttp2.h>

struct fl_h2_memory;

struct fl_h2_memory *fl_h2_memory_new(void); /* NULL: out of memory */
/* All that was allocated through its functions, too. */
void fl_h2_memory_free(struct fl_h2_memory *memory);
/* For nghttp2_session_*_new3(). */
nghttp2_mem *fl_h2_memory_functions(struct fl_h2_memory *memory);
/* The memory that `block` was allocated from. */
struct fl_h2_memory *fl_h2_memory_of(const void *block);

#endif
