/* dot_vnni.h - sums integers by vpdpbusd: dot_sums of dot_product.h for the instruction sets that have it.
 *
 * Layer: engine/kernels; for dot_avx2_vnni.c and dot_avx512.c, which define ivec_dot before.
 *
 * vpdpbusd multiplies four unsigned by four signed bytes and adds them to an int32. Signed weights become
 * unsigned by adding 128; the accumulator starts with -128 times the sum of x, which q8_round stores. */
#pragma once
#include "engine/kernels/cpu/dot_product.h"

/* Returns q with a centre of 128 instead of `centre`. */
ALWAYS_INLINE ivec dot_raised(ivec q, uint8_t centre)
{
    return ivec_add_8(q, ivec_set1_8((char)(128 - centre)));
}

/* Returns the number that the sum of registers from `first` on begins with. */
ALWAYS_INLINE int32_t dot_lift(const struct q8_super *x, uint32_t b, enum dot_kind kind,
                               uint32_t first)
{
    if (kind == DOT_SIX_RAISED) return x->half_lift[2 * b + (first > 0)];
    return kind == DOT_SIGNED || kind == DOT_RAISED ? x->lift[b] : 0;
}

ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        sum[t] = ivec_set1_32(dot_lift(dot_row(c, t), b, kind, first));
    UNROLL
    for (uint32_t j = first; j < first + pieces; j++) {
        ivec q = kind == DOT_SIGNED ? dot_raised(w->q[j], 0) : w->q[j];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t] = ivec_dot(sum[t], q, dot_x(c, t, b * QUANT_BLOCK + j * 4));
    }
}

/* ---- panels that many tokens use */

/* clang-format off */
DOT_KERNELS(dot_raised, DOT_RAISED)
DOT_KERNELS(dot_six_raised, DOT_SIX_RAISED)

static const dot_fn dot_raised_kernels[2][DOT_TOKENS] = {
    DOT_ROW(dot_raised),
    DOT_ROW(dot_six_raised),
};
/* clang-format on */

/* Raises a panel without mins: raising once saves each token an instruction a block. */
static enum dot_kind dot_raise(struct dot_panel *panel, uint32_t blocks,
                               const struct dot_type *type)
{
    if (type->kind == DOT_FIVE || type->kind == DOT_SIX) return type->kind;
    for (uint32_t b = 0; b < blocks; b++)
        for (uint32_t h = 0; h < DOT_HALVES; h++) {
            ivec *q = panel->block[b][h].q;
            for (uint32_t j = 0; j < DOT_PIECES; j++)
                q[j] = dot_raised(q[j], type->centre);
        }
    return dot_halved(type->kind) ? DOT_SIX_RAISED : DOT_RAISED;
}

static void dot_rows_raised(struct dot_call *c, enum dot_kind kind, uint32_t tokens)
{
    if (kind == DOT_RAISED || kind == DOT_SIX_RAISED)
        dot_rows_by(dot_raised_kernels[kind == DOT_SIX_RAISED], c, tokens);
    else
        dot_rows(c, kind, tokens);
}

static void dot_product_vnni(const struct gemm *g, uint32_t tile_first, uint32_t tile_count,
                             void *scratch)
{
    bool many = g->tokens > DOT_STREAM_TOKENS;
    dot_product(g, tile_first, tile_count, scratch, many ? dot_rows_raised : dot_rows,
                many ? dot_raise : NULL);
}
