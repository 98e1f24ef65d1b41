/* block_key.h - computes the names of token blocks in a KV cache, equal in engine and router.
 *
 * Layer: base/core (xxHash)
 *
 *     key[0] = H(seed, salt,     ids[0..16))
 *     key[i] = H(seed, key[i-1], ids[16 i..16 i + 16))        H: XXH3, 128 bits
 *
 * A key covers BLOCK_TOKENS ids and everything before them. Only full blocks have one. `seed` comes
 * from the fleet's secret, so that nobody outside can construct a collision; `salt` is a digest of
 * weights, adapter and tenant, so that tenants never share a block. The engine still compares
 * ids on a hit.
 */
#pragma once
#include "base/core/hash.h"

#define BLOCK_TOKENS 16 /* tokens a key covers; a page is a whole number of these */
#define BLOCK_KEY_HEX 32

struct block_key {
    uint64_t lo, hi;
};

/* Derives the seed from a fleet's secret; 0 for an empty one. Engines and routers that share the
 * secret compute equal keys. */
uint64_t block_seed(struct str secret);

/* Returns the root of every chain of keys of one (weights, adapter, tenant). Empty strings are fine. */
struct block_key block_salt(uint64_t seed, struct str weights_digest, struct str adapter,
                            struct str tenant);

struct block_key block_key_next(uint64_t seed, struct block_key parent,
                                const uint32_t ids[BLOCK_TOKENS]);

/* Writes the keys of the full blocks of `ids` into ret, at most ret_max; returns their number. */
uint32_t block_keys(uint64_t seed, struct block_key salt, const uint32_t *ids, uint32_t count,
                    struct block_key *ret, uint32_t ret_max);

static inline bool block_key_eq(struct block_key a, struct block_key b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

void block_key_hex(struct block_key k, char ret[BLOCK_KEY_HEX + 1]);
int block_key_parse(struct str hex, struct block_key *ret); /* -EINVAL */
