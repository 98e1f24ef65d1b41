/* jwt_check.h - checks JSON Web Tokens against a test's own RSA key, which is made when it is first asked for.
 *
 * Layer: tests/fakes/cloud (base/core, libcrypto)
 */
#pragma once
#include "base/core/buf.h"

/* The private key in PEM; lives until the process ends. */
const char *jwt_test_key(void);

/* Appends header and claims of a token. -EINVAL: it has no three parts; -EPERM: another key signed it, or it was
 * changed. */
int jwt_check_rs256(struct str token, struct buf *header, struct buf *claims);
