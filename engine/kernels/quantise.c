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
 * With weights the error is sum of w (x - y)^2, for all types of up to six bits. Elements of little weight may then
 * be clipped, so that smaller scales are tried too, and steps 1 and 2 go on from the best scale until nothing is
 * gained. A block keeps its plain rounding where that has no larger weighted error. */
#include "base/core/bits.h"
#include "engine/kernels/half.h"
#include "engine/kernels/weight.h"

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

/* ---- scales of least squared error */

#define TRIES 8       /* scales tried on either side of the plain one */
#define TRY_STEP 0.1f /* of a level, between two of them */
#define CLIP_TRIES \
    16 /* smaller scales that are tried with weights, down to half of the plain one */
#define REFINEMENTS_MAX 8

static float weight_at(const float *w, uint32_t i)
{
    return w ? w[i] : 1;
}

/* Returns by how many levels a try is off the plain scale, of `levels`. */
static float try_offset(int32_t t, float levels)
{
    return t <= TRIES ? (float)t * TRY_STEP : (float)(t - TRIES) * levels / CLIP_TRIES;
}

static int32_t tries_end(const float *w)
{
    return w ? TRIES + CLIP_TRIES : TRIES;
}

/* Returns the scale of least squares for the integers that x * id rounds to, and by how much it lowers the squared
 * error: with d = xq / qq that is sum(x^2) - xq^2 / qq. */
static float solve_signed(const float *x, const float *w, uint32_t count, int32_t half, float id,
                          float *ret_gain)
{
    float xq = 0, qq = 0;
    for (uint32_t i = 0; i < count; i++) {
        float q = (float)rounded(x[i] * id, -half, half - 1), wq = weight_at(w, i) * q;
        xq += x[i] * wq, qq += q * wq;
    }
    *ret_gain = qq > 0 ? xq * xq / qq : 0;
    return qq > 0 ? xq / qq : 0;
}

/* Returns the scale d of least squared error for x ~ d q, q in -half .. half - 1. */
static float fit_signed(const float *x, const float *w, uint32_t count, int32_t half)
{
    float top = x[0], best = 0, best_gain = 0, gain;
    for (uint32_t i = 1; i < count; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    for (int32_t t = -TRIES; t <= tries_end(w); t++) {
        float levels = (float)half + try_offset(t, (float)half);
        float d = solve_signed(x, w, count, half, inverse(top / -levels), &gain);
        if (gain > best_gain) best_gain = gain, best = d;
    }
    for (uint32_t n = 0; w && n < REFINEMENTS_MAX; n++) {
        float d = solve_signed(x, w, count, half, inverse(best), &gain);
        if (!(gain > best_gain)) break;
        best_gain = gain, best = d;
    }
    return best;
}

/* Numbers that become d q - m, q in 0 .. top. */
struct range {
    const float *x, *w; /* w NULL: all weigh the same */
    uint32_t count;
    int32_t top;
    bool m_positive; /* m cannot be below 0 */
};

/* Finds d and m of least squares for the integers that (x - min) * id rounds to. Returns the squared error that they
 * leave, of the nearest integers. */
static float solve_range(const struct range *r, float min, float id, float *ret_d, float *ret_m)
{
    float n = 0, q1 = 0, qq = 0, x1 = 0, xq = 0, off = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        float q = (float)rounded((r->x[i] - min) * id, 0, r->top), w = weight_at(r->w, i);
        n += w, q1 += w * q, qq += w * q * q, x1 += w * r->x[i], xq += w * r->x[i] * q;
    }
    float spread = n * qq - q1 * q1, d = 1 / id, m = -min;
    if (spread > 0) d = (n * xq - x1 * q1) / spread, m = (d * q1 - x1) / n;
    if (r->m_positive && m < 0) m = 0, d = qq > 0 ? xq / qq : 0;
    for (uint32_t i = 0; i < r->count; i++) {
        float q = d > 0 ? (float)rounded((r->x[i] + m) / d, 0, r->top) : 0;
        float e = d * q - m - r->x[i];
        off += weight_at(r->w, i) * e * e;
    }
    *ret_d = d, *ret_m = m;
    return off;
}

static void fit_range(const struct range *r, float *ret_d, float *ret_m)
{
    float min = r->x[0], max = r->x[0], best = INFINITY, d, m;
    for (uint32_t i = 1; i < r->count; i++)
        min = fminf(min, r->x[i]), max = fmaxf(max, r->x[i]);
    if (r->m_positive) min = fminf(min, 0);
    *ret_d = 0, *ret_m = -min;
    for (int32_t t = -TRIES; t <= tries_end(r->w) && max > min; t++) {
        float id = ((float)r->top + try_offset(t, (float)r->top)) / (max - min);
        if (!isfinite(id)) break;
        float off = solve_range(r, min, id, &d, &m);
        if (off < best && d >= 0) best = off, *ret_d = d, *ret_m = m;
    }
    for (uint32_t n = 0; r->w && *ret_d > 0 && n < REFINEMENTS_MAX; n++) {
        float off = solve_range(r, -*ret_m, 1 / *ret_d, &d, &m);
        if (!(off < best && d >= 0)) break;
        best = off, *ret_d = d, *ret_m = m;
    }
}

/* ---- weighted blocks */

static double weighted_error(const float *x, const float *w, uint32_t count, const float *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double e = (double)y[i] - (double)x[i];
        sum += (double)w[i] * e * e;
    }
    return sum;
}

/* Replaces a block by its plain rounding unless it has the smaller weighted error. */
static void keep_better(const float *x, const float *w, enum weight_type_id type, char *block)
{
    const struct weight_type *t = &weight_types[type];
    char plain[WEIGHT_BLOCK_BYTES_MAX];
    float y[QUANT_SUPER];
    t->to_f32(block, t->block_elements, y);
    double error = weighted_error(x, w, t->block_elements, y);
    t->from_f32(x, t->block_elements, plain);
    t->to_f32(plain, t->block_elements, y);
    if (!(error < weighted_error(x, w, t->block_elements, y))) memcpy(block, plain, t->block_bytes);
}

static float load_half(const char *p)
{
    return f16_to_f32(load_u16(p));
}

/* Writes the scale and the integers of a block, those in `fifths` for 32 levels. */
static void put_signed(const float *x, const float *w, char *scale, char *fifths, char *nibbles)
{
    const int32_t half = fifths ? 16 : 8;
    uint8_t q[QUANT_BLOCK];
    put_half(scale, fit_signed(x, w, QUANT_BLOCK, half));
    float id = inverse(load_half(scale));
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)(rounded(x[i] * id, -half, half - 1) + half);
    put_bits(q, fifths, nibbles);
}

static void put_range(const float *x, const float *w, char *scale, char *fifths, char *nibbles)
{
    const struct range r = { x, w, QUANT_BLOCK, fifths ? 31 : 15, false };
    uint8_t q[QUANT_BLOCK];
    float d, m;
    fit_range(&r, &d, &m);
    put_half(scale, d);
    put_half(scale + 2, -m);
    float id = inverse(load_half(scale)), min = load_half(scale + 2);
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)rounded((x[i] - min) * id, 0, r.top);
    put_bits(q, fifths, nibbles);
}

void quantise_q4_0_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, w += QUANT_BLOCK, ret += 18) {
        put_signed(x, w, ret, NULL, ret + 2);
        keep_better(x, w, WEIGHT_Q4_0, ret);
    }
}

void quantise_q5_0_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, w += QUANT_BLOCK, ret += 22) {
        put_signed(x, w, ret, ret + 2, ret + 6);
        keep_better(x, w, WEIGHT_Q5_0, ret);
    }
}

void quantise_q4_1_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, w += QUANT_BLOCK, ret += 20) {
        put_range(x, w, ret, NULL, ret + 4);
        keep_better(x, w, WEIGHT_Q4_1, ret);
    }
}

void quantise_q5_1_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_BLOCK, x += QUANT_BLOCK, w += QUANT_BLOCK, ret += 24) {
        put_range(x, w, ret, ret + 4, ret + 8);
        keep_better(x, w, WEIGHT_Q5_1, ret);
    }
}

/* ---- blocks of 256 */

#define SUBS_MAX 16u /* sub-blocks of a block */

static void pack_q6_k(const uint8_t q[QUANT_SUPER], char *ret)
{
    memset(ret, 0, 192);
    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        char *low = ret + i / 128 * 64 + i % 64, *high = ret + 128 + i / 128 * 32 + i % 32;
        *low = (char)(*low | (q[i] & 15) << i % 128 / 64 * 4);
        *high = (char)(*high | (q[i] >> 4) << i % 128 / 32 * 2);
    }
}

static void round_q6_k(const float *x, const float *w, char *ret)
{
    float scale[SUBS_MAX], top = 0;
    uint8_t q[QUANT_SUPER];
    for (uint32_t s = 0; s < 16; s++) {
        scale[s] = fit_signed(x + (size_t)s * 16, w ? w + (size_t)s * 16 : NULL, 16, 32);
        if (fabsf(scale[s]) > fabsf(top)) top = scale[s];
    }
    put_half(ret + 208, top / -128);
    float d = load_half(ret + 208), id = inverse(d);
    for (uint32_t s = 0; s < 16; s++) {
        int32_t level = rounded(scale[s] * id, -128, 127);
        float step = inverse(d * (float)level);
        ret[192 + s] = (char)(int8_t)level;
        for (uint32_t i = s * 16; i < s * 16 + 16; i++)
            q[i] = (uint8_t)(rounded(x[i] * step, -32, 31) + 32);
    }
    pack_q6_k(q, ret);
}

void quantise_q6_k(const float *x, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, ret += 210)
        round_q6_k(x, NULL, ret);
}

void quantise_q6_k_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, w += QUANT_SUPER, ret += 210) {
        round_q6_k(x, w, ret);
        keep_better(x, w, WEIGHT_Q6_K, ret);
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

static void round_q4_k(const float *x, const float *w, char *ret)
{
    float d[8], m[8], d_top = 0, m_top = 0;
    uint8_t scale[8], min[8], q[QUANT_SUPER];
    for (uint32_t s = 0; s < 8; s++) {
        const size_t at = (size_t)s * 32;
        const struct range r = { x + at, w ? w + at : NULL, 32, 15, true };
        fit_range(&r, &d[s], &m[s]);
        d_top = fmaxf(d_top, d[s]), m_top = fmaxf(m_top, m[s]);
    }
    put_half(ret, d_top / 63);
    put_half(ret + 2, m_top / 63);
    float d_unit = load_half(ret), m_unit = load_half(ret + 2);
    for (uint32_t s = 0; s < 8; s++) {
        scale[s] = (uint8_t)rounded(d[s] * inverse(d_unit), 0, 63);
        min[s] = (uint8_t)rounded(m[s] * inverse(m_unit), 0, 63);
        float step = inverse(d_unit * (float)scale[s]), offset = m_unit * (float)min[s];
        for (uint32_t i = s * 32; i < s * 32 + 32; i++)
            q[i] = (uint8_t)rounded((x[i] + offset) * step, 0, 15);
    }
    pack_q4_k(scale, min, q, ret + 4);
}

void quantise_q4_k(const float *x, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, ret += 144)
        round_q4_k(x, NULL, ret);
}

void quantise_q4_k_weighted(const float *x, const float *w, uint32_t count, char *ret)
{
    for (; count > 0; count -= QUANT_SUPER, x += QUANT_SUPER, w += QUANT_SUPER, ret += 144) {
        round_q4_k(x, w, ret);
        keep_better(x, w, WEIGHT_Q4_K, ret);
    }
}
