/* simd_avx512.h - gives cpu/simd.h the vector of AVX-512: 16 lanes, 32 registers.
 *
 * Layer: engine/kernels; only for ops_avx512.c and dot_avx512.c, which are compiled for that instruction set
 */
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_LANES 16
#define BLOCK_TOKENS 12 /* with BLOCK_TILES: 24 accumulators, 2 weights, 1 input of 32 registers */
#define BLOCK_TILES 2
#define WIDE_TOKENS 4 /* few tokens: more tiles, for enough independent sums (4 cycles latency) */
#define WIDE_TILES 4

typedef __m512 vec;

static inline vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vec vec_set1(float v)
{
    return _mm512_set1_ps(v);
}

static inline vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

static inline vec vec_load_f16(const char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
}

static inline void vec_store_f16(char *p, vec v)
{
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_bf16(const char *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec vec_load_i8(const char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p)));
}

/* Return what the low, or the high, four bits of each byte stand for (kv_code.h). The look-up reads
 * four bits of an index. */

static inline vec vec_load_q4_low(const char *p)
{
    const vec values =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p)),
                                 values);
}

static inline vec vec_load_q4_high(const char *p)
{
    const vec values =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), values);
}

/* a * b + c, rounded once */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a * b, rounded once */
static inline vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static inline vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for whole n in -126 .. 127 */
static inline vec vec_exp2_whole(vec n)
{
    __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}

/* value where x >= bound, 0 elsewhere and where x is NaN */
static inline vec vec_keep_ge(vec value, vec x, vec bound)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), value);
}
