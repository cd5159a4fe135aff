/* Hashing. fl_hash_siphash is keyed: names come from clients, and a table that a client can fill
 * with colliding names is a table that a client can slow down. fl_crc32c guards bytes on disk and
 * between peers against damage, not against forgery. */
#ifndef FL_BASE_HASH_H
#define FL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct fl_hash_key {
    uint64_t k0, k1;
};

/* SipHash-1-3 (Aumasson and Bernstein, 2012; 1-3 as in the Linux kernel's and Rust's tables). */
uint64_t fl_hash_siphash(struct fl_hash_key key, const void *data, size_t len);

/* A bijective mix of 64 bits (Steele et al., SplitMix64 finaliser), for keys that are numbers. */
static inline uint64_t fl_hash_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* CRC-32C (RFC 3720, appendix B.4), in hardware where the processor has it. Pass 0 to begin, the
 * last result to go on. */
uint32_t fl_crc32c(uint32_t crc, const void *data, size_t len);

#endif
