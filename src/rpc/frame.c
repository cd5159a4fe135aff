#include "rpc/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "rpc/limits.h"

void fl_deframer_init(struct fl_deframer *d, size_t message_bytes_max)
{
    memset(d, 0, sizeof *d);
    d->max = message_bytes_max;
}

void fl_deframer_deinit(struct fl_deframer *d)
{
    free(d->message);
    memset(d, 0, sizeof *d);
}

bool fl_deframer_is_inside(const struct fl_deframer *d)
{
    return d->prefix_len != 0;
}

static int read_prefix(struct fl_deframer *d)
{
    uint8_t flag = d->prefix[0];

    d->need = (size_t)d->prefix[1] << 24 | (size_t)d->prefix[2] << 16 | (size_t)d->prefix[3] << 8 |
              d->prefix[4];
    d->len = 0;
    if (flag > 1)
        return FL_E_MALFORMED;
    if (flag == 1)
        return FL_E_UNSUPPORTED;
    return d->need > d->max ? FL_E_TOO_BIG : FL_OK;
}

/* Never the claimed length at once: a thousand streams may claim much and send nothing. */
static int make_room(struct fl_deframer *d, size_t more)
{
    size_t want = d->len + more, capacity = d->capacity;
    uint8_t *message;

    if (want <= capacity)
        return FL_OK;
    if (capacity == 0)
        capacity = d->need < FL_RPC_FIRST_ALLOC_MAX ? d->need : FL_RPC_FIRST_ALLOC_MAX;
    while (capacity < want)
        capacity *= 2;
    if (capacity > d->need && d->need >= want)
        capacity = d->need;
    message = realloc(d->message, capacity);
    if (message == NULL)
        return FL_E_NOMEM;
    d->message = message;
    d->capacity = capacity;
    return FL_OK;
}

int fl_deframer_feed(struct fl_deframer *d, const uint8_t *data, size_t len, size_t *ret_taken)
{
    size_t at = 0, take;
    int r;

    while (d->prefix_len < FL_RPC_PREFIX_BYTES && at < len) {
        d->prefix[d->prefix_len++] = data[at++];
        if (d->prefix_len == FL_RPC_PREFIX_BYTES && (r = read_prefix(d)) < 0)
            return r;
    }
    *ret_taken = at;
    if (d->prefix_len < FL_RPC_PREFIX_BYTES)
        return 0;
    take = d->need - d->len < len - at ? d->need - d->len : len - at;
    if (take != 0) {
        r = make_room(d, take);
        if (r < 0)
            return r;
        memcpy(d->message + d->len, data + at, take);
        d->len += take;
    }
    *ret_taken = at + take;
    if (d->len < d->need)
        return 0;
    d->prefix_len = 0;
    return 1;
}

void fl_frame_prefix(uint8_t out[FL_RPC_PREFIX_BYTES], size_t len)
{
    FL_REQUIRE(len <= UINT32_MAX);
    out[0] = 0;
    for (int i = 0; i < 4; i++)
        out[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

/* --- Timeouts --- */

int fl_timeout_parse(const char *text, size_t len, uint64_t *ret_ms)
{
    uint64_t value = 0;

    if (len < 2 || len > 9)
        return FL_E_MALFORMED;
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return FL_E_MALFORMED;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    switch (text[len - 1]) {
    case 'H':
        *ret_ms = value * 3600000;
        return FL_OK;
    case 'M':
        *ret_ms = value * 60000;
        return FL_OK;
    case 'S':
        *ret_ms = value * 1000;
        return FL_OK;
    case 'm':
        *ret_ms = value;
        return FL_OK;
    case 'u':
        *ret_ms = (value + 999) / 1000;
        return FL_OK;
    case 'n':
        *ret_ms = (value + 999999) / 1000000;
        return FL_OK;
    default:
        return FL_E_MALFORMED;
    }
}

/* At most eight digits: coarser units for longer times, rounded up. */
void fl_timeout_format(uint64_t ms, char out[FL_TIMEOUT_TEXT_SIZE])
{
    if (ms <= 99999999)
        snprintf(out, FL_TIMEOUT_TEXT_SIZE, "%um", (unsigned)ms);
    else if ((ms + 999) / 1000 <= 99999999)
        snprintf(out, FL_TIMEOUT_TEXT_SIZE, "%uS", (unsigned)((ms + 999) / 1000));
    else
        snprintf(out, FL_TIMEOUT_TEXT_SIZE, "99999999S");
}

/* --- Percent encoding --- */

static bool is_plain(unsigned char c, bool is_at_end)
{
    /* nghttp2 drops a value that begins or ends with a blank (RFC 9113 section 8.2.1). */
    return c > 0x20 && c < 0x7f ? c != '%' : c == ' ' && !is_at_end;
}

/* The length of `text`, cut to `max` bytes at a character's end. */
static size_t cut_length(const char *text, size_t max)
{
    size_t len = strlen(text);

    if (len <= max)
        return len;
    while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80)
        max--;
    return max;
}

size_t fl_percent_encode(const char *text, char *out, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = cut_length(text, FL_MESSAGE_MAX), used = 0;

    FL_REQUIRE(size >= 4 * FL_MESSAGE_MAX);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (is_plain(c, i == 0 || i + 1 == len)) {
            out[used++] = (char)c;
        } else {
            out[used++] = '%';
            out[used++] = digits[c >> 4];
            out[used++] = digits[c & 15];
        }
    }
    out[used] = '\0';
    return used;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

size_t fl_percent_decode(char *text)
{
    char *out = text;

    for (const char *in = text; *in != '\0'; in++) {
        int high = in[0] == '%' ? hex_digit(in[1]) : -1;
        int low = high >= 0 ? hex_digit(in[2]) : -1;

        if (low >= 0) {
            *out++ = (char)(high << 4 | low);
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
    return (size_t)(out - text);
}
