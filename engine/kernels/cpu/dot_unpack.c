/* dot_unpack.c - unpacks the tiles of each quantised type into bytes, scales and mins.
 *
 * The bit layouts are those of dequantise.c, over the pieces of four columns that weight.c packs: a
 * register holds one piece of eight rows. A type's constant offset (8 of Q4_0, 32 of Q6_K) becomes a min,
 * so that q is not negative and vpmaddubsw can take it. */
#define SIMD_HEADER "engine/kernels/cpu/simd_avx2.h"
#include "engine/kernels/cpu/dot_unpack.h"

#include "engine/kernels/cpu/simd.h"

#define PIECE_BYTES (TILE_ROWS * 4)

/* Loads piece `i` of a field of pieces of four bytes. */
ALWAYS_INLINE __m256i piece(const char *field, size_t i, uint32_t h)
{
    return _mm256_loadu_si256(
        (const __m256i_u *)(field + i * PIECE_BYTES + (size_t)h * DOT_ROWS * 4));
}

/* Converts the `i`th F16 of the rows. */
ALWAYS_INLINE __m256 halves(const char *field, size_t i, uint32_t h)
{
    return vec_load_f16(field + i * TILE_ROWS * 2 + (size_t)h * DOT_ROWS * 2);
}

/* Widens the `i`th byte of the rows. */
ALWAYS_INLINE __m256i bytes(const char *field, size_t i, uint32_t h)
{
    return _mm256_cvtepu8_epi32(
        _mm_loadl_epi64((const __m128i_u *)(field + i * TILE_ROWS + (size_t)h * DOT_ROWS)));
}

ALWAYS_INLINE __m256i bits(__m256i v, uint32_t shift, char mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, (int)shift), _mm256_set1_epi8(mask));
}

ALWAYS_INLINE __m256i bits32(__m256i v, uint32_t shift, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi32(v, (int)shift), _mm256_set1_epi32(mask));
}

ALWAYS_INLINE __m256 times(float factor, __m256 v)
{
    return _mm256_mul_ps(_mm256_set1_ps(factor), v);
}

/* Multiplies the rows' scale of a block by the integer of a sub-block. */
ALWAYS_INLINE __m256 scaled(__m256 d, __m256i whole)
{
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(whole));
}

#define EACH_HALF(h) for (uint32_t h = 0; h < DOT_HALVES; h++)

/* ---- blocks of 32 columns */

/* Unpacks the 16 bytes of nibbles of block `b`: the low ones come first. */
ALWAYS_INLINE void nibbles(const char *field, uint32_t b, uint32_t h, struct dot_half *to)
{
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        __m256i v = piece(field, j, h);
        to->q[b * 8 + j] = bits(v, 0, 15);
        to->q[b * 8 + j + 4] = bits(v, 4, 15);
    }
}

/* Adds the fifth bits of block `b`, four bytes a row: bit i belongs to column i. */
ALWAYS_INLINE void fifth_bits(const char *field, uint32_t b, uint32_t h, struct dot_half *to)
{
    const __m256i all = piece(field, 0, h);
    UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        /* The byte with the four bits, four times, and in each copy another of them. */
        const __m256i from = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                               0x08080808, 0x0c0c0c0c);
        const __m256i bit = _mm256_set1_epi32(j % 2 ? (int)0x80402010u : 0x08040201);
        __m256i byte =
            _mm256_shuffle_epi8(all, _mm256_add_epi8(from, _mm256_set1_epi8((char)(j / 2))));
        __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
        to->q[b * 8 + j] =
            _mm256_or_si256(to->q[b * 8 + j], _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
}

/* Replaces the nibbles of block `b` by the values of a table of 16. */
ALWAYS_INLINE void look_up(__m128i table, uint32_t b, struct dot_half *to)
{
    UNROLL
    for (uint32_t j = 0; j < 8; j++)
        to->q[b * 8 + j] =
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), to->q[b * 8 + j]);
}

/* Defines unpack_NAME; `at` is the tile's part of block `b`, and `to` the half. */
#define UNPACK_SMALL(name, block_bytes, ...)                                            \
    static void unpack_##name(const char *tile, uint32_t blocks, struct dot_panel *ret) \
    {                                                                                   \
        for (uint32_t b = 0; b < blocks; b++) {                                         \
            const char *at = tile + (size_t)b * TILE_ROWS * (block_bytes);              \
            EACH_HALF(h)                                                                \
            {                                                                           \
                struct dot_half *to = &ret->half[h];                                    \
                __VA_ARGS__                                                             \
            }                                                                           \
        }                                                                               \
    }

#define AFTER(field_bytes) (at + TILE_ROWS * (size_t)(field_bytes))

/* clang-format off */
UNPACK_SMALL(q4_0, 18,
    nibbles(AFTER(2), b, h, to);
    to->scale[b] = halves(at, 0, h);
    to->min[b] = times(8, to->scale[b]);)

UNPACK_SMALL(q4_1, 20,
    nibbles(AFTER(4), b, h, to);
    to->scale[b] = halves(at, 0, h);
    to->min[b] = times(-1, halves(at, 1, h));)

UNPACK_SMALL(q5_0, 22,
    nibbles(AFTER(6), b, h, to);
    fifth_bits(AFTER(2), b, h, to);
    to->scale[b] = halves(at, 0, h);
    to->min[b] = times(16, to->scale[b]);)

UNPACK_SMALL(q5_1, 24,
    nibbles(AFTER(8), b, h, to);
    fifth_bits(AFTER(4), b, h, to);
    to->scale[b] = halves(at, 0, h);
    to->min[b] = times(-1, halves(at, 1, h));)

UNPACK_SMALL(q8_0, 34,
    UNROLL
    for (uint32_t j = 0; j < 8; j++)
        to->q[b * 8 + j] = piece(AFTER(2), j, h);
    to->scale[b] = halves(at, 0, h);)

UNPACK_SMALL(iq4_nl, 18,
    nibbles(AFTER(2), b, h, to);
    look_up(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
            b, to);
    to->scale[b] = halves(at, 0, h);)

/* Twice the values of E2M1, and 12. The two least exponents of E8M0 are subnormal halves. */
UNPACK_SMALL(mxfp4, 17,
    nibbles(AFTER(1), b, h, to);
    look_up(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0), b, to);
    __m256i e = bytes(at, 0, h);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    to->scale[b] = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, is_tiny));
    to->min[b] = times(12, to->scale[b]);)
/* clang-format on */

/* ---- blocks of 256 columns: always one, with sub-blocks */

/* Reads scale and min of sub-block s of 8, six bits each (dequantise.c, k_scale_min). */
ALWAYS_INLINE void six_bits(const char *field, uint32_t s, uint32_t h, __m256i *ret_scale,
                            __m256i *ret_min)
{
    __m256i scale = bytes(field, s % 4, h), min = bytes(field, 4 + s % 4, h);
    if (s < 4) {
        *ret_scale = bits32(scale, 0, 63);
        *ret_min = bits32(min, 0, 63);
        return;
    }
    __m256i rest = bytes(field, 8 + s % 4, h);
    *ret_scale = _mm256_or_si256(bits32(rest, 0, 15), bits32(scale, 2, 0x30));
    *ret_min = _mm256_or_si256(bits32(rest, 4, 15), bits32(min, 2, 0x30));
}

/* Unpacks the nibbles, scales and mins of Q4_K, Q5_K; 32 bytes hold two runs of 32 columns. */
ALWAYS_INLINE void k_nibbles(const char *at, const char *quants, uint32_t h, struct dot_half *to)
{
    __m256 d = halves(at, 0, h), m = halves(at, 1, h);
    for (uint32_t s = 0; s < 8; s++) {
        UNROLL
        for (uint32_t j = 0; j < 8; j++)
            to->q[s * 8 + j] = bits(piece(quants, s / 2 * 8 + j, h), s % 2 * 4, 15);
        __m256i scale, min;
        six_bits(AFTER(4), s, h, &scale, &min);
        to->scale[s] = scaled(d, scale);
        to->min[s] = scaled(m, min);
    }
}

static void unpack_q4_k(const char *at, uint32_t blocks, struct dot_panel *ret)
{
    (void)blocks;
    EACH_HALF(h)
    {
        k_nibbles(at, AFTER(16), h, &ret->half[h]);
    }
}

static void unpack_q5_k(const char *at, uint32_t blocks, struct dot_panel *ret)
{
    (void)blocks;
    EACH_HALF(h)
    {
        struct dot_half *to = &ret->half[h];
        k_nibbles(at, AFTER(48), h, to);
        for (uint32_t s = 0; s < 8; s++) {
            UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                __m256i fifth = _mm256_slli_epi16(bits(piece(AFTER(16), j, h), s, 1), 4);
                to->q[s * 8 + j] = _mm256_or_si256(to->q[s * 8 + j], fifth);
            }
        }
    }
}

/* Returns piece `j` of run `b` of 32 columns, two bits each: 32 bytes hold four runs. */
ALWAYS_INLINE __m256i two_bits(const char *field, uint32_t b, uint32_t j, uint32_t h)
{
    return bits(piece(field, b / 4 * 8 + j, h), b % 4 * 2, 3);
}

static void unpack_q2_k(const char *at, uint32_t blocks, struct dot_panel *ret)
{
    (void)blocks;
    EACH_HALF(h)
    {
        struct dot_half *to = &ret->half[h];
        __m256 d = halves(AFTER(80), 0, h), m = halves(AFTER(80), 1, h);
        for (uint32_t b = 0; b < 8; b++) {
            UNROLL
            for (uint32_t j = 0; j < 8; j++)
                to->q[b * 8 + j] = two_bits(AFTER(16), b, j, h);
        }
        for (uint32_t s = 0; s < 16; s++) {
            to->scale[s] = scaled(d, bits32(bytes(at, s, h), 0, 15));
            to->min[s] = scaled(m, bits32(bytes(at, s, h), 4, 15));
        }
    }
}

static void unpack_q3_k(const char *at, uint32_t blocks, struct dot_panel *ret)
{
    (void)blocks;
    EACH_HALF(h)
    {
        struct dot_half *to = &ret->half[h];
        __m256 d = halves(AFTER(108), 0, h);
        for (uint32_t b = 0; b < 8; b++) {
            UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                __m256i third = _mm256_slli_epi16(bits(piece(at, j, h), b, 1), 2);
                to->q[b * 8 + j] = _mm256_or_si256(two_bits(AFTER(32), b, j, h), third);
            }
        }
        for (uint32_t s = 0; s < 16; s++) { /* dequantise.c, q3_k_scale */
            __m256i low = bits32(bytes(AFTER(96), s % 8, h), s / 8 * 4, 15);
            __m256i high = bits32(bytes(AFTER(104), s % 4, h), s / 4 * 2, 3);
            __m256i whole = _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
            to->scale[s] = scaled(d, _mm256_sub_epi32(whole, _mm256_set1_epi32(32)));
            to->min[s] = times(4, to->scale[s]);
        }
    }
}

static void unpack_q6_k(const char *at, uint32_t blocks, struct dot_panel *ret)
{
    (void)blocks;
    EACH_HALF(h)
    {
        struct dot_half *to = &ret->half[h];
        __m256 d = halves(AFTER(208), 0, h);
        for (uint32_t b = 0; b < 8; b++) {
            UNROLL
            for (uint32_t j = 0; j < 8; j++) {
                __m256i low = bits(piece(at, b / 4 * 16 + b % 2 * 8 + j, h), b % 4 / 2 * 4, 15);
                __m256i high = _mm256_slli_epi16(two_bits(AFTER(128), b, j, h), 4);
                to->q[b * 8 + j] = _mm256_or_si256(low, high);
            }
        }
        for (uint32_t s = 0; s < 16; s++) {
            __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64(
                (const __m128i_u *)(AFTER(192) + (size_t)s * TILE_ROWS + (size_t)h * DOT_ROWS)));
            to->scale[s] = scaled(d, whole);
            to->min[s] = times(32, to->scale[s]);
        }
    }
}

/* clang-format off */
const struct dot_type dot_types[WEIGHT_TYPE_COUNT] = {
    [WEIGHT_Q8_0]   = { unpack_q8_0,   DOT_SIGNED },
    [WEIGHT_Q4_0]   = { unpack_q4_0,   DOT_FIVE },
    [WEIGHT_Q4_1]   = { unpack_q4_1,   DOT_FIVE },
    [WEIGHT_Q5_0]   = { unpack_q5_0,   DOT_FIVE },
    [WEIGHT_Q5_1]   = { unpack_q5_1,   DOT_FIVE },
    [WEIGHT_Q2_K]   = { unpack_q2_k,   DOT_SIX },
    [WEIGHT_Q3_K]   = { unpack_q3_k,   DOT_SIX },
    [WEIGHT_Q4_K]   = { unpack_q4_k,   DOT_FIVE },
    [WEIGHT_Q5_K]   = { unpack_q5_k,   DOT_FIVE },
    [WEIGHT_Q6_K]   = { unpack_q6_k,   DOT_SIX },
    [WEIGHT_IQ4_NL] = { unpack_iq4_nl, DOT_SIGNED },
    [WEIGHT_MXFP4]  = { unpack_mxfp4,  DOT_FIVE },
};
/* clang-format on */
