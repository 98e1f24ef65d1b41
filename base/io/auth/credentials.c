/* credentials.c - reads and writes the two forms of a key file, and derives keys from them. */
#include "base/io/auth/credentials.h"

#include "base/core/block_key.h"
#include "base/core/own.h"

#include <stdio.h>

#define MAGIC "muster-instance-key 1\n"
#define FILE_BYTES_MAX 1024

void credentials_of_secret(struct str secret, struct credentials *ret)
{
    *ret = (struct credentials){ 0 };
    if (secret.len == 0 || secret.len >= sizeof ret->secret) return;
    memcpy(ret->secret, secret.data, secret.len);
    ret->block_seed = block_seed(secret);
    sha256(secret.data, secret.len, ret->bearer);
}

int credentials_print_instance(struct str secret, struct str name, struct buf *out)
{
    struct auth_key key;
    uint8_t bearer[SHA256_BYTES];
    char key_hex[2 * AUTH_KEY_BYTES + 1], bearer_hex[SHA256_HEX + 1];
    auth_instance_key(secret, name, &key);
    sha256(secret.data, secret.len, bearer);
    hex_from(key.byte, sizeof key.byte, key_hex);
    hex_from(bearer, sizeof bearer, bearer_hex);
    int rc = buf_printf(out, MAGIC "instance " STR_FMT "\nkey %s\nblocks %016llx\nbearer %s\n",
                        STR_ARG(name), key_hex, (unsigned long long)block_seed(secret), bearer_hex);
    explicit_bzero(&key, sizeof key);
    explicit_bzero(key_hex, sizeof key_hex);
    return rc;
}

/* Takes the value of the next line, which must begin with `name` and a blank. */
static bool line_of(struct str *rest, const char *name, struct str *ret)
{
    struct str line = str_cut(rest, '\n'), value = line, word = str_cut(&value, ' ');
    *ret = value;
    return value.data && str_eq(word, str_from(name));
}

static int parse_instance(struct str text, struct credentials *ret)
{
    struct str rest = str_of(text.data + strlen(MAGIC), text.len - strlen(MAGIC));
    struct str name, key, blocks, bearer;
    uint8_t seed[8];
    if (!line_of(&rest, "instance", &name) || !line_of(&rest, "key", &key) ||
        !line_of(&rest, "blocks", &blocks) || !line_of(&rest, "bearer", &bearer))
        return -EINVAL;
    if (name.len == 0 || name.len > CREDENTIALS_NAME_BYTES ||
        hex_to(key, ret->key.byte, sizeof ret->key.byte) < 0 ||
        hex_to(blocks, seed, sizeof seed) < 0 ||
        hex_to(bearer, ret->bearer, sizeof ret->bearer) < 0)
        return -EINVAL;
    memcpy(ret->instance, name.data, name.len);
    for (size_t i = 0; i < sizeof seed; i++)
        ret->block_seed = ret->block_seed << 8 | seed[i];
    ret->has_instance = true;
    return 0;
}

int credentials_load(const char *path, struct credentials *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct credentials c = { 0 };
    int rc = file_read(path, FILE_BYTES_MAX, &text, NULL);
    if (rc == 0 && str_starts(buf_view(&text), STR(MAGIC))) {
        rc = file_check_private(path, err);
        if (rc == 0 && parse_instance(buf_view(&text), &c) < 0)
            rc = err_set(err, -EINVAL, "%s is not the file of an instance's key", path);
        if (text.data) explicit_bzero(text.data, text.len);
    } else {
        char secret[2 * FILE_SECRET_BYTES + 1];
        rc = file_secret(path, secret, err);
        if (rc == 0) credentials_of_secret(str_from(secret), &c);
        explicit_bzero(secret, sizeof secret);
    }
    if (rc == 0) *ret = c;
    explicit_bzero(&c, sizeof c);
    return rc;
}

int credentials_key(const struct credentials *c, struct str id, struct auth_key *ret)
{
    if (c->secret[0]) return auth_key_of(str_from(c->secret), id, ret);
    if (!c->has_instance) return -ENOENT;
    return auth_instance_key_of(&c->key, str_from(c->instance), id, ret);
}

bool credentials_is_secret(const struct credentials *c, struct str given)
{
    uint8_t theirs[SHA256_BYTES];
    if (!credentials_held(c) || given.len == 0) return false;
    sha256(given.data, given.len, theirs);
    return equal_constant_time(theirs, c->bearer, sizeof theirs);
}

void credentials_wipe(struct credentials *c)
{
    explicit_bzero(c, sizeof *c);
}
