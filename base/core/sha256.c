/* sha256.c - digests of models and API keys, and their hexadecimal form. The one file of
 * base/core that includes libcrypto. */
#include "base/core/hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

void sha256(const void *data, size_t len, uint8_t ret[SHA256_BYTES])
{
    _Static_assert(SHA256_BYTES == SHA256_DIGEST_LENGTH, "digest length");
    SHA256(data, len, ret);
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
        if (nibble(hex.data[i]) < 0) return -EINVAL; /* all before any: ret only on success */
    for (size_t i = 0; i < len; i++)
        ret[i] = (uint8_t)(nibble(hex.data[2 * i]) << 4 | nibble(hex.data[2 * i + 1]));
    return 0;
}

bool equal_constant_time(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}
