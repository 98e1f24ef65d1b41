/* model_check.h - compares a model's files with the SHA-256 that they must have, and remembers that it did.
 *
 * Layer:   engine/model (base/io/models.h for the names of shards)
 * Digest:  of one file its SHA-256. Of a folder, or of the shards of a GGUF file, the SHA-256 of what `sha256sum`
 *          prints for the files in the order of their names: a line "HEX  NAME" each. Of a folder these are all files
 *          below it, links followed, without those with a part that begins with a dot
 * Stamps:  a folder that keeps the digest by the files' device, inode, size and times (weight_file.h), so that a
 *          restart does not read them again
 * Bounds:  MODEL_CHECK_FILES_MAX files, MODEL_CHECK_DEPTH_MAX folders inside each other
 */
#pragma once
#include "base/core/err.h"
#include "base/core/hash.h"

#define MODEL_CHECK_FILES_MAX 4096u
#define MODEL_CHECK_DEPTH_MAX 4u
#define MODEL_CHECK_NAME_BYTES_MAX 1024u /* of one file, from the folder on */

/* Returns false to stop reading. */
typedef bool (*model_check_fn)(void *arg, uint64_t done, uint64_t total);

struct model_check {
    const char *path;
    struct str sha256;       /* in hex */
    const char *stamps;      /* a folder, whose last part is made; NULL: none */
    model_check_fn progress; /* NULL: none */
    void *arg;
};

/* -EBADMSG with both digests: the model is another one. Otherwise as model_sha256. *ret_read (may be NULL) tells
 * whether the files were read: if not, a stamp knew them. */
int model_check(const struct model_check *what, bool *ret_read, struct err *err);

/* Reads the model and writes its digest. -E2BIG at a bound, -EINVAL for a name that sha256sum would escape, -EINTR:
 * `progress` stopped it, and errors of open and read. */
int model_sha256(const char *path, model_check_fn progress, void *arg, char ret[SHA256_HEX + 1],
                 struct err *err);

/* Keeps a digest that the caller has computed. Nothing is kept where the folder cannot be written. */
void model_check_keep(const char *path, const char *stamps, const char digest[SHA256_HEX + 1]);

/* Computes the digest of several files from theirs, which are in the order of their names. */
struct model_check_line {
    const char *name;
    char digest[SHA256_HEX + 1];
};
void model_check_join(const struct model_check_line *lines, uint32_t count,
                      char ret[SHA256_HEX + 1]);
