/* q8.h - rounds a row of activations to int8, so that a product sums integers: the plain reference.
 *
 * Layer:   engine/kernels (base/core)
 * Threads: pure functions
 * Format:  blocks of QUANT_BLOCK elements, x ~ scale * q, scale = max|x| / 127, ties to even; a
 *          block whose largest magnitude is below Q8_TINY is zero, one with a NaN or an infinite
 *          element has a scale of NaN or infinity (and any q). A row depends on its own floats
 *          alone, so batching changes nothing.
 *
 * A weight's block, its integers q', scale d and offset m being the type's, then gives
 *
 *     sum of (d q' - m) (scale q)  =  d scale (sum of q' q)  -  m scale (sum of q)
 *
 * with both sums exact. The rounding of x costs about 1e-5 to 1e-4 of a product's squared norm. */
#pragma once
#include "engine/kernels/weight.h"

#define Q8_TINY 1e-30f /* 127 / max|x| stays finite */

/* The arrays are the caller's: q of `cols` bytes, the others of one element a block. */
struct q8_row {
    int8_t *q;
    float *scale;
    int32_t *sum;  /* of q over the block */
    int32_t *pair; /* of q over each half of the block, as two int16: the first one low */
};

/* `cols` is a multiple of QUANT_BLOCK. */
void q8_round(const float *x, uint32_t cols, const struct q8_row *ret);

/* Returns row `row` of w times x, in double: what a kernel over int8 activations must give. `scratch`
 * holds w->cols floats. */
double q8_product(const struct weight *w, uint32_t row, const struct q8_row *x, float *scratch);
