#include "base/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint64_t load64(const uint8_t *p)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static uint64_t rotl(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

uint64_t fl_hash_siphash(struct fl_hash_key key, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t v[4] = {key.k0 ^ 0x736f6d6570736575u, key.k1 ^ 0x646f72616e646f6du,
                     key.k0 ^ 0x6c7967656e657261u, key.k1 ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)len << 56;
    size_t left = len;

    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word = load64(p);

        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)p[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t crc_table[256];
static bool crc_in_hardware;
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_setup(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? CRC32C_POLYNOMIAL : 0);
        crc_table[i] = crc;
    }
#if defined(__x86_64__)
    crc_in_hardware = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t len)
{
    while (len-- != 0)
        crc = crc_table[(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_hardware(uint32_t crc, const uint8_t *p,
                                                                  size_t len)
{
    uint64_t wide = crc;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;

        memcpy(&word, p, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    while (len-- != 0)
        crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
#endif

uint32_t fl_crc32c(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&crc_once, crc_setup);
#if defined(__x86_64__)
    if (crc_in_hardware)
        return ~crc_by_hardware(~crc, data, len);
#endif
    return ~crc_by_table(~crc, data, len);
}
