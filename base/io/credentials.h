/* credentials.h - what a part of the fleet holds: the secret, or one instance's key.
 *
 * Layer: base/io (base/core)
 * Files: the fleet's secret is 64 hexadecimal digits (file_secret). An instance's file is made for
 *        it alone and holds no secret:
 *
 *            muster-instance-key 1
 *            instance NAME
 *            key      64 digits
 *            blocks   16 digits, the seed of block names, which all engines share
 *            bearer   64 digits, the secret's SHA-256: who sends the secret itself is known by it
 */
#pragma once
#include "base/core/err.h"
#include "base/io/auth.h"
#include "base/io/file.h"

#define CREDENTIALS_NAME_BYTES 128

struct credentials {
    char secret[2 * FILE_SECRET_BYTES + 1]; /* empty: not held */
    bool has_instance;                      /* an instance's key is held instead */
    char instance[CREDENTIALS_NAME_BYTES + 1];
    struct auth_key key;
    uint64_t block_seed;
    uint8_t bearer[SHA256_BYTES];
};

/* Either file. One that is not there becomes a new secret, as in file_secret. -EPERM: others may
 * read it. */
int credentials_load(const char *path, struct credentials *ret, struct err *err);

/* Of a secret that is held already; empty: of none. */
void credentials_of_secret(struct str secret, struct credentials *ret);

/* The text of an instance's file. */
int credentials_print_instance(struct str secret, struct str name, struct buf *out);

static inline bool credentials_held(const struct credentials *c)
{
    return c->secret[0] || c->has_instance;
}

/* The key that `id` names. -ENOENT: not one that we can know. */
int credentials_key(const struct credentials *c, struct str id, struct auth_key *ret);

/* True for the fleet's secret itself, as people send it. */
bool credentials_is_secret(const struct credentials *c, struct str given);

void credentials_wipe(struct credentials *c);
