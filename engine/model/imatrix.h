/* imatrix.h - reads and writes importance matrices as GGUF files, and takes from them the weights of a model's tensors.
 *
 * Layer:    engine/model
 * Format:   llama.cpp's imatrix files in GGUF: general.type "imatrix", imatrix.datasets (texts), imatrix.chunk_count,
 *           imatrix.chunk_size; for a tensor NAME of n matrices NAME.in_sum2 [columns, n], sums of squares, and
 *           NAME.counts [1, n], the rows that were added, both F32. Other tensors are passed over
 * Lifetime: the source of imatrix_parse is borrowed until imatrix_free
 * Trust:    none. imatrix_check refuses what is not of the model, by name, and sums and counts that cannot be
 */
#pragma once
#include "base/core/own.h"
#include "engine/files/gguf.h"
#include "engine/model/importance.h"

/* Where a matrix comes from. Absent numbers are 0, an absent text is empty. */
struct imatrix_origin {
    struct str dataset; /* the first text's name */
    uint32_t chunks, chunk_size;
};

struct imatrix {
    const struct gguf_source *source;
    struct imatrix_origin origin;
    uint32_t entries; /* tensors with sums */
    struct gguf *gguf;
    struct gguf_file file;
};

/* Open an importance matrix. -EINVAL: it is none, with what is wrong; else as gguf_parse. `path` is borrowed. */
int imatrix_open(const char *path, struct imatrix **ret, struct err *err);
int imatrix_parse(const struct gguf_source *source, struct imatrix **ret, struct err *err);
void imatrix_free(struct imatrix *im);
CLEANUP_FREEP(imatrix, struct imatrix)

/* Reads all of it. -EINVAL, with the entry's name: the model has no such matrix or one of another shape, or a number
 * is not finite or below 0. */
int imatrix_check(const struct imatrix *im, const struct gguf *model, struct err *err);

/* Reads the weights of a tensor's columns, `t->dims[0]` for each of its matrices, into *ret, the caller's to free.
 * They are above 0 and 1 on average; those of a matrix that no row reached are all 1, and *ret_blank counts these
 * matrices. *ret is NULL where there is no entry. Errors as imatrix_check. */
int imatrix_weights(const struct imatrix *im, const struct gguf_tensor *t, float **ret,
                    uint32_t *ret_blank, struct err *err);

/* Writes what was gathered. Tensors that no row reached are left out. -EINVAL when a sum is not finite. */
int imatrix_write(const char *path, const struct importance *from,
                  const struct imatrix_origin *origin, struct err *err);
