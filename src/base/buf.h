/* A growable byte buffer, and the little-endian encoding that the log, the snapshots and the peer
 * messages share.
 *
 * Writing cannot fail (base/alloc.h). Reading never trusts a length: fl_reader is sticky, so a
 * caller reads a whole record and checks once with fl_reader_end() or fl_reader_failed(). After a
 * failure every read gives 0 or an empty string. */
#ifndef FL_BASE_BUF_H
#define FL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct fl_buf {
    uint8_t *data; /* owned */
    size_t len, capacity;
};

#define FL_BUF_INIT ((struct fl_buf){NULL, 0, 0})

void fl_buf_deinit(struct fl_buf *buf);
void fl_buf_clear(struct fl_buf *buf); /* keeps the memory */
/* Room for `more` bytes; the place to write them to. Follow with fl_buf_commit(). */
uint8_t *fl_buf_reserve(struct fl_buf *buf, size_t more);
void fl_buf_commit(struct fl_buf *buf, size_t written);
/* Hands the memory over; the caller frees it. The buffer is empty afterwards. */
uint8_t *fl_buf_take(struct fl_buf *buf, size_t *ret_len);

void fl_buf_put(struct fl_buf *buf, const void *data, size_t len);
void fl_buf_put_u8(struct fl_buf *buf, uint8_t value);
void fl_buf_put_u16(struct fl_buf *buf, uint16_t value);
void fl_buf_put_u32(struct fl_buf *buf, uint32_t value);
void fl_buf_put_u64(struct fl_buf *buf, uint64_t value);
/* LEB128, 1 to 10 bytes. */
void fl_buf_put_varint(struct fl_buf *buf, uint64_t value);
/* A varint length, then the bytes. */
void fl_buf_put_str(struct fl_buf *buf, struct fl_str value);
void fl_buf_printf(struct fl_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct fl_reader {
    const uint8_t *data; /* borrowed */
    size_t len, at;
    bool failed;
};

struct fl_reader fl_reader_from(const void *data, size_t len);
uint8_t fl_reader_u8(struct fl_reader *r);
uint16_t fl_reader_u16(struct fl_reader *r);
uint32_t fl_reader_u32(struct fl_reader *r);
uint64_t fl_reader_u64(struct fl_reader *r);
/* Fails on a form longer than needed, so that equal values have equal bytes. */
uint64_t fl_reader_varint(struct fl_reader *r);
/* Borrows from the input. Fails when longer than `max`. */
struct fl_str fl_reader_str(struct fl_reader *r, size_t max);
/* Borrows `len` bytes; NULL when they are not there. */
const uint8_t *fl_reader_bytes(struct fl_reader *r, size_t len);
size_t fl_reader_left(const struct fl_reader *r);
static inline bool fl_reader_failed(const struct fl_reader *r)
{
    return r->failed;
}
/* 0 when all was read and nothing failed, else FL_E_MALFORMED. */
int fl_reader_end(const struct fl_reader *r);

#endif
