/* dot_avx2.c - multiplies quantised weights by activations of int8 in registers of 256 bits; rounds to int8.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs. Pairs are summed as int16 as far as the kind
 * of block allows without overflow (four registers of five bits: 4 x 2 x 31 x 127 = 31,496; two of six bits:
 * 2 x 2 x 63 x 127 = 32,004; one of signed bytes: 2 x 128 x 127 = 32,512), then as int32. Signed weights lend
 * their sign to x. */
#define SIMD_HEADER "engine/kernels/cpu/ivec_avx2.h"
#define DOT_TOKENS 4 /* with 4 accumulators and 8 sums, 15 of 16 registers */
#define DOT_PANELS 2 /* 12 KiB, beside 8 KiB of x */
#include "engine/kernels/cpu/dot_product.h"

/* Adds pairs of int16. */
ALWAYS_INLINE __m256i dot_pairs(__m256i v)
{
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

ALWAYS_INLINE __m256i dot_multiply(__m256i q, __m256i x, enum dot_kind kind)
{
    return kind == DOT_SIGNED ? _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q))
                              : _mm256_maddubs_epi16(q, x);
}

ALWAYS_INLINE void dot_sums(const struct dot_call *c, const struct dot_block *w, uint32_t b,
                            enum dot_kind kind, uint32_t first, uint32_t pieces, ivec *sum,
                            uint32_t tokens)
{
    const uint32_t chain = kind == DOT_SIGNED ? 1 : dot_halved(kind) ? 2 : 4;
    UNROLL
    for (uint32_t i = first; i < first + pieces; i += chain) {
        __m256i part[DOT_TOKENS];
        UNROLL
        for (uint32_t j = i; j < i + chain; j++) {
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                __m256i two = dot_multiply(w->q[j], dot_x(c, t, b * QUANT_BLOCK + j * 4), kind);
                part[t] = j == i ? two : _mm256_add_epi16(part[t], two);
            }
        }
        UNROLL
        for (uint32_t t = 0; t < tokens; t++)
            sum[t] = i == first ? dot_pairs(part[t]) : _mm256_add_epi32(sum[t], dot_pairs(part[t]));
    }
}

void dot_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    dot_product(g, tile_first, tile_count, scratch, dot_rows, NULL);
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
    q8_sums_set(to, b, low, high);
}

void dot_round(const float *x, uint32_t cols, struct q8_super *ret)
{
    for (uint32_t k = 0; k < cols; k += QUANT_BLOCK)
        dot_round_block(x + k, k % QUANT_SUPER / QUANT_BLOCK, ret + k / QUANT_SUPER);
}
