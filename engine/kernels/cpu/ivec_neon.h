/* ivec_neon.h - gives dot_unpack.h a pair of registers of integers of NEON, beside the vector of floats: 32-bit
 * lanes, or the bytes in them.
 *
 * Layer: engine/kernels; only for dot_neon*.c
 */
#pragma once
#include "engine/kernels/cpu/simd_neon.h"

typedef struct ivec {
    int32x4_t low, high;
} ivec;

ALWAYS_INLINE int32x4_t ivec_of_8(uint8x16_t v)
{
    return vreinterpretq_s32_u8(v);
}

ALWAYS_INLINE uint8x16_t ivec_as_8(int32x4_t v)
{
    return vreinterpretq_u8_s32(v);
}

ALWAYS_INLINE ivec ivec_load(const char *p)
{
    return (ivec){ ivec_of_8(vld1q_u8((const uint8_t *)p)),
                   ivec_of_8(vld1q_u8((const uint8_t *)p + 16)) };
}

ALWAYS_INLINE ivec ivec_set1_32(int32_t v)
{
    return (ivec){ vdupq_n_s32(v), vdupq_n_s32(v) };
}

ALWAYS_INLINE ivec ivec_set1_8(char v)
{
    return (ivec){ ivec_of_8(vdupq_n_u8((uint8_t)v)), ivec_of_8(vdupq_n_u8((uint8_t)v)) };
}

ALWAYS_INLINE ivec ivec_and(ivec a, ivec b)
{
    return (ivec){ vandq_s32(a.low, b.low), vandq_s32(a.high, b.high) };
}

ALWAYS_INLINE ivec ivec_or(ivec a, ivec b)
{
    return (ivec){ vorrq_s32(a.low, b.low), vorrq_s32(a.high, b.high) };
}

ALWAYS_INLINE ivec ivec_sub_32(ivec a, ivec b)
{
    return (ivec){ vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high) };
}

/* Shifts by operators of vector types: intrinsics want a constant before inlining. */
#define IVEC_SHIFT(name, type, to, from, operator)              \
    ALWAYS_INLINE ivec name(ivec a, uint32_t count)             \
    {                                                           \
        return (ivec){ to(from(a.low) operator(type) count),    \
                       to(from(a.high) operator(type) count) }; \
    }

/* Bits cross from byte to byte of a pair: callers mask. */
IVEC_SHIFT(ivec_right_16, uint16_t, vreinterpretq_s32_u16, vreinterpretq_u16_s32, >>)
IVEC_SHIFT(ivec_left_16, uint16_t, vreinterpretq_s32_u16, vreinterpretq_u16_s32, <<)
IVEC_SHIFT(ivec_right_32, uint32_t, vreinterpretq_s32_u32, vreinterpretq_u32_s32, >>)
IVEC_SHIFT(ivec_left_32, uint32_t, vreinterpretq_s32_u32, vreinterpretq_u32_s32, <<)

/* Widen VEC_LANES bytes. */
ALWAYS_INLINE ivec ivec_load_u8(const char *p)
{
    uint16x8_t wide = vmovl_u8(vld1_u8((const uint8_t *)p));
    return (ivec){ vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide))),
                   vreinterpretq_s32_u32(vmovl_high_u16(wide)) };
}

ALWAYS_INLINE ivec ivec_load_s8(const char *p)
{
    int16x8_t wide = vmovl_s8(vld1_s8((const int8_t *)p));
    return (ivec){ vmovl_s16(vget_low_s16(wide)), vmovl_high_s16(wide) };
}

ALWAYS_INLINE vec ivec_to_f32(ivec a)
{
    return (vec){ vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high) };
}

/* Replaces bytes of 0 .. 15 by those of a table. */
ALWAYS_INLINE ivec ivec_look_up(const int8_t table[16], ivec a)
{
    uint8x16_t from = vreinterpretq_u8_s8(vld1q_s8(table));
    return (ivec){ ivec_of_8(vqtbl1q_u8(from, ivec_as_8(a.low))),
                   ivec_of_8(vqtbl1q_u8(from, ivec_as_8(a.high))) };
}

ALWAYS_INLINE int32x4_t sixteens(int32x4_t a, uint8x16_t from, uint8x16_t bit)
{
    uint8x16_t set = vtstq_u8(vqtbl1q_u8(ivec_as_8(a), from), bit);
    return ivec_of_8(vandq_u8(set, vdupq_n_u8(16)));
}

/* Returns 16 in byte i of a lane if bit 4 j + i of the lane is set, i in 0 .. 3. */
ALWAYS_INLINE ivec ivec_sixteens(ivec a, uint32_t j)
{
    /* The byte with the four bits, four times, and in each copy another of them. */
    static const uint32_t lane[4] = { 0, 0x04040404, 0x08080808, 0x0c0c0c0c };
    uint8x16_t from = vaddq_u8(vreinterpretq_u8_u32(vld1q_u32(lane)), vdupq_n_u8((uint8_t)(j / 2)));
    uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(j % 2 ? 0x80402010u : 0x08040201));
    return (ivec){ sixteens(a.low, from, bit), sixteens(a.high, from, bit) };
}

ALWAYS_INLINE float32x4_t e8m0_half(int32x4_t e)
{
    int32x4_t normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
    int32x4_t tiny = vshlq_s32(vdupq_n_s32(0x00200000), e);
    return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), tiny, normal));
}

/* Returns 2^(e - 128) for e in 0 .. 255: the two least are subnormal. */
ALWAYS_INLINE vec ivec_e8m0_half(ivec e)
{
    return (vec){ e8m0_half(e.low), e8m0_half(e.high) };
}
