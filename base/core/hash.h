/* hash.h - fast keyed hashes, and the slow one where strangers may try to collide.
 *
 * Layer: base/core (xxHash, libcrypto)
 */
#pragma once
#include "base/core/str.h"

#define SHA256_BYTES 32
#define SHA256_HEX 64

uint64_t hash64(const void *data, size_t len, uint64_t seed); /* XXH3, 64 bits */

struct hash128 {
    uint64_t lo, hi;
};
struct hash128 hash128(const void *data, size_t len, uint64_t seed); /* XXH3, 128 bits */

void sha256(const void *data, size_t len, uint8_t ret[SHA256_BYTES]);
void hex_from(const uint8_t *bytes, size_t len, char *ret_hex); /* 2 * len + 1 bytes with NUL */
int hex_to(struct str hex, uint8_t *ret, size_t len); /* -EINVAL unless exactly 2 * len digits */

/* True when equal; takes the same time wherever they differ. */
bool equal_constant_time(const void *a, const void *b, size_t len);
