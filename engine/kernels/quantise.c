/* quantise.c - rounds rows of F32 to the types that we write.
 *
 * The types of 32 elements round as the package `gguf` does, bit for bit. For Q4_K and Q6_K that
 * package has no rounding, and formats leave it open: a block's scales are chosen here for the least
 * squared error,
 *
 *     1. for each sub-block, try some scales around the one that just reaches its largest value;
 *     2. for the integers that a scale gives, take the scale (and offset) of least squares;
 *     3. round the scales to the block's own six or eight bits, and round the elements again.
 *
 * Weighting by an importance matrix is not done. */
#include "base/core/bits.h"
#include "engine/kernels/half.h"
#include "engine/kernels/quant.h"

#include <math.h>

static void put_half(char *p, float f)
{
    uint16_t h = f32_to_f16(f);
    memcpy(p, &h, sizeof h);
}

/* Return v as an integer of low .. high; compared as floats, for v may be beyond every integer. */
static int32_t truncated(float v, int32_t low, int32_t high)
{
    return v < (float)low ? low : v > (float)high ? high : (int32_t)v;
}

static int32_t rounded(float v, int32_t low, int32_t high)
{
    return truncated(rintf(v), low, high);
}

/* 1 / d, or 0 where that is no number: all elements then become the block's zero. */
static float inverse(float d)
{
    float i = 1.0f / d;
    return fabsf(d) > 0 && isfinite(i) ? i : 0;
}

void quantise_f32(const float *x, uint32_t count, char *ret)
{
    memcpy(ret, x, count * sizeof *x);
}

void quantise_f16(const float *x, uint32_t count, char *ret)
{
    for (uint32_t i = 0; i < count; i++)
        put_half(ret + (size_t)i * 2, x[i]);
}

/* Rounds to nearest, ties to even. */
void quantise_bf16(const float *x, uint32_t count, char *ret)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = f32_bits(x[i]);
        uint16_t b = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        memcpy(ret + (size_t)i * 2, &b, sizeof b);
    }
}

void quantise_q8_0(const float *x, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, ret += 34) {
        float top = 0;
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            top = fmaxf(top, fabsf(x[i]));
        float d = top / 127, id = inverse(d);
        put_half(ret, d);
        for (uint32_t i = 0; i < QUANT_BLOCK; i++)
            ret[2 + i] = (char)(int8_t)truncated(roundf(x[i] * id), -127, 127);
    }
}

/* ---- blocks of 32 with 4 or 5 bits */

/* Writes the low four bits of 32 integers, and the fifth ones if there is room for them. */
static void put_bits(const uint8_t q[QUANT_BLOCK], char *fifths, char *nibbles)
{
    uint32_t high = 0;
    for (uint32_t i = 0; i < 16; i++)
        nibbles[i] = (char)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        high |= (uint32_t)(q[i] >> 4 & 1) << i;
    if (fifths) store_u32(fifths, high);
}

/* Rounds around zero; the element of largest magnitude becomes -levels / 2, which the positive side
 * does not have. */
static float round_signed(const float *x, int32_t levels, uint8_t q[QUANT_BLOCK])
{
    float top = x[0];
    for (uint32_t i = 1; i < QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    float half = (float)levels / 2, d = top / -half, id = inverse(d);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        float scaled = x[i] * id;
        q[i] = (uint8_t)truncated(scaled + (half + 0.5f), 0, levels - 1);
    }
    return d;
}

static float round_range(const float *x, int32_t levels, uint8_t q[QUANT_BLOCK], float *ret_min)
{
    float min = x[0], max = x[0];
    for (uint32_t i = 1; i < QUANT_BLOCK; i++)
        min = fminf(min, x[i]), max = fmaxf(max, x[i]);
    float d = (max - min) / (float)(levels - 1), id = inverse(d);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        float scaled = (x[i] - min) * id;
        q[i] = (uint8_t)truncated(scaled + 0.5f, 0, levels - 1);
    }
    *ret_min = min;
    return d;
}

void quantise_q4_0(const float *x, uint32_t count, char *ret)
{
    uint8_t q[QUANT_BLOCK];
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, ret += 18) {
        put_half(ret, round_signed(x, 16, q));
        put_bits(q, NULL, ret + 2);
    }
}

void quantise_q5_0(const float *x, uint32_t count, char *ret)
{
    uint8_t q[QUANT_BLOCK];
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, ret += 22) {
        put_half(ret, round_signed(x, 32, q));
        put_bits(q, ret + 2, ret + 6);
    }
}

void quantise_q4_1(const float *x, uint32_t count, char *ret)
{
    uint8_t q[QUANT_BLOCK];
    float min;
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, ret += 20) {
        put_half(ret, round_range(x, 16, q, &min));
        put_half(ret + 2, min);
        put_bits(q, NULL, ret + 4);
    }
}

void quantise_q5_1(const float *x, uint32_t count, char *ret)
{
    uint8_t q[QUANT_BLOCK];
    float min;
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, ret += 24) {
        put_half(ret, round_range(x, 32, q, &min));
        put_half(ret + 2, min);
        put_bits(q, ret + 4, ret + 8);
    }
}

/* ---- blocks of 256 */

#define TRIES 8       /* scales tried on either side of the plain one */
#define TRY_STEP 0.1f /* of a level, between two of them */
#define SUBS_MAX 16u  /* sub-blocks of a block */

/* Returns the scale d of least squared error for x ~ d q, q in -32 .. 31. */
static float fit_signed(const float *x, uint32_t count)
{
    float top = x[0], best = 0, best_gain = 0;
    for (uint32_t i = 1; i < count; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    for (int32_t t = -TRIES; t <= TRIES; t++) {
        float id = inverse(top / -(32 + (float)t * TRY_STEP)), xq = 0, qq = 0;
        for (uint32_t i = 0; i < count; i++) {
            float q = (float)rounded(x[i] * id, -32, 31);
            xq += x[i] * q, qq += q * q;
        }
        /* With d = xq / qq the squared error is sum(x^2) - xq^2 / qq. */
        if (qq > 0 && xq * xq / qq > best_gain) best_gain = xq * xq / qq, best = xq / qq;
    }
    return best;
}

static void pack_q6_k(const uint8_t q[QUANT_SUPER], char *ret)
{
    memset(ret, 0, 192);
    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        char *low = ret + i / 128 * 64 + i % 64, *high = ret + 128 + i / 128 * 32 + i % 32;
        *low = (char)(*low | (q[i] & 15) << i % 128 / 64 * 4);
        *high = (char)(*high | (q[i] >> 4) << i % 128 / 32 * 2);
    }
}

void quantise_q6_k(const float *x, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, ret += 210) {
        float scale[SUBS_MAX], top = 0;
        uint8_t q[QUANT_SUPER];
        for (uint32_t s = 0; s < 16; s++) {
            scale[s] = fit_signed(x + (size_t)s * 16, 16);
            if (fabsf(scale[s]) > fabsf(top)) top = scale[s];
        }
        put_half(ret + 208, top / -128);
        float d = f16_to_f32(load_u16(ret + 208)), id = inverse(d);
        for (uint32_t s = 0; s < 16; s++) {
            int32_t level = rounded(scale[s] * id, -128, 127);
            float step = inverse(d * (float)level);
            ret[192 + s] = (char)(int8_t)level;
            for (uint32_t i = s * 16; i < s * 16 + 16; i++)
                q[i] = (uint8_t)(rounded(x[i] * step, -32, 31) + 32);
        }
        pack_q6_k(q, ret);
    }
}

/* Finds d and m >= 0 of least squared error for x ~ d q - m, q in 0 .. 15. */
static void fit_range(const float *x, uint32_t count, float *ret_d, float *ret_m)
{
    float min = fminf(x[0], 0), max = x[0], n = (float)count;
    for (uint32_t i = 1; i < count; i++)
        min = fminf(min, x[i]), max = fmaxf(max, x[i]);
    float best = INFINITY;
    *ret_d = 0, *ret_m = -min;
    for (int32_t t = -TRIES; t <= TRIES && max > min; t++) {
        float id = (15 + (float)t * TRY_STEP) / (max - min), q1 = 0, qq = 0, x1 = 0, xq = 0;
        if (!isfinite(id)) break;
        for (uint32_t i = 0; i < count; i++) {
            float q = (float)rounded((x[i] - min) * id, 0, 15);
            q1 += q, qq += q * q, x1 += x[i], xq += x[i] * q;
        }
        float spread = n * qq - q1 * q1, d = 1 / id, m = -min;
        if (spread > 0) d = (n * xq - x1 * q1) / spread, m = (d * q1 - x1) / n;
        if (m < 0) m = 0, d = qq > 0 ? xq / qq : 0;
        float off = 0;
        for (uint32_t i = 0; i < count; i++) {
            float q = d > 0 ? (float)rounded((x[i] + m) / d, 0, 15) : 0;
            float e = d * q - m - x[i];
            off += e * e;
        }
        if (off < best && d >= 0) best = off, *ret_d = d, *ret_m = m;
    }
}

static void pack_q4_k(const uint8_t scale[8], const uint8_t min[8], const uint8_t q[QUANT_SUPER],
                      char *ret)
{
    for (uint32_t s = 0; s < 4; s++) {
        ret[s] = (char)(scale[s] | (scale[s + 4] & 0x30) << 2);
        ret[4 + s] = (char)(min[s] | (min[s + 4] & 0x30) << 2);
        ret[8 + s] = (char)((scale[s + 4] & 15) | (min[s + 4] & 15) << 4);
    }
    for (uint32_t i = 0; i < 128; i++) {
        uint32_t low = i / 32 * 64 + i % 32;
        ret[12 + i] = (char)(q[low] | q[low + 32] << 4);
    }
}

void quantise_q4_k(const float *x, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, ret += 144) {
        float d[8], m[8], d_top = 0, m_top = 0;
        uint8_t scale[8], min[8], q[QUANT_SUPER];
        for (uint32_t s = 0; s < 8; s++) {
            fit_range(x + (size_t)s * 32, 32, &d[s], &m[s]);
            d_top = fmaxf(d_top, d[s]), m_top = fmaxf(m_top, m[s]);
        }
        put_half(ret, d_top / 63);
        put_half(ret + 2, m_top / 63);
        float d_unit = f16_to_f32(load_u16(ret)), m_unit = f16_to_f32(load_u16(ret + 2));
        for (uint32_t s = 0; s < 8; s++) {
            scale[s] = (uint8_t)rounded(d[s] * inverse(d_unit), 0, 63);
            min[s] = (uint8_t)rounded(m[s] * inverse(m_unit), 0, 63);
            float step = inverse(d_unit * (float)scale[s]), offset = m_unit * (float)min[s];
            for (uint32_t i = s * 32; i < s * 32 + 32; i++)
                q[i] = (uint8_t)rounded((x[i] + offset) * step, 0, 15);
        }
        pack_q4_k(scale, min, q, ret + 4);
    }
}
