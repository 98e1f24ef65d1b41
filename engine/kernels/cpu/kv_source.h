/* kv_source.h - kernels of product.h for K and V as Q8 and Q4 store them.
 *
 * Layer: engine/kernels. A template over the vector of simd.h.
 *
 * Codes become floats in registers, as F16 does: these kernels do as many instructions a key as F16's, and
 * read half the bytes, or a quarter. Scales are not theirs: attend.h applies those of K to sums, of 32 values
 * of d or of a head, and those of V to the weights of the softmax, once a key instead of once an element.
 */
#pragma once
#include "engine/kernels/cpu/product.h"
#include "engine/kernels/kv_code.h"

/* K of Q4: a byte has the codes of two k. */
ALWAYS_INLINE void fma_pairs(const struct fma_call *c, uint32_t tokens, uint32_t tiles)
{
    accumulators acc;
    sums_load(acc, c, tokens, tiles);
    for (size_t k = 0; k < c->k_count; k += 2) {
        vec low[WIDE_TILES * VECS], high[WIDE_TILES * VECS];
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++) {
            const char *at = c->panel[i / VECS] + k / 2 * TILE_ROWS + i % VECS * VEC_LANES;
            low[i] = vec_load_q4_low(at);
            high[i] = vec_load_q4_high(at);
        }
        sums_add(acc, c, low, k, tokens, tiles);
        sums_add(acc, c, high, k + 1, tokens, tiles);
    }
    sums_store(acc, c, tokens, tiles);
}

/* V of Q4: panel[0] holds two tiles, the first in the low four bits of its bytes. Computes `tiles` of them
 * from tile `first` on. */
ALWAYS_INLINE void fma_halves(const struct fma_call *c, uint32_t tokens, uint32_t first,
                              uint32_t tiles)
{
    accumulators acc;
    sums_load(acc, c, tokens, tiles);
    for (size_t k = 0; k < c->k_count; k++) {
        vec weight[WIDE_TILES * VECS];
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++) {
            const char *at = c->panel[0] + k * TILE_ROWS + i % VECS * VEC_LANES;
            weight[i] = first + i / VECS == 0 ? vec_load_q4_low(at) : vec_load_q4_high(at);
        }
        sums_add(acc, c, weight, k, tokens, tiles);
    }
    sums_store(acc, c, tokens, tiles);
}

/* clang-format off */
#define FMA_Q8(tokens, tiles)                                                           \
    static void q8_##tokens##x##tiles(const struct fma_call *c)                         \
    {                                                                                   \
        fma_plain(c, vec_load_i8, 1, tokens, tiles);                                    \
    }
#define FMA_Q4_K(tokens, tiles)                                                         \
    static void q4k_##tokens##x##tiles(const struct fma_call *c)                        \
    {                                                                                   \
        fma_pairs(c, tokens, tiles);                                                    \
    }
#define FMA_Q4_V(tokens, tiles)                                                         \
    static void q4v_##tokens##x##tiles(const struct fma_call *c)                        \
    {                                                                                   \
        fma_halves(c, tokens, 0, tiles);                                                \
    }
#define FMA_Q4_V_HIGH(tokens, tiles)                                                    \
    static void q4v_high_##tokens##x##tiles(const struct fma_call *c)                   \
    {                                                                                   \
        fma_halves(c, tokens, 1, tiles);                                                \
    }

EACH_BLOCK(FMA_Q8)
EACH_BLOCK(FMA_Q4_K)

static const struct fma_source fma_q8 = { BLOCK_ROWS(q8), NULL };
static const struct fma_source fma_q4_k = { BLOCK_ROWS(q4k), NULL };

/* kernel[tiles - 1][tokens - 1] for V of Q4; accumulators of two tiles do not fit AVX2's registers for
 * many tokens, and each of the two is computed by itself. */
#if BLOCK_TILES == 2
EACH_BLOCK_TOKENS(FMA_Q4_V, 2)
static const fma_fn fma_q4_v[2][BLOCK_TOKENS] = { [1] = BLOCK_ROW(q4v, 2) };
static const fma_fn fma_q4_v_high[BLOCK_TOKENS] = { NULL };
#else
EACH_BLOCK_TOKENS(FMA_Q4_V, 1)
EACH_BLOCK_TOKENS(FMA_Q4_V_HIGH, 1)
EACH_WIDE_TOKENS(FMA_Q4_V, 2)
static const fma_fn fma_q4_v[2][BLOCK_TOKENS] = { BLOCK_ROW(q4v, 1), WIDE_ROW(q4v, 2) };
static const fma_fn fma_q4_v_high[BLOCK_TOKENS] = BLOCK_ROW(q4v_high, 1);
#endif
/* clang-format on */

/* Computes both tiles of a group of V in Q4; c->panel[0] is its first row. */
static void fma_q4_values(struct fma_call *c, uint32_t tokens)
{
    if (fma_q4_v[1][tokens - 1]) {
        fma_q4_v[1][tokens - 1](c);
        return;
    }
    fma_q4_v[0][tokens - 1](c);
    c->y += TILE_ROWS;
    fma_q4_v_high[tokens - 1](c);
}
