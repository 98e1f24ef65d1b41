/* hash.c - computes XXH3 and SipHash; the only file that includes xxHash. sha256.c has the digests
 * that withstand attack. */
#include "base/core/hash.h"

#include "base/core/bits.h"
#include "base/core/work.h"

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

/* ---- tables with keys from outside ---- */

/* SipHash-2-4 (Aumasson and Bernstein 2012) hashes tables with keys that clients or peers choose.
 *
 * A fast hash with a known seed can be inverted: an attacker makes keys with equal low bits by the
 * thousand, every one of them probes past all others, and n insertions cost n * n / 2 probes.
 * Without the key nobody can find them, not even by measuring response times. Rejected: XXH3 with a
 * random seed (seed-independent collisions are published for its relatives), rounds 1-3 (a third
 * faster; 8 bytes cost about 10 ns here either way beside the parsing around them). */

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

static inline void round_once(struct state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    round_once(s);
    round_once(s);
    s->v0 ^= word;
}

uint64_t siphash(const struct hash_key *key, const void *data, size_t len)
{
    const uint64_t k0 = key->word[0], k1 = key->word[1];
    struct state s = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                       k1 ^ 0x7465646279746573u };
    const char *at = data;
    size_t left = len;
    for (; left >= 8; left -= 8, at += 8)
        absorb(&s, load_u64(at));
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)(uint8_t)at[i] << (8 * i);
    absorb(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        round_once(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* The default until a process draws its own; with it, tests, fuzzers and the simulator are repeatable. */
static struct hash_key process_key = { { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u } };

void hash_key_set(const struct hash_key *key)
{
    process_key = *key;
}

uint64_t hash_keyed(const void *data, size_t len)
{
    work_add(1 + len / 8);
    return siphash(&process_key, data, len);
}
