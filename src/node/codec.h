/* What the message codecs share: the encodings of the words of core/types.h. */
#ifndef FL_NODE_CODEC_H
#define FL_NODE_CODEC_H

#include "base/buf.h"
#include "core/types.h"

static inline void fl_codec_put_session(struct fl_buf *buf, struct fl_session_id id)
{
    fl_buf_put_u64(buf, id.high);
    fl_buf_put_u64(buf, id.low);
}

static inline struct fl_session_id fl_codec_session(struct fl_reader *r)
{
    uint64_t high = fl_reader_u64(r);

    return (struct fl_session_id){high, fl_reader_u64(r)};
}

/* A varint that must fit 32 bits. */
static inline uint32_t fl_codec_u32(struct fl_reader *r)
{
    uint64_t value = fl_reader_varint(r);

    if (value > UINT32_MAX)
        r->failed = true;
    return r->failed ? 0 : (uint32_t)value;
}

/* One byte that must be at most `max`. */
static inline uint8_t fl_codec_u8(struct fl_reader *r, uint8_t max)
{
    uint8_t value = fl_reader_u8(r);

    if (value > max)
        r->failed = true;
    return r->failed ? 0 : value;
}

static inline bool fl_codec_bool(struct fl_reader *r)
{
    return fl_codec_u8(r, 1) != 0;
}

#endif
