/* Messages to a loop from any thread: a queue and a wake-up. Many messages that arrive in one turn
 * cost one wake-up. Bounded by its users (a sender asks fl_mailbox_bytes() where a flood is
 * possible). */
#ifndef FL_NET_MAILBOX_H
#define FL_NET_MAILBOX_H

#include <stddef.h>
#include <stdint.h>

#include "net/loop.h"

struct fl_mailbox;

/* `receive` runs on the loop's thread for each message, in order of each sender; data is borrowed.
 */
typedef void (*fl_mailbox_receive)(void *ctx, const uint8_t *data, size_t len);
/* Runs after the last message of a batch; may be NULL. */
typedef void (*fl_mailbox_drained)(void *ctx);

struct fl_mailbox *fl_mailbox_new(struct fl_loop *loop, fl_mailbox_receive receive,
                                  fl_mailbox_drained drained, void *ctx);
void fl_mailbox_free(struct fl_mailbox *mailbox); /* on the loop's thread; no sender may be left */
/* Any thread. Copies. */
void fl_mailbox_send(struct fl_mailbox *mailbox, const void *data, size_t len);
size_t fl_mailbox_bytes(struct fl_mailbox *mailbox); /* queued now */

#endif
