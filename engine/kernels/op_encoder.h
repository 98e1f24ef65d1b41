/* op_encoder.h - the operations of encoders that no instruction set has an entry for.
 *
 * Layer:    engine/kernels (base/core)
 * Threads:  pure functions of their arguments
 * Equality: one order of operations on every processor of one build: sums of a row go into
 *           OP_ENCODER_LANES accumulators by index, then in ascending order of lanes
 */
#pragma once
#include <stdint.h>

#define OP_ENCODER_LANES 16

/* y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b; y may be x (Ba et al. 2016). */
void layer_norm(const float *x, const float *w, const float *b, float eps, uint32_t n, float *y);

/* x = gelu(x + bias), with gelu(x) = x * (1 + erf(x / sqrt(2))) / 2; within 3e-7 * max(1, |x|) of
 * that. */
void gelu_erf_bias(float *x, const float *bias, uint32_t n);
