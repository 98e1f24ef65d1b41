/* jwt_check.c - checks JSON Web Tokens over OpenSSL. */
#include "tests/fakes/cloud/jwt_check.h"

#include "base/core/base64.h"
#include "base/core/err.h"
#include "base/core/own.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <pthread.h>

#define KEY_BITS 2048

static EVP_PKEY *key;
static char pem[4096];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make(void)
{
    key = EVP_RSA_gen(KEY_BITS);
    BIO *bio = BIO_new(BIO_s_mem());
    must(key && bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    int len = BIO_read(bio, pem, sizeof pem - 1);
    must(len > 0);
    pem[len] = 0;
    BIO_free(bio);
}

const char *jwt_test_key(void)
{
    pthread_once(&made, make);
    return pem;
}

int jwt_check_rs256(struct str token, struct buf *header, struct buf *claims)
{
    CLEANUP(buf_fini) struct buf signature = { 0 };
    struct str rest = token, first = str_cut(&rest, '.'), second = str_cut(&rest, '.');
    if (first.len == 0 || second.len == 0 || rest.len == 0) return -EINVAL;
    if (base64_take(header, first) < 0 || base64_take(claims, second) < 0 ||
        base64_take(&signature, rest) < 0)
        return -EINVAL;
    jwt_test_key();
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    must(c && EVP_DigestVerifyInit(c, NULL, EVP_sha256(), NULL, key) == 1);
    int fine = EVP_DigestVerify(c, (const unsigned char *)signature.data, signature.len,
                                (const unsigned char *)token.data, first.len + 1 + second.len);
    EVP_MD_CTX_free(c);
    return fine == 1 ? 0 : -EPERM;
}
