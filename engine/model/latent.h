/* latent.h - computes multi-head latent attention (DeepSeek-V2, 2024), absorbed.
 *
 *     [c | k] = Wkv_a n           c = rms_norm(c) * w, k = rope(k)     stored: one vector a token
 *     [q | p] = Wq n, of each head                                     or Wq_b (norm(Wq_a n))
 *     score   = (Wk_b q) . c + rope(p) . k                             Wk_b of each head
 *     out     = Wv_b (sum of softmax(score) * c)                       Wv_b of each head
 *
 * Keys and values of a head would be products of c. Instead the query is multiplied by the matrix that
 * makes keys, and the sum of c by the one that makes values: c is read once for all heads, and nothing of
 * the past is computed again. Prefill does the same as decode, for the same bits; with whole keys and values it
 * would do about a third of the operations of a score.
 *
 * Layer:    engine/model
 * Threads:  as gemm_loop.h
 * Equality: an output depends on its row and the stored vectors alone
 */
#pragma once
#include "engine/model/decoder.h"

/* Read the sizes, and a layer's tensors. */
int latent_geometry(struct loader *l, struct decoder *d, struct model_info *info, struct err *err);
int latent_tensors(struct loader *l, const struct decoder *d, const struct model_info *info,
                   uint32_t index, struct decoder_layer *layer, struct err *err);

struct latent;

/* Takes memory for steps of any number of rows: they are computed some at a time. -ENOMEM. */
int latent_new(const struct model *m, uint32_t rows_max, struct latent **ret);
void latent_free(struct latent *x);

/* The rows of a step in front of a layer's attention. */
struct latent_rows {
    const struct arch_step *step;
    const struct decoder_layer *layer;
    uint32_t layer_index;
    const struct decoder_row *rows;
    uint32_t count;
    const float *n;         /* normalised, activation_stride(n_embd) apart */
    const float *cos, *sin; /* of each token of the step, decoder.pairs apart */
};

/* Stores the vectors of the rows' tokens. */
void latent_store(struct latent *x, const struct latent_rows *rows);

/* Computes the heads' outputs, side by side, in `ret`; its rows are `stride` floats apart. */
void latent_attend(struct latent *x, const struct latent_rows *rows, float *ret, size_t stride);
