/* make_model.h - makes model files: random weights of a shape, and a file's weights rounded to another
 * type. Both stream, with a megabyte or two of memory.
 *
 * Layer:  engine/model
 * Errors: sentences name the file and the tensor; nothing is left behind after one
 */
#pragma once
#include "engine/model/gguf.h"

#define MAKE_VOCAB_MAX (1u << 24)
#define MAKE_LAYERS_MAX 1024u
#define MAKE_WIDTH_MAX 65536u
#define MAKE_HEADS_MAX 4096u
#define MAKE_CONTEXT_MAX (1u << 24)

/* Called now and then with the bytes written so far and in all. */
struct make_progress {
    void (*fn)(void *ctx, uint64_t done, uint64_t total); /* NULL: none */
    void *ctx;
};

struct random_model {
    const char *arch; /* "llama" */
    uint32_t width, layers, ff, heads, kv_heads, vocab, context;
    enum weight_type_id type; /* of matrices; one that has from_f32. Norms are F32 */
    bool tied;                /* no output.weight: the embedding is the output matrix */
    uint64_t seed;
    const struct gguf *tokenizer; /* its tokenizer.* are copied and `vocab` is theirs; or NULL */
};

/* Writes a model of random weights, without a tokenizer ("no_vocab") if none is given: matrices of mean 0 and variance 1 / columns, norms of 1. The same shape and seed give the same bytes. -EINVAL for
 * a shape that no model can have, with a sentence. */
int random_model_write(const struct random_model *m, const char *path,
                       const struct make_progress *progress, struct err *err);

struct quantise_result {
    uint64_t tensors;  /* rounded */
    uint64_t kept;     /* copied as they were: vectors */
    uint64_t fallback; /* rounded to Q8_0 or F16, because rows are no whole blocks of the type */
    double error;      /* root of squared error over squares, of all rounded tensors */
};

/* Rounds every matrix of the file to `type` and copies all else. -ENOTSUP for a type that is not
 * written, and without `again` for a file that is quantised already; -EINVAL when a weight is not finite. */
int quantise_model(const char *from, const char *to, enum weight_type_id type, bool again,
                   const struct make_progress *progress, struct quantise_result *ret,
                   struct err *err);

/* Returns "F32, F16, BF16, Q8_0, ..." of the types that are written. */
const char *made_type_names(void);
