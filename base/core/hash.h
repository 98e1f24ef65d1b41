/* hash.h - offers three kinds of hash: fast, keyed against attackers, and digests.
 *
 * Layer: base/core (xxHash, libcrypto)
 *
 *     hash64, hash128   XXH3: for names that peers share and for tables with keys of our own. Anybody
 *                       can make keys that collide.
 *     hash_keyed        SipHash-2-4 under a key of this process: for every table with keys from a
 *                       client, a model's user or another machine
 *     sha256            identity of data from outside: API keys, weights
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

struct hash_key {
    uint64_t word[2];
};

/* Sets the key of hash_keyed, before any table exists; a process draws it when it starts
 * (proc_hash_key_draw). Tests, fuzzers and the simulator keep the fixed default. */
void hash_key_set(const struct hash_key *key);

uint64_t hash_keyed(const void *data, size_t len);
uint64_t siphash(const struct hash_key *key, const void *data, size_t len);

void sha256(const void *data, size_t len, uint8_t ret[SHA256_BYTES]);
void hmac_sha256(struct str key, const struct str *parts, size_t count, uint8_t ret[SHA256_BYTES]);

/* Computes a digest of data that comes piece by piece. */
struct sha256_run;
struct sha256_run *sha256_begin(void);
void sha256_more(struct sha256_run *run, const void *data, size_t len);
void sha256_end(struct sha256_run *run_owned, uint8_t ret[SHA256_BYTES]);
void sha256_drop(struct sha256_run *run_owned);                 /* NULL is fine */
void hex_from(const uint8_t *bytes, size_t len, char *ret_hex); /* 2 * len + 1 bytes with NUL */
int hex_to(struct str hex, uint8_t *ret, size_t len); /* -EINVAL unless exactly 2 * len digits */

/* Returns true if the bytes are equal; takes the same time wherever they differ. */
bool equal_constant_time(const void *a, const void *b, size_t len);
