/* loader.h - takes keys and tensors out of a GGUF file for an architecture.
 *
 * Layer:  engine/model
 * Errors: sentences name the file, the key or tensor, and what was expected
 */
#pragma once
#include "engine/files/gguf.h"

struct model;

struct loader {
    const struct gguf *gguf;
    const struct gguf_source *source;
    struct model *model;
    const char *arch;   /* prefix of the architecture's keys */
    bool *tensor_taken; /* for each tensor of gguf */
    size_t weights_used;
    struct weight_file *file; /* that the weights go to; NULL: to memory of this process */
    uint64_t order;           /* what was packed where */
};

/* Where weights are kept for all engines of the machine (weight_file.h). */
struct weight_cache {
    const char *folder; /* NULL: nowhere */
    uint64_t bytes_max;
};

/* Takes memory for all tensors of the file: of the cache, or, where that cannot be had, of this process; then
 * m->info.cache_trouble says why. m->info.digest is there. */
int loader_init(struct loader *l, const struct gguf *g, const struct gguf_source *source,
                const struct weight_cache *cache, struct model *m, struct err *err);

/* Ends the load: seals what was packed. -ESTALE: the cache had other weights than the loader would have packed;
 * they are removed, and loading again packs them. */
int loader_end(struct loader *l, struct err *err);

/* Read the key "ARCH.name". If it is absent *ret stays, which is an error only if `required`. */
int loader_u32(struct loader *l, const char *name, bool required, uint32_t min, uint32_t max,
               uint32_t *ret, struct err *err);
int loader_f32(struct loader *l, const char *name, bool required, float *ret, struct err *err);
int loader_bool(struct loader *l, const char *name, bool *ret, struct err *err); /* not required */
int loader_str(struct loader *l, const char *name, struct str *ret, struct err *err);

/* Reads how many tokens there are: from the key "ARCH.vocab_size" or the vocabulary, which must agree. */
int loader_vocab_size(struct loader *l, uint32_t *ret, struct err *err);

/* Kinds of keys below "ARCH.": those that are read, those that say nothing about the result
 * (IGNORED), and those that must be 0 or false (ZERO). */
enum key_use { KEY_READ, KEY_IGNORED, KEY_ZERO };
struct key_rule {
    const char *name;
    enum key_use use;
};
int loader_check_keys(struct loader *l, const struct key_rule *rules, size_t count,
                      struct err *err);

bool loader_has(const struct loader *l, const char *tensor);

/* Moves rows (of a vector: elements) while they are read. In each head of `head_rows` rows, of the
 * first `rows` rows, the two halves of the first 2 * pairs become adjacent pairs. */
struct row_order {
    uint32_t rows; /* whole heads; 0: all stay */
    uint32_t head_rows, pairs;
};

/* Returns the row of the file that becomes row `row`. */
uint32_t row_order_from(const struct row_order *order, uint32_t row);

/* Packs the tensor; it must have dims [cols, rows]. `order` may be NULL. */
int loader_matrix(struct loader *l, const char *tensor, uint32_t rows, uint32_t cols,
                  const struct row_order *order, struct weight *ret, struct err *err);

/* Packs a tensor with dims [cols, rows, count] as `count` matrices; the array lives in the model's
 * arena. */
int loader_stack(struct loader *l, const char *tensor, uint32_t count, uint32_t rows, uint32_t cols,
                 struct weight **ret, struct err *err);

/* A matrix whose rows are, for each head, those of K and then those of V. */
struct split_heads {
    uint32_t heads, k_rows, v_rows, cols;
};

/* Packs such a tensor, which is named *.attn_kv_b.weight, as two matrices for each head: the rows of K
 * transposed, and those of V. All sizes are multiples of TILE_ROWS. Quantised weights become F32: transposed, their
 * blocks would go across others. */
int loader_split(struct loader *l, const char *tensor, const struct split_heads *split,
                 struct weight **ret_k, struct weight **ret_v, struct err *err);

/* Reads a tensor of one dimension as floats; they live as long as the model. `order` may be NULL. */
int loader_vector(struct loader *l, const char *tensor, uint32_t count,
                  const struct row_order *order, const float **ret, struct err *err);

/* Reads a tensor with dims [cols, rows], named *.bias, as floats: rows * cols of them. */
int loader_table(struct loader *l, const char *tensor, uint32_t rows, uint32_t cols,
                 const float **ret, struct err *err);

/* Refuses the file when a tensor was not taken. */
int loader_check_tensors(const struct loader *l, struct err *err);
