/* dot_vnni.h - sums integers by vpdpbusd: dot_sums of dot_product.h for the instruction sets that have it.
 *
 * Layer: engine/kernels; for dot_avx2_vnni.c and dot_avx512.c, which define ivec_raised and ivec_dot before.
 *
 * vpdpbusd multiplies four unsigned by four signed bytes and adds them to an int32. Signed weights become
 * unsigned by adding 128; the accumulator starts with -128 times the sum of x, which q8_round stores. */
#pragma once
#include "engine/kernels/cpu/dot_product.h"

ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        sum[t] = ivec_set1_32(kind == DOT_SIGNED ? dot_row(c, t)->lift[b] : 0);
    UNROLL
    for (uint32_t j = first; j < first + pieces; j++) {
        ivec q = kind == DOT_SIGNED ? ivec_raised(w->q[j]) : w->q[j];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t] = ivec_dot(sum[t], q, dot_x(c, t, b * QUANT_BLOCK + j * 4));
    }
}
