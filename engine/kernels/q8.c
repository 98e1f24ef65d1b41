/* q8.c - rounds activations to int8 and multiplies with them, plainly; cpu/dot.h does it fast. */
#include "engine/kernels/q8.h"

#include <math.h>

static float top_of(const float *x)
{
    float top = 0;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        if (isnan(x[i])) return x[i];
        top = fmaxf(top, fabsf(x[i]));
    }
    return top;
}

void q8_round(const float *x, uint32_t cols, const struct q8_row *ret)
{
    for (uint32_t b = 0; b < cols / QUANT_BLOCK; b++, x += QUANT_BLOCK) {
        float top = top_of(x), inverse = top >= Q8_TINY && isfinite(top) ? 127 / top : 0;
        int32_t half[2] = { 0, 0 };
        for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
            int32_t q = inverse > 0 ? (int32_t)rintf(x[i] * inverse) : 0;
            ret->q[b * QUANT_BLOCK + i] = (int8_t)q;
            half[i / 16] += q;
        }
        ret->scale[b] = top < Q8_TINY ? 0 : top / 127;
        ret->sum[b] = half[0] + half[1];
        ret->pair[b] = (int32_t)(((uint32_t)half[1] << 16) | ((uint32_t)half[0] & 0xffffu));
    }
}

double q8_product(const struct weight *w, uint32_t row, const struct q8_row *x, float *scratch)
{
    double sum = 0;
    weight_row(w, row, scratch);
    for (uint32_t k = 0; k < w->cols; k++)
        sum += (double)scratch[k] * ((double)x->scale[k / QUANT_BLOCK] * x->q[k]);
    return sum;
}
