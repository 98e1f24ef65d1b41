/* jwt_sign.h - signs JSON Web Tokens with RS256 (RFC 7515, RFC 7518), as providers of clouds want them of service
 * accounts.
 *
 *     base64url(header) . base64url(claims) . base64url(RSASSA-PKCS1-v1_5 with SHA-256 over both)
 *
 * Layer:   base/io (base/core, libcrypto)
 * Threads: any
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

/* Appends a token. `pem` is a private RSA key without a passphrase. -EINVAL and a sentence, which repeats nothing of
 * the key: it cannot be read, or is no RSA key; -ENOMEM. */
int jwt_sign_rs256(struct str header, struct str claims, struct str pem, struct buf *out,
                   struct err *err);
