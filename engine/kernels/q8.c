/* q8.c - rounds activations to int8 and multiplies with them, plainly; cpu/dot_product.h does it fast. */
#include "engine/kernels/q8.h"

#include <math.h>

#define HALF (QUANT_BLOCK / 2)

static float top_of(const float *x)
{
    float top = 0;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        if (isnan(x[i])) return x[i];
        top = fmaxf(top, fabsf(x[i]));
    }
    return top;
}

void q8_round(const float *x, uint32_t cols, struct q8_super *ret)
{
    for (uint32_t k = 0; k < cols; k += QUANT_BLOCK) {
        struct q8_super *to = ret + k / QUANT_SUPER;
        uint32_t at = k % QUANT_SUPER, b = at / QUANT_BLOCK;
        float top = top_of(x + k), inverse = top >= Q8_TINY && isfinite(top) ? 127 / top : 0;
        int32_t sum[2] = { 0, 0 };
        for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
            int32_t q = inverse > 0 ? (int32_t)rintf(x[k + i] * inverse) : 0;
            to->q[at + i] = (int8_t)q;
            sum[i / HALF] += q;
        }
        float scale = top < Q8_TINY ? 0 : top / 127;
        to->scale[b] = scale;
        q8_sums_set(to, b, sum[0], sum[1]);
    }
}

double q8_product(const struct weight *w, uint32_t row, const struct q8_super *x, float *scratch)
{
    double sum = 0;
    weight_row(w, row, scratch);
    for (uint32_t k = 0; k < w->cols; k++) {
        const struct q8_super *part = x + k / QUANT_SUPER;
        uint32_t at = k % QUANT_SUPER;
        sum += (double)scratch[k] * ((double)part->scale[at / QUANT_BLOCK] * part->q[at]);
    }
    return sum;
}
