/* dot.c - sums products of int8 in registers of 256 bits, 8 rows of a tile.
 *
 * A piece of four k of eight rows is one register; the four int8 of x for these k are broadcast to all
 * rows, vpmaddubsw multiplies unsigned weights by them and adds pairs. Pairs are summed as int16 as long
 * as they cannot overflow (4 bits: 8 x 2 x 15 x 127 = 30,480; 6 bits: 2 x 2 x 63 x 127 = 32,004), then
 * as int32, then each block's sum is scaled into one float accumulator an output, block after block:
 * the bits of an output depend on neither tokens nor tiles. The offsets that weights are stored with
 * (8, 32, or a min) come off by the sums of x.
 *
 * Up to DOT_TOKENS tokens share the unpacking of a block. x is rounded anew in each call, at a cost of
 * a few rows of a tile. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx2.h"
#include "engine/kernels/cpu/dot.h"

#include "engine/kernels/cpu/simd.h"
#include "engine/kernels/q8.h"

#define DOT_TOKENS 4
#define DOT_ROWS 8 /* of one register */

/* Rounded rows of x, `stride` blocks apart, and the outputs of one tile. */
struct dot_call {
    const char *tile;
    struct q8_row x;
    uint32_t stride;
    uint32_t blocks; /* of QUANT_BLOCK */
    float *y;
    size_t y_stride;
    bool accumulate;
};

typedef void (*dot_fn)(const struct dot_call *c);
typedef __m256 dot_sums[DOT_TOKENS][TILE_ROWS / DOT_ROWS];

ALWAYS_INLINE __m256i dot_load(const char *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

ALWAYS_INLINE __m256 dot_halves(const char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
}

/* Broadcasts the four int8 of token t for k .. k + 3. */
ALWAYS_INLINE __m256i dot_x(const struct dot_call *c, uint32_t t, size_t k)
{
    return _mm256_set1_epi32((int32_t)load_u32(c->x.q + (size_t)t * c->stride * QUANT_BLOCK + k));
}

ALWAYS_INLINE size_t dot_at(const struct dot_call *c, uint32_t t, size_t block)
{
    return (size_t)t * c->stride + block;
}

ALWAYS_INLINE __m256i dot_low(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i dot_high(__m256i v)
{
    return dot_low(_mm256_srli_epi16(v, 4));
}

ALWAYS_INLINE __m256i dot_bits(__m256i v, uint32_t shift, char mask)
{
    return _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128((int)shift)),
                            _mm256_set1_epi8(mask));
}

/* acc += sum * scale * x.scale, the sum an integer */
ALWAYS_INLINE __m256 dot_scaled(__m256 acc, __m256i sum, __m256 scale, float x_scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                           acc);
}

ALWAYS_INLINE void dot_q4_0(const struct dot_call *c, dot_sums acc, uint32_t h, size_t block,
                            uint32_t tokens)
{
    const char *at = c->tile + block * TILE_ROWS * 18;
    __m256i sum[DOT_TOKENS];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        sum[t] = _mm256_setzero_si256();
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        __m256i w = dot_load(at + TILE_ROWS * 2 + ((size_t)j * TILE_ROWS + h * DOT_ROWS) * 4);
        __m256i low = dot_low(w), high = dot_high(w);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            size_t k = block * QUANT_BLOCK + (size_t)j * 4;
            sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(low, dot_x(c, t, k)));
            sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(high, dot_x(c, t, k + 16)));
        }
    }
    __m256 d = dot_halves(at + (size_t)h * DOT_ROWS * 2);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        __m256i whole = _mm256_madd_epi16(sum[t], _mm256_set1_epi16(1));
        /* Of activations that are not finite the sum is any number: the product may wrap. */
        uint32_t eights = 8 * (uint32_t)c->x.sum[dot_at(c, t, block)];
        whole = _mm256_sub_epi32(whole, _mm256_set1_epi32((int)eights));
        acc[t][h] = dot_scaled(acc[t][h], whole, d, c->x.scale[dot_at(c, t, block)]);
    }
}

/* Reads byte `i` of the packed scales of eight rows. */
ALWAYS_INLINE __m256i dot_bytes(const char *scales, uint32_t i, uint32_t h)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(
        (const __m128i_u *)(scales + (size_t)i * TILE_ROWS + (size_t)h * DOT_ROWS)));
}

/* Reads scale and min of sub-block s, six bits each (dequantise.c, k_scale_min). */
ALWAYS_INLINE void dot_scale_min(const char *scales, uint32_t s, uint32_t h, __m256 *ret_scale,
                                 __m256 *ret_min)
{
    __m256i scale = dot_bytes(scales, s % 4, h), min = dot_bytes(scales, 4 + s % 4, h);
    if (s < 4) {
        scale = _mm256_and_si256(scale, _mm256_set1_epi32(63));
        min = _mm256_and_si256(min, _mm256_set1_epi32(63));
    } else {
        __m256i rest = dot_bytes(scales, 8 + s % 4, h), top = _mm256_set1_epi32(0x30);
        scale = _mm256_or_si256(_mm256_and_si256(rest, _mm256_set1_epi32(15)),
                                _mm256_and_si256(_mm256_srli_epi32(scale, 2), top));
        min = _mm256_or_si256(_mm256_srli_epi32(rest, 4),
                              _mm256_and_si256(_mm256_srli_epi32(min, 2), top));
    }
    *ret_scale = _mm256_cvtepi32_ps(scale);
    *ret_min = _mm256_cvtepi32_ps(min);
}

ALWAYS_INLINE void dot_q4_k(const struct dot_call *c, dot_sums acc, uint32_t h, size_t block,
                            uint32_t tokens)
{
    const char *at = c->tile + block * TILE_ROWS * 144;
    const char *scales = at + TILE_ROWS * 4, *quants = at + TILE_ROWS * 16;
    __m256 d = dot_halves(at + (size_t)h * DOT_ROWS * 2);
    __m256 m = dot_halves(at + TILE_ROWS * 2 + (size_t)h * DOT_ROWS * 2);
    for (uint32_t chunk = 0; chunk < 4; chunk++) { /* of 64: a sub-block in either nibble */
        __m256i sum[2][DOT_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[0][t] = sum[1][t] = _mm256_setzero_si256();
        UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            __m256i w = dot_load(quants + ((size_t)(chunk * 8 + j) * TILE_ROWS + h * DOT_ROWS) * 4);
            __m256i low = dot_low(w), high = dot_high(w);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                size_t k = block * QUANT_SUPER + (size_t)chunk * 64 + (size_t)j * 4;
                sum[0][t] = _mm256_add_epi16(sum[0][t], _mm256_maddubs_epi16(low, dot_x(c, t, k)));
                sum[1][t] =
                    _mm256_add_epi16(sum[1][t], _mm256_maddubs_epi16(high, dot_x(c, t, k + 32)));
            }
        }
        UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            __m256 scale, min;
            dot_scale_min(scales, chunk * 2 + i, h, &scale, &min);
            scale = _mm256_mul_ps(d, scale), min = _mm256_mul_ps(m, min);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                size_t x = dot_at(c, t, block * 8 + chunk * 2 + i);
                __m256i whole = _mm256_madd_epi16(sum[i][t], _mm256_set1_epi16(1));
                __m256 off = _mm256_set1_ps(c->x.scale[x] * (float)c->x.sum[x]);
                acc[t][h] = dot_scaled(acc[t][h], whole, scale, c->x.scale[x]);
                acc[t][h] = _mm256_fnmadd_ps(min, off, acc[t][h]);
            }
        }
    }
}

ALWAYS_INLINE __m256i dot_signed_bytes(const char *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
}

/* Joins two int32 that fit int16 as the two int16 of each lane. */
ALWAYS_INLINE __m256i dot_join(__m256i low, __m256i high)
{
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

/* Adds a half of a block of 32 (16 k) of Q6_K, scaled: sum += scale * (w x). */
ALWAYS_INLINE void dot_q6_half(const struct dot_call *c, const char *low, const char *high,
                               uint32_t quarter, size_t k, __m256i scale, __m256i *sum,
                               uint32_t tokens)
{
    UNROLL
    for (uint32_t j = 0; j < 4; j += 2) { /* two pieces: as many as int16 holds */
        __m256i w[2];
        UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            size_t piece = (size_t)(j + i) * TILE_ROWS * 4;
            __m256i top = dot_bits(dot_load(high + piece), quarter * 2, 3);
            w[i] = dot_bits(dot_load(low + piece), quarter / 2 * 4, 15);
            w[i] = _mm256_or_si256(w[i], _mm256_slli_epi16(top, 4));
        }
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            __m256i pairs =
                _mm256_add_epi16(_mm256_maddubs_epi16(w[0], dot_x(c, t, k + (size_t)j * 4)),
                                 _mm256_maddubs_epi16(w[1], dot_x(c, t, k + (size_t)j * 4 + 4)));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs, scale));
        }
    }
}

ALWAYS_INLINE void dot_q6_k(const struct dot_call *c, dot_sums acc, uint32_t h, size_t block,
                            uint32_t tokens)
{
    const char *at = c->tile + block * TILE_ROWS * 210, *scales = at + TILE_ROWS * 192;
    __m256 d = dot_halves(at + TILE_ROWS * 208 + (size_t)h * DOT_ROWS * 2);
    for (uint32_t b = 0; b < 8; b++) { /* blocks of 32 */
        uint32_t quarter = b % 4;
        size_t low = (size_t)(b / 4) * 16 + quarter % 2 * 8, high = 32 + (size_t)(b / 4) * 8;
        const char *rows = at + (size_t)h * DOT_ROWS * 4;
        __m256i sum[DOT_TOKENS], scale[2];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t] = _mm256_setzero_si256();
        UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            scale[i] = dot_signed_bytes(scales + ((size_t)b * 2 + i) * TILE_ROWS + h * DOT_ROWS);
            size_t piece = (size_t)i * 4;
            dot_q6_half(c, rows + (low + piece) * TILE_ROWS * 4,
                        rows + (high + piece) * TILE_ROWS * 4, quarter,
                        block * QUANT_SUPER + (size_t)b * 32 + (size_t)i * 16,
                        dot_join(scale[i], scale[i]), sum, tokens);
        }
        __m256i scales_of_both = dot_join(scale[0], scale[1]);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            size_t x = dot_at(c, t, block * 8 + b);
            __m256i off = _mm256_madd_epi16(scales_of_both, _mm256_set1_epi32(c->x.pair[x]));
            sum[t] = _mm256_sub_epi32(sum[t], _mm256_slli_epi32(off, 5));
            acc[t][h] = dot_scaled(acc[t][h], sum[t], d, c->x.scale[x]);
        }
    }
}

typedef void (*dot_block_fn)(const struct dot_call *c, dot_sums acc, uint32_t h, size_t block,
                             uint32_t tokens);

/* `block`, `tokens` and `elements` are constants in every caller. */
ALWAYS_INLINE void dot_tile(const struct dot_call *c, dot_block_fn block, uint32_t elements,
                            uint32_t tokens)
{
    dot_sums acc;
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t h = 0; h < 2; h++)
            acc[t][h] = c->accumulate
                            ? _mm256_loadu_ps(c->y + t * c->y_stride + (size_t)h * DOT_ROWS)
                            : _mm256_setzero_ps();
    }
    for (size_t b = 0; b < c->blocks * QUANT_BLOCK / elements; b++) {
        block(c, acc, 0, b, tokens);
        block(c, acc, 1, b, tokens);
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        UNROLL
        for (uint32_t h = 0; h < 2; h++)
            _mm256_storeu_ps(c->y + t * c->y_stride + (size_t)h * DOT_ROWS, acc[t][h]);
    }
}

/* clang-format off */
#define DOT_KERNEL(name, elements, tokens)                                              \
    static void name##_##tokens(const struct dot_call *c)                               \
    {                                                                                   \
        dot_tile(c, name, elements, tokens);                                            \
    }
#define DOT_KERNELS(name, elements)                                                     \
    DOT_KERNEL(name, elements, 1) DOT_KERNEL(name, elements, 2)                         \
    DOT_KERNEL(name, elements, 3) DOT_KERNEL(name, elements, 4)

DOT_KERNELS(dot_q4_0, QUANT_BLOCK)
DOT_KERNELS(dot_q4_k, QUANT_SUPER)
DOT_KERNELS(dot_q6_k, QUANT_SUPER)

static const dot_fn dot_kernels[WEIGHT_TYPE_COUNT][DOT_TOKENS] = {
    [WEIGHT_Q4_0] = { dot_q4_0_1, dot_q4_0_2, dot_q4_0_3, dot_q4_0_4 },
    [WEIGHT_Q4_K] = { dot_q4_k_1, dot_q4_k_2, dot_q4_k_3, dot_q4_k_4 },
    [WEIGHT_Q6_K] = { dot_q6_k_1, dot_q6_k_2, dot_q6_k_3, dot_q6_k_4 },
};
/* clang-format on */

/* Returns the sum of eight int32. */
ALWAYS_INLINE int32_t dot_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* q8_round, with the same bits. */
static void dot_round(const float *x, uint32_t cols, const struct q8_row *ret)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (uint32_t b = 0; b < cols / QUANT_BLOCK; b++, x += QUANT_BLOCK) {
        __m256 v[4], top = _mm256_setzero_ps(), nan = top;
        __m256i q[4];
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + (size_t)i * 8);
            top = _mm256_max_ps(top, _mm256_and_ps(v[i], magnitude));
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
        }
        __m128 half = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
        half = _mm_max_ps(half, _mm_movehl_ps(half, half));
        float most = _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
        if (_mm256_movemask_ps(nan)) most = __builtin_nanf("");
        float inverse = most >= Q8_TINY ? 127 / most : 0;
        UNROLL
        for (uint32_t i = 0; i < 4; i++)
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
        int32_t low = dot_lanes(_mm256_add_epi32(q[0], q[1]));
        int32_t high = dot_lanes(_mm256_add_epi32(q[2], q[3]));
        __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256((__m256i_u *)(ret->q + (size_t)b * QUANT_BLOCK),
                            _mm256_permutevar8x32_epi32(bytes, order));
        ret->scale[b] = most < Q8_TINY ? 0 : most / 127;
        ret->sum[b] = (int32_t)((uint32_t)low + (uint32_t)high);
        ret->pair[b] = (int32_t)(((uint32_t)high << 16) | ((uint32_t)low & 0xffffu));
    }
}

#define DOT_BLOCK_BYTES (QUANT_BLOCK + sizeof(float) + 2 * sizeof(int32_t)) /* of a rounded row */

_Static_assert(OP_COLS_MAX / QUANT_BLOCK * DOT_BLOCK_BYTES <= OP_SCRATCH_BYTES, "a row fits");

/* Rounds as many tokens as the scratch holds, and multiplies them by all the tiles. */
void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    const struct weight *w = g->w;
    size_t tile_bytes = weight_tile_bytes(w);
    uint32_t blocks = w->cols / QUANT_BLOCK;
    uint32_t at_once = min_u32(g->tokens, (uint32_t)(OP_SCRATCH_BYTES / DOT_BLOCK_BYTES) / blocks);
    struct dot_call c = {
        .stride = blocks, .blocks = blocks, .y_stride = g->y_stride, .accumulate = g->accumulate
    };
    size_t room = (size_t)at_once * blocks;
    struct q8_row all = { .scale = scratch };
    all.sum = (int32_t *)(void *)(all.scale + room);
    all.pair = all.sum + room;
    all.q = (int8_t *)(all.pair + room);
    for (uint32_t first = 0; first < g->tokens; first += at_once) {
        uint32_t tokens = min_u32(at_once, g->tokens - first);
        for (uint32_t t = 0; t < tokens; t++) {
            size_t at = (size_t)t * blocks;
            const struct q8_row row = { all.q + at * QUANT_BLOCK, all.scale + at, all.sum + at,
                                        all.pair + at };
            dot_round(g->x + (first + t) * g->x_stride, w->cols, &row);
        }
        for (uint32_t i = 0; i < tile_count; i++) {
            c.tile = w->tiles + (tile_first + i) * tile_bytes;
            for (uint32_t t = 0; t < tokens; t += DOT_TOKENS) {
                size_t at = (size_t)t * blocks;
                c.x = (struct q8_row){ all.q + at * QUANT_BLOCK, all.scale + at, all.sum + at,
                                       all.pair + at };
                c.y = g->y + (first + t) * g->y_stride + (size_t)(tile_first + i) * TILE_ROWS;
                dot_kernels[w->type][min_u32(DOT_TOKENS, tokens - t) - 1](&c);
            }
        }
    }
}
