/* experts.h - computes the feed-forward half of a layer whose router chooses some experts a token.
 *
 *     s = Wrouter n + b          the `used` largest s are chosen, the lower index when equal
 *     y = sum over the chosen e of softmax(s of the chosen)_e * expert_e(n)
 *
 * (Shazeer 2017, with the softmax over the chosen alone, as Mixtral and gpt-oss have it; Qwen3's
 * softmax over all, divided by the sum over the chosen, is the same.) What struct decoder_router adds is
 * DeepSeek's: weights that are not divided by their sum, and a factor; sigmoid(s) in place of softmax, with a
 * bias for the choice only, which balances the experts' load (2024); and groups, of which a token uses a few:
 * those with the largest s, or with sigmoid the largest sum of two.
 *
 * Layer:    engine/model
 * Threads:  as gemm_loop.h
 * Equality: a token's sum goes by descending rank of the choice, whatever other tokens choose
 */
#pragma once
#include "engine/model/decoder.h"

struct experts;

/* Takes memory for steps of any number of rows: they are computed some at a time. -ENOMEM. */
int experts_new(const struct model *m, uint32_t rows_max, struct experts **ret);
void experts_free(struct experts *x);

/* Computes y from the rows n; y may be n. Both have strides of activation_stride(n_embd). */
void experts_run(struct experts *x, const struct arch_step *step, const struct decoder_experts *e,
                 const float *n, float *y, uint32_t rows);
