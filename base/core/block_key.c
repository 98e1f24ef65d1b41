/* block_key.c - computes chained names of token blocks. The header has the formula.
 *
 * The salt hashes each part on its own before hashing the three together, so that ("ab", "c") and
 * ("a", "bc") differ. */
#include "base/core/block_key.h"

#include "base/core/bits.h"

#include <errno.h>

static struct block_key from_hash(struct hash128 h)
{
    return (struct block_key){ .lo = h.lo, .hi = h.hi };
}

uint64_t block_seed(struct str secret)
{
    return secret.len > 0 ? hash64(secret.data, secret.len, 0) : 0;
}

struct block_key block_salt(uint64_t seed, struct str weights_digest, struct str adapter,
                            struct str tenant)
{
    struct hash128 part[3] = {
        hash128(weights_digest.data, weights_digest.len, seed),
        hash128(adapter.data, adapter.len, seed),
        hash128(tenant.data, tenant.len, seed),
    };
    return from_hash(hash128(part, sizeof part, seed));
}

struct block_key block_key_next(uint64_t seed, struct block_key parent,
                                const uint32_t ids[BLOCK_TOKENS])
{
    char bytes[16 + 4 * BLOCK_TOKENS];
    store_u64(bytes, parent.lo);
    store_u64(bytes + 8, parent.hi);
    memcpy(bytes + 16, ids, 4 * BLOCK_TOKENS);
    return from_hash(hash128(bytes, sizeof bytes, seed));
}

uint32_t block_keys(uint64_t seed, struct block_key salt, const uint32_t *ids, uint32_t count,
                    struct block_key *ret, uint32_t ret_max)
{
    uint32_t blocks = min_u32(count / BLOCK_TOKENS, ret_max);
    struct block_key parent = salt;
    for (uint32_t i = 0; i < blocks; i++) {
        parent = block_key_next(seed, parent, ids + (size_t)i * BLOCK_TOKENS);
        ret[i] = parent;
    }
    return blocks;
}

void block_key_hex(struct block_key k, char ret[BLOCK_KEY_HEX + 1])
{
    uint8_t bytes[16];
    store_u64(bytes, k.lo);
    store_u64(bytes + 8, k.hi);
    hex_from(bytes, sizeof bytes, ret);
}

int block_key_parse(struct str hex, struct block_key *ret)
{
    uint8_t bytes[16];
    int rc = hex_to(hex, bytes, sizeof bytes);
    if (rc < 0) return rc;
    *ret = (struct block_key){ .lo = load_u64(bytes), .hi = load_u64(bytes + 8) };
    return 0;
}
