/* gguf_make.h - writes GGUF files for tests: good ones, random llamas, and wrong ones on purpose.
 *
 * Nothing is checked here: what is put is written. Lengths and counts may be overridden so that
 * a file says something else than it holds.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/rng.h"
#include "engine/kernels/weight.h"
#include "engine/model/gguf.h"

#define MAKE_TENSORS_MAX 64

struct gguf_make {
    struct buf values, table, data;
    uint64_t value_count, tensor_count; /* written to the header; change them to lie */
    uint32_t version;
    uint32_t alignment; /* of tensor data and offsets */
    const char *magic;
};

void make_init(struct gguf_make *m); /* version 3, alignment 32 */
void make_fini(struct gguf_make *m);

void make_key(struct gguf_make *m, const char *key, uint32_t type); /* without a value */
void make_u32(struct gguf_make *m, const char *key, uint32_t value);
void make_f32(struct gguf_make *m, const char *key, float value);
void make_bool(struct gguf_make *m, const char *key, uint8_t value);
void make_str(struct gguf_make *m, const char *key, const char *value);
void make_u64_raw(struct buf *b, uint64_t v);
void make_u32_raw(struct buf *b, uint32_t v);

/* A row of the tensor table; offset as given. */
void make_tensor_row(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                     uint32_t type, uint64_t offset);
/* The row and its data at the next aligned offset. */
void make_tensor(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                 uint32_t type, const void *data, size_t len);
/* Random values of about `scale` in the type's own form. */
void make_random(struct gguf_make *m, const char *name, enum weight_type_id type, uint32_t rows,
                 uint32_t cols, float scale, struct rng *rng);

/* The whole file, appended to `out`. */
void make_finish(const struct gguf_make *m, struct buf *out);

struct llama_shape {
    uint32_t vocab, layers, embd, heads, kv_heads, head_dim, ff, context;
    enum weight_type_id type;
    bool tied;
    uint32_t rope_dims; /* 0: whole heads */
    float rope_scale;   /* 0: none */
    bool rope_factors;
    float norm_offset;  /* the norm weights are this plus noise */
    bool own_tokenizer; /* the caller puts the tokenizer's keys instead of "no_vocab" */
};

/* A llama of random weights, tokenizer.ggml.model "no_vocab". With `skip` that tensor is left
 * out; more keys and tensors can be put before make_finish. */
void make_llama(struct gguf_make *m, const struct llama_shape *shape, uint64_t seed,
                const char *skip);

/* Writes the file to memory and gives a path to it; close the descriptor when done. */
int make_path(const struct gguf_make *m, char ret_path[64]);

/* A source over memory. `file` lives as long as the source. */
struct gguf_source memory_source(const struct str *file);
