/* hash.c - the one file that includes xxHash. Not for digests that strangers may attack: those
 * are sha256.c. */
#include "base/core/hash.h"

#include <xxhash.h>

uint64_t hash64(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

struct hash128 hash128(const void *data, size_t len, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, len, seed);
    return (struct hash128){ .lo = h.low64, .hi = h.high64 };
}
