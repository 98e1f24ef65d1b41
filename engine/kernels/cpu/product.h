/* product.h - multiplies rows of x by tiles of weights: the kernel, and matrix products by it.
 *
 * Layer: engine/kernels. A template over the vector of simd.h.
 *
 * One kernel carries matrix products and both halves of attention: rows of x times tiles of 16,
 *
 *     y[t][16 p + lane] += sum over k of  panel[p][k][lane] * x[t][k]
 *
 * with an accumulator per output and k ascending, so that an output's bits depend on neither the
 * number of rows nor of tiles; loading y and going on is exact, so k may be cut anywhere. The
 * kernel is instantiated for each number of rows and tiles (unrolled into registers) and for
 * each type of panel.
 *
 *     block   BLOCK_TOKENS x BLOCK_TILES: limited by FMA
 *     wide    up to WIDE_TOKENS x WIDE_TILES: decode, limited by memory
 *
 * Weights are widened in registers; BF16 for many tokens (prefill) goes through a panel of F32 that
 * is made once for all of them and stays in cache: both ways multiply the same weight. Quantised
 * types have kernels of their own (dot.h).
 */
#pragma once
#include "engine/kernels/cpu/dot.h"
#include "engine/kernels/cpu/simd.h"

#define VECS (TILE_ROWS / VEC_LANES) /* vectors in a tile */
#define PANEL_COLS 256 /* k of an unpacked panel: 32 rows x 256 x 4 bytes stay in L1 and L2 */

/* Up to this many tokens, unpacking in registers once a block is cheaper than a panel. */
#define PANEL_TOKENS (2 * BLOCK_TOKENS)

_Static_assert(sizeof(float) * PANEL_COLS * TILE_ROWS * BLOCK_TILES <= OP_SCRATCH_BYTES, "fits");

/* The panels (one for each tile), inputs and outputs of one call. */
struct fma_call {
    const char *panel[WIDE_TILES];
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
    uint32_t k_count;
    bool accumulate;
};

typedef void (*fma_fn)(const struct fma_call *c);

typedef vec accumulators[BLOCK_TOKENS][WIDE_TILES * VECS];

/* Loads VEC_LANES elements of a panel. */
typedef vec (*load_fn)(const char *p);

/* `tokens` and `tiles` are constants in every caller, so that all loops over them unroll and the
 * accumulators live in registers. */
ALWAYS_INLINE void sums_load(accumulators acc, const struct fma_call *c, uint32_t tokens,
                             uint32_t tiles)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++)
            acc[t][i] =
                c->accumulate ? vec_load(c->y + t * c->y_stride + i * VEC_LANES) : vec_zero();
    }
}

ALWAYS_INLINE void sums_add(accumulators acc, const struct fma_call *c, const vec *weight, size_t k,
                            uint32_t tokens, uint32_t tiles)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        vec x = vec_set1(c->x[t * c->x_stride + k]);
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++)
            acc[t][i] = vec_fma(weight[i], x, acc[t][i]);
    }
}

ALWAYS_INLINE void sums_store(accumulators acc, const struct fma_call *c, uint32_t tokens,
                              uint32_t tiles)
{
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++)
            vec_store(c->y + t * c->y_stride + i * VEC_LANES, acc[t][i]);
    }
}

/* Computes `c` for panels with elements in the order [k][16]: F32, F16, BF16. */
ALWAYS_INLINE void fma_plain(const struct fma_call *c, load_fn load, size_t element_bytes,
                             uint32_t tokens, uint32_t tiles)
{
    accumulators acc;
    sums_load(acc, c, tokens, tiles);
    for (size_t k = 0; k < c->k_count; k++) {
        vec weight[WIDE_TILES * VECS];
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++)
            weight[i] =
                load(c->panel[i / VECS] + (k * TILE_ROWS + i % VECS * VEC_LANES) * element_bytes);
        sums_add(acc, c, weight, k, tokens, tiles);
    }
    sums_store(acc, c, tokens, tiles);
}

ALWAYS_INLINE vec load_f32(const char *p)
{
    return vec_load((const float *)(const void *)p);
}

/* clang-format off */
#define FMA_F32(tokens, tiles)                                                          \
    static void f32_##tokens##x##tiles(const struct fma_call *c)                        \
    {                                                                                   \
        fma_plain(c, load_f32, 4, tokens, tiles);                                       \
    }
#define FMA_F16(tokens, tiles)                                                          \
    static void f16_##tokens##x##tiles(const struct fma_call *c)                        \
    {                                                                                   \
        fma_plain(c, vec_load_f16, 2, tokens, tiles);                                   \
    }
#define FMA_BF16(tokens, tiles)                                                         \
    static void bf16_##tokens##x##tiles(const struct fma_call *c)                       \
    {                                                                                   \
        fma_plain(c, vec_load_bf16, 2, tokens, tiles);                                  \
    }

#if BLOCK_TOKENS == 12
#define EACH_BLOCK_TOKENS(DO, tiles) \
    DO(1, tiles) DO(2, tiles) DO(3, tiles) DO(4, tiles) DO(5, tiles) DO(6, tiles) \
    DO(7, tiles) DO(8, tiles) DO(9, tiles) DO(10, tiles) DO(11, tiles) DO(12, tiles)
#define BLOCK_ROW(name, tiles) \
    { name##_1x##tiles, name##_2x##tiles, name##_3x##tiles, name##_4x##tiles, name##_5x##tiles, \
      name##_6x##tiles, name##_7x##tiles, name##_8x##tiles, name##_9x##tiles, name##_10x##tiles, \
      name##_11x##tiles, name##_12x##tiles }
#define EACH_WIDE_TOKENS(DO, tiles) DO(1, tiles) DO(2, tiles) DO(3, tiles) DO(4, tiles)
#define WIDE_ROW(name, tiles) \
    { name##_1x##tiles, name##_2x##tiles, name##_3x##tiles, name##_4x##tiles }
#define EACH_BLOCK(DO) EACH_BLOCK_TOKENS(DO, 2) EACH_BLOCK_TOKENS(DO, 1) EACH_WIDE_TOKENS(DO, 4)
#define BLOCK_ROWS(name) { [0] = BLOCK_ROW(name, 1), [BLOCK_TILES - 1] = BLOCK_ROW(name, 2), \
                           [WIDE_TILES - 1] = WIDE_ROW(name, 4) }
#else
#define EACH_BLOCK_TOKENS(DO, tiles) \
    DO(1, tiles) DO(2, tiles) DO(3, tiles) DO(4, tiles) DO(5, tiles) DO(6, tiles)
#define BLOCK_ROW(name, tiles) \
    { name##_1x##tiles, name##_2x##tiles, name##_3x##tiles, name##_4x##tiles, name##_5x##tiles, \
      name##_6x##tiles }
#define EACH_WIDE_TOKENS(DO, tiles) DO(1, tiles) DO(2, tiles)
#define WIDE_ROW(name, tiles) { name##_1x##tiles, name##_2x##tiles }
#define EACH_BLOCK(DO) EACH_BLOCK_TOKENS(DO, 1) EACH_WIDE_TOKENS(DO, 2)
#define BLOCK_ROWS(name) { [0] = BLOCK_ROW(name, 1), [WIDE_TILES - 1] = WIDE_ROW(name, 2) }
#endif

EACH_BLOCK(FMA_F32)
EACH_BLOCK(FMA_F16)
EACH_BLOCK(FMA_BF16)
/* clang-format on */

/* Writes k [0, cols) of a tile as F32 [k][16]. */
static void unpack_bf16(const char *tile, uint32_t cols, float *ret)
{
    for (size_t i = 0; i < (size_t)cols * TILE_ROWS; i += VEC_LANES)
        vec_store(ret + i, vec_load_bf16(tile + i * 2));
}

/* kernel[tiles - 1][tokens - 1]; with `unpack` many tokens go through a panel of F32. */
struct fma_source {
    fma_fn kernel[WIDE_TILES][BLOCK_TOKENS];
    void (*unpack)(const char *tile, uint32_t cols, float *ret);
};

/* clang-format off */
static const struct fma_source fma_sources[WEIGHT_TYPE_COUNT] = {
    [WEIGHT_F32]  = { BLOCK_ROWS(f32),  NULL },
    [WEIGHT_F16]  = { BLOCK_ROWS(f16),  NULL },
    [WEIGHT_BF16] = { BLOCK_ROWS(bf16), unpack_bf16 },
};
/* clang-format on */

_Static_assert((DOT_Q8_TYPES | 1u << WEIGHT_F32 | 1u << WEIGHT_F16 | 1u << WEIGHT_BF16) ==
                   (1u << WEIGHT_TYPE_COUNT) - 1,
               "every type has kernels, here or in dot_product.h");

/* Computes `c` for any number of tiles, tile i at first + i * tile_bytes; takes as many at once as
 * a kernel exists for at that number of rows. */
static void fma_tiles(const struct fma_source *s, struct fma_call *c, uint32_t tokens,
                      const char *first, size_t tile_bytes, uint32_t tiles)
{
    uint32_t step = tokens <= WIDE_TOKENS ? WIDE_TILES : BLOCK_TILES;
    for (; tiles > 0; tiles -= step) {
        while (step > tiles || !s->kernel[step - 1][tokens - 1])
            step--;
        for (uint32_t i = 0; i < step; i++, first += tile_bytes)
            c->panel[i] = first;
        s->kernel[step - 1][tokens - 1](c);
        c->y += (size_t)step * TILE_ROWS;
    }
}

/* ---- matrix products */

/* Multiplies all tokens by `tiles` (<= BLOCK_TILES) tiles, k in [k_first, k_first + k_count). */
static void gemm_block(const struct gemm *g, const struct fma_source *s, const char *panel,
                       size_t panel_bytes, uint32_t tile, uint32_t tiles, uint32_t k_first,
                       uint32_t k_count)
{
    /* Groups of even size: 13 rows as 7 + 6 rather than 12 + 1, which one register would limit. */
    uint32_t groups = ceil_div_u32(g->tokens, BLOCK_TOKENS);
    for (uint32_t i = 0, t = 0; i < groups; i++) {
        uint32_t rows = (g->tokens - t) / (groups - i);
        struct fma_call c = {
            .x = g->x + t * g->x_stride + k_first,
            .x_stride = g->x_stride,
            .y = g->y + t * g->y_stride + (size_t)tile * TILE_ROWS,
            .y_stride = g->y_stride,
            .k_count = k_count,
            .accumulate = g->accumulate || k_first > 0,
        };
        fma_tiles(s, &c, rows, panel, panel_bytes, tiles);
        t += rows;
    }
}

static void gemm_blocks(const struct gemm *g, const struct fma_source *s, uint32_t tile_first,
                        uint32_t tile_count, float *panel)
{
    const struct weight *w = g->w;
    size_t tile_bytes = weight_tile_bytes(w);
    bool unpack = s->unpack && g->tokens > PANEL_TOKENS;
    for (uint32_t i = 0; i < tile_count; i += BLOCK_TILES) {
        uint32_t tile = tile_first + i, tiles = min_u32(BLOCK_TILES, tile_count - i);
        const char *data = w->tiles + tile * tile_bytes;
        for (uint32_t k = 0; k < w->cols; k += PANEL_COLS) {
            uint32_t count = min_u32(PANEL_COLS, w->cols - k);
            const char *at = data + TILE_ROWS * weight_row_bytes(w->type, k);
            if (!unpack) {
                gemm_block(g, s, at, tile_bytes, tile, tiles, k, count);
                continue;
            }
            for (uint32_t j = 0; j < tiles; j++)
                s->unpack(at + j * tile_bytes, count, panel + (size_t)j * PANEL_COLS * TILE_ROWS);
            gemm_block(g, &fma_sources[WEIGHT_F32], (const char *)panel,
                       sizeof(float) * PANEL_COLS * TILE_ROWS, tile, tiles, k, count);
        }
    }
}

static void simd_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    if (DOT_Q8_TYPES >> g->w->type & 1) {
        dot_gemm(g, tile_first, tile_count, scratch);
        return;
    }
    const struct fma_source *s = &fma_sources[g->w->type];
    if (g->tokens > WIDE_TOKENS) {
        gemm_blocks(g, s, tile_first, tile_count, scratch);
        return;
    }
    size_t tile_bytes = weight_tile_bytes(g->w);
    struct fma_call c = {
        .x = g->x,
        .x_stride = g->x_stride,
        .y = g->y + (size_t)tile_first * TILE_ROWS,
        .y_stride = g->y_stride,
        .k_count = g->w->cols,
        .accumulate = g->accumulate,
    };
    fma_tiles(s, &c, g->tokens, g->w->tiles + tile_first * tile_bytes, tile_bytes, tile_count);
}
