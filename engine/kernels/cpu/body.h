/* body.h - the operations of op.h over the vector of a simd_*.h; included once by each ops_*.c.
 *
 * Layer: engine/kernels. The including file names its simd_*.h in SIMD_HEADER.
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
 * Weights are unpacked in registers; Q8_0 and BF16 for many tokens (prefill) go through a panel
 * of F32 that is unpacked once for all of them and stays in cache. d * q is exact in F32 (11 + 8
 * bits), so both ways multiply the same weight. Rejected: summing d * (sum of q x) a block of
 * 32: decode of one sequence gains a fifth, prefill and larger batches lose a tenth.
 *
 * Compiled with -ffp-contract=off: a multiply-add is fused where it says vec_fma, nowhere else.
 */
#include "engine/kernels/op.h"
#include SIMD_HEADER

#include <float.h>
#include <math.h>

#define VECS (TILE_ROWS / VEC_LANES) /* vectors in a tile */
#define SPAN 64                      /* keys of one step of the softmax */
#define PANEL_COLS 256 /* k of an unpacked panel: 32 rows x 256 x 4 bytes stay in L1 and L2 */

/* Up to so many tokens unpacking in registers, once a block, is cheaper than a panel. */
#define PANEL_TOKENS (2 * BLOCK_TOKENS)

_Static_assert(TILE_ROWS == KV_BLOCK, "a block of keys is shaped like a tile of weights");
_Static_assert(PANEL_COLS % Q8_BLOCK == 0, "a panel ends at a block");
_Static_assert(BLOCK_TOKENS <= ATTEND_ROWS_MAX, "attention's rows fit its scratch");

#ifdef __clang__
#    define UNROLL _Pragma("unroll")
#else
#    define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

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

/* ---- the kernel */

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

/* Elements lie [k][16]: F32, F16, BF16. */
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

#define Q8_SCALE_BYTES (TILE_ROWS * 2)
#define Q8_TILE_BYTES (Q8_SCALE_BYTES + Q8_BLOCK * TILE_ROWS)

ALWAYS_INLINE void fma_q8(const struct fma_call *c, uint32_t tokens, uint32_t tiles)
{
    accumulators acc;
    sums_load(acc, c, tokens, tiles);
    for (size_t b = 0; b < c->k_count / Q8_BLOCK; b++) {
        size_t at = b * Q8_TILE_BYTES;
        vec scale[WIDE_TILES * VECS];
        UNROLL
        for (uint32_t i = 0; i < tiles * VECS; i++)
            scale[i] = vec_load_f16(c->panel[i / VECS] + at + i % VECS * VEC_LANES * 2);
        for (size_t k = 0; k < Q8_BLOCK; k++) {
            size_t quants = at + Q8_SCALE_BYTES + k * TILE_ROWS;
            vec weight[WIDE_TILES * VECS];
            UNROLL
            for (uint32_t i = 0; i < tiles * VECS; i++)
                weight[i] = vec_mul(
                    scale[i], vec_load_i8(c->panel[i / VECS] + quants + i % VECS * VEC_LANES));
            sums_add(acc, c, weight, b * Q8_BLOCK + k, tokens, tiles);
        }
    }
    sums_store(acc, c, tokens, tiles);
}

ALWAYS_INLINE vec load_f32(const char *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
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
#define FMA_Q8(tokens, tiles)                                                           \
    static void q8_##tokens##x##tiles(const struct fma_call *c)                         \
    {                                                                                   \
        fma_q8(c, tokens, tiles);                                                       \
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
EACH_BLOCK(FMA_Q8)
/* clang-format on */

/* Writes k [0, cols) of a tile as F32 [k][16]. */
static void unpack_bf16(const char *tile, uint32_t cols, float *ret)
{
    for (size_t i = 0; i < (size_t)cols * TILE_ROWS; i += VEC_LANES)
        vec_store(ret + i, vec_load_bf16(tile + i * 2));
}

static void unpack_q8(const char *tile, uint32_t cols, float *ret)
{
    for (uint32_t b = 0; b < cols / Q8_BLOCK; b++, tile += Q8_TILE_BYTES) {
        for (uint32_t i = 0; i < TILE_ROWS; i += VEC_LANES) {
            vec scale = vec_load_f16(tile + (size_t)i * 2);
            const char *quants = tile + Q8_SCALE_BYTES + i;
            float *to = ret + (size_t)b * Q8_BLOCK * TILE_ROWS + i;
            for (size_t k = 0; k < Q8_BLOCK * TILE_ROWS; k += TILE_ROWS)
                vec_store(to + k, vec_mul(scale, vec_load_i8(quants + k)));
        }
    }
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
    [WEIGHT_Q8_0] = { BLOCK_ROWS(q8),   unpack_q8 },
};
/* clang-format on */

/* `c` for any number of tiles, tile i at first + i * tile_bytes; as many at once as there are
 * kernels for that number of rows. */
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

/* All tokens, `tiles` (<= BLOCK_TILES) tiles, k in [k_first, k_first + k_count). */
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

/* ---- element by element */

static float lanes_sum(vec v)
{
    float lane[VEC_LANES];
    vec_store(lane, v);
    for (uint32_t half = VEC_LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static float lanes_max(vec v)
{
    float lane[VEC_LANES];
    vec_store(lane, v);
    for (uint32_t half = VEC_LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

static void simd_rms_norm(const float *x, const float *w, float eps, uint32_t n, float *y)
{
    vec squares = vec_zero(), more = vec_zero();
    uint32_t i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        vec a = vec_load(x + i), b = vec_load(x + i + VEC_LANES);
        squares = vec_fma(a, a, squares);
        more = vec_fma(b, b, more);
    }
    float sum = lanes_sum(vec_add(squares, more));
    for (; i < n; i++)
        sum += x[i] * x[i];
    float factor = 1 / sqrtf(sum / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = x[i] * factor * w[i];
}

static void simd_rope(float *x, uint32_t heads, uint32_t head_dim, const float *cos,
                      const float *sin, uint32_t pairs)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < pairs; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cos[i] - b * sin[i];
            x[2 * i + 1] = a * sin[i] + b * cos[i];
        }
    }
}

#define EXP_MIN (-87.0f) /* e^-87 is the last that is not subnormal, whole part included */
#define EXP_MAX 88.0f
#define LN2_HI 0x1.62e430p-1f
#define LN2_LO ((float)(0x1.62e42fefa39efp-1 - (double)LN2_HI))

/* e^x, x held within EXP_MIN .. EXP_MAX: 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2, and
 * e^r by its Taylor series to r^7, whose remainder (< 6e-9) is below half a step of F32. */
ALWAYS_INLINE vec vec_exp(vec x)
{
    x = vec_min(vec_max(x, vec_set1(EXP_MIN)), vec_set1(EXP_MAX));
    vec n = vec_round(vec_mul(x, vec_set1(0x1.715476p+0f)));
    vec r = vec_fma(n, vec_set1(-LN2_HI), x);
    r = vec_fma(n, vec_set1(-LN2_LO), r);
    vec e = vec_set1(1.0f / 5040);
    e = vec_fma(e, r, vec_set1(1.0f / 720));
    e = vec_fma(e, r, vec_set1(1.0f / 120));
    e = vec_fma(e, r, vec_set1(1.0f / 24));
    e = vec_fma(e, r, vec_set1(1.0f / 6));
    e = vec_fma(e, r, vec_set1(0.5f));
    e = vec_fma(e, r, vec_set1(1.0f));
    e = vec_fma(e, r, vec_set1(1.0f));
    return vec_mul(e, vec_exp2_whole(n));
}

static void simd_silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec g = vec_load(gate + i);
        vec e = vec_exp(vec_sub(vec_zero(), g));
        vec silu = vec_div(g, vec_add(vec_set1(1.0f), e));
        vec_store(gate + i, vec_mul(silu, vec_load(up + i)));
    }
}

/* ---- attention */

static void simd_kv_put(const struct kv_layout *layout, const float *k, const float *v,
                        uint32_t lane, char *k_block, char *v_block)
{
    size_t bytes = kv_element_bytes(layout->type);
    for (uint32_t d = 0; d < layout->head_dim; d += TILE_ROWS) {
        char k_tile[TILE_ROWS * sizeof(float)];
        char *v_tile = v_block + (size_t)(d + lane) * TILE_ROWS * bytes;
        for (uint32_t i = 0; i < TILE_ROWS; i += VEC_LANES) {
            if (layout->type == KV_F16) {
                vec_store_f16(k_tile + i * bytes, vec_load(k + d + i));
                vec_store_f16(v_tile + i * bytes, vec_load(v + d + i));
            } else {
                memcpy(k_tile + i * bytes, k + d + i, VEC_LANES * bytes);
                memcpy(v_tile + i * bytes, v + d + i, VEC_LANES * bytes);
            }
        }
        for (uint32_t i = 0; i < TILE_ROWS; i++)
            memcpy(k_block + ((size_t)(d + i) * KV_BLOCK + lane) * bytes, k_tile + i * bytes,
                   bytes);
    }
}

#define HEAD_STRIDE (KV_HEAD_DIM_MAX + TILE_ROWS)

/* Of each row: the query, scores and then weights of a span, the sum of weighted V, and for the
 * running softmax the largest score and the sum of weights, a lane for each position % lanes. */
struct attend_scratch {
    float q[ATTEND_ROWS_MAX][HEAD_STRIDE];
    float p[ATTEND_ROWS_MAX][SPAN + TILE_ROWS];
    float o[ATTEND_ROWS_MAX][HEAD_STRIDE];
    float weights[ATTEND_ROWS_MAX][VEC_LANES];
    float top[ATTEND_ROWS_MAX];
    uint32_t seen[ATTEND_ROWS_MAX]; /* positions of the span that the row sees, 0 .. SPAN */
};
_Static_assert(sizeof(struct attend_scratch) <= OP_SCRATCH_BYTES, "fits");
_Static_assert(sizeof(float) * PANEL_COLS * TILE_ROWS * BLOCK_TILES <= OP_SCRATCH_BYTES, "fits");

static const struct fma_source *kv_source(const struct kv_layout *l)
{
    return &fma_sources[l->type == KV_F16 ? WEIGHT_F16 : WEIGHT_F32];
}

static const char *block_of(const struct attend *a, uint32_t block)
{
    return kv_block_at(a->layout, a->head, a->page_bytes, a->page_table, block);
}

/* p = q K of the blocks of the span that any row sees. Keys that a row does not see, and lanes
 * that nobody has written yet, give scores that span_softmax drops. */
static void span_scores(const struct attend *a, struct attend_scratch *s, uint32_t start,
                        uint32_t blocks)
{
    size_t block_bytes = kv_block_bytes(a->layout);
    uint32_t run;
    for (uint32_t b = 0; b < blocks; b += run) {
        const char *k = block_of(a, start / KV_BLOCK + b);
        /* Blocks that follow each other in memory go through the kernel together. */
        for (run = 1; b + run < blocks; run++)
            if (block_of(a, start / KV_BLOCK + b + run) != k + run * block_bytes) break;
        struct fma_call c = {
            .x = s->q[0],
            .x_stride = HEAD_STRIDE,
            .y = s->p[0] + (size_t)b * KV_BLOCK,
            .y_stride = SPAN + TILE_ROWS,
            .k_count = a->layout->head_dim,
        };
        fma_tiles(kv_source(a->layout), &c, a->row_count, k, block_bytes, run);
    }
}

/* Turns row r's scores into weights relative to the new largest score, and brings what was
 * summed before to that scale. */
static void span_softmax(const struct attend *a, struct attend_scratch *s, uint32_t r)
{
    float *p = s->p[r];
    for (uint32_t i = s->seen[r]; i < SPAN; i++)
        p[i] = -FLT_MAX;
    vec top = vec_load(p);
    for (uint32_t i = VEC_LANES; i < SPAN; i += VEC_LANES)
        top = vec_max(top, vec_load(p + i));
    float highest = lanes_max(top);
    vec new_top = vec_max(vec_set1(highest), vec_set1(s->top[r]));
    vec shrink = vec_exp(vec_sub(vec_set1(s->top[r]), new_top));

    vec weights = vec_mul(vec_load(s->weights[r]), shrink);
    for (uint32_t i = 0; i < SPAN; i += VEC_LANES) {
        vec x = vec_sub(vec_load(p + i), new_top);
        vec weight = vec_keep_ge(vec_exp(x), x, vec_set1(EXP_MIN));
        weights = vec_add(weights, weight);
        vec_store(p + i, weight);
    }
    vec_store(s->weights[r], weights);
    s->top[r] = highest > s->top[r] ? highest : s->top[r];
    for (uint32_t d = 0; d < a->layout->head_dim; d += VEC_LANES)
        vec_store(s->o[r] + d, vec_mul(vec_load(s->o[r] + d), shrink));
}

/* o += p V for one block. Only seen keys are touched: weight 0 times what an unwritten lane
 * holds would not be 0 if that were NaN. */
static void block_values(const struct attend *a, struct attend_scratch *s, const char *v,
                         uint32_t in_span)
{
    const struct kv_layout *l = a->layout;
    size_t tile_bytes = KV_BLOCK * TILE_ROWS * kv_element_bytes(l->type);
    bool all_seen = true;
    for (uint32_t r = 0; r < a->row_count; r++)
        all_seen &= s->seen[r] >= in_span + KV_BLOCK;
    uint32_t step = all_seen ? a->row_count : 1;
    for (uint32_t r = 0; r < a->row_count; r += step) {
        if (s->seen[r] <= in_span) continue;
        struct fma_call c = {
            .x = s->p[r] + in_span,
            .x_stride = SPAN + TILE_ROWS,
            .y = s->o[r],
            .y_stride = HEAD_STRIDE,
            .k_count = min_u32(s->seen[r] - in_span, KV_BLOCK),
            .accumulate = true,
        };
        fma_tiles(kv_source(l), &c, step, v, tile_bytes, l->head_dim / TILE_ROWS);
    }
}

/* The queries, scaled, and empty sums. */
static void attend_begin(const struct attend *a, struct attend_scratch *s)
{
    uint32_t head_dim = a->layout->head_dim;
    for (uint32_t i = 0; i < a->row_count; i++) {
        uint32_t r = a->row_first + i;
        const float *q = a->q + r / a->group * a->q_stride + (size_t)(r % a->group) * head_dim;
        for (uint32_t d = 0; d < head_dim; d++)
            s->q[i][d] = q[d] * a->scale;
        memset(s->o[i], 0, head_dim * sizeof(float));
        memset(s->weights[i], 0, sizeof s->weights[i]);
        s->top[i] = -FLT_MAX;
    }
}

static void attend_end(const struct attend *a, struct attend_scratch *s)
{
    uint32_t head_dim = a->layout->head_dim;
    for (uint32_t i = 0; i < a->row_count; i++) {
        uint32_t r = a->row_first + i;
        float *out = a->out + r / a->group * a->out_stride + (size_t)(r % a->group) * head_dim;
        float factor = 1 / lanes_sum(vec_load(s->weights[i]));
        for (uint32_t d = 0; d < head_dim; d++)
            out[d] = s->o[i][d] * factor;
    }
}

static void simd_attend(const struct attend *a, void *scratch)
{
    struct attend_scratch *s = scratch;
    attend_begin(a, s);
    uint32_t end = a->position + (a->row_first + a->row_count - 1) / a->group + 1;
    for (uint32_t start = 0; start < end; start += SPAN) {
        uint32_t blocks = ceil_div_u32(min_u32(end - start, SPAN), KV_BLOCK);
        span_scores(a, s, start, blocks);
        for (uint32_t i = 0; i < a->row_count; i++) {
            uint32_t sees = a->position + (a->row_first + i) / a->group + 1;
            s->seen[i] = sees > start ? min_u32(sees - start, SPAN) : 0;
            if (s->seen[i] > 0) span_softmax(a, s, i);
        }
        for (uint32_t b = 0; b < blocks; b++) {
            const char *k = block_of(a, start / KV_BLOCK + b);
            block_values(a, s, k + kv_half_bytes(a->layout), b * KV_BLOCK);
        }
    }
    attend_end(a, s);
}
