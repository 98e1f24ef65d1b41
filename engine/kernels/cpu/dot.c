/* dot.c - multiplies panels of bytes by activations of int8, in registers of 256 bits.
 *
 * A register holds four k of eight rows (dot_unpack.h); the four int8 of x for these k are broadcast to all
 * rows, vpmaddubsw multiplies unsigned weights by them and adds pairs. Pairs are summed as int16 as far as
 * the kind of panel allows, then as int32, then each sub-block's sum is scaled into one float accumulator an
 * output, in ascending order of k. Integer sums are exact, so the bits of an output depend on neither tokens
 * nor tiles nor how a kernel groups the integers. Signed weights lend their sign to x.
 *
 * A panel stays in the first cache, and all tokens of the call use it. For one token that costs a trip through the
 * cache which unpacking in registers would save. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx2.h"
#include "engine/kernels/cpu/dot.h"

#include "engine/kernels/cpu/dot_unpack.h"
#include "engine/kernels/cpu/simd.h"

#define DOT_TOKENS 4 /* of a kernel: with 4 accumulators and 8 sums, 15 of 16 registers */

/* Tiles that go through one part of x before the next part: their outputs and that part stay in the second
 * cache (256 tokens: 256 and 96 KiB). */
#define DOT_TILES 16
#define DOT_STREAM_TOKENS 8 /* up to here reading weights in order matters more */

_Static_assert(sizeof(struct dot_panel) <= OP_SCRATCH_BYTES, "a panel fits");

/* Some tokens times one panel. */
struct dot_call {
    const struct dot_panel *panel;
    uint32_t blocks; /* of QUANT_BLOCK */
    const char *x;   /* struct q8_super of the first token */
    size_t x_stride;
    float *y;
    size_t y_stride;
    bool accumulate;
};

typedef void (*dot_fn)(const struct dot_call *c);

ALWAYS_INLINE const struct q8_super *dot_row(const struct dot_call *c, uint32_t t)
{
    return (const struct q8_super *)(const void *)(c->x + t * c->x_stride);
}

/* Broadcasts the four int8 of token t for k .. k + 3. */
ALWAYS_INLINE __m256i dot_x(const struct dot_call *c, uint32_t t, size_t k)
{
    return _mm256_set1_epi32((int32_t)load_u32(dot_row(c, t)->q + k));
}

/* Adds pairs of int16. */
ALWAYS_INLINE __m256i dot_pairs(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

/* acc += sum * scale * x_scale, the sum an integer */
ALWAYS_INLINE __m256 dot_scaled(__m256 acc, __m256i sum, __m256 scale, float x_scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale)),
                           acc);
}

/* Sums `pieces` registers of sub-block `s` from column k on, `chain` at a time in int16. */
ALWAYS_INLINE void dot_sub_block(const struct dot_call *c, const struct dot_half *w, size_t k,
                                 uint32_t pieces, uint32_t chain, __m256i *sum, uint32_t tokens)
{
    UNROLL
    for (uint32_t first = 0; first < pieces; first += chain) {
        __m256i part[DOT_TOKENS];
        UNROLL
        for (uint32_t j = first; j < first + chain; j++) {
            __m256i q = w->q[k / 4 + j];
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                __m256i two = _mm256_maddubs_epi16(q, dot_x(c, t, k + (size_t)j * 4));
                part[t] = j == first ? two : _mm256_add_epi16(part[t], two);
            }
        }
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t] = first == 0 ? dot_pairs(part[t]) : _mm256_add_epi32(sum[t], dot_pairs(part[t]));
    }
}

ALWAYS_INLINE void dot_five(const struct dot_call *c, const struct dot_half *w, size_t b,
                            __m256 *acc, uint32_t tokens)
{
    __m256i sum[DOT_TOKENS];
    dot_sub_block(c, w, b * QUANT_BLOCK, 8, 4, sum, tokens);
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        const struct q8_super *x = dot_row(c, t);
        acc[t] = dot_scaled(acc[t], sum[t], w->scale[b], x->scale[b]);
        acc[t] = _mm256_fnmadd_ps(w->min[b], _mm256_set1_ps(x->sum[b]), acc[t]);
    }
}

ALWAYS_INLINE void dot_six(const struct dot_call *c, const struct dot_half *w, size_t b,
                           __m256 *acc, uint32_t tokens)
{
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        size_t s = 2 * b + i;
        __m256i sum[DOT_TOKENS];
        dot_sub_block(c, w, s * 16, 4, 2, sum, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const struct q8_super *x = dot_row(c, t);
            acc[t] = dot_scaled(acc[t], sum[t], w->scale[s], x->scale[b]);
            acc[t] = _mm256_fnmadd_ps(w->min[s], _mm256_set1_ps(x->half[s]), acc[t]);
        }
    }
}

ALWAYS_INLINE void dot_signed(const struct dot_call *c, const struct dot_half *w, size_t b,
                              __m256 *acc, uint32_t tokens)
{
    __m256i sum[DOT_TOKENS];
    UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        __m256i q = w->q[b * 8 + j], size = _mm256_abs_epi8(q);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            __m256i x = _mm256_sign_epi8(dot_x(c, t, b * QUANT_BLOCK + (size_t)j * 4), q);
            __m256i four = dot_pairs(_mm256_maddubs_epi16(size, x));
            sum[t] = j == 0 ? four : _mm256_add_epi32(sum[t], four);
        }
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++)
        acc[t] = dot_scaled(acc[t], sum[t], w->scale[b], dot_row(c, t)->scale[b]);
}

typedef void (*dot_block_fn)(const struct dot_call *c, const struct dot_half *w, size_t b,
                             __m256 *acc, uint32_t tokens);

/* `block` and `tokens` are constants in every caller. */
ALWAYS_INLINE void dot_multiply(const struct dot_call *c, dot_block_fn block, uint32_t tokens)
{
    for (size_t h = 0; h < DOT_HALVES; h++) {
        float *y = c->y + h * DOT_ROWS;
        __m256 acc[DOT_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            acc[t] = c->accumulate ? _mm256_loadu_ps(y + t * c->y_stride) : _mm256_setzero_ps();
        for (size_t b = 0; b < c->blocks; b++)
            block(c, &c->panel->half[h], b, acc, tokens);
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            _mm256_storeu_ps(y + t * c->y_stride, acc[t]);
    }
}

/* clang-format off */
#define DOT_KERNEL(name, tokens)                                                        \
    static void name##_##tokens(const struct dot_call *c)                               \
    {                                                                                   \
        dot_multiply(c, name, tokens);                                                     \
    }
#define DOT_KERNELS(name)                                                               \
    DOT_KERNEL(name, 1) DOT_KERNEL(name, 2) DOT_KERNEL(name, 3) DOT_KERNEL(name, 4)

DOT_KERNELS(dot_five)
DOT_KERNELS(dot_six)
DOT_KERNELS(dot_signed)

static const dot_fn dot_kernels[DOT_KIND_COUNT][DOT_TOKENS] = {
    [DOT_FIVE]   = { dot_five_1, dot_five_2, dot_five_3, dot_five_4 },
    [DOT_SIX]    = { dot_six_1, dot_six_2, dot_six_3, dot_six_4 },
    [DOT_SIGNED] = { dot_signed_1, dot_signed_2, dot_signed_3, dot_signed_4 },
};
/* clang-format on */

/* Multiplies all tokens by columns k .. k + QUANT_SUPER of a tile, or those that are left. */
static void dot_part(const struct gemm *g, uint32_t tile, uint32_t k, struct dot_panel *panel)
{
    const struct weight *w = g->w;
    const struct dot_type *type = &dot_types[w->type];
    struct dot_call c = { .panel = panel,
                          .blocks = min_u32(QUANT_SUPER, w->cols - k) / QUANT_BLOCK,
                          .x_stride = q8_row_bytes(w->cols),
                          .y_stride = g->y_stride,
                          .accumulate = g->accumulate || k > 0 };
    type->unpack(w->tiles + tile * weight_tile_bytes(w) + TILE_ROWS * weight_row_bytes(w->type, k),
                 c.blocks, panel);
    for (uint32_t t = 0; t < g->tokens; t += DOT_TOKENS) {
        c.x = (const char *)(g->x_q8 + k / QUANT_SUPER) + t * c.x_stride;
        c.y = g->y + t * g->y_stride + (size_t)tile * TILE_ROWS;
        dot_kernels[type->kind][min_u32(DOT_TOKENS, g->tokens - t) - 1](&c);
    }
}

void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    uint32_t group = g->tokens > DOT_STREAM_TOKENS ? DOT_TILES : 1;
    for (uint32_t i = 0; i < tile_count; i += group) {
        uint32_t end = min_u32(i + group, tile_count);
        for (uint32_t k = 0; k < g->w->cols; k += QUANT_SUPER)
            for (uint32_t j = i; j < end; j++)
                dot_part(g, tile_first + j, k, scratch);
    }
}

/* ---- activations */

/* Returns the sum of eight int32. */
ALWAYS_INLINE int32_t dot_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Rounds block `b` of `to`. */
ALWAYS_INLINE void dot_round_block(const float *x, uint32_t b, struct q8_super *to)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 v[4], top = _mm256_setzero_ps(), nan = top;
    __m256i q[4];
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + (size_t)i * 8);
        top = _mm256_max_ps(top, _mm256_and_ps(v[i], magnitude));
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    }
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    float scale = _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
    if (_mm256_movemask_ps(nan)) scale = __builtin_nanf("");
    bool finite = scale >= Q8_TINY && scale <= 3.402823466e38f;
    float inverse = finite ? 127 / scale : 0;
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        q[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)))
                      : _mm256_setzero_si256();
    int32_t low = dot_lanes(_mm256_add_epi32(q[0], q[1]));
    int32_t high = dot_lanes(_mm256_add_epi32(q[2], q[3]));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_storeu_si256((__m256i_u *)(to->q + (size_t)b * QUANT_BLOCK),
                        _mm256_permutevar8x32_epi32(bytes, order));
    scale = scale < Q8_TINY ? 0 : scale / 127;
    to->scale[b] = scale;
    to->sum[b] = scale * (float)(low + high);
    to->half[2 * b] = scale * (float)low;
    to->half[2 * b + 1] = scale * (float)high;
}

void dot_round(const float *x, uint32_t cols, struct q8_super *ret)
{
    for (uint32_t k = 0; k < cols; k += QUANT_BLOCK)
        dot_round_block(x + k, k % QUANT_SUPER / QUANT_BLOCK, ret + k / QUANT_SUPER);
}
