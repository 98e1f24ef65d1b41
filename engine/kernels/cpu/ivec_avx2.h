/* ivec_avx2.h - gives dot_unpack.h a register of integers of AVX2, beside the vector of floats: 32-bit lanes, or
 * the bytes in them.
 *
 * Layer: engine/kernels; only for dot_avx2.c, which is compiled for that instruction set
 */
#pragma once
#include "engine/kernels/cpu/simd_avx2.h"

typedef __m256i ivec;

static inline ivec ivec_load(const char *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

static inline ivec ivec_set1_8(char v)
{
    return _mm256_set1_epi8(v);
}

static inline ivec ivec_set1_32(int32_t v)
{
    return _mm256_set1_epi32(v);
}

static inline ivec ivec_and(ivec a, ivec b)
{
    return _mm256_and_si256(a, b);
}

static inline ivec ivec_or(ivec a, ivec b)
{
    return _mm256_or_si256(a, b);
}

static inline ivec ivec_add_8(ivec a, ivec b)
{
    return _mm256_add_epi8(a, b);
}

static inline ivec ivec_sub_32(ivec a, ivec b)
{
    return _mm256_sub_epi32(a, b);
}

/* Bits cross from byte to byte of a pair: callers mask. */
static inline ivec ivec_right_16(ivec a, uint32_t count)
{
    return _mm256_srli_epi16(a, (int)count);
}

static inline ivec ivec_left_16(ivec a, uint32_t count)
{
    return _mm256_slli_epi16(a, (int)count);
}

static inline ivec ivec_right_32(ivec a, uint32_t count)
{
    return _mm256_srli_epi32(a, (int)count);
}

static inline ivec ivec_left_32(ivec a, uint32_t count)
{
    return _mm256_slli_epi32(a, (int)count);
}

/* Widen VEC_LANES bytes. */
static inline ivec ivec_load_u8(const char *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
}

static inline ivec ivec_load_s8(const char *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
}

static inline vec ivec_to_f32(ivec a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Replaces bytes of 0 .. 15 by those of a table. */
static inline ivec ivec_look_up(const int8_t table[16], ivec a)
{
    __m128i from = _mm_loadu_si128((const __m128i_u *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(from), a);
}

/* Returns 16 in byte i of a lane if bit 4 j + i of the lane is set, i in 0 .. 3. */
static inline ivec ivec_sixteens(ivec a, uint32_t j)
{
    /* The byte with the four bits, four times, and in each copy another of them. */
    const ivec from = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                        0x08080808, 0x0c0c0c0c);
    const ivec bit = ivec_set1_32(j % 2 ? (int32_t)0x80402010u : 0x08040201);
    ivec byte = _mm256_shuffle_epi8(a, _mm256_add_epi8(from, ivec_set1_8((char)(j / 2))));
    ivec set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
    return _mm256_and_si256(set, ivec_set1_8(16));
}

/* Returns 2^(e - 128) for e in 0 .. 255: the two least are subnormal. */
static inline vec ivec_e8m0_half(ivec e)
{
    ivec normal = _mm256_slli_epi32(_mm256_sub_epi32(e, ivec_set1_32(1)), 23);
    ivec tiny = _mm256_sllv_epi32(ivec_set1_32(0x00200000), e);
    ivec is_tiny = _mm256_cmpgt_epi32(ivec_set1_32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, is_tiny));
}
