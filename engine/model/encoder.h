/* encoder.h - describes encoders of BERT's kind: every token of a text sees all of its tokens.
 *
 *     x = norm(word[id] + position[p] + type[t])
 *     x = norm(x + Wo attend(Wq x + bq, Wk x + bk, Wv x + bv) + bo)          in each layer
 *     x = norm(x + Wdown gelu(Wup x + bup) + bdown)
 *     score = out . tanh(Wdense x[0] + bdense) + bout                         with a head
 *
 * with norm = layer_norm, and attend over all tokens of the same text (Devlin et al. 2019).
 *
 * Layer:    engine/model
 * Lifetime: all of it lives in the model's arena and its mapping of weights
 * Files:    RoBERTa's positions begin behind its padding token; GGUF files leave out the rows before, and
 *           so do folders (hf_encoder.h). Both kinds are one architecture here
 */
#pragma once
#include "engine/model/arch.h"

#define ENCODER_HEADS_MAX 4096u
#define ENCODER_TYPES_MAX 64u /* of tokens; files have one or two */

struct encoder_norm {
    const float *weight, *bias;
};

/* A product with a bias. */
struct encoder_linear {
    struct weight w;
    const float *bias;
};

struct encoder_layer {
    struct encoder_linear q, k, v, out, up, down;
    struct encoder_norm attn_norm, ffn_norm; /* behind each half */
};

/* The head of a cross-encoder. */
struct encoder_head {
    struct encoder_linear dense; /* no tiles: the state goes to the output as it is */
    const float *out;            /* n_embd; NULL: there is no head */
    float out_bias;
};

struct encoder {
    struct weight words, positions, types; /* types: one row for each type of token */
    struct encoder_norm norm;
    struct encoder_layer *layers;
    struct encoder_head head;
    float eps;
    float scale; /* of scores */
};

/* The members of struct model_arch. */
int encoder_load(struct loader *l, struct model *m, struct err *err);
int encoder_state_new(const struct model *m, uint32_t tokens_max, uint32_t seqs_max, void **ret);
void encoder_state_free(void *state);
void encoder_step(const struct model *m, void *state, const struct arch_step *step);
