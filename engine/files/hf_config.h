/* hf_config.h - reads config.json of a folder as the keys of a GGUF file.
 *
 * Layer:    engine/files
 * Lifetime: keys and lists live in the arena
 * Trust:    none. Keys that say what is computed are read or refused; others name files and habits of
 *           training and are passed over
 */
#pragma once
#include "base/core/arena.h"
#include "engine/files/gguf.h"
#include "engine/files/hf_family.h"
#include "engine/files/hf_latent.h"
#include "engine/files/hf_quant.h"
#include "engine/files/hf_rope.h"

#define HF_VALUES_MAX 64

struct hf_config {
    const struct hf_family *family;
    struct gguf_value values[HF_VALUES_MAX]; /* sorted by key */
    uint32_t value_count;
    /* 0: not said */
    uint32_t heads, kv_heads, head_dim, width, layers, context, experts, original, ff;
    uint32_t window, window_period, window_first; /* first layer with the window */
    uint32_t *layer_windows;                      /* 0 or 1, one for each layer; NULL: not said */
    uint32_t layer_window_count, nope_count;
    bool uses_window, tied, biased;
    uint32_t pooling_type;  /* the caller's, before hf_config_read: of modules.json; 0: none */
    uint32_t position_skip; /* rows of the table of positions that are left out */
    bool classifies;        /* of an encoder: a head judges the first token's state */
    struct hf_latent latent;
    struct hf_rope rope, local_rope;
    struct hf_quant quant;
};

/* Reads the text. -EINVAL and -ENOTSUP with a sentence that names the key. */
int hf_config_read(struct hf_config *c, struct str text, struct arena *arena, struct err *err);

/* Adds a key below the architecture's name; the caller writes its value. */
struct gguf_value *hf_config_put(struct hf_config *c, const char *key, enum gguf_type type);

/* Returns the pairs of a head that are turned. */
uint32_t hf_config_pairs(const struct hf_config *c);
