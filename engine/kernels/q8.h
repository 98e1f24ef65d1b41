/* q8.h - rounds a row of activations to int8, so that a product sums integers: the plain reference.
 *
 * Layer:   engine/kernels (base/core)
 * Threads: pure functions
 * Format:  blocks of QUANT_BLOCK elements, x ~ scale * q, scale = max|x| / 127, ties to even; a
 *          block whose largest magnitude is below Q8_TINY is zero, one with a NaN or an infinite
 *          element has a scale of NaN or infinity (and any q). A row depends on its own floats
 *          alone, so batching changes nothing.
 *
 * A weight's block, its integers q', scale d and min m or centre c being the type's, then gives
 *
 *     sum of (d q' - m) (scale q)  =  scale (d (sum of q' q) - m (sum of q))
 *     sum of d (q' - c) (scale q)  =  d scale ((sum of q' q) - c (sum of q))
 *
 * with all sums exact. The rounding of x costs about 1e-5 to 1e-4 of a product's squared norm. */
#pragma once
#include "engine/kernels/weight.h"

#define Q8_TINY 1e-30f /* 127 / max|x| stays finite */

/* Up to QUANT_SUPER activations. What a product needs of them lies together, in eight cache lines. */
struct q8_super {
    int8_t q[QUANT_SUPER];
    float scale[QUANT_SUPER / QUANT_BLOCK];
    float sum[QUANT_SUPER / QUANT_BLOCK];      /* of q over a block */
    float half[2 * QUANT_SUPER / QUANT_BLOCK]; /* of q over halves of blocks */
    /* -128 times these sums: what is too much in a product with weights raised by 128. */
    int32_t lift[QUANT_SUPER / QUANT_BLOCK];
    int32_t half_lift[2 * QUANT_SUPER / QUANT_BLOCK];
    int32_t unused[QUANT_SUPER / QUANT_BLOCK]; /* keeps rows in whole cache lines; never written */
};

/* Bytes from one row to the next, an odd number of cache lines: rows fall into all cache sets. */
static inline size_t q8_row_bytes(uint32_t cols)
{
    size_t lines = ceil_div_u32(cols, QUANT_SUPER) * (sizeof(struct q8_super) / 64);
    return (lines | 1) * 64;
}

static inline struct q8_super *q8_row_at(struct q8_super *rows, uint32_t cols, size_t row)
{
    return (struct q8_super *)(void *)((char *)rows + row * q8_row_bytes(cols));
}

/* Sets what is kept of the sums over the halves of block `b`. */
static inline void q8_sums_set(struct q8_super *s, uint32_t b, int32_t low, int32_t high)
{
    s->sum[b] = (float)(low + high);
    s->lift[b] = -128 * (low + high);
    s->half[2 * b] = (float)low;
    s->half[2 * b + 1] = (float)high;
    s->half_lift[2 * b] = -128 * low;
    s->half_lift[2 * b + 1] = -128 * high;
}

/* Writes cols / QUANT_SUPER elements of `ret`, rounded up; `cols` is a multiple of QUANT_BLOCK. What lies
 * behind the last column stays as it is. */
void q8_round(const float *x, uint32_t cols, struct q8_super *ret);

/* Returns row `row` of w times x, in double: what a kernel over int8 activations must give. `scratch`
 * holds w->cols floats. */
double q8_product(const struct weight *w, uint32_t row, const struct q8_super *x, float *scratch);
