/* ivec_avx512.h - gives dot_unpack.h a register of integers of AVX-512, beside the vector of floats: 32-bit lanes, or
 * the bytes in them.
 *
 * Layer: engine/kernels; only for dot_avx512.c, which is compiled for that instruction set
 */
#pragma once
#include "engine/kernels/cpu/simd_avx512.h"

typedef __m512i ivec;

static inline ivec ivec_load(const char *p)
{
    return _mm512_loadu_si512(p);
}

static inline ivec ivec_set1_8(char v)
{
    return _mm512_set1_epi8(v);
}

static inline ivec ivec_set1_32(int32_t v)
{
    return _mm512_set1_epi32(v);
}

static inline ivec ivec_and(ivec a, ivec b)
{
    return _mm512_and_si512(a, b);
}

static inline ivec ivec_or(ivec a, ivec b)
{
    return _mm512_or_si512(a, b);
}

static inline ivec ivec_add_8(ivec a, ivec b)
{
    return _mm512_add_epi8(a, b);
}

static inline ivec ivec_sub_32(ivec a, ivec b)
{
    return _mm512_sub_epi32(a, b);
}

/* Bits cross from byte to byte of a pair: callers mask. */
static inline ivec ivec_right_16(ivec a, uint32_t count)
{
    return _mm512_srli_epi16(a, count);
}

static inline ivec ivec_left_16(ivec a, uint32_t count)
{
    return _mm512_slli_epi16(a, count);
}

static inline ivec ivec_right_32(ivec a, uint32_t count)
{
    return _mm512_srli_epi32(a, count);
}

static inline ivec ivec_left_32(ivec a, uint32_t count)
{
    return _mm512_slli_epi32(a, count);
}

/* Widen VEC_LANES bytes. */
static inline ivec ivec_load_u8(const char *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
}

static inline ivec ivec_load_s8(const char *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)p));
}

static inline vec ivec_to_f32(ivec a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Replaces bytes of 0 .. 15 by those of a table. */
static inline ivec ivec_look_up(const int8_t table[16], ivec a)
{
    __m128i from = _mm_loadu_si128((const __m128i_u *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(from), a);
}

/* Returns 16 in byte i of a lane if bit 4 j + i of the lane is set, i in 0 .. 3. */
static inline ivec ivec_sixteens(ivec a, uint32_t j)
{
    /* The byte with the four bits, four times, and in each copy another of them. */
    const ivec from = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const ivec bit = ivec_set1_32(j % 2 ? (int32_t)0x80402010u : 0x08040201);
    ivec byte = _mm512_shuffle_epi8(a, _mm512_add_epi8(from, ivec_set1_8((char)(j / 2))));
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(byte, bit), ivec_set1_8(16));
}

/* Returns 2^(e - 128) for e in 0 .. 255: the two least are subnormal. */
static inline vec ivec_e8m0_half(ivec e)
{
    ivec normal = _mm512_slli_epi32(_mm512_sub_epi32(e, ivec_set1_32(1)), 23);
    ivec tiny = _mm512_sllv_epi32(ivec_set1_32(0x00200000), e);
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, ivec_set1_32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
}
