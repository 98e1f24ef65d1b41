/* hidden.h - a token's state folded into a few numbers, for predictors of length.
 *
 * Layer:   engine/model
 * Threads: pure
 *
 *     out[i mod MODEL_HIDDEN] += sign(i) * x[i],   sign from a fixed hash of i
 *
 * A count sketch (Charikar 2002): inner products are kept in expectation, and no matrix is stored.
 */
#pragma once
#include <stdint.h>

#define MODEL_HIDDEN 32

void hidden_fold(const float *x, uint32_t count, float ret[MODEL_HIDDEN]);
