/* make_model.h - makes a model file of random weights of a shape. It streams, with some megabytes of memory.
 *
 * Layer:  engine/model
 * Errors: sentences name the file and the tensor; nothing is left behind after one
 */
#pragma once
#include "engine/model/rewrite_model.h"

#define MAKE_VOCAB_MAX (1u << 24)
#define MAKE_LAYERS_MAX 1024u
#define MAKE_WIDTH_MAX 65536u
#define MAKE_HEADS_MAX 4096u
#define MAKE_CONTEXT_MAX (1u << 24)

struct random_model {
    const char *arch; /* "llama", or "smollm3": a llama whose layers may differ */
    uint32_t width, layers, ff, heads, kv_heads, vocab, context;
    enum weight_type_id type; /* of matrices; norms are F32 */
    /* The last so many, below `layers`, add nothing to what those before compute. */
    uint32_t idle_layers;
    /* Tokens that layers see; all but the last of each `window_period`, which smollm3 alone can have, 0: all
     * layers. 0: all tokens. */
    uint32_t window, window_period;
    bool tied; /* no output.weight: the embedding is the output matrix */
    uint64_t seed;
    const struct gguf *tokenizer; /* its tokenizer.* are copied and `vocab` is theirs; or NULL */
};

/* Writes a model of random weights, without a tokenizer ("no_vocab") if none is given: matrices of mean 0 and
 * variance 1 / columns, norms of 1. The same shape and seed give the same bytes. -EINVAL for a shape that no model
 * can have, with a sentence. */
int random_model_write(const struct random_model *m, const char *path,
                       const struct make_progress *progress, struct err *err);
