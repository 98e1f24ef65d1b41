/* dot_unpack.h - unpacks tiles of each quantised type, a block of 32 columns at a time.
 *
 * Layer:  engine/kernels. A template over the vector of simd.h, for dot_product.h
 * Format: a block holds 32 columns of as many rows as a register has lanes. A register of q holds columns
 *         4 i .. 4 i + 3 of these rows, and a weight is, with s 0, or 0 and 1 for halves of 16 columns,
 *
 *             scale[s] q - min[s]       or       scale[s] (q - centre)
 *
 *         where a type has the same centre everywhere (8 of Q4_0, 32 of Q6_K). q is not negative, so that
 *         instructions that multiply unsigned by signed bytes can take it, but in DOT_SIGNED.
 * Kinds:  by the range of q, which decides how far sums of q times int8 fit int16
 *             DOT_FIVE, DOT_FIVE_CENTRED    0 .. 31, one scale
 *             DOT_SIX, DOT_SIX_CENTRED      0 .. 63, two scales
 *             DOT_SIGNED                    -128 .. 127, one scale, neither min nor centre
 *             DOT_RAISED, DOT_SIX_RAISED    what was signed or centred, raised to a centre of 128 for the
 *                                           panel of many tokens: one or two scales
 *
 * The bit layouts are those of dequantise.c, over the pieces of four columns that weight.c packs: a register
 * holds one piece of the rows.
 *
 * block_NAME unpacks block `b` of 8 of the tile's columns that begin at `tile`, rows from h * VEC_LANES on. A
 * block stays in registers if it is multiplied at once. */
#pragma once
#include "engine/kernels/cpu/simd.h"

#define DOT_HALVES (TILE_ROWS / VEC_LANES)
#define DOT_PIECES (QUANT_BLOCK / 4)
#define DOT_BLOCKS (QUANT_SUPER / QUANT_BLOCK)
#define PIECE_BYTES (TILE_ROWS * 4)

struct dot_block {
    ivec q[DOT_PIECES];
    vec scale[2], min[2];
};

enum dot_kind {
    DOT_FIVE,
    DOT_FIVE_CENTRED,
    DOT_SIX,
    DOT_SIX_CENTRED,
    DOT_SIGNED,
    DOT_RAISED,
    DOT_SIX_RAISED,
    DOT_KIND_COUNT
};

/* Returns true if halves of a block have scales of their own. */
ALWAYS_INLINE bool dot_halved(enum dot_kind kind)
{
    return kind == DOT_SIX || kind == DOT_SIX_CENTRED || kind == DOT_SIX_RAISED;
}

/* Loads piece `i` of a field of pieces of four bytes. */
ALWAYS_INLINE ivec piece(const char *field, size_t i, uint32_t h)
{
    return ivec_load(field + i * PIECE_BYTES + (size_t)h * VEC_LANES * 4);
}

/* Converts the `i`th F16 of the rows. */
ALWAYS_INLINE vec halves(const char *field, size_t i, uint32_t h)
{
    return vec_load_f16(field + i * TILE_ROWS * 2 + (size_t)h * VEC_LANES * 2);
}

/* Widens the `i`th byte of the rows. */
ALWAYS_INLINE ivec bytes(const char *field, size_t i, uint32_t h)
{
    return ivec_load_u8(field + i * TILE_ROWS + (size_t)h * VEC_LANES);
}

ALWAYS_INLINE ivec bits(ivec v, uint32_t shift, char mask)
{
    return ivec_and(shift ? ivec_right_16(v, shift) : v, ivec_set1_8(mask));
}

ALWAYS_INLINE ivec bits32(ivec v, uint32_t shift, int32_t mask)
{
    return ivec_and(ivec_right_32(v, shift), ivec_set1_32(mask));
}

ALWAYS_INLINE vec times(float factor, vec v)
{
    return vec_mul(vec_set1(factor), v);
}

/* Multiplies the rows' scale of a block by the integer of a sub-block. */
ALWAYS_INLINE vec scaled(vec d, ivec whole)
{
    return vec_mul(d, ivec_to_f32(whole));
}

/* ---- blocks of 32 columns */

/* Unpacks 16 bytes of nibbles: the low ones come first. */
ALWAYS_INLINE void nibbles(const char *field, uint32_t h, struct dot_block *to)
{
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        ivec v = piece(field, j, h);
        to->q[j] = bits(v, 0, 15);
        to->q[j + 4] = bits(v, 4, 15);
    }
}

/* Adds the fifth bits, four bytes a row: bit i belongs to column i. */
ALWAYS_INLINE void fifth_bits(const char *field, uint32_t h, struct dot_block *to)
{
    const ivec all = piece(field, 0, h);
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = ivec_or(to->q[j], ivec_sixteens(all, j));
}

static const int8_t iq4_nl_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113 };

/* Twice the values of E2M1, and 12. */
static const int8_t mxfp4_values[16] = {
    12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0
};

/* Replaces nibbles by the values of a table of 16. */
ALWAYS_INLINE void look_up(const int8_t table[16], struct dot_block *to)
{
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = ivec_look_up(table, to->q[j]);
}

/* Defines block_NAME; `at` is the tile's part of the block. */
#define BLOCK_SMALL(name, block_bytes, ...)                                   \
    ALWAYS_INLINE void block_##name(const char *tile, uint32_t b, uint32_t h, \
                                    struct dot_block *to)                     \
    {                                                                         \
        const char *at = tile + (size_t)b * TILE_ROWS * (block_bytes);        \
        __VA_ARGS__                                                           \
    }

#define AFTER(field_bytes) (at + TILE_ROWS * (size_t)(field_bytes))

/* clang-format off */
BLOCK_SMALL(q4_0, 18,
    nibbles(AFTER(2), h, to);
    to->scale[0] = halves(at, 0, h);)

BLOCK_SMALL(q4_1, 20,
    nibbles(AFTER(4), h, to);
    to->scale[0] = halves(at, 0, h);
    to->min[0] = times(-1, halves(at, 1, h));)

BLOCK_SMALL(q5_0, 22,
    nibbles(AFTER(6), h, to);
    fifth_bits(AFTER(2), h, to);
    to->scale[0] = halves(at, 0, h);)

BLOCK_SMALL(q5_1, 24,
    nibbles(AFTER(8), h, to);
    fifth_bits(AFTER(4), h, to);
    to->scale[0] = halves(at, 0, h);
    to->min[0] = times(-1, halves(at, 1, h));)

BLOCK_SMALL(q8_0, 34,
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = piece(AFTER(2), j, h);
    to->scale[0] = halves(at, 0, h);)

BLOCK_SMALL(iq4_nl, 18,
    nibbles(AFTER(2), h, to);
    look_up(iq4_nl_values, to);
    to->scale[0] = halves(at, 0, h);)

BLOCK_SMALL(mxfp4, 17,
    nibbles(AFTER(1), h, to);
    look_up(mxfp4_values, to);
    to->scale[0] = ivec_e8m0_half(bytes(at, 0, h));)
/* clang-format on */

/* ---- blocks of 256 columns, `at`, whose sub-block or pair of sub-blocks `b` is a constant after inlining */

/* Reads scale and min of sub-block b, six bits each (dequantise.c, k_scale_min). */
ALWAYS_INLINE void six_bits(const char *field, uint32_t b, uint32_t h, ivec *ret_scale,
                            ivec *ret_min)
{
    ivec scale = bytes(field, b % 4, h), min = bytes(field, 4 + b % 4, h);
    if (b < 4) {
        *ret_scale = bits32(scale, 0, 63);
        *ret_min = bits32(min, 0, 63);
        return;
    }
    ivec rest = bytes(field, 8 + b % 4, h);
    *ret_scale = ivec_or(bits32(rest, 0, 15), bits32(scale, 2, 0x30));
    *ret_min = ivec_or(bits32(rest, 4, 15), bits32(min, 2, 0x30));
}

/* Unpacks nibbles, scale and min of Q4_K, Q5_K; 32 bytes hold two runs of 32 columns. */
ALWAYS_INLINE void k_nibbles(const char *at, const char *quants, uint32_t b, uint32_t h,
                             struct dot_block *to)
{
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = bits(piece(quants, b / 2 * 8 + j, h), b % 2 * 4, 15);
    ivec scale, min;
    six_bits(AFTER(4), b, h, &scale, &min);
    to->scale[0] = scaled(halves(at, 0, h), scale);
    to->min[0] = scaled(halves(at, 1, h), min);
}

ALWAYS_INLINE void block_q4_k(const char *at, uint32_t b, uint32_t h, struct dot_block *to)
{
    k_nibbles(at, AFTER(16), b, h, to);
}

ALWAYS_INLINE void block_q5_k(const char *at, uint32_t b, uint32_t h, struct dot_block *to)
{
    k_nibbles(at, AFTER(48), b, h, to);
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = ivec_or(to->q[j], ivec_left_16(bits(piece(AFTER(16), j, h), b, 1), 4));
}

/* Returns piece `j` of run `b` of 32 columns, two bits each: 32 bytes hold four runs. */
ALWAYS_INLINE ivec two_bits(const char *field, uint32_t b, uint32_t j, uint32_t h)
{
    return bits(piece(field, b / 4 * 8 + j, h), b % 4 * 2, 3);
}

ALWAYS_INLINE void block_q2_k(const char *at, uint32_t b, uint32_t h, struct dot_block *to)
{
    vec d = halves(AFTER(80), 0, h), m = halves(AFTER(80), 1, h);
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = two_bits(AFTER(16), b, j, h);
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        ivec both = bytes(at, 2 * b + i, h);
        to->scale[i] = scaled(d, bits32(both, 0, 15));
        to->min[i] = scaled(m, bits32(both, 4, 15));
    }
}

ALWAYS_INLINE void block_q3_k(const char *at, uint32_t b, uint32_t h, struct dot_block *to)
{
    vec d = halves(AFTER(108), 0, h);
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++) {
        ivec third = ivec_left_16(bits(piece(at, j, h), b, 1), 2);
        to->q[j] = ivec_or(two_bits(AFTER(32), b, j, h), third);
    }
    UNROLL
    for (uint32_t i = 0; i < 2; i++) { /* dequantise.c, q3_k_scale */
        uint32_t s = 2 * b + i;
        ivec low = bits32(bytes(AFTER(96), s % 8, h), s / 8 * 4, 15);
        ivec high = bits32(bytes(AFTER(104), s % 4, h), s / 4 * 2, 3);
        ivec whole = ivec_or(low, ivec_left_32(high, 4));
        to->scale[i] = scaled(d, ivec_sub_32(whole, ivec_set1_32(32)));
    }
}

/* A tile has d, the scales, and in turns runs of 32 bytes: of low bits, for two runs of 32 columns, and of high bits,
 * for four (weight.c). */
ALWAYS_INLINE void block_q6_k(const char *at, uint32_t b, uint32_t h, struct dot_block *to)
{
    static const uint8_t low_at[4] = { 18, 82, 114, 178 }, high_at[2] = { 50, 146 };
    const char *low = AFTER(low_at[b / 4 * 2 + b % 2]), *high = AFTER(high_at[b / 4]);
    vec d = halves(at, 0, h);
    UNROLL
    for (uint32_t j = 0; j < DOT_PIECES; j++)
        to->q[j] = ivec_or(bits(piece(low, j, h), b % 4 / 2 * 4, 15),
                           ivec_left_16(two_bits(high, b % 4, j, h), 4));
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const char *s = AFTER(2) + (size_t)(2 * b + i) * TILE_ROWS + (size_t)h * VEC_LANES;
        to->scale[i] = scaled(d, ivec_load_s8(s));
    }
}
