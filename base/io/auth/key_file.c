/* key_file.c - parses a file of keys and compares by digests, so that time says nothing about a key. */
#include "base/io/auth/key_file.h"

#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <string.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)

static int parse(struct key_file *k, const char *path, struct err *err)
{
    for (struct str rest = buf_view(&k->text); rest.len > 0;) {
        struct str line = str_trim(str_cut(&rest, '\n'));
        if (line.len > 0 && line.data[line.len - 1] == '\r') line.len--;
        if (line.len == 0 || line.data[0] == '#') continue;
        if (line.len < KEY_FILE_KEY_BYTES_MIN || k->count == KEY_FILE_KEYS_MAX)
            return err_set(err, -EINVAL,
                           "%s: want at most %d keys of at least %d characters, one a line", path,
                           KEY_FILE_KEYS_MAX, KEY_FILE_KEY_BYTES_MIN);
        k->key[k->count++] = line;
    }
    return k->count > 0 ? 0 : err_set(err, -EINVAL, "%s: holds no key", path);
}

int key_file_load(struct str path, struct key_file *ret, struct err *err)
{
    CLEANUP(key_file_fini) struct key_file k = { 0 };
    if (path.len == 0) {
        *ret = k;
        return 0;
    }
    int rc = file_read(path.data, FILE_BYTES_MAX, &k.text, err);
    if (rc == 0) rc = parse(&k, path.data, err);
    if (rc < 0) return rc;
    *ret = k;
    k = (struct key_file){ 0 };
    return 0;
}

void key_file_fini(struct key_file *k)
{
    if (k->text.data) explicit_bzero(k->text.data, k->text.len);
    buf_fini(&k->text);
    k->count = 0;
}

bool key_file_has(const struct key_file *k, struct str presented)
{
    uint8_t theirs[SHA256_BYTES], ours[SHA256_BYTES];
    bool found = false;
    if (!k || presented.len == 0) return false;
    sha256(presented.data, presented.len, theirs);
    for (size_t i = 0; i < k->count; i++) {
        sha256(k->key[i].data, k->key[i].len, ours);
        found |= equal_constant_time(theirs, ours, sizeof ours);
    }
    return found;
}
