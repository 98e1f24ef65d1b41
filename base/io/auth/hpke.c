/* hpke.c - HPKE's key schedule over HMAC-SHA256, X25519 and ChaCha20-Poly1305 of libcrypto.
 *
 * Nothing that is derived here is longer than a digest, so HKDF-Expand has one round. Names of steps and labels are
 * those of RFC 9180. */
#include "base/io/auth/hpke.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>

_Static_assert(HPKE_KEY_BYTES == SHA256_BYTES, "a key is a digest");

#define VERSION STR("HPKE-v1")
#define KEM_SUITE STR("KEM\x00\x20")
#define SUITE STR("HPKE\x00\x20\x00\x01\x00\x03")
#define MODE_PSK "\x01"
#define NONCE_BYTES 12

/* ---- HKDF ---- */

static struct str of(const struct hpke_key *k)
{
    return str_of(k->byte, sizeof k->byte);
}

static void labeled_extract(struct str salt, struct str suite, const char *label, struct str ikm,
                            struct hpke_key *ret)
{
    const struct str parts[] = { VERSION, suite, str_from(label), ikm };
    hmac_sha256(salt, parts, COUNT_OF(parts), ret->byte);
}

static void expand(const struct hpke_key *prk, const struct str *parts, size_t count, uint8_t *ret,
                   size_t len)
{
    uint8_t round[SHA256_BYTES];
    must(len <= sizeof round);
    hmac_sha256(of(prk), parts, count, round);
    memcpy(ret, round, len);
    explicit_bzero(round, sizeof round);
}

static void labeled_expand(const struct hpke_key *prk, struct str suite, const char *label,
                           struct str info, uint8_t *ret, size_t len)
{
    const char length[2] = { 0, (char)len };
    const struct str parts[] = {
        str_of(length, sizeof length), VERSION, suite, str_from(label), info, str_of("\x01", 1)
    };
    expand(prk, parts, COUNT_OF(parts), ret, len);
}

/* ---- the KEM ---- */

static void pkey_free(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

static void pkey_context_free(EVP_PKEY_CTX **c)
{
    EVP_PKEY_CTX_free(*c);
}

static void cipher_free(EVP_CIPHER_CTX **c)
{
    EVP_CIPHER_CTX_free(*c);
}

static int public_of(const struct hpke_key *secret, struct hpke_key *ret)
{
    CLEANUP(pkey_free)
    EVP_PKEY *key =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret->byte, sizeof secret->byte);
    size_t len = sizeof ret->byte;
    bool fine = key && EVP_PKEY_get_raw_public_key(key, ret->byte, &len) == 1;
    ERR_clear_error();
    return fine ? 0 : -ENOMEM;
}

/* A public key of low order gives zero with every secret: libcrypto refuses it, as section 7.1.4 asks. */
static int diffie_hellman(const struct hpke_key *secret, const struct hpke_key *other,
                          struct hpke_key *ret)
{
    CLEANUP(pkey_free)
    EVP_PKEY *mine =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret->byte, sizeof secret->byte);
    CLEANUP(pkey_free)
    EVP_PKEY *theirs =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, other->byte, sizeof other->byte);
    CLEANUP(pkey_context_free) EVP_PKEY_CTX *c = mine ? EVP_PKEY_CTX_new(mine, NULL) : NULL;
    size_t len = sizeof ret->byte;
    bool fine = c && theirs && EVP_PKEY_derive_init(c) == 1 &&
                EVP_PKEY_derive_set_peer(c, theirs) == 1 &&
                EVP_PKEY_derive(c, ret->byte, &len) == 1 && len == sizeof ret->byte;
    ERR_clear_error();
    return fine ? 0 : -EINVAL;
}

static void extract_and_expand(const struct hpke_key *dh, const struct hpke_key *enc,
                               const struct hpke_key *receiver, struct hpke_key *ret)
{
    uint8_t context[2 * HPKE_KEY_BYTES];
    struct hpke_key prk;
    memcpy(context, enc->byte, HPKE_KEY_BYTES);
    memcpy(context + HPKE_KEY_BYTES, receiver->byte, HPKE_KEY_BYTES);
    labeled_extract((struct str){ 0 }, KEM_SUITE, "eae_prk", of(dh), &prk);
    labeled_expand(&prk, KEM_SUITE, "shared_secret", str_of(context, sizeof context), ret->byte,
                   sizeof ret->byte);
    explicit_bzero(&prk, sizeof prk);
}

int hpke_key_pair(const struct hpke_key *seed, struct hpke_key *ret_secret,
                  struct hpke_key *ret_public)
{
    struct hpke_key prk;
    labeled_extract((struct str){ 0 }, KEM_SUITE, "dkp_prk", of(seed), &prk);
    labeled_expand(&prk, KEM_SUITE, "sk", (struct str){ 0 }, ret_secret->byte,
                   sizeof ret_secret->byte);
    explicit_bzero(&prk, sizeof prk);
    return public_of(ret_secret, ret_public);
}

/* ---- the schedule ---- */

static void schedule(const struct hpke_key *shared, const struct hpke_known *known,
                     struct hpke *ret)
{
    uint8_t context[1 + 2 * HPKE_KEY_BYTES] = MODE_PSK;
    struct hpke_key id, info, secret;
    labeled_extract((struct str){ 0 }, SUITE, "psk_id_hash", known->psk_id, &id);
    labeled_extract((struct str){ 0 }, SUITE, "info_hash", known->info, &info);
    memcpy(context + 1, id.byte, HPKE_KEY_BYTES);
    memcpy(context + 1 + HPKE_KEY_BYTES, info.byte, HPKE_KEY_BYTES);
    const struct str ks = str_of(context, sizeof context);
    labeled_extract(of(shared), SUITE, "secret", of(&known->psk), &secret);
    labeled_expand(&secret, SUITE, "key", ks, ret->key.byte, sizeof ret->key.byte);
    labeled_expand(&secret, SUITE, "base_nonce", ks, ret->nonce, sizeof ret->nonce);
    labeled_expand(&secret, SUITE, "exp", ks, ret->exporter.byte, sizeof ret->exporter.byte);
    explicit_bzero(&secret, sizeof secret);
}

/* `secret` is ours and `other` theirs; enc and receiver say which of them is which. */
static int agree(const struct hpke_key *secret, const struct hpke_key *other,
                 const struct hpke_key *enc, const struct hpke_key *receiver,
                 const struct hpke_known *known, struct hpke *ret)
{
    struct hpke_key dh, shared;
    int rc = diffie_hellman(secret, other, &dh);
    if (rc == 0) {
        extract_and_expand(&dh, enc, receiver, &shared);
        schedule(&shared, known, ret);
        explicit_bzero(&shared, sizeof shared);
    }
    explicit_bzero(&dh, sizeof dh);
    return rc;
}

int hpke_send(const struct hpke_key *receiver, const struct hpke_known *known,
              const struct hpke_key *seed, struct hpke_key *ret_enc, struct hpke *ret)
{
    struct hpke_key secret, enc;
    int rc = hpke_key_pair(seed, &secret, &enc);
    if (rc == 0) rc = agree(&secret, receiver, &enc, receiver, known, ret);
    if (rc == 0) *ret_enc = enc;
    explicit_bzero(&secret, sizeof secret);
    return rc;
}

int hpke_receive(const struct hpke_key *secret, const struct hpke_known *known,
                 const struct hpke_key *enc, struct hpke *ret)
{
    struct hpke_key receiver;
    int rc = public_of(secret, &receiver);
    return rc < 0 ? rc : agree(secret, enc, enc, &receiver, known, ret);
}

void hpke_export(const struct hpke *h, struct str context, struct hpke_key *ret)
{
    labeled_expand(&h->exporter, SUITE, "sec", context, ret->byte, sizeof ret->byte);
}

void hpke_reply(const struct hpke *h, const struct hpke_key *enc, const struct hpke_key *nonce,
                struct hpke *ret)
{
    const struct str key[] = { STR("key"), str_of("\x01", 1) };
    const struct str base[] = { STR("nonce"), str_of("\x01", 1) };
    uint8_t salt[2 * HPKE_KEY_BYTES];
    struct hpke_key secret, prk;
    memcpy(salt, enc->byte, HPKE_KEY_BYTES);
    memcpy(salt + HPKE_KEY_BYTES, nonce->byte, HPKE_KEY_BYTES);
    hpke_export(h, STR("muster reply"), &secret);
    const struct str ikm = of(&secret);
    hmac_sha256(str_of(salt, sizeof salt), &ikm, 1, prk.byte);
    *ret = (struct hpke){ 0 };
    expand(&prk, key, COUNT_OF(key), ret->key.byte, sizeof ret->key.byte);
    expand(&prk, base, COUNT_OF(base), ret->nonce, sizeof ret->nonce);
    explicit_bzero(&secret, sizeof secret);
    explicit_bzero(&prk, sizeof prk);
}

/* ---- the AEAD ---- */

_Static_assert(sizeof((struct hpke *)0)->nonce == NONCE_BYTES, "RFC 8439");

/* libcrypto takes an empty text without an address for the end. */
static bool update(EVP_CIPHER_CTX *c, uint8_t *to, struct str text)
{
    int len = 0;
    if (text.len == 0) return true;
    return text.len <= INT_MAX &&
           EVP_CipherUpdate(c, to, &len, (const uint8_t *)text.data, (int)text.len) == 1;
}

static EVP_CIPHER_CTX *begin(const struct hpke *h, struct str aad, int seals)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool fine =
        c &&
        EVP_CipherInit_ex(c, EVP_chacha20_poly1305(), NULL, h->key.byte, h->nonce, seals) == 1 &&
        update(c, NULL, aad);
    if (fine) return c;
    EVP_CIPHER_CTX_free(c);
    return NULL;
}

int hpke_seal(const struct hpke *h, struct str aad, struct str plain, struct buf *out)
{
    CLEANUP(cipher_free) EVP_CIPHER_CTX *c = begin(h, aad, 1);
    size_t before = out->len;
    if (!c || buf_reserve(out, plain.len + HPKE_TAG_BYTES) < 0) return -ENOMEM;
    uint8_t *to = (uint8_t *)out->data + before, tag[HPKE_TAG_BYTES];
    int rest;
    bool fine = update(c, to, plain) && EVP_CipherFinal_ex(c, to + plain.len, &rest) == 1 &&
                EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag) == 1;
    ERR_clear_error();
    if (!fine) return -ENOMEM;
    out->len = before + plain.len;
    return buf_append(out, tag, sizeof tag);
}

int hpke_open(const struct hpke *h, struct str aad, struct str sealed, struct buf *out)
{
    if (sealed.len < HPKE_TAG_BYTES) return -EBADMSG;
    struct str text = str_of(sealed.data, sealed.len - HPKE_TAG_BYTES);
    size_t before = out->len;
    uint8_t tag[HPKE_TAG_BYTES];
    memcpy(tag, sealed.data + text.len, sizeof tag);
    CLEANUP(cipher_free) EVP_CIPHER_CTX *c = begin(h, aad, 0);
    if (!c || buf_reserve(out, text.len + 1) < 0) return -ENOMEM;
    uint8_t *to = (uint8_t *)out->data + before;
    int rest;
    bool fine = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) == 1 &&
                update(c, to, text) && EVP_CipherFinal_ex(c, to + text.len, &rest) == 1;
    ERR_clear_error();
    if (!fine) explicit_bzero(to, text.len);
    out->len = before + (fine ? text.len : 0);
    out->data[out->len] = 0;
    return fine ? 0 : -EBADMSG;
}
