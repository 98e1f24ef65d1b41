/* dot_neon_dotprod.c - multiplies quantised weights by activations of int8 by the dot products of Armv8.2.
 *
 * sdot multiplies four by four signed bytes and adds them to an int32; its second operand may be one lane of a
 * register, so 16 activations are loaded at once. */
#define SIMD_HEADER "engine/kernels/cpu/ivec_neon.h"
#define DOT_TOKENS 4 /* with 8 accumulators, 8 sums and 4 of x, 22 of 32 registers */
#define DOT_PANELS 2 /* 12 KiB, beside 8 KiB of x */
#include "engine/kernels/cpu/dot_product.h"

ALWAYS_INLINE int8x16_t dot_load(const struct dot_call *c, uint32_t t, uint32_t k)
{
    return vld1q_s8(dot_row(c, t)->q + k);
}

/* Adds register `j` of the block times lane `lane` of x, a constant as the intrinsic demands. */
#define DOT_LANE(j, lane)                                                 \
    do {                                                                  \
        int8x16_t low = vreinterpretq_s8_s32(w->q[j].low);                \
        int8x16_t high = vreinterpretq_s8_s32(w->q[j].high);              \
        UNROLL                                                            \
        for (uint32_t t = 0; t < tokens; t++) {                           \
            sum[t].low = vdotq_laneq_s32(sum[t].low, low, x[t], lane);    \
            sum[t].high = vdotq_laneq_s32(sum[t].high, high, x[t], lane); \
        }                                                                 \
    } while (0)

ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens)
{
    (void)kind; /* bytes of all kinds are signed ones too */
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        sum[t] = ivec_set1_32(0);
    UNROLL
    for (uint32_t i = first; i < first + pieces; i += 4) {
        int8x16_t x[DOT_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            x[t] = dot_load(c, t, b * QUANT_BLOCK + i * 4);
        DOT_LANE(i, 0);
        DOT_LANE(i + 1, 1);
        DOT_LANE(i + 2, 2);
        DOT_LANE(i + 3, 3);
    }
}

void dot_gemm_dotprod(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    dot_product(g, tile_first, tile_count, scratch, dot_rows, NULL);
}
