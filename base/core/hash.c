/* hash.c - computes XXH3 and SipHash, SHA-256 digests and their hexadecimal form; the only file of base/core that
 * includes xxHash and libcrypto. */
#include "base/core/hash.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/work.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
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

/* ---- digests, of models and API keys: they withstand attack ---- */

void sha256(const void *data, size_t len, uint8_t ret[SHA256_BYTES])
{
    _Static_assert(SHA256_BYTES == SHA256_DIGEST_LENGTH, "digest length");
    SHA256(data, len, ret);
}

/* A run is OpenSSL's own context under a name of ours. */
static EVP_MD_CTX *context_of(struct sha256_run *run)
{
    return (EVP_MD_CTX *)run;
}

struct sha256_run *sha256_begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    must(c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1); /* small, of a fixed size */
    return (struct sha256_run *)c;
}

void sha256_more(struct sha256_run *run, const void *data, size_t len)
{
    must(EVP_DigestUpdate(context_of(run), data, len) == 1);
}

void sha256_end(struct sha256_run *run_owned, uint8_t ret[SHA256_BYTES])
{
    must(EVP_DigestFinal_ex(context_of(run_owned), ret, NULL) == 1);
    EVP_MD_CTX_free(context_of(run_owned));
}

void sha256_drop(struct sha256_run *run_owned)
{
    EVP_MD_CTX_free(context_of(run_owned));
}

#define BLOCK_BYTES 64 /* of SHA-256; RFC 2104 calls it B */

static void hmac_pass(const uint8_t pad[BLOCK_BYTES], const struct str *parts, size_t count,
                      uint8_t ret[SHA256_BYTES])
{
    struct sha256_run *run = sha256_begin();
    sha256_more(run, pad, BLOCK_BYTES);
    for (size_t i = 0; i < count; i++)
        sha256_more(run, parts[i].data, parts[i].len);
    sha256_end(run, ret);
}

/* RFC 2104: H((key ^ opad) | H((key ^ ipad) | text)). */
void hmac_sha256(struct str key, const struct str *parts, size_t count, uint8_t ret[SHA256_BYTES])
{
    uint8_t block[BLOCK_BYTES] = { 0 }, inner[BLOCK_BYTES], outer[BLOCK_BYTES];
    if (key.len > BLOCK_BYTES)
        sha256(key.data, key.len, block);
    else if (key.len > 0)
        memcpy(block, key.data, key.len);
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    uint8_t middle[SHA256_BYTES];
    const struct str digest = str_of(middle, sizeof middle);
    hmac_pass(inner, parts, count, middle);
    hmac_pass(outer, &digest, 1, ret);
    OPENSSL_cleanse(block, sizeof block);
    OPENSSL_cleanse(inner, sizeof inner);
    OPENSSL_cleanse(outer, sizeof outer);
}

void hex_from(const uint8_t *bytes, size_t len, char *ret_hex)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        ret_hex[2 * i] = digit[bytes[i] >> 4];
        ret_hex[2 * i + 1] = digit[bytes[i] & 15];
    }
    ret_hex[2 * len] = 0;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

int hex_to(struct str hex, uint8_t *ret, size_t len)
{
    if (hex.len != 2 * len) return -EINVAL;
    for (size_t i = 0; i < hex.len; i++)
        if (nibble(hex.data[i]) < 0) return -EINVAL; /* all checked first: a failure leaves ret */
    for (size_t i = 0; i < len; i++)
        ret[i] = (uint8_t)(nibble(hex.data[2 * i]) << 4 | nibble(hex.data[2 * i + 1]));
    return 0;
}

bool equal_constant_time(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}
