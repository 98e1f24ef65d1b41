/* dequantise.c - converts rows of every tensor type to F32, plainly: the truth of all kernels.
 *
 * The order of products and sums is that of the package `gguf`, so that tests can compare bits. */
#include "base/core/bits.h"
#include "engine/kernels/half.h"
#include "engine/kernels/quant.h"

static float half_at(const char *p)
{
    return f16_to_f32(load_u16(p));
}

static uint32_t byte_at(const char *p, uint32_t index)
{
    return (uint8_t)p[index];
}

void dequantise_f32(const char *row, uint32_t count, float *ret)
{
    memcpy(ret, row, count * sizeof *ret);
}

void dequantise_f16(const char *row, uint32_t count, float *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = half_at(row + (size_t)i * 2);
}

void dequantise_bf16(const char *row, uint32_t count, float *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = bf16_to_f32(load_u16(row + (size_t)i * 2));
}

void dequantise_q8_0(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 34, ret += QUANT_BLOCK) {
        float d = half_at(row);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)(int8_t)row[2 + i];
    }
}

/* ---- blocks of 32 with 4 or 5 bits */

/* Returns element i of 16 bytes of nibbles. */
static uint32_t nibble(const char *p, uint32_t i)
{
    return byte_at(p, i % 16) >> i / 16 * 4 & 15;
}

static uint32_t five_bits(const char *high, const char *nibbles, uint32_t i)
{
    return nibble(nibbles, i) | (load_u32(high) >> i & 1) << 4;
}

void dequantise_q4_0(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 18, ret += QUANT_BLOCK) {
        float d = half_at(row);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)((int32_t)nibble(row + 2, i) - 8);
    }
}

void dequantise_q4_1(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 20, ret += QUANT_BLOCK) {
        float d = half_at(row), m = half_at(row + 2);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)nibble(row + 4, i) + m;
    }
}

void dequantise_q5_0(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 22, ret += QUANT_BLOCK) {
        float d = half_at(row);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)((int32_t)five_bits(row + 2, row + 6, i) - 16);
    }
}

void dequantise_q5_1(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 24, ret += QUANT_BLOCK) {
        float d = half_at(row), m = half_at(row + 2);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)five_bits(row + 4, row + 8, i) + m;
    }
}

/* The 16 values lie closer together near zero, as weights do. */
const int8_t quant_iq4_nl[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113 };

void dequantise_iq4_nl(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 18, ret += QUANT_BLOCK) {
        float d = half_at(row);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)quant_iq4_nl[nibble(row + 2, i)];
    }
}

/* Twice the values of E2M1 (OCP Microscaling Formats 1.0), so that they are whole. */
const int8_t quant_e2m1_doubled[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* Returns 2^(e - 128), half of what E8M0 says; the two least are subnormal. */
static float e8m0_half(uint32_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void dequantise_mxfp4(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, row += 17, ret += QUANT_BLOCK) {
        float d = e8m0_half(byte_at(row, 0));
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[i] = d * (float)quant_e2m1_doubled[nibble(row + 1, i)];
    }
}

/* ---- blocks of 256 */

/* Returns the two bits of element i of 64 bytes: in each half of 128 elements, 32 bytes hold four runs
 * of 32, the first in the low bits. */
static uint32_t two_bits(const char *p, uint32_t i)
{
    return byte_at(p, i / 128 * 32 + i % 32) >> i % 128 / 32 * 2 & 3;
}

void dequantise_q2_k(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_SUPER, row += 84, ret += QUANT_SUPER) {
        float d = half_at(row + 80), m = half_at(row + 82);
        for (uint32_t s = 0; s < 16; s++) {
            float dl = d * (float)(byte_at(row, s) & 15), ml = m * (float)(byte_at(row, s) >> 4);
            for (uint32_t i = s * 16; i < s * 16 + 16; i++)
                ret[i] = dl * (float)two_bits(row + 16, i) - ml;
        }
    }
}

/* Returns scale s of 16: the low four bits in 8 bytes of nibbles, the high two in 4 bytes. */
static int32_t q3_k_scale(const char *p, uint32_t s)
{
    uint32_t low = byte_at(p, s % 8) >> s / 8 * 4 & 15,
             high = byte_at(p + 8, s % 4) >> s / 4 * 2 & 3;
    return (int32_t)(low | high << 4) - 32;
}

void dequantise_q3_k(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_SUPER, row += 110, ret += QUANT_SUPER) {
        float d = half_at(row + 108);
        for (uint32_t s = 0; s < 16; s++) {
            float dl = d * (float)q3_k_scale(row + 96, s);
            for (uint32_t i = s * 16; i < s * 16 + 16; i++) {
                uint32_t third = byte_at(row, i % 32) >> i / 32 & 1;
                ret[i] = dl * (float)((int32_t)two_bits(row + 32, i) - (third ? 0 : 4));
            }
        }
    }
}

/* Reads scale and min of sub-block s of 8, six bits each. */
static void k_scale_min(const char *p, uint32_t s, float *ret_scale, float *ret_min)
{
    uint32_t scale = byte_at(p, s % 4), min = byte_at(p, 4 + s % 4), rest = byte_at(p, 8 + s % 4);
    *ret_scale = (float)(s < 4 ? scale & 63 : (rest & 15) | (scale >> 2 & 0x30));
    *ret_min = (float)(s < 4 ? min & 63 : rest >> 4 | (min >> 2 & 0x30));
}

/* Returns the nibble of element i of 128 bytes: 32 bytes hold two runs of 32. */
static uint32_t k_nibble(const char *p, uint32_t i)
{
    return byte_at(p, i / 64 * 32 + i % 32) >> i % 64 / 32 * 4 & 15;
}

void dequantise_q4_k(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_SUPER, row += 144, ret += QUANT_SUPER) {
        float d = half_at(row), m = half_at(row + 2), scale, min;
        for (uint32_t s = 0; s < 8; s++) {
            k_scale_min(row + 4, s, &scale, &min);
            float dl = d * scale, ml = m * min;
            for (uint32_t i = s * 32; i < s * 32 + 32; i++)
                ret[i] = dl * (float)k_nibble(row + 16, i) - ml;
        }
    }
}

void dequantise_q5_k(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_SUPER, row += 176, ret += QUANT_SUPER) {
        float d = half_at(row), m = half_at(row + 2), scale, min;
        for (uint32_t s = 0; s < 8; s++) {
            k_scale_min(row + 4, s, &scale, &min);
            float dl = d * scale, ml = m * min;
            for (uint32_t i = s * 32; i < s * 32 + 32; i++) {
                uint32_t fifth = byte_at(row + 16, i % 32) >> s & 1;
                ret[i] = dl * (float)(k_nibble(row + 48, i) | fifth << 4) - ml;
            }
        }
    }
}

void dequantise_q6_k(const char *row, uint32_t count, float *ret)
{
    for (; count > 0; count -= QUANT_SUPER, row += 210, ret += QUANT_SUPER) {
        float d = half_at(row + 208);
        for (uint32_t s = 0; s < 16; s++) {
            float dl = d * (float)(int8_t)row[192 + s];
            for (uint32_t i = s * 16; i < s * 16 + 16; i++) {
                uint32_t low = byte_at(row, i / 128 * 64 + i % 64) >> i % 128 / 64 * 4 & 15;
                uint32_t q = low | two_bits(row + 128, i) << 4;
                ret[i] = dl * (float)((int32_t)q - 32);
            }
        }
    }
}
