/* A snapshot on its way to another node, on a connection of its own so that heartbeats pass:
 * greeting, one frame with the header (a message of consensus), frames with the content, an empty
 * frame, and back one frame when all of it is durable. One chunk is under way at a time: memory
 * stays bounded. */
#ifndef FL_RAFT_TRANSFER_H
#define FL_RAFT_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/framed.h"
#include "raft/store.h"
#include "raft/transport.h"

#define FL_TRANSFER_CHUNK_BYTES (256u * 1024)

/* --- Sending --- */

struct fl_outgoing;

/* Begins. Takes `reader`. `done` follows once, later, unless cancelled; the object is gone then. */
struct fl_outgoing *
fl_outgoing_new(struct fl_loop *loop, const struct fl_transport *transport, uint64_t to,
                const void *header, size_t header_len, struct fl_snapshot_reader *reader,
                void (*done)(void *ctx, uint64_t to, bool is_ok, const char *why), void *ctx);
void fl_outgoing_cancel(struct fl_outgoing *outgoing);

/* --- Receiving --- */

struct fl_incoming;

struct fl_incoming_ops {
    /* The header came (borrowed). Returns the writer for the content, or NULL to refuse. */
    struct fl_snapshot_writer *(*begin)(void *ctx, uint64_t from, const void *header, size_t len);
    /* Content is durable at a temporary path; the callee owns the file now. */
    void (*arrived)(void *ctx, uint64_t from, const char *temporary_path);
    /* It broke off; the file is removed. Exactly one of arrived and failed follows a begin that was
     * not refused. */
    void (*failed)(void *ctx, uint64_t from, const char *why);
    /* The connection is gone and with it this object; exactly once, last. */
    void (*closed)(void *ctx, struct fl_incoming *incoming);
};

/* Takes over a greeted connection. */
struct fl_incoming *fl_incoming_new(struct fl_framed *c, uint64_t from,
                                    const struct fl_incoming_ops *ops, void *ctx);
void fl_incoming_cancel(struct fl_incoming *incoming);

#endif
