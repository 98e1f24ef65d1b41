/* quantise.c - rounds rows of F32 to the types that we write.
 *
 * Q8_0 and the types of 32 elements with four or five bits round as the package `gguf` does, bit for bit. For
 * the K types and IQ4_NL that package has no rounding, and for MXFP4 one that clips: a block's scales are
 * chosen here for the least squared error,
 *
 *     1. for each sub-block, try some scales around the one that just reaches its largest value;
 *     2. for the integers that a scale gives, take the scale (and offset) of least squares;
 *     3. round the scales to the block's own six or eight bits, and round the elements again.
 *
 * Step 3 costs types of two and three bits most, so that they go on: sub-blocks choose among neighbouring
 * levels, then the block's scales are those of least squares for the levels, as long as that gains.
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
/* Smaller scales that are tried with weights, down to half of the plain one. */
#define CLIP_TRIES 16
#define REFINEMENTS_MAX 8
#define FEW_LEVELS 4 /* on a side */

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

/* Returns the scale d of least squared error for x ~ d q, q in -half .. half - 1. Few levels are searched as
 * widely as weights are, and from both ends: the largest element may also be the last positive one. */
static float fit_signed(const float *x, const float *w, uint32_t count, int32_t half)
{
    const bool few = half <= FEW_LEVELS, wide = w || few;
    const int32_t end = wide ? TRIES + CLIP_TRIES : TRIES;
    float top = x[0], best = 0, best_gain = 0, gain;
    for (uint32_t i = 1; i < count; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    for (int32_t t = -TRIES; t <= end; t++) {
        float levels = (float)half + try_offset(t, (float)half);
        for (uint32_t side = 0; side < (few ? 2u : 1u); side++) {
            float id = inverse(top / (side ? levels - 1 : -levels));
            float d = solve_signed(x, w, count, half, id, &gain);
            if (gain > best_gain) best_gain = gain, best = d;
        }
    }
    for (uint32_t n = 0; wide && n < REFINEMENTS_MAX; n++) {
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
        sum += (double)weight_at(w, i) * e * e;
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

/* Rounds the blocks of a row by `round_block`, with weights or with none. */
static void round_row(enum weight_type_id type,
                      void (*round_block)(const float *x, const float *w, char *ret),
                      const float *x, const float *w, uint32_t count, char *ret)
{
    const struct weight_type *t = &weight_types[type];
    for (; count > 0; count -= t->block_elements, x += t->block_elements, ret += t->block_bytes) {
        round_block(x, w, ret);
        if (!w) continue;
        keep_better(x, w, type, ret);
        w += t->block_elements;
    }
}

/* Define the functions of quant.h for a type whose blocks round_TYPE rounds. */
#define QUANTISE_WEIGHTED(name, type)                                                          \
    void quantise_##name##_weighted(const float *x, const float *w, uint32_t count, char *ret) \
    {                                                                                          \
        round_row(WEIGHT_##type, round_##name, x, w, count, ret);                              \
    }
#define QUANTISE_ROWS(name, type)                                    \
    void quantise_##name(const float *x, uint32_t count, char *ret)  \
    {                                                                \
        round_row(WEIGHT_##type, round_##name, x, NULL, count, ret); \
    }                                                                \
    QUANTISE_WEIGHTED(name, type)

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

static void round_q4_0(const float *x, const float *w, char *ret)
{
    put_signed(x, w, ret, NULL, ret + 2);
}

QUANTISE_WEIGHTED(q4_0, Q4_0)

static void round_q5_0(const float *x, const float *w, char *ret)
{
    put_signed(x, w, ret, ret + 2, ret + 6);
}

QUANTISE_WEIGHTED(q5_0, Q5_0)

static void round_q4_1(const float *x, const float *w, char *ret)
{
    put_range(x, w, ret, NULL, ret + 4);
}

QUANTISE_WEIGHTED(q4_1, Q4_1)

static void round_q5_1(const float *x, const float *w, char *ret)
{
    put_range(x, w, ret, ret + 4, ret + 8);
}

QUANTISE_WEIGHTED(q5_1, Q5_1)

/* ---- blocks of 32 whose levels are a table */

#define TABLE_TRIES 8 /* scales on either side of the plain one */
#define TABLE_STEP 0.02f

/* Returns the index of the nearest of IQ4_NL's values, by halving at the middles between them. */
static uint32_t nearest_nl(float v)
{
    static const float middle[15] = { -115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                      7,       19,     31.5f, 45.5f, 61,  79,     101 };
    uint32_t n = v > middle[7] ? 8 : 0;
    n += v > middle[n + 3] ? 4 : 0;
    n += v > middle[n + 1] ? 2 : 0;
    return n + (v > middle[n]);
}

/* solve_signed for IQ4_NL's values. */
static float solve_nl(const float *x, const float *w, float id, float *ret_gain)
{
    float xq = 0, qq = 0;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        float q = (float)quant_iq4_nl[nearest_nl(x[i] * id)], wq = weight_at(w, i) * q;
        xq += x[i] * wq, qq += q * wq;
    }
    *ret_gain = qq > 0 ? xq * xq / qq : 0;
    return qq > 0 ? xq / qq : 0;
}

static float fit_nl(const float *x, const float *w)
{
    const float ends[] = { (float)quant_iq4_nl[0], (float)quant_iq4_nl[15] };
    float top = x[0], best = 0, best_gain = 0, gain;
    for (uint32_t i = 1; i < QUANT_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    for (int32_t t = -TABLE_TRIES; t <= TABLE_TRIES + (w ? CLIP_TRIES : 0); t++) {
        for (uint32_t side = 0; side < 2; side++) {
            float end = ends[side] * (1 + (float)t * TABLE_STEP);
            float d = solve_nl(x, w, inverse(top / end), &gain);
            if (gain > best_gain) best_gain = gain, best = d;
        }
    }
    for (uint32_t n = 0; n < REFINEMENTS_MAX; n++) {
        float d = solve_nl(x, w, inverse(best), &gain);
        if (!(gain > best_gain)) break;
        best_gain = gain, best = d;
    }
    return best;
}

static void round_iq4_nl(const float *x, const float *w, char *ret)
{
    uint8_t q[QUANT_BLOCK];
    put_half(ret, fit_nl(x, w));
    float id = inverse(load_half(ret));
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)nearest_nl(x[i] * id);
    put_bits(q, NULL, ret + 2);
}

QUANTISE_ROWS(iq4_nl, IQ4_NL)

/* Rounds to 2^(e - 127) times the values of E2M1. */
static void put_mxfp4(const float *x, int32_t e, char *ret)
{
    const float id = ldexpf(1, 128 - e); /* of the table, which has them twice */
    uint8_t q[QUANT_BLOCK];
    for (uint32_t i = 0; i < QUANT_BLOCK; i++) {
        float v = fabsf(x[i]) * id;
        uint32_t n = 0;
        for (uint32_t j = 0; j < 7; j++)
            n += 2 * v > (float)(quant_e2m1_doubled[j] + quant_e2m1_doubled[j + 1]);
        q[i] = (uint8_t)(n | (x[i] < 0 && n > 0 ? 8 : 0));
    }
    ret[0] = (char)(uint8_t)e;
    put_bits(q, NULL, ret + 1);
}

/* The exponent that OCP's text names lets E2M1 reach three quarters of the largest magnitudes, so that the next one is
 * often better; a smaller one clips what weighs little. */
static void round_mxfp4(const float *x, const float *w, char *ret)
{
    float top = 0, y[QUANT_BLOCK];
    int32_t exponent;
    double best = INFINITY;
    for (uint32_t i = 0; i < QUANT_BLOCK; i++)
        top = fmaxf(top, fabsf(x[i]));
    (void)frexpf(top, &exponent); /* below 2^exponent */
    for (int32_t t = -1; t <= 1; t++) {
        char block[17];
        put_mxfp4(x, top > 0 ? truncated((float)(exponent - 3 + 127 + t), 0, 254) : 0, block);
        dequantise_mxfp4(block, QUANT_BLOCK, y);
        double off = weighted_error(x, w, QUANT_BLOCK, y);
        if (off < best) best = off, memcpy(ret, block, sizeof block);
    }
}

QUANTISE_ROWS(mxfp4, MXFP4)

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

QUANTISE_ROWS(q6_k, Q6_K)

/* Writes the eight scales and mins of Q4_K and Q5_K, six bits each. */
static void pack_scales(const uint8_t scale[8], const uint8_t min[8], char *ret)
{
    for (uint32_t s = 0; s < 4; s++) {
        ret[s] = (char)(scale[s] | (scale[s + 4] & 0x30) << 2);
        ret[4 + s] = (char)(min[s] | (min[s + 4] & 0x30) << 2);
        ret[8 + s] = (char)((scale[s + 4] & 15) | (min[s + 4] & 15) << 4);
    }
}

/* Writes the low four bits of 256 integers, as Q4_K and Q5_K have them. */
static void pack_nibbles(const uint8_t q[QUANT_SUPER], char *ret)
{
    for (uint32_t i = 0; i < 128; i++) {
        uint32_t low = i / 32 * 64 + i % 32;
        ret[i] = (char)((q[low] & 15) | (q[low + 32] & 15) << 4);
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
    pack_scales(scale, min, ret + 4);
    pack_nibbles(q, ret + 16);
}

QUANTISE_ROWS(q4_k, Q4_K)

/* ---- blocks of 256 whose scales are settled together */

/* Element i of sub-block s is d level[s] q[i] - m min[s]. */
struct super_kind {
    uint32_t subs;
    int32_t q_low, q_high, level_low, level_high, min_high; /* min_high 0: no offsets */
};

static const struct super_kind q2_k = { 16, 0, 3, 0, 15, 15 }, q3_k = { 16, -4, 3, -32, 31, 0 },
                               q5_k = { 8, 0, 31, 0, 63, 63 };

#define SETTLE_ROUNDS_MAX 6

struct super_fit {
    const struct super_kind *kind;
    const float *x, *w;
    float d, m; /* as F16 holds them */
    int32_t level[SUBS_MAX], min[SUBS_MAX];
};

static float as_half(float f)
{
    return f16_to_f32(f32_to_f16(f));
}

static int32_t super_q(const struct super_fit *f, float x, float offset, float id)
{
    return rounded((x + offset) * id, f->kind->q_low, f->kind->q_high);
}

static float sub_error(const struct super_fit *f, uint32_t s, int32_t level, int32_t min)
{
    const uint32_t count = QUANT_SUPER / f->kind->subs;
    const float step = f->d * (float)level, offset = f->m * (float)min, id = inverse(step);
    float off = 0;
    for (uint32_t i = s * count; i < s * count + count; i++) {
        float e = step * (float)super_q(f, f->x[i], offset, id) - offset - f->x[i];
        off += weight_at(f->w, i) * e * e;
    }
    return off;
}

/* Moves each sub-block to the best of its level and min and their neighbours. Returns the block's error. */
static float choose_levels(struct super_fit *f)
{
    const struct super_kind *k = f->kind;
    float all = 0;
    for (uint32_t s = 0; s < k->subs; s++) {
        const int32_t level = f->level[s], min = f->min[s];
        float best = sub_error(f, s, level, min);
        for (int32_t l = level - 1; l <= level + 1; l++) {
            for (int32_t n = min - 1; n <= min + 1; n++) {
                if (l < k->level_low || l > k->level_high || n < 0 || n > k->min_high) continue;
                float off = sub_error(f, s, l, n);
                if (off < best) best = off, f->level[s] = l, f->min[s] = n;
            }
        }
        all += best;
    }
    return all;
}

/* Sets d and m to those of least squares for the levels and integers that are chosen. */
static void solve_units(struct super_fit *f)
{
    const uint32_t count = QUANT_SUPER / f->kind->subs;
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (uint32_t s = 0; s < f->kind->subs; s++) {
        const float offset = f->m * (float)f->min[s], id = inverse(f->d * (float)f->level[s]);
        for (uint32_t i = s * count; i < s * count + count; i++) {
            double a = (double)f->level[s] * super_q(f, f->x[i], offset, id), b = -f->min[s];
            double w = (double)weight_at(f->w, i), x = (double)f->x[i];
            aa += w * a * a, ab += w * a * b, bb += w * b * b, ax += w * a * x, bx += w * b * x;
        }
    }
    double det = aa * bb - ab * ab, d = det > 0 ? (ax * bb - bx * ab) / det : 0,
           m = det > 0 ? (bx * aa - ax * ab) / det : 0;
    if (!(det > 0) || m < 0) d = aa > 0 ? (ax - (double)f->m * ab) / aa : 0, m = (double)f->m;
    f->d = as_half((float)d), f->m = as_half((float)m);
}

/* Chooses levels for the scales and offsets that sub-blocks would have of their own, d[s] and m[s]. */
static void settle(struct super_fit *f, const float *d, const float *m)
{
    const struct super_kind *k = f->kind;
    float d_top = 0, m_top = 0;
    for (uint32_t s = 0; s < k->subs; s++) {
        if (fabsf(d[s]) > fabsf(d_top)) d_top = d[s];
        m_top = fmaxf(m_top, m[s]);
    }
    f->d = as_half(d_top / (float)(k->level_low < 0 ? k->level_low : k->level_high));
    f->m = k->min_high > 0 ? as_half(m_top / (float)k->min_high) : 0;
    for (uint32_t s = 0; s < k->subs; s++) {
        f->level[s] = rounded(d[s] * inverse(f->d), k->level_low, k->level_high);
        f->min[s] = rounded(m[s] * inverse(f->m), 0, k->min_high);
    }
    float best = choose_levels(f);
    for (uint32_t n = 0; n < SETTLE_ROUNDS_MAX; n++) {
        struct super_fit next = *f;
        solve_units(&next);
        float off = choose_levels(&next);
        if (!(off < best)) break;
        best = off, *f = next;
    }
}

/* Fits a block, and writes its integers from 0 on. */
static void fit_super(struct super_fit *f, uint8_t q[QUANT_SUPER])
{
    const struct super_kind *k = f->kind;
    const uint32_t count = QUANT_SUPER / k->subs;
    float d[SUBS_MAX], m[SUBS_MAX] = { 0 };
    for (uint32_t s = 0; s < k->subs; s++) {
        const float *x = f->x + s * count, *w = f->w ? f->w + s * count : NULL;
        const struct range r = { x, w, count, k->q_high, true };
        if (k->min_high > 0)
            fit_range(&r, &d[s], &m[s]);
        else
            d[s] = fit_signed(x, w, count, -k->q_low);
    }
    settle(f, d, m);
    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        const float offset = f->m * (float)f->min[i / count];
        const float id = inverse(f->d * (float)f->level[i / count]);
        q[i] = (uint8_t)(super_q(f, f->x[i], offset, id) - k->q_low);
    }
}

/* Writes the low two bits of 256 integers, as Q2_K and Q3_K have them. */
static void pack_twos(const uint8_t q[QUANT_SUPER], char *ret)
{
    memset(ret, 0, 64);
    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        char *to = ret + i / 128 * 32 + i % 32;
        *to = (char)(*to | (q[i] & 3) << i % 128 / 32 * 2);
    }
}

static void round_q2_k(const float *x, const float *w, char *ret)
{
    struct super_fit f = { .kind = &q2_k, .x = x, .w = w };
    uint8_t q[QUANT_SUPER];
    fit_super(&f, q);
    for (uint32_t s = 0; s < 16; s++)
        ret[s] = (char)(f.level[s] | f.min[s] << 4);
    pack_twos(q, ret + 16);
    put_half(ret + 80, f.d);
    put_half(ret + 82, f.m);
}

static void round_q3_k(const float *x, const float *w, char *ret)
{
    struct super_fit f = { .kind = &q3_k, .x = x, .w = w };
    uint8_t q[QUANT_SUPER];
    fit_super(&f, q);
    memset(ret, 0, 110);
    for (uint32_t i = 0; i < QUANT_SUPER; i++)
        ret[i % 32] = (char)(ret[i % 32] | (q[i] >> 2) << i / 32);
    pack_twos(q, ret + 32);
    for (uint32_t s = 0; s < 16; s++) {
        uint32_t level = (uint32_t)(f.level[s] + 32);
        char *low = ret + 96 + s % 8, *high = ret + 104 + s % 4;
        *low = (char)(*low | (level & 15) << s / 8 * 4);
        *high = (char)(*high | (level >> 4) << s / 4 * 2);
    }
    put_half(ret + 108, f.d);
}

static void round_q5_k(const float *x, const float *w, char *ret)
{
    struct super_fit f = { .kind = &q5_k, .x = x, .w = w };
    uint8_t q[QUANT_SUPER], scale[8], min[8];
    fit_super(&f, q);
    for (uint32_t s = 0; s < 8; s++)
        scale[s] = (uint8_t)f.level[s], min[s] = (uint8_t)f.min[s];
    put_half(ret, f.d);
    put_half(ret + 2, f.m);
    pack_scales(scale, min, ret + 4);
    memset(ret + 16, 0, 32);
    for (uint32_t i = 0; i < QUANT_SUPER; i++)
        ret[16 + i % 32] = (char)(ret[16 + i % 32] | (q[i] >> 4) << i / 32);
    pack_nibbles(q, ret + 48);
}

QUANTISE_ROWS(q2_k, Q2_K)
QUANTISE_ROWS(q3_k, Q3_K)
QUANTISE_ROWS(q5_k, Q5_K)
