/* bf16_avx512.c - multiplies BF16 weights by activations rounded to BF16: vdpbf16ps multiplies pairs of neighbouring
 * columns and adds them to one float, which on a Zen 4 is twice the work of a multiply-add.
 *
 * A part of the activations is rounded once for all tiles of a call, as many columns as fit the scratch for its tokens.
 * A register of weights is two columns of a tile's 16 rows, which lie one behind the other and are interleaved as they
 * are read. Each output has one accumulator and adds pairs in ascending order, so that its bits depend on neither
 * tokens nor tiles nor parts. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx512.h"
#include "engine/kernels/cpu/dot.h"
#include "engine/kernels/cpu/simd.h"

/* With two tiles 24 accumulators, two of weights, their order and x: 28 of 32 registers. */
#define BF16_TOKENS 12
#define BF16_TILES 2
#define BF16_AT_ONCE 256 /* tokens whose activations are in the scratch together */
#define BF16_VALUES ((uint32_t)64 << 10)
#define BF16_STEP 64 /* columns of a part are a multiple of it */
#define COLUMN_BYTES ((size_t)TILE_ROWS * 2)

_Static_assert(BF16_VALUES * sizeof(uint16_t) <= OP_SCRATCH_BYTES, "a part fits");
_Static_assert(BF16_VALUES / BF16_AT_ONCE >= BF16_STEP, "a part has columns");

struct bf16_call {
    const char *tile[BF16_TILES]; /* at the first column of the part */
    const uint32_t *x;            /* pairs of the first token */
    size_t x_stride;              /* pairs */
    float *y;
    size_t y_stride;
    uint32_t cols;
    bool accumulate;
};

typedef void (*bf16_fn)(const struct bf16_call *c);

/* Lanes of 16 bits: row r of the first column, row r of the second. */
ALWAYS_INLINE __m512i bf16_order(void)
{
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(
        row, _mm512_slli_epi32(_mm512_add_epi32(row, _mm512_set1_epi32(TILE_ROWS)), 16));
}

ALWAYS_INLINE vec bf16_add(vec acc, __m512i w, uint32_t pair)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32((int32_t)pair));
}

/* `tokens` and `tiles` are constants in every caller. */
ALWAYS_INLINE void bf16_multiply(const struct bf16_call *c, uint32_t tokens, uint32_t tiles)
{
    const __m512i order = bf16_order();
    vec acc[BF16_TOKENS][BF16_TILES];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t i = 0; i < tiles; i++)
            acc[t][i] =
                c->accumulate ? vec_load(c->y + t * c->y_stride + i * TILE_ROWS) : vec_zero();
    }
    for (size_t p = 0; p < ceil_div_u32(c->cols, 2); p++) {
        const __mmask16 there =
            2 * p + 1 < c->cols ? 0xffff : 0xff; /* an odd column has no other */
        __m512i w[BF16_TILES];
        UNROLL
        for (uint32_t i = 0; i < tiles; i++)
            w[i] = _mm512_permutexvar_epi16(
                order, _mm512_maskz_loadu_epi32(there, c->tile[i] + p * 2 * COLUMN_BYTES));
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            UNROLL
            for (uint32_t i = 0; i < tiles; i++)
                acc[t][i] = bf16_add(acc[t][i], w[i], c->x[t * c->x_stride + p]);
        }
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t i = 0; i < tiles; i++)
            vec_store(c->y + t * c->y_stride + i * TILE_ROWS, acc[t][i]);
    }
}

/* clang-format off */
#define BF16_KERNEL(tokens, tiles)                                                      \
    static void bf16_##tokens##x##tiles(const struct bf16_call *c)                      \
    {                                                                                   \
        bf16_multiply(c, tokens, tiles);                                                \
    }
#define BF16_EACH(tiles)                                                                \
    BF16_KERNEL(1, tiles) BF16_KERNEL(2, tiles) BF16_KERNEL(3, tiles) BF16_KERNEL(4, tiles)   \
    BF16_KERNEL(5, tiles) BF16_KERNEL(6, tiles) BF16_KERNEL(7, tiles) BF16_KERNEL(8, tiles)   \
    BF16_KERNEL(9, tiles) BF16_KERNEL(10, tiles) BF16_KERNEL(11, tiles) BF16_KERNEL(12, tiles)
#define BF16_ROW(tiles)                                                                 \
    { bf16_1x##tiles, bf16_2x##tiles, bf16_3x##tiles, bf16_4x##tiles, bf16_5x##tiles, bf16_6x##tiles, \
      bf16_7x##tiles, bf16_8x##tiles, bf16_9x##tiles, bf16_10x##tiles, bf16_11x##tiles, bf16_12x##tiles }

BF16_EACH(1)
BF16_EACH(2)

static const bf16_fn bf16_kernels[BF16_TILES][BF16_TOKENS] = { BF16_ROW(1), BF16_ROW(2) };
/* clang-format on */

/* Rounds a row to pairs, to nearest, ties to even; what an odd column lacks is 0. */
static void bf16_round(const float *x, uint32_t cols, uint32_t *ret)
{
    for (uint32_t k = 0; k < cols; k += VEC_LANES) {
        uint32_t left = min_u32(VEC_LANES, cols - k);
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), x + k);
        _mm256_mask_storeu_epi32(ret + k / 2, (__mmask8)((1u << ceil_div_u32(left, 2)) - 1),
                                 (__m256i)_mm512_cvtneps_pbh(v));
    }
}

/* Multiplies tokens whose part of x is rounded by the tiles of the call. */
static void bf16_tiles(const struct gemm *g, struct bf16_call *c, uint32_t token, uint32_t tokens,
                       uint32_t k, uint32_t tile_first, uint32_t tile_count)
{
    const uint32_t *x = c->x;
    const size_t tile_bytes = weight_tile_bytes(g->w);
    for (uint32_t i = 0; i < tile_count; i += BF16_TILES) {
        uint32_t tiles = min_u32(BF16_TILES, tile_count - i),
                 groups = ceil_div_u32(tokens, BF16_TOKENS);
        for (uint32_t j = 0; j < tiles; j++)
            c->tile[j] = g->w->tiles + (tile_first + i + j) * tile_bytes + k * COLUMN_BYTES;
        for (uint32_t t = 0; groups > 0; groups--) {
            uint32_t rows = (tokens - t) / groups;
            c->x = x + t * c->x_stride;
            c->y = g->y + (token + t) * g->y_stride + (size_t)(tile_first + i) * TILE_ROWS;
            bf16_kernels[tiles - 1][rows - 1](c);
            t += rows;
        }
    }
    c->x = x;
}

void bf16_gemm_avx512(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    const uint32_t cols = g->w->cols;
    for (uint32_t token = 0; token < g->tokens; token += BF16_AT_ONCE) {
        uint32_t tokens = min_u32(BF16_AT_ONCE, g->tokens - token);
        uint32_t part = BF16_VALUES / tokens / BF16_STEP * BF16_STEP;
        for (uint32_t k = 0; k < cols; k += part) {
            struct bf16_call c = { .x = scratch,
                                   .x_stride = part / 2,
                                   .y_stride = g->y_stride,
                                   .cols = min_u32(part, cols - k),
                                   .accumulate = g->accumulate || k > 0 };
            for (uint32_t t = 0; t < tokens; t++)
                bf16_round(g->x + (token + t) * g->x_stride + k, c.cols,
                           (uint32_t *)scratch + t * c.x_stride);
            bf16_tiles(g, &c, token, tokens, k, tile_first, tile_count);
        }
    }
}
