/* arch.h - defines a model architecture: one struct, one file, one entry of arch_table each.
 *
 * Layer:    engine/model (engine/kernels, base/core)
 * Contract: an architecture reads its keys and tensors through the loader and then computes
 *           steps. It claims every tensor of the file and knows every key below its own name:
 *           a file with any other is refused, for it could change the result.
 */
#pragma once
#include "base/core/arena.h"
#include "engine/kernels/op.h"
#include "engine/model/loader.h"
#include "engine/model/model.h"
#include "engine/model/workers.h"

#include <pthread.h>

#define MODEL_LAYERS_MAX 1024u
#define MODEL_EMBD_MAX 65536u
#define MODEL_CONTEXT_MAX (1u << 24)

/* A tensor whose matrices lie packed from `place` in the weights on, `stride` bytes apart. */
struct model_matrix {
    struct str name; /* as a GGUF file names it */
    size_t place, stride;
    uint32_t cols, count;
};

struct model {
    struct model_info info;
    const struct ops *ops;
    const struct model_arch *arch;
    void *arch_model; /* the architecture's, in `arena` */
    enum kv_type kv_type;
    struct arena arena;
    const char *weights; /* one mapping for all packed weights: own_weights, or of weight_file */
    size_t weights_bytes;
    char *own_weights;
    struct model_matrix *matrices; /* by place */
    uint32_t matrix_count;
    struct weight_file *weight_file;
    struct vocab *vocab;
    struct str path; /* that it was loaded from, for model_wake */
    bool no_sampling;
};

struct kv_store {
    struct kv_layout layout;
    char *memory; /* one mapping */
    size_t page_bytes;
    uint32_t pages;
    bool elastic;       /* kv_store_new_elastic */
    pthread_t resident; /* makes the memory resident, while it runs */
    bool resident_runs;
    _Atomic bool resident_ends;
};

/* One step as an architecture gets it; the items were checked. */
struct arch_step {
    struct kv_store *kv;
    struct workers *workers;
    char *const *scratch; /* OP_SCRATCH_BYTES for each thread */
    const struct batch_item *items;
    uint32_t count;
    uint32_t hidden_layer;         /* from 1; below the last: the sum of residuals behind it */
    struct adapter_step *adapters; /* NULL: no item has an adapter */
    struct importance *importance; /* NULL: not gathered */
};

struct adapter_step;
struct decoder_form;
struct encoder_form;

struct model_arch {
    const char *name; /* general.architecture */
    const char *about;
    const struct decoder_form *form; /* what of a decoder it has; see decoder.h. NULL: an encoder */
    const struct encoder_form *encoder; /* of an encoder; see encoder.h */
    /* Reads geometry into m->info and weights into m->arch_model. */
    int (*load)(struct loader *l, struct model *m, struct err *err);
    /* Takes memory for steps of up to tokens_max tokens and seqs_max items. */
    int (*state_new)(const struct model *m, uint32_t tokens_max, uint32_t seqs_max, void **ret);
    void (*state_free)(void *state);
    void (*step)(const struct model *m, void *state, const struct arch_step *step);
};

extern const struct model_arch arch_llama, arch_qwen2, arch_qwen3, arch_qwen3moe, arch_smollm3,
    arch_phi3, arch_gemma2, arch_gemma3, arch_gpt_oss, arch_deepseek2, arch_bert, arch_nomic_bert,
    arch_modern_bert;
extern const struct model_arch *const arch_table[]; /* NULL behind the last */

/* Folds a token's hidden state into a few numbers, for predictors of length:
 *
 *     ret[i mod MODEL_HIDDEN] += sign(i) * x[i],   sign from a fixed hash of i
 *
 * A count sketch (Charikar 2002): inner products are kept in expectation, and no matrix is
 * stored. */
void hidden_fold(const float *x, uint32_t count, float ret[MODEL_HIDDEN]);
