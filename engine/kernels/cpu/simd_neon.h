/* simd_neon.h - gives cpu/simd.h a vector of 8 lanes in two registers of NEON, of which AArch64 has 32.
 *
 * Layer: engine/kernels; only for ops_neon.c and dot_neon*.c
 *
 * Eight lanes rather than four: sums across lanes then add in the order of AVX2, and every operation gives the
 * bits of the entry avx2 (NaN payloads aside), which tests/cross compares. The number of registers in pairs, 16,
 * is that of AVX2 too, and so are the numbers of tokens and tiles.
 */
#pragma once
#include "engine/kernels/kv_code.h"

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_LANES 8
#define BLOCK_TOKENS 6 /* with BLOCK_TILES: 24 accumulators, 4 weights, 1 input of 32 registers */
#define BLOCK_TILES 1
#define WIDE_TOKENS 2 /* few tokens: more tiles, for enough independent sums (4 cycles latency) */
#define WIDE_TILES 2

typedef struct vec {
    float32x4_t low, high;
} vec;

ALWAYS_INLINE vec vec_set1(float v)
{
    return (vec){ vdupq_n_f32(v), vdupq_n_f32(v) };
}

ALWAYS_INLINE vec vec_zero(void)
{
    return vec_set1(0);
}

ALWAYS_INLINE vec vec_load(const float *p)
{
    return (vec){ vld1q_f32(p), vld1q_f32(p + 4) };
}

ALWAYS_INLINE void vec_store(float *p, vec v)
{
    vst1q_f32(p, v.low);
    vst1q_f32(p + 4, v.high);
}

/* Loads eight values of 16 bits, from any address. */
ALWAYS_INLINE uint16x8_t load_16(const char *p)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
}

ALWAYS_INLINE vec vec_load_f16(const char *p)
{
    float16x8_t half = vreinterpretq_f16_u16(load_16(p));
    return (vec){ vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half) };
}

ALWAYS_INLINE void vec_store_f16(char *p, vec v)
{
    float16x8_t half = vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high);
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_f16(half));
}

ALWAYS_INLINE vec vec_load_bf16(const char *p)
{
    uint16x8_t half = load_16(p);
    return (vec){ vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
                  vreinterpretq_f32_u32(vshll_high_n_u16(half, 16)) };
}

ALWAYS_INLINE vec vec_of_i8(int8x8_t v)
{
    int16x8_t wide = vmovl_s8(v);
    return (vec){ vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
                  vcvtq_f32_s32(vmovl_high_s16(wide)) };
}

ALWAYS_INLINE vec vec_load_i8(const char *p)
{
    return vec_of_i8(vld1_s8((const int8_t *)p));
}

/* Return what the low, or the high, four bits of each byte stand for (kv_code.h). */

ALWAYS_INLINE vec vec_load_q4_low(const char *p)
{
    return vec_of_i8(
        vqtbl1_s8(vld1q_s8(kv_q4_values), vand_u8(vld1_u8((const uint8_t *)p), vdup_n_u8(15))));
}

ALWAYS_INLINE vec vec_load_q4_high(const char *p)
{
    return vec_of_i8(vqtbl1_s8(vld1q_s8(kv_q4_values), vshr_n_u8(vld1_u8((const uint8_t *)p), 4)));
}

/* a * b + c, rounded once */
ALWAYS_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return (vec){ vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high) };
}

/* c - a * b, rounded once */
ALWAYS_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return (vec){ vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high) };
}

ALWAYS_INLINE vec vec_add(vec a, vec b)
{
    return (vec){ vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high) };
}

ALWAYS_INLINE vec vec_sub(vec a, vec b)
{
    return (vec){ vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high) };
}

ALWAYS_INLINE vec vec_mul(vec a, vec b)
{
    return (vec){ vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high) };
}

ALWAYS_INLINE vec vec_div(vec a, vec b)
{
    return (vec){ vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high) };
}

/* Max and min return b where either is NaN, as those of x86 do: fmax and fmin of NEON would return the NaN. */
ALWAYS_INLINE vec vec_max(vec a, vec b)
{
    return (vec){ vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low),
                  vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high) };
}

ALWAYS_INLINE vec vec_min(vec a, vec b)
{
    return (vec){ vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low),
                  vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high) };
}

ALWAYS_INLINE vec vec_round(vec a)
{
    return (vec){ vrndnq_f32(a.low), vrndnq_f32(a.high) };
}

ALWAYS_INLINE float32x4_t exp2_whole(float32x4_t n)
{
    int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}

/* 2^n for whole n in -126 .. 127 */
ALWAYS_INLINE vec vec_exp2_whole(vec n)
{
    return (vec){ exp2_whole(n.low), exp2_whole(n.high) };
}

ALWAYS_INLINE float32x4_t keep(float32x4_t value, uint32x4_t mask)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(value), mask));
}

/* value where x >= bound, 0 elsewhere and where x is NaN */
ALWAYS_INLINE vec vec_keep_ge(vec value, vec x, vec bound)
{
    return (vec){ keep(value.low, vcgeq_f32(x.low, bound.low)),
                  keep(value.high, vcgeq_f32(x.high, bound.high)) };
}
