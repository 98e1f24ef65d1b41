/* key_file.h - reads a file of keys, one a line, and finds a presented key in it.
 *
 * Layer:  base/io (base/core)
 * Form:   blank lines and lines that begin with '#' are skipped
 * Bounds: KEY_FILE_KEYS_MAX keys of KEY_FILE_KEY_BYTES_MIN bytes or more
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define KEY_FILE_KEYS_MAX 64
#define KEY_FILE_KEY_BYTES_MIN 8

struct key_file {
    struct buf text; /* the file; the keys point into it */
    struct str key[KEY_FILE_KEYS_MAX];
    size_t count;
};

/* An empty path: there is no file and no key. -EINVAL and a sentence: no key in it, a short one, too many. */
int key_file_load(struct str path, struct key_file *ret, struct err *err);
void key_file_fini(struct key_file *k); /* wipes the keys */

/* Takes the same time for each key of the file. False for an empty key, and without a file (NULL). */
bool key_file_has(const struct key_file *k, struct str presented);
