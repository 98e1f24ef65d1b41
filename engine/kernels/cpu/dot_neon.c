/* dot_neon.c - multiplies quantised weights by activations of int8 with the instructions that every AArch64 has;
 * rounds to int8.
 *
 * smull multiplies signed bytes to int16. Products are summed as int16 as far as the kind of block allows without
 * overflow once addp has added neighbours (four registers of five bits: 4 x 2 x 31 x 127 = 31,496; two of six bits:
 * 2 x 2 x 63 x 127 = 32,004; one of signed bytes: 2 x 128 x 127 = 32,512), then as int32. */
#define SIMD_HEADER "engine/kernels/cpu/ivec_neon.h"
#define DOT_TOKENS 4 /* with 8 accumulators, 8 sums and 8 of int16, 26 of 32 registers */
#define DOT_PANELS 2 /* 12 KiB, beside 8 KiB of x */
#include "engine/kernels/cpu/dot_product.h"

struct dot_part {
    int16x8_t low, high; /* products of the lower and of the upper eight bytes */
};

/* Sums the half `high` of registers [first, first + chain) for each token, as int16. */
ALWAYS_INLINE void dot_chain(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                             uint32_t first, uint32_t chain, bool high, struct dot_part *part,
                             uint32_t tokens)
{
    UNROLL
    for (uint32_t j = first; j < first + chain; j++) {
        int8x16_t q = vreinterpretq_s8_s32(high ? w->q[j].high : w->q[j].low);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            int8x16_t x = vreinterpretq_s8_s32(dot_x(c, t, b * QUANT_BLOCK + j * 4).low);
            if (j == first) {
                part[t].low = vmull_s8(vget_low_s8(q), vget_low_s8(x));
                part[t].high = vmull_high_s8(q, x);
            } else {
                part[t].low = vmlal_s8(part[t].low, vget_low_s8(q), vget_low_s8(x));
                part[t].high = vmlal_high_s8(part[t].high, q, x);
            }
        }
    }
}

ALWAYS_INLINE int32x4_t dot_sum(int32x4_t sum, struct dot_part part)
{
    return vpadalq_s16(sum, vpaddq_s16(part.low, part.high));
}

ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens)
{
    const uint32_t chain = kind == DOT_SIGNED ? 1 : dot_halved(kind) ? 2 : 4;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        sum[t] = ivec_set1_32(0);
    UNROLL
    for (uint32_t i = first; i < first + pieces; i += chain) {
        struct dot_part part[DOT_TOKENS];
        dot_chain(c, w, b, i, chain, false, part, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t].low = dot_sum(sum[t].low, part[t]);
        dot_chain(c, w, b, i, chain, true, part, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t].high = dot_sum(sum[t].high, part[t]);
    }
}

void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    dot_product(g, tile_first, tile_count, scratch, dot_rows, NULL);
}

/* ---- activations */

#define ROUND_VECS (QUANT_BLOCK / 4)

/* Rounds block `b` of `to`. */
ALWAYS_INLINE void dot_round_block(const float *x, uint32_t b, struct q8_super *to)
{
    float32x4_t v[ROUND_VECS], top = vdupq_n_f32(0);
    int32x4_t q[ROUND_VECS];
    UNROLL
    for (uint32_t i = 0; i < ROUND_VECS; i++) {
        v[i] = vld1q_f32(x + (size_t)i * 4);
        top = vmaxq_f32(top, vabsq_f32(v[i])); /* of a NaN: NaN */
    }
    float scale = vmaxvq_f32(top);
    bool finite = scale >= Q8_TINY && scale <= 3.402823466e38f;
    float inverse = finite ? 127 / scale : 0;
    UNROLL
    for (uint32_t i = 0; i < ROUND_VECS; i++)
        q[i] = finite ? vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse)) : vdupq_n_s32(0);
    int32_t sum[2];
    UNROLL
    for (uint32_t h = 0; h < 2; h++) { /* halves of 16 */
        const int32x4_t *p = q + (size_t)h * 4;
        sum[h] = vaddvq_s32(vaddq_s32(vaddq_s32(p[0], p[1]), vaddq_s32(p[2], p[3])));
        int16x8_t first = vcombine_s16(vmovn_s32(p[0]), vmovn_s32(p[1]));
        int16x8_t second = vcombine_s16(vmovn_s32(p[2]), vmovn_s32(p[3]));
        vst1q_s8(to->q + (size_t)b * QUANT_BLOCK + h * 16,
                 vcombine_s8(vmovn_s16(first), vmovn_s16(second)));
    }
    scale = scale < Q8_TINY ? 0 : scale / 127;
    to->scale[b] = scale;
    q8_sums_set(to, b, sum[0], sum[1]);
}

void dot_round(const float *x, uint32_t cols, struct q8_super *ret)
{
    for (uint32_t k = 0; k < cols; k += QUANT_BLOCK)
        dot_round_block(x + k, k % QUANT_SUPER / QUANT_BLOCK, ret + k / QUANT_SUPER);
}
