/* model_spec.h - describes the shape of a model, as far as seconds and bytes depend on it.
 *
 * Layer:   base/perf (base/core)
 * Threads: pure functions
 *
 * A spec is a small text of `key: value` lines; `#` begins a comment:
 *
 *     name: llama-3-8b
 *     layers: 32
 *     hidden: 4096
 *     heads: 32
 *     kv_heads: 8
 *     ffn: 14336
 *     vocab: 128256
 *     dtype: bf16
 *
 * models/README.md has all keys. The usual models are shipped (models/specs), compiled in and found by name.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_SPEC_NAME_MAX 64 /* with its NUL */

struct model_spec {
    char name[MODEL_SPEC_NAME_MAX];
    uint32_t layers, hidden;
    uint32_t heads, kv_heads; /* kv_heads: default heads */
    uint32_t head_dim;        /* default hidden / heads */
    uint32_t ffn;             /* inner width; of one expert where there are experts */
    uint32_t vocab;
    uint32_t experts, experts_active; /* 0: a dense model */
    bool gated;                       /* three matrices in a feed-forward (default), else two */
    bool tied;                        /* embedding and output share a matrix; default no */
    double weight_bytes;              /* of one weight, given as a number or by dtype; default 2 */
    double kv_element_bytes;          /* of one K or V element; likewise by kv_dtype; default 2 */
};

/* Parses a spec. Refuses unknown and repeated keys, numbers out of range, and shapes that do not fit
 * together. On failure *ret is untouched and err names the line or the model. */
int model_spec_parse(struct str text, struct model_spec *ret, struct err *err);

/* Writes the keys of a spec, separated by commas, into `ret` of `bytes` bytes. */
void model_spec_keys(char *ret, size_t bytes);

/* Finds a shipped spec by name; -ENOENT with the nearest name, or with all names, if there is none. */
int model_spec_find(struct str name, struct model_spec *ret, struct err *err);

/* Returns the i-th shipped spec, in order of names; false when `i` is beyond the last. */
bool model_spec_at(uint32_t i, struct model_spec *ret);

double model_spec_attention_weights(const struct model_spec *m); /* of one layer */
double model_spec_ffn_weights(const struct model_spec *m);       /* of one layer, one expert */
double model_spec_weights(const struct model_spec *m);           /* all parameters */
double model_spec_kv_token_bytes(const struct model_spec *m);    /* of a cached token, all layers */
