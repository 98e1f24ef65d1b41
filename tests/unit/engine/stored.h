/* stored.h - reads safetensors files of the vectors, and writes them anew, for tests.
 *
 * Failures end the program: the vectors are ours.
 */
#pragma once
#include "base/core/buf.h"
#include "engine/files/safetensors.h"

struct stored {
    struct gguf_file file;
    struct safetensors *table;
};

void stored_open(struct stored *s, const char *path);
void stored_fini(struct stored *s);

/* Reads a tensor of exactly `bytes`. */
void stored_read(const struct stored *s, const char *name, void *to, size_t bytes);

/* Returns a tensor's bytes; the caller frees them. */
char *stored_raw(const struct stored *s, const struct safetensor *t);

/* Adds a tensor's entry to a header and its bytes to the data; `type` as in the file. */
void stored_put(const struct safetensor *t, const char *type, const char *raw, size_t bytes,
                struct buf *header, struct buf *data);

/* Ends the header and writes the file into model_folder. */
void stored_write(const char *name, struct buf *header, const struct buf *data);
