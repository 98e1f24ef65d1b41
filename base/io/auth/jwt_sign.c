/* jwt_sign.c - signs JSON Web Tokens over OpenSSL. */
#include "base/io/auth/jwt_sign.h"

#include "base/core/base64.h"
#include "base/core/own.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

#define SIGNATURE_BYTES_MAX 2048 /* of a key of 16,384 bits */

static void key_free(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

static void context_free(EVP_MD_CTX **c)
{
    EVP_MD_CTX_free(*c);
}

/* Without this OpenSSL asks the terminal for the passphrase of a key that has one. */
static int no_passphrase(char *to, int bytes, int writes, void *arg)
{
    (void)to, (void)bytes, (void)writes, (void)arg;
    return -1;
}

static EVP_PKEY *read_key(struct str pem)
{
    if (pem.len == 0 || pem.len > INT_MAX) return NULL;
    BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.len);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    if (key && EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    ERR_clear_error();
    return key;
}

static int sign(EVP_PKEY *key, struct str text, struct buf *out)
{
    CLEANUP(context_free) EVP_MD_CTX *c = EVP_MD_CTX_new();
    unsigned char signature[SIGNATURE_BYTES_MAX];
    size_t len = sizeof signature;
    bool fine = c && EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, key) == 1 &&
                EVP_DigestSign(c, signature, &len, (const unsigned char *)text.data, text.len) == 1;
    ERR_clear_error();
    return fine ? base64_put_url(out, str_of(signature, len)) : -EINVAL;
}

int jwt_sign_rs256(struct str header, struct str claims, struct str pem, struct buf *out,
                   struct err *err)
{
    CLEANUP(key_free) EVP_PKEY *key = read_key(pem);
    CLEANUP(buf_fini) struct buf token = { 0 };
    if (!key) return err_set(err, -EINVAL, "the private key is no RSA key in PEM");
    base64_put_url(&token, header);
    buf_byte(&token, '.');
    base64_put_url(&token, claims);
    if (token.rc < 0) return err_set(err, token.rc, "no memory for a token");
    CLEANUP(buf_fini) struct buf signature = { 0 };
    int rc = sign(key, buf_view(&token), &signature);
    if (rc < 0) return err_set(err, rc, "the private key does not sign");
    buf_byte(&token, '.');
    buf_str(&token, buf_view(&signature));
    if (token.rc == 0) buf_str(out, buf_view(&token));
    return token.rc < 0 || out->rc < 0 ? err_set(err, -ENOMEM, "no memory for a token") : 0;
}
