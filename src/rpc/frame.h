/* gRPC's own encodings on top of HTTP/2: message prefixes, timeouts, percent-encoded messages.
 * Pure. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
#ifndef FL_RPC_FRAME_H
#define FL_RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_RPC_PREFIX_BYTES 5

/* Puts messages together from the pieces in which DATA frames bring them. */
struct fl_deframer {
    uint8_t prefix[FL_RPC_PREFIX_BYTES];
    size_t prefix_len;
    uint8_t *message; /* owned */
    size_t len, need, capacity, max;
};

void fl_deframer_init(struct fl_deframer *d, size_t message_bytes_max);
void fl_deframer_deinit(struct fl_deframer *d);

/* Takes from `data` up to the end of the next message; *ret_taken says how much. 1: a message is
 * complete in d->message, d->len (valid until the next call); 0: all was taken, more is needed.
 * FL_E_TOO_BIG: longer than the limit, seen at the prefix; FL_E_UNSUPPORTED: compressed;
 * FL_E_MALFORMED: flag above 1; FL_E_NOMEM. */
int fl_deframer_feed(struct fl_deframer *d, const uint8_t *data, size_t len, size_t *ret_taken);
/* True inside a message: the input must not end here. */
bool fl_deframer_is_inside(const struct fl_deframer *d);

/* Writes the prefix of a message of `len` bytes. */
void fl_frame_prefix(uint8_t out[FL_RPC_PREFIX_BYTES], size_t len);

/* grpc-timeout, e.g. "5S", "100m": milliseconds, rounded up. FL_E_MALFORMED. */
int fl_timeout_parse(const char *text, size_t len, uint64_t *ret_ms);
#define FL_TIMEOUT_TEXT_SIZE 12
void fl_timeout_format(uint64_t ms, char out[FL_TIMEOUT_TEXT_SIZE]);

/* grpc-message: percent-encoded, cut to about a kilobyte at a character's end: a longer trailer
 * makes C-core clients lose the whole status. `size` at least 4 * FL_MESSAGE_MAX. Returns the
 * length. */
#define FL_MESSAGE_MAX 1024
size_t fl_percent_encode(const char *text, char *out, size_t size);
/* In place; a bad "%zz" stays as it is. Returns the length. */
size_t fl_percent_decode(char *text);

#endif
