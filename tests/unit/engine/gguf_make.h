/* gguf_make.h - writes GGUF files for tests: good ones, random llamas, and deliberately wrong ones.
 *
 * Nothing is checked: the file holds what the caller puts. Lengths and counts may be overridden, so
 * that a file's header contradicts its content.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/rng.h"
#include "engine/files/gguf.h"
#include "engine/kernels/weight.h"

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

/* Adds an entry to the tensor table, with this offset. */
void make_tensor_row(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                     uint32_t type, uint64_t offset);
/* Adds the entry, and its data at the next aligned offset. */
void make_tensor(struct gguf_make *m, const char *name, uint32_t n_dims, const uint64_t *dims,
                 uint32_t type, const void *data, size_t len);
/* Adds a tensor of random values of about `scale`, in the type's own form. */
void make_random(struct gguf_make *m, const char *name, enum weight_type_id type, uint32_t rows,
                 uint32_t cols, float scale, struct rng *rng);

/* Appends the whole file to `out`. */
void make_finish(const struct gguf_make *m, struct buf *out);

struct llama_shape {
    uint32_t vocab, layers, embd, heads, kv_heads, head_dim, ff, context;
    enum weight_type_id type;
    bool tied;
    uint32_t rope_dims; /* 0: whole heads */
    float rope_scale;   /* 0: none */
    bool rope_factors;
    float norm_offset;  /* norm weights are this plus noise */
    uint32_t idle_from; /* layers from this one on add nothing; 0: all do */
    uint32_t window;    /* that a query sees; 0: all */
    /* Layers but each last of so many have the window; 0: all have it. With it the family is smollm3, which
     * differs from llama in that some layers do not turn positions. */
    uint32_t window_period;
    bool own_tokenizer; /* the caller adds the tokenizer's keys instead of "no_vocab" */
};

/* Adds a llama of random weights, with tokenizer.ggml.model "no_vocab", without the tensor `skip`.
 * More keys and tensors may follow before make_finish. */
void make_llama(struct gguf_make *m, const struct llama_shape *shape, uint64_t seed,
                const char *skip);

/* Writes the file to memory and returns its descriptor and a path to it; the caller closes it. */
int make_path(const struct gguf_make *m, char ret_path[64]);

/* Returns a source over memory; `file` must live as long as the source. */
struct gguf_source memory_source(const struct str *file);

/* Parses a file in memory, as gguf_parse does. */
int parse_memory(struct str file, struct gguf **ret, struct err *err);
