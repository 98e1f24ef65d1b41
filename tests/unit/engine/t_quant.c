/* t_quant.c - tests conversions of tensor types against the package `gguf` (tests/vectors/quant), and
 * searched scales against plain ones and against those that ggml finds, and weighted rounding against unweighted. */
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/kernels/half.h"
#include "engine/kernels/weight.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void freep(void *p)
{
    free(*(void **)p);
}

static void check_read(const struct weight_type *t, const char *raw, const char *expected,
                       uint32_t blocks)
{
    uint32_t count = blocks * t->block_elements;
    CLEANUP(freep) float *got = calloc(count, sizeof *got);
    must(got);
    t->to_f32(raw, count, got);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t want = load_u32(expected + i * sizeof want);
        bool both_nan = isnan(got[i]) && isnan(f32_from_bits(want));
        if (!both_nan && f32_bits(got[i]) != want)
            fail_msg("%s: element %u of block %u is %08x, not %08x", t->name, i % t->block_elements,
                     i / t->block_elements, f32_bits(got[i]), want);
    }
}

static void check_write(const struct weight_type *t, const char *floats, const char *expected,
                        uint32_t count)
{
    size_t bytes = count / t->block_elements * t->block_bytes;
    CLEANUP(freep) float *x = calloc(count, sizeof *x);
    CLEANUP(freep) char *got = calloc(1, bytes);
    must(x && got);
    memcpy(x, floats, count * sizeof *x);
    t->from_f32(x, count, got);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != expected[i])
            fail_msg("%s: byte %zu of block %zu is %02x, not %02x", t->name, i % t->block_bytes,
                     i / t->block_bytes, (uint8_t)got[i], (uint8_t)expected[i]);
}

static void conversions_equal_those_of_gguf(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bin = { 0 };
    read_file("tests/vectors/quant/quant.bin", &bin);
    FILE *text = fopen("tests/vectors/quant/quant.txt", "r");
    assert_non_null(text);
    char what[8], name[16], line[128];
    uint32_t count, reads = 0, writes = 0;
    size_t from, to;
    while (fgets(line, sizeof line, text)) {
        assert_int_equal(sscanf(line, "%7s %15s %u %zu %zu", what, name, &count, &from, &to), 5);
        enum weight_type_id type = WEIGHT_F32;
        if (strcmp(what, "floats") == 0) continue;
        const struct weight_type *t = weight_type_named(str_from(name), &type);
        if (!t) fail_msg("type %s is not in the table", name);
        assert_true(from < bin.len && to < bin.len);
        if (strcmp(what, "read") == 0)
            check_read(t, bin.data + from, bin.data + to, count), reads++;
        else
            check_write(t, bin.data + from, bin.data + to, count), writes++;
    }
    fclose(text);
    assert_int_equal(reads, WEIGHT_TYPE_COUNT - 1); /* all but F32 */
    assert_int_equal(writes, 7);
}

/* ---- what gguf does not write */

/* Returns the squared error of a round trip, as a share of the squares. */
static double round_trip(enum weight_type_id type, const float *x, uint32_t count)
{
    const struct weight_type *t = &weight_types[type];
    CLEANUP(freep) char *raw = calloc(1, weight_row_bytes(type, count));
    CLEANUP(freep) float *back = calloc(count, sizeof *back);
    must(raw && back);
    t->from_f32(x, count, raw);
    t->to_f32(raw, count, back);
    double off = 0, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        double d = (double)back[i] - (double)x[i];
        off += d * d, all += (double)x[i] * (double)x[i];
    }
    return all > 0 ? off / all : off;
}

static void searched_scales_lose_less(void **state)
{
    (void)state;
    enum { COUNT = 256 * 64 };
    struct rng rng;
    rng_seed(&rng, 3);
    CLEANUP(freep) float *x = calloc(COUNT, sizeof *x);
    must(x);
    for (uint32_t i = 0; i < COUNT; i++)
        x[i] = (float)rng_normal(&rng) * (1 + (float)(i / 32 % 7));
    double q4_0 = round_trip(WEIGHT_Q4_0, x, COUNT), q4_1 = round_trip(WEIGHT_Q4_1, x, COUNT);
    double q4_k = round_trip(WEIGHT_Q4_K, x, COUNT), q6_k = round_trip(WEIGHT_Q6_K, x, COUNT);
    double q8_0 = round_trip(WEIGHT_Q8_0, x, COUNT);
    if (!(q4_k < q4_1 && q4_k < q4_0 && q6_k < q4_k / 8 && q8_0 < q6_k))
        fail_msg("Q4_0 %g, Q4_1 %g, Q4_K %g, Q6_K %g, Q8_0 %g", q4_0, q4_1, q4_k, q6_k, q8_0);
    double q2_k = round_trip(WEIGHT_Q2_K, x, COUNT), q3_k = round_trip(WEIGHT_Q3_K, x, COUNT);
    double q5_k = round_trip(WEIGHT_Q5_K, x, COUNT), mxfp4 = round_trip(WEIGHT_MXFP4, x, COUNT);
    double iq4_nl = round_trip(WEIGHT_IQ4_NL, x, COUNT);
    if (!(q3_k < q2_k / 3 && q4_k < q3_k / 3 && q5_k < q4_k / 4 && q6_k < q5_k / 3 &&
          iq4_nl < q4_0 && mxfp4 < 2 * q4_0))
        fail_msg("Q2_K %g, Q3_K %g, Q4_K %g, Q5_K %g, Q6_K %g, IQ4_NL %g, MXFP4 %g", q2_k, q3_k,
                 q4_k, q5_k, q6_k, iq4_nl, mxfp4);
}

/* Returns the root of the squared error over the squares of rows of `cols`, weighted by column. */
static double row_error(const struct weight_type *t, const float *x, const float *w, uint32_t rows,
                        uint32_t cols)
{
    CLEANUP(freep) char *raw = calloc(cols / t->block_elements, t->block_bytes);
    CLEANUP(freep) float *back = calloc(cols, sizeof *back);
    double off = 0, all = 0;
    must(raw && back);
    for (uint32_t r = 0; r < rows; r++, x += cols) {
        if (w)
            t->from_f32_weighted(x, w, cols, raw);
        else
            t->from_f32(x, cols, raw);
        t->to_f32(raw, cols, back);
        for (uint32_t i = 0; i < cols; i++) {
            double e = (double)back[i] - (double)x[i], wi = w ? (double)w[i] : 1;
            off += wi * e * e, all += wi * (double)x[i] * (double)x[i];
        }
    }
    return sqrt(off / all);
}

/* The same floats lose no more here than in ggml (0.1 % of slack: Q4_K with weights), plainly and with weights. */
static void no_type_loses_more_than_in_ggml(void **state)
{
    (void)state;
    enum { ROWS = 8, COLS = 512 };
    static float x[ROWS * COLS], w[COLS];
    CLEANUP(buf_fini) struct buf bin = { 0 };
    read_file("tests/vectors/quant/ggml.bin", &bin);
    assert_int_equal(bin.len, sizeof x + sizeof w);
    memcpy(x, bin.data, sizeof x);
    memcpy(w, bin.data + sizeof x, sizeof w);
    FILE *text = fopen("tests/vectors/quant/ggml.txt", "r");
    assert_non_null(text);
    char name[16], line[128];
    double plain, weighted;
    uint32_t types = 0;
    while (fgets(line, sizeof line, text)) {
        enum weight_type_id type = WEIGHT_F32;
        assert_int_equal(sscanf(line, "%15s %lf %lf", name, &plain, &weighted), 3);
        const struct weight_type *t = weight_type_named(str_from(name), &type);
        if (!t) fail_msg("type %s is not in the table", name);
        double a = row_error(t, x, NULL, ROWS, COLS), b = row_error(t, x, w, ROWS, COLS);
        print_message("%-7s plain %.5f, ggml %.5f; weighted %.5f, ggml %.5f\n", name, a, plain, b,
                      weighted);
        if (!(a <= plain * 1.001 && b <= weighted * 1.001))
            fail_msg("%s: %g and %g, ggml %g and %g", name, a, b, plain, weighted);
        types++;
    }
    fclose(text);
    assert_int_equal(types, 11);
}

/* Integers at a block's own scales come back as they were: the packing of both is right. */
static void what_a_block_can_hold_comes_back(void **state)
{
    (void)state;
    static const struct {
        enum weight_type_id type;
        uint32_t sub;
        int32_t low, high;
    } kinds[] = { { WEIGHT_Q2_K, 16, -1, 2 },
                  { WEIGHT_Q3_K, 16, -4, 3 },
                  { WEIGHT_Q4_K, 32, -5, 10 },
                  { WEIGHT_Q5_K, 32, -11, 20 },
                  { WEIGHT_Q6_K, 16, -32, 31 } };
    struct rng rng;
    rng_seed(&rng, 4);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        float x[QUANT_SUPER];
        for (uint32_t j = 0; j < QUANT_SUPER; j++) {
            uint32_t range = (uint32_t)(kinds[i].high - kinds[i].low + 1);
            float q = (float)((int32_t)rng_below(&rng, range) + kinds[i].low);
            if (j % 16 == 0) q = (float)kinds[i].low;
            if (j % 16 == 1) q = (float)kinds[i].high;
            /* What is at most -32 has halves and quarters, 63 and 15 have thirds. */
            const uint32_t sub = j / kinds[i].sub % 3;
            x[j] = q * (float)(kinds[i].type == WEIGHT_Q3_K ? 1u << sub : sub + 1) / 16;
        }
        double off = round_trip(kinds[i].type, x, QUANT_SUPER);
        if (!(off < 2e-5)) fail_msg("%s: off by %g", weight_types[kinds[i].type].name, off);
    }
}

static void odd_blocks_stay_finite(void **state)
{
    (void)state;
    static const float odd[][2] = {
        { 0, 0 },     { 1, 1 },     { -3, -3 },  { 1e-30f, -1e-30f }, { 1e-41f, -1e-42f },
        { 3e4f, -1 }, { 0, -6e4f }, { 1e-8f, 5 }
    };
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        for (size_t i = 0; i < COUNT_OF(odd); i++) {
            float x[QUANT_SUPER], back[QUANT_SUPER];
            char raw[QUANT_SUPER * sizeof(float)];
            for (uint32_t j = 0; j < QUANT_SUPER; j++)
                x[j] = odd[i][j % 3 == 0];
            weight_types[type].from_f32(x, QUANT_SUPER, raw);
            weight_types[type].to_f32(raw, QUANT_SUPER, back);
            float slack = 0.2f * (fabsf(odd[i][0]) + fabsf(odd[i][1])) + 1e-7f;
            for (uint32_t j = 0; j < QUANT_SUPER; j++)
                if (!(fabsf(back[j] - x[j]) <= slack))
                    fail_msg("%s: %g became %g", weight_types[type].name, (double)x[j],
                             (double)back[j]);
        }
    }
}

/* ---- weights */

/* Rounds a block with weights, or plainly without, and returns its error, weighted by `judge`. */
static double block_error(const struct weight_type *t, const float *x, const float *w,
                          const float *judge)
{
    char raw[QUANT_SUPER * sizeof(float)];
    float back[QUANT_SUPER];
    double off = 0;
    if (w)
        t->from_f32_weighted(x, w, t->block_elements, raw);
    else
        t->from_f32(x, t->block_elements, raw);
    t->to_f32(raw, t->block_elements, back);
    for (uint32_t i = 0; i < t->block_elements; i++) {
        double d = (double)back[i] - (double)x[i];
        off += (double)judge[i] * d * d;
    }
    return off;
}

/* Blocks of unequal spread, and weights of which few matter, as those of real models. */
static void fill_skewed(struct rng *rng, float x[QUANT_SUPER], float w[QUANT_SUPER])
{
    for (uint32_t i = 0; i < QUANT_SUPER; i++) {
        x[i] = (float)rng_normal(rng) * (1 + (float)(i / 32 % 7));
        w[i] = (float)exp(2 * rng_normal(rng));
    }
}

static void weights_lower_the_weighted_error(void **state)
{
    (void)state;
    uint32_t types = 0;
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        const struct weight_type *t = &weight_types[type];
        struct rng rng;
        double with = 0, without = 0, scaled = 0;
        if (!t->from_f32_weighted) continue;
        types++;
        rng_seed(&rng, 11);
        for (uint32_t n = 0; n < 200; n++) {
            float x[QUANT_SUPER], w[QUANT_SUPER], more[QUANT_SUPER];
            fill_skewed(&rng, x, w);
            for (uint32_t i = 0; i < QUANT_SUPER; i++)
                more[i] = w[i] * 1024;
            double a = block_error(t, x, w, w), b = block_error(t, x, NULL, w);
            if (!(a <= b)) fail_msg("%s: block %u: %g with weights, %g without", t->name, n, a, b);
            with += a, without += b, scaled += block_error(t, x, more, w);
        }
        /* Measured: 0.28 (Q4_1) to 0.51 (Q6_K) of the error; of MXFP4, whose scales are powers of two, 0.93. */
        if (!(with < (type == WEIGHT_MXFP4 ? 0.97 : 0.6) * without))
            fail_msg("%s: %g, not below %g", t->name, with, without);
        if (!(fabs(scaled / with - 1) < 1e-9)) fail_msg("%s: weights have a scale", t->name);
    }
    assert_int_equal(types, 11);
}

static void equal_weights_lose_no_more(void **state)
{
    (void)state;
    float x[QUANT_SUPER], w[QUANT_SUPER], even[QUANT_SUPER];
    struct rng rng;
    rng_seed(&rng, 12);
    for (uint32_t i = 0; i < QUANT_SUPER; i++)
        even[i] = 0.125f;
    for (uint32_t n = 0; n < 200; n++) {
        fill_skewed(&rng, x, w);
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
            const struct weight_type *t = &weight_types[type];
            if (!t->from_f32_weighted) continue;
            double with = block_error(t, x, even, even), without = block_error(t, x, NULL, even);
            if (!(with <= without)) fail_msg("%s: %g, not %g", t->name, with, without);
        }
    }
}

/* Weights of zero, far apart and near the ends of a float's range; blocks of zeros and of equals. */
static void odd_weights_stay_finite(void **state)
{
    (void)state;
    static const float odd[][2] = { { 0, 0 },         { 0, 1 },         { 1e-30f, 1e-30f },
                                    { 1e25f, 1e25f }, { 1e-20f, 1e3f }, { 1e-4f, 2e4f } };
    static const float fill[] = { 0, 1, -3, 1e-30f };
    struct rng rng;
    rng_seed(&rng, 13);
    for (uint32_t n = 0; n < 60; n++) {
        float x[QUANT_SUPER], w[QUANT_SUPER];
        fill_skewed(&rng, x, w);
        for (uint32_t i = 0; i < QUANT_SUPER; i++) {
            w[i] = odd[n % COUNT_OF(odd)][i % 5 == 0];
            if (n % 5 < COUNT_OF(fill)) x[i] = fill[n % 5];
        }
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
            const struct weight_type *t = &weight_types[type];
            if (!t->from_f32_weighted) continue;
            double with = block_error(t, x, w, w), without = block_error(t, x, NULL, w);
            if (!(with <= without)) fail_msg("%s, %u: %g, not %g", t->name, n, with, without);
        }
    }
}

static void the_table_is_whole(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        const struct weight_type *t = &weight_types[type];
        enum weight_type_id found;
        uint32_t bytes = 0;
        for (uint32_t i = 0; i < WEIGHT_FIELDS_MAX && t->field[i].bytes > 0; i++) {
            assert_int_equal(t->field[i].bytes % t->field[i].piece, 0);
            bytes += t->field[i].bytes;
        }
        assert_int_equal(bytes, t->block_bytes);
        assert_true(t->block_bytes <= WEIGHT_BLOCK_BYTES_MAX);
        assert_ptr_equal(weight_type_of_gguf(t->gguf_id, &found), t);
        assert_int_equal(found, type);
        assert_ptr_equal(weight_type_named(str_from(t->name), &found), t);
    }
    enum weight_type_id found;
    assert_non_null(weight_type_named(STR("q4_k"), &found));
    assert_int_equal(found, WEIGHT_Q4_K);
    assert_null(weight_type_named(STR("q4"), &found));
    assert_null(weight_type_named(STR("q4_kx"), &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_equal_those_of_gguf),
        cmocka_unit_test(searched_scales_lose_less),
        cmocka_unit_test(no_type_loses_more_than_in_ggml),
        cmocka_unit_test(what_a_block_can_hold_comes_back),
        cmocka_unit_test(odd_blocks_stay_finite),
        cmocka_unit_test(weights_lower_the_weighted_error),
        cmocka_unit_test(equal_weights_lose_no_more),
        cmocka_unit_test(odd_weights_stay_finite),
        cmocka_unit_test(the_table_is_whole),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
