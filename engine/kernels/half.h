/* half.h - converts 16-bit floats in plain C, for loading, for op_ref and where there is no kernel.
 *
 * Layer: engine/kernels (libc). Pure. Gives the results of the F16C instructions, NaN payloads
 * aside; _Float16 would do too, but not every compiler that we build with has it.
 */
#pragma once
#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 0x1f) return f32_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    /* Subnormal: fraction * 2^-24, exact in F32. */
    float value = (float)fraction * 0x1p-24f;
    return f32_from_bits(sign | f32_bits(value));
}

/* Rounds to nearest, ties to even; beyond 65504 + half a step becomes infinity. */
static inline uint16_t f32_to_f16(float f)
{
    uint32_t bits = f32_bits(f);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Below 2^-14: adding 0.5 leaves fraction * 2^-24 in the low bits, rounded by the FPU. */
        float shifted = f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = (magnitude >> 13) & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline float bf16_to_f32(uint16_t b)
{
    return f32_from_bits((uint32_t)b << 16);
}

/* E4M3 (OCP 8-bit floating point) has four bits of exponent (bias 7) and three of fraction, no infinity, and NaN
 * in 0x7f. Every value is one of F16, too. */
static inline float f8_e4m3_to_f32(uint8_t v)
{
    uint32_t sign = (uint32_t)(v & 0x80u) << 24, exponent = v >> 3 & 15u, fraction = v & 7u;
    if ((v & 0x7fu) == 0x7fu) return f32_from_bits(sign | 0x7fc00000u);
    if (exponent != 0) return f32_from_bits(sign | (exponent + 120) << 23 | fraction << 20);
    float value = (float)fraction * 0x1p-9f;
    return f32_from_bits(sign | f32_bits(value));
}

/* Rounds to nearest, ties to even; beyond the largest and half a step becomes infinity. */
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t bits = f32_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
