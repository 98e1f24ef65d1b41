/* rewrite_model.h - writes model files anew: the weights of a GGUF file rounded to another type, or a folder in Hugging
 * Face's format as one GGUF file. Both stream, with a megabyte or two of memory.
 *
 * Layer:  engine/model
 * Errors: sentences name the file and the tensor; nothing is left behind after one
 */
#pragma once
#include "engine/files/gguf.h"

/* Called now and then with the bytes written so far and in all. */
struct make_progress {
    void (*fn)(void *ctx, uint64_t done, uint64_t total); /* NULL: none */
    void *ctx;
};

static inline void make_progress_tell(const struct make_progress *p, uint64_t done, uint64_t total)
{
    if (p && p->fn) p->fn(p->ctx, done, total);
}

struct quantise_result {
    uint64_t tensors;    /* rounded */
    uint64_t kept;       /* not rounded: vectors, and matrices of a conversion that keeps types */
    uint64_t fallback;   /* rounded to Q8_0 or F16, because rows are no whole blocks of the type */
    double error;        /* root of squared error over squares, of all rounded tensors */
    bool has_imatrix;    /* the rest is of it */
    uint64_t weighted;   /* rounded by their importance */
    uint64_t unweighted; /* rounded without, because they have no entry */
    uint64_t blank;      /* single matrices, of experts, that no row had reached: rounded without */
};

struct quantise_ask {
    enum weight_type_id type;
    bool again;          /* also a file that is quantised already */
    const char *imatrix; /* importance matrix (imatrix.h); NULL: none */
    const struct make_progress *progress;
};

/* Rounds every matrix of the file to the type and copies all else. -ENOTSUP for a type that
 * an importance matrix does not change, and without `again` for a file that is quantised already; -EINVAL when a
 * weight is not finite, or the importance matrix is of another model. */
int quantise_model(const char *from, const char *to, const struct quantise_ask *ask,
                   struct quantise_result *ret, struct err *err);

/* Writes the model of a folder (hf_model.h) with its tokenizer and template as a GGUF file. Matrices are rounded to
 * `type`, or keep theirs if it is WEIGHT_TYPE_COUNT; vectors become F32, as such files have them. -ENOTSUP for a
 * tokenizer that the keys of a GGUF file cannot say (vocab_to_gguf); else as
 * hf_model_open and quantise_model. */
int convert_model(const char *from, const char *to, enum weight_type_id type,
                  const struct make_progress *progress, struct quantise_result *ret,
                  struct err *err);
