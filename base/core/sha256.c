/* sha256.c - computes digests of models and API keys, and their hexadecimal form. It is the only file
 * of base/core that includes libcrypto. */
#include "base/core/err.h"
#include "base/core/hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

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
