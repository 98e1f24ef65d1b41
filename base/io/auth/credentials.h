/* credentials.h - the key file of a component: the fleet's secret, or the key of one instance.
 *
 * Layer: base/io (base/core)
 * Files: the fleet's secret is 64 hexadecimal digits (file_secret). An instance's file is made for
 *        it alone and holds no secret:
 *
 *            muster-instance-key 1
 *            instance NAME
 *            key      64 digits
 *            blocks   16 digits, the seed of block names, which all engines share
 *            bearer   64 digits, the secret's SHA-256, to recognise a caller that sends the secret
 */
#pragma once
#include "base/core/err.h"
#include "base/io/auth/auth.h"
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

/* Loads either form. Makes a new secret when the file does not exist, as file_secret does. -EPERM:
 * others may read it. */
int credentials_load(const char *path, struct credentials *ret, struct err *err);

/* Fills *ret from a secret in memory; an empty one gives no credentials. */
void credentials_of_secret(struct str secret, struct credentials *ret);

/* Appends the text of an instance's key file. */
int credentials_print_instance(struct str secret, struct str name, struct buf *out);

static inline bool credentials_held(const struct credentials *c)
{
    return c->secret[0] || c->has_instance;
}

/* Derives the key of `id`. -ENOENT: not derivable from these credentials. */
int credentials_key(const struct credentials *c, struct str id, struct auth_key *ret);

/* Returns true when `given` is the fleet's secret itself. */
bool credentials_is_secret(const struct credentials *c, struct str given);

void credentials_wipe(struct credentials *c);
