/* simd_avx2.h - gives cpu/simd.h the vector of AVX2 with FMA and F16C: 8 lanes, 16 registers.
 *
 * Layer: engine/kernels; only for ops_avx2.c and dot_avx2.c, which are compiled for that instruction set
 */
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_LANES 8
#define BLOCK_TOKENS 6 /* with BLOCK_TILES: 12 accumulators, 2 weights, 1 input of 16 registers */
#define BLOCK_TILES 1
#define WIDE_TOKENS 2 /* few tokens: more tiles, for enough independent sums (4 cycles latency) */
#define WIDE_TILES 2

typedef __m256 vec;

static inline vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vec vec_set1(float v)
{
    return _mm256_set1_ps(v);
}

static inline vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

static inline vec vec_load_f16(const char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
}

static inline void vec_store_f16(char *p, vec v)
{
    _mm_storeu_si128((__m128i_u *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_bf16(const char *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec vec_load_i8(const char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p)));
}

/* Returns what codes of four bits stand for (kv_code.h). */
static inline vec q4_values(__m128i codes)
{
    const __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    __m128i value = _mm_shuffle_epi8(values, _mm_and_si128(codes, _mm_set1_epi8(15)));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(value));
}

static inline vec vec_load_q4_low(const char *p)
{
    return q4_values(_mm_loadl_epi64((const __m128i_u *)p));
}

static inline vec vec_load_q4_high(const char *p)
{
    return q4_values(_mm_srli_epi16(_mm_loadl_epi64((const __m128i_u *)p), 4));
}

/* a * b + c, rounded once */
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a * b, rounded once */
static inline vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec vec_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for whole n in -126 .. 127 */
static inline vec vec_exp2_whole(vec n)
{
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

/* value where x >= bound, 0 elsewhere and where x is NaN */
static inline vec vec_keep_ge(vec value, vec x, vec bound)
{
    return _mm256_and_ps(value, _mm256_cmp_ps(x, bound, _CMP_GE_OQ));
}
