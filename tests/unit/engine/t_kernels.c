/* t_kernels.c - halves, packing, and every row of ops_table against op_ref at awkward shapes: matrix
 * products, norms, RoPE and SiLU, and the same bits whatever else is computed in the call. */
#include "engine/kernels/half.h"
#include "tests/unit/engine/kernels_rig.h"

#include <math.h>
#include <stdio.h>

static void *scratch;

/* ---- halves and packing */

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float value = f16_to_f32((uint16_t)h), next = f16_to_f32((uint16_t)(h + 1));
        assert_int_equal(f32_to_f16(value), h);
        assert_int_equal(f32_to_f16(-value), h | 0x8000);
        if (h + 1 == 0x7c00) next = 65536; /* where the next finite step would be */
        float middle = (float)(((double)value + (double)next) / 2); /* exact */
        assert_int_equal(f32_to_f16(middle), h + (h & 1));
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_true(f16_to_f32(0x3c00) == 1 && f16_to_f32(0x7bff) == 65504);
    assert_true(f16_to_f32(1) == 0x1p-24f && f16_to_f32(0x0400) == 0x1p-14f);
    assert_int_equal(f32_to_f16(INFINITY), 0x7c00);
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))));
    assert_true(bf16_to_f32(0x3fc0) == 1.5f);
}

/* Random bytes in the file's form of a type, finite. */
static char *random_rows(enum weight_type_id type, uint32_t rows, uint32_t cols, struct rng *rng)
{
    size_t bytes = rows * weight_row_bytes(type, cols);
    char *data = take(bytes);
    const struct weight_type *t = &weight_types[type];
    for (size_t i = 0; i < bytes; i += t->block_bytes) {
        float value = (float)rng_normal(rng);
        uint16_t half = f32_to_f16(value / 64);
        if (type == WEIGHT_F32) {
            memcpy(data + i, &value, sizeof value);
        } else if (type == WEIGHT_BF16) {
            half = (uint16_t)(f32_bits(value) >> 16);
            memcpy(data + i, &half, sizeof half);
        } else {
            memcpy(data + i, &half, sizeof half);
            for (size_t j = 2; j < t->block_bytes; j++)
                data[i + j] = (char)rng_u64(rng);
        }
    }
    return data;
}

/* Owned: tiles. */
static struct weight packed(enum weight_type_id type, const char *data, uint32_t rows,
                            uint32_t cols)
{
    struct weight w = { .type = type, .rows = rows, .cols = cols };
    size_t row_bytes = weight_row_bytes(type, cols), tile_bytes = weight_tile_bytes(&w);
    char *tiles = take(weight_tiles(&w) * tile_bytes);
    for (uint32_t r = 0; r < rows; r += TILE_ROWS)
        weight_types[type].pack(data + r * row_bytes, min_u32(TILE_ROWS, rows - r), cols,
                                tiles + r / TILE_ROWS * tile_bytes);
    w.tiles = tiles;
    return w;
}

static void packed_rows_read_back(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        for (uint32_t rows = 1; rows <= 33; rows += 4) {
            uint32_t cols = 96;
            OWNED char *data = random_rows(type, rows, cols, &rng);
            struct weight w = packed(type, data, rows, cols);
            float expected[96], got[96];
            for (uint32_t r = 0; r < rows; r++) {
                weight_types[type].to_f32(data + r * weight_row_bytes(type, cols), cols, expected);
                weight_row(&w, r, got);
                assert_memory_equal(got, expected, sizeof got);
            }
            free((void *)(uintptr_t)w.tiles);
        }
    }
}

/* ---- matrix products */

/* clang-format off */
static const struct {
    uint32_t rows, cols, tokens;
    const char *why;
} products[] = {
    { 1,   32,  1,  "the smallest" },
    { 15,  32,  1,  "a tile less one" },
    { 16,  64,  2,  "one tile" },
    { 17,  96,  3,  "a tile and one" },
    { 33,  32,  4,  "most tokens of the wide kernels" },
    { 48,  32,  5,  "least tokens of the blocks; odd tiles" },
    { 64,  64,  6,  "all tokens of an AVX2 block" },
    { 80,  32,  7,  "an AVX2 block and one; tiles in 4 + 1" },
    { 112, 32,  2,  "tiles in 4 + 3" },
    { 33,  288, 11, "a panel and 32 columns" },
    { 32,  256, 12, "exactly a block of AVX-512" },
    { 40,  544, 13, "a block and one; two panels and 32" },
    { 31,  64,  25, "two blocks and one" },
    { 96,  512, 40, "many of everything" },
};
/* clang-format on */

static struct gemm gemm_over(const struct weight *w, const float *x, float *y, uint32_t tokens)
{
    return (struct gemm){ .w = w,
                          .x = x,
                          .x_stride = activation_stride(w->cols),
                          .y = y,
                          .y_stride = activation_stride(w->rows),
                          .tokens = tokens };
}

static void check_product(const struct ops *o, enum weight_type_id type, uint32_t rows,
                          uint32_t cols, uint32_t tokens, const char *why)
{
    struct rng rng;
    rng_seed(&rng, rows * 1000 + cols);
    OWNED char *data = random_rows(type, rows, cols, &rng);
    struct weight w = packed(type, data, rows, cols);
    OWNED void *tiles = (void *)(uintptr_t)w.tiles;
    size_t outputs = tokens * activation_stride(rows), bytes = outputs * sizeof(float);
    OWNED float *x = random_floats(tokens * activation_stride(cols), &rng);
    OWNED float *truth = take(bytes);
    OWNED float *fast = take(bytes);
    OWNED float *again = take(bytes);
    (void)tiles;

    struct gemm g = gemm_over(&w, x, truth, tokens);
    op_ref.gemm(&g, 0, weight_tiles(&w), scratch);
    g.y = fast;
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    double off = nmse(fast, truth, outputs);
    if (!(off < NMSE_MAX))
        fail_msg("%s %s %ux%u, %u tokens (%s): NMSE %g", o->name, weight_types[type].name, rows,
                 cols, tokens, why, off);

    /* Token by token and tile by tile: the same bits. */
    for (uint32_t t = 0; t < tokens; t++) {
        struct gemm one = gemm_over(&w, x + t * g.x_stride, again + t * g.y_stride, 1);
        for (uint32_t tile = 0; tile < weight_tiles(&w); tile++)
            o->gemm(&one, tile, 1, scratch);
    }
    if (memcmp(again, fast, bytes) != 0)
        fail_msg("%s %s %ux%u, %u tokens (%s): alone differs from batched", o->name,
                 weight_types[type].name, rows, cols, tokens, why);

    /* Accumulating goes on from what is there. */
    g.accumulate = true;
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    for (size_t i = 0; i < outputs; i++)
        truth[i] *= 2;
    assert_true(nmse(fast, truth, outputs) < NMSE_MAX);
}

static void products_equal_the_reference(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++)
            for (size_t i = 0; i < COUNT_OF(products); i++)
                check_product(o, type, products[i].rows, products[i].cols, products[i].tokens,
                              products[i].why);
        check_product(o, WEIGHT_F32, 17, 1, 3, "one column");
        check_product(o, WEIGHT_F16, 20, 7, 13, "columns that are no multiple of anything");
        check_product(o, WEIGHT_BF16, 20, 259, 13, "a panel and three columns");
    }
}

/* Independent of op_ref's reading of tiles: a product by hand. */
static void the_reference_multiplies(void **state)
{
    (void)state;
    float data[2][3] = { { 1, 2, 3 }, { -1, 0, 0.5f } };
    OWNED void *tiles = NULL;
    struct weight w = packed(WEIGHT_F32, (const char *)data, 2, 3);
    tiles = (void *)(uintptr_t)w.tiles;
    float x[2][32] = { { 1, 10, 100 }, { 2, 0, 4 } }, y[2][32] = { { 0 } };
    struct gemm g = gemm_over(&w, x[0], y[0], 2);
    assert_int_equal(g.x_stride, 32);
    op_ref.gemm(&g, 0, 1, scratch);
    assert_true(y[0][0] == 321 && y[0][1] == 49 && y[0][2] == 0);
    assert_true(y[1][0] == 14 && y[1][1] == 0);
}

/* ---- element by element */

static void norms_equal_the_reference(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 7, 8, 15, 16, 17, 31, 32, 33, 256, 259 };
    struct rng rng;
    rng_seed(&rng, 2);
    EACH_FAST(o)
    {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            OWNED float *x = random_floats(sizes[i], &rng);
            OWNED float *w = random_floats(sizes[i], &rng);
            float truth[300], fast[300];
            op_ref.rms_norm(x, w, 1e-5f, sizes[i], truth);
            o->rms_norm(x, w, 1e-5f, sizes[i], fast);
            assert_true(nmse(fast, truth, sizes[i]) < NMSE_MAX);
        }
    }
}

static void rope_equals_the_reference(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    static const uint32_t pairs[] = { 1, 3, 8, 31, 32 };
    EACH_FAST(o)
    {
        for (size_t i = 0; i < COUNT_OF(pairs); i++) {
            OWNED float *truth = random_floats(3 * 64, &rng);
            float fast[3 * 64], angle_cos[32], angle_sin[32];
            memcpy(fast, truth, sizeof fast);
            for (uint32_t p = 0; p < pairs[i]; p++) {
                double angle = rng_f64(&rng) * 100;
                angle_cos[p] = (float)cos(angle), angle_sin[p] = (float)sin(angle);
            }
            op_ref.rope(truth, 3, 64, angle_cos, angle_sin, pairs[i]);
            o->rope(fast, 3, 64, angle_cos, angle_sin, pairs[i]);
            assert_true(nmse(fast, truth, 3 * 64) < NMSE_MAX);
            if (pairs[i] < 32) assert_true(fast[63] == truth[63]); /* untouched */
        }
    }
}

static void silu_equals_the_reference_everywhere(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        /* From where e^-g overflows to where it vanishes, each value against its own truth. */
        for (float g = -100; g < 100; g += 0.37f * 16) {
            float truth[16], fast[16], up[16];
            for (uint32_t i = 0; i < 16; i++) {
                truth[i] = fast[i] = g + 0.37f * (float)i;
                up[i] = 1.5f;
            }
            op_ref.silu_mul(truth, up, 16);
            o->silu_mul(fast, up, 16);
            for (uint32_t i = 0; i < 16; i++)
                assert_true(fabsf(fast[i] - truth[i]) <= 4e-7f * fabsf(truth[i]) + 1e-35f);
        }
        float not_a_number[16] = { NAN, 1 }, up[16] = { 1, 1 };
        o->silu_mul(not_a_number, up, 16);
        assert_true(isnan(not_a_number[0]) && !isnan(not_a_number[1]));
    }
}

static void names_find_their_rows(void **state)
{
    (void)state;
    assert_ptr_equal(ops_find(STR("ref")), &op_ref);
    assert_null(ops_find(STR("avx")));
    assert_true(ops_best()->supported());
    for (const struct ops *const *row = ops_table; *row; row++) {
        assert_ptr_equal(ops_find(str_from((*row)->name)), *row);
        assert_true((*row)->attend_rows <= ATTEND_ROWS_MAX);
        if (!(*row)->supported()) printf("not tested here: %s\n", (*row)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(packed_rows_read_back),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(the_reference_multiplies),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(rope_equals_the_reference),
        cmocka_unit_test(silu_equals_the_reference_everywhere),
        cmocka_unit_test(names_find_their_rows),
    };
    scratch = take(OP_SCRATCH_BYTES);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
