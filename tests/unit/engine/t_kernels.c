/* t_kernels.c - tests halves, packing, matrix products and rounding to int8 by every entry of ops_table against
 * op_ref at awkward shapes, and that an output's bits do not depend on what else a call computes. */
#include "engine/kernels/half.h"
#include "tests/unit/engine/kernels_rig.h"

#include <math.h>
#include <stdio.h>

#define Q8_NMSE_MAX 1e-3 /* what rounding activations to int8 may cost where a sum of few cancels */

static void *scratch;

/* ---- halves and packing */

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float value = f16_to_f32((uint16_t)h), next = f16_to_f32((uint16_t)(h + 1));
        assert_int_equal(f32_to_f16(value), h);
        assert_int_equal(f32_to_f16(-value), h | 0x8000);
        if (h + 1 == 0x7c00) next = 65536; /* the next finite step would be here */
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
static void packed_rows_read_back(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        for (uint32_t rows = 1; rows <= 33; rows += 4) {
            uint32_t cols = weight_types[type].block_elements == QUANT_SUPER ? 768 : 96;
            OWNED char *data = random_rows(type, rows, cols, &rng);
            struct weight w = packed(type, data, rows, cols);
            float expected[768], got[768];
            for (uint32_t r = 0; r < rows; r++) {
                weight_types[type].to_f32(data + r * weight_row_bytes(type, cols), cols, expected);
                weight_row(&w, r, got);
                assert_memory_equal(got, expected, cols * sizeof *got);
            }
            free((void *)(uintptr_t)w.tiles);
        }
    }
}
/* ---- matrix products */

struct shape {
    uint32_t rows, cols, tokens;
};

/* clang-format off */
static const struct {
    struct shape shape;
    const char *why;
} products[] = {
    { { 1,   32,  1 }, "the smallest" },
    { { 15,  32,  1 }, "a tile less one" },
    { { 16,  64,  2 }, "one tile" },
    { { 17,  96,  3 }, "a tile and one" },
    { { 33,  32,  4 }, "most tokens of the wide kernels" },
    { { 48,  32,  5 }, "least tokens of the blocks; odd tiles" },
    { { 64,  64,  6 }, "all tokens of an AVX2 block" },
    { { 80,  32,  7 }, "an AVX2 block and one; tiles in 4 + 1" },
    { { 112, 32,  2 }, "tiles in 4 + 3" },
    { { 33,  288, 11 }, "a panel and 32 columns" },
    { { 32,  256, 12 }, "exactly a block of AVX-512" },
    { { 40,  544, 13 }, "a block and one; two panels and 32" },
    { { 31,  64,  25 }, "two blocks and one" },
    { { 96,  512, 40 }, "many of everything" },
    { { 272, 800, 11 }, "a group of tiles and one, for more tokens than are streamed" },
    { { 80,  544, 16 }, "exactly the tokens of a tile of AMX; panels in 4 + 1" },
    { { 48,  288, 39 }, "tiles of tokens and seven" },
    { { 304, 1056, 65 }, "parts of tiles and of columns, and some of each left" },
};

/* clang-format on */

static struct gemm gemm_over(const struct weight *w, const float *x, const struct q8_super *x_q8,
                             float *y, uint32_t tokens)
{
    return (struct gemm){ .w = w,
                          .x = x,
                          .x_stride = activation_stride(w->cols),
                          .x_q8 = x_q8,
                          .y = y,
                          .y_stride = activation_stride(w->rows),
                          .tokens = tokens };
}

/* Rounds rows of x for products of w, by the reference; NULL if the kernels read x. The caller frees. */
static struct q8_super *rounded(const struct ops *o, const struct weight *w, const float *x,
                                uint32_t tokens)
{
    if (!ops_round(o, w->type)) return NULL;
    struct q8_super *rows = take(tokens * q8_row_bytes(w->cols));
    for (uint32_t t = 0; t < tokens; t++)
        q8_round(x + t * activation_stride(w->cols), w->cols, q8_row_at(rows, w->cols, t));
    return rows;
}

/* Computes all outputs by q8_product, into `y` shaped like g->y. */
static void q8_truth(const struct gemm *g, float *y)
{
    for (uint32_t t = 0; t < g->tokens; t++) {
        const struct q8_super *row =
            (const struct q8_super *)(const void *)((const char *)g->x_q8 +
                                                    t * q8_row_bytes(g->w->cols));
        for (uint32_t r = 0; r < g->w->rows; r++)
            y[t * g->y_stride + r] = (float)q8_product(g->w, r, row, scratch);
    }
}

/* Random weights and activations in the form that an entry takes. */
struct product {
    char *data;
    struct weight w;
    float *x;
    struct q8_super *x_q8;
    struct gemm g;  /* without y */
    size_t outputs; /* floats at each y */
};

/* Rounds x as an entry does that multiplies BF16 by BF16: what it gives is then as near to the truth as others are. */
static void round_as(const struct ops *o, const struct product *p, uint32_t tokens)
{
    if (!o->bf16 || p->w.type != WEIGHT_BF16) return;
    for (size_t i = 0; i < tokens * activation_stride(p->w.cols); i++)
        p->x[i] = bf16_to_f32(f32_to_bf16(p->x[i]));
}

/* Puts *odd into the middle of the first token's x, unless it is NULL. */
static void product_init(struct product *p, const struct ops *o, enum weight_type_id type,
                         struct shape shape, const float *odd)
{
    struct rng rng;
    rng_seed(&rng, shape.rows * 1000 + shape.cols);
    *p = (struct product){ .outputs = shape.tokens * activation_stride(shape.rows) };
    p->data = random_rows(type, shape.rows, shape.cols, &rng);
    p->w = packed(type, p->data, shape.rows, shape.cols);
    p->x = random_floats(shape.tokens * activation_stride(shape.cols), &rng);
    if (odd) p->x[shape.cols / 2] = *odd;
    round_as(o, p, shape.tokens);
    p->x_q8 = rounded(o, &p->w, p->x, shape.tokens);
    p->g = gemm_over(&p->w, p->x, p->x_q8, NULL, shape.tokens);
}

static void product_fini(struct product *p)
{
    free(p->data);
    free((void *)(uintptr_t)p->w.tiles);
    free(p->x);
    free(p->x_q8);
}

/* Computes all outputs by an entry; the caller frees. */
static float *outputs_by(const struct ops *o, const struct product *p)
{
    struct gemm g = p->g;
    g.y = take(p->outputs * sizeof(float));
    o->gemm(&g, 0, weight_tiles(&p->w), scratch);
    return g.y;
}

/* The same token by token and tile by tile. */
static float *outputs_alone(const struct ops *o, const struct product *p)
{
    float *y = take(p->outputs * sizeof(float));
    for (uint32_t t = 0; t < p->g.tokens; t++) {
        struct q8_super *x_q8 = p->x_q8 ? q8_row_at(p->x_q8, p->w.cols, t) : NULL;
        struct gemm one =
            gemm_over(&p->w, p->x + t * p->g.x_stride, x_q8, y + t * p->g.y_stride, 1);
        for (uint32_t tile = 0; tile < weight_tiles(&p->w); tile++)
            o->gemm(&one, tile, 1, scratch);
    }
    return y;
}

/* Returns true if both entries take a product's weights and activations in one form. */
static bool same_form(const struct ops *o, const struct ops *other, enum weight_type_id type)
{
    return ops_round(o, type) == ops_round(other, type) &&
           (type != WEIGHT_BF16 || !o->bf16 == !other->bf16);
}

/* Compares an entry with `truth`, and with `rounded_truth` of the rounded activations if it reads those. */
static void check_product(const struct ops *o, const struct product *p, const float *truth,
                          const float *rounded_truth, const char *what)
{
    OWNED float *fast = outputs_by(o, p);
    /* A single output may cancel to nothing. */
    double cost = rounded_truth && p->w.rows > 1 ? nmse(fast, truth, p->outputs) : 0;
    if (!(cost < Q8_NMSE_MAX)) fail_msg("%s %s: rounding costs %g", o->name, what, cost);
    const float *exact = rounded_truth ? rounded_truth : truth;
    double off = nmse(fast, exact, p->outputs);
    if (!(off < NMSE_MAX)) fail_msg("%s %s: NMSE %g", o->name, what, off);

    OWNED float *alone = outputs_alone(o, p);
    if (memcmp(alone, fast, p->outputs * sizeof *fast) != 0)
        fail_msg("%s %s: alone differs from batched", o->name, what);

    struct gemm more = p->g;
    more.y = fast;
    more.accumulate = true; /* adds to the output */
    o->gemm(&more, 0, weight_tiles(&p->w), scratch);
    for (size_t i = 0; i < p->outputs; i++)
        alone[i] = 2 * exact[i];
    assert_true(nmse(fast, alone, p->outputs) < NMSE_MAX);
}

/* Checks all entries that take a product in the form of `first`, so that the reference computes it once. */
static void check_form(const struct ops *first, enum weight_type_id type, struct shape shape,
                       const char *why)
{
    char what[160];
    snprintf(what, sizeof what, "%s %ux%u, %u tokens (%s)", weight_types[type].name, shape.rows,
             shape.cols, shape.tokens, why);
    CLEANUP(product_fini) struct product p;
    product_init(&p, first, type, shape, NULL);
    OWNED float *truth = outputs_by(&op_ref, &p);
    OWNED float *rounded_truth = NULL;
    if (p.x_q8) {
        rounded_truth = take(p.outputs * sizeof(float));
        q8_truth(&p.g, rounded_truth);
    }
    EACH_FAST(o)
    {
        if (same_form(first, o, type)) check_product(o, &p, truth, rounded_truth, what);
    }
}

/* Returns true if no fast entry before `o` takes products in its form. */
static bool first_of_form(const struct ops *o, enum weight_type_id type)
{
    const struct ops *const *row = ops_table;
    while (*row != o && !(is_fast(*row) && same_form(*row, o, type)))
        row++;
    return *row == o;
}

static void check_products(enum weight_type_id type, struct shape shape, const char *why)
{
    EACH_FAST(o)
    {
        if (first_of_form(o, type)) check_form(o, type, shape, why);
    }
}

/* Widens a shape to the least columns that are whole blocks of the type. */
static struct shape whole(enum weight_type_id type, struct shape shape)
{
    uint32_t block = weight_types[type].block_elements;
    shape.cols = ceil_div_u32(shape.cols, block) * block;
    return shape;
}

/* Returns true if an entry's products have the bits of another's. */
static bool same_bits(const struct ops *o, const struct ops *other, enum weight_type_id type)
{
    return type != WEIGHT_BF16 || o->bf16 == other->bf16 ||
           (o->bf16 && other->bf16 && strcmp(o->bf16, other->bf16) == 0);
}

/* One accumulator an output and ascending columns give all fast entries the same bits: those of one numerics id,
 * between which a sequence may move, must agree, and the others have no reason to differ. All are compared with the
 * first of them. */
static void check_same_bits(const struct ops *first, enum weight_type_id type, struct shape shape,
                            float odd)
{
    CLEANUP(product_fini) struct product p;
    product_init(&p, first, type, shape, &odd);
    OWNED float *theirs = outputs_by(first, &p);
    EACH_FAST(o)
    {
        if (o == first || !same_bits(o, first, type)) continue;
        OWNED float *mine = outputs_by(o, &p);
        for (size_t i = 0; i < p.outputs; i++)
            if (isnan(mine[i]) && isnan(theirs[i])) mine[i] = theirs[i]; /* in any of their bits */
        if (memcmp(mine, theirs, p.outputs * sizeof *mine) != 0)
            fail_msg("%s and %s differ: %s %ux%u, %u tokens", o->name, first->name,
                     weight_types[type].name, shape.rows, shape.cols, shape.tokens);
    }
}

/* Returns true if no fast entry before `o` has its bits. */
static bool first_of_bits(const struct ops *o, enum weight_type_id type)
{
    const struct ops *const *row = ops_table;
    while (*row != o && !(is_fast(*row) && same_bits(*row, o, type)))
        row++;
    return *row == o;
}

static void products_of_all_entries_agree(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        { 17, 256, 1 }, { 48, 544, 8 }, { 80, 800, 16 }, { 272, 768, 37 }
    };
    static const float odd[] = { 1, NAN, 3e38f, 1e-33f };
    EACH_FAST(o)
    {
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
            if (!first_of_bits(o, type)) continue;
            for (size_t i = 0; i < COUNT_OF(shapes) * COUNT_OF(odd); i++)
                check_same_bits(o, type, whole(type, shapes[i / COUNT_OF(odd)]),
                                odd[i % COUNT_OF(odd)]);
        }
    }
}

/* Activations that a caller rounds give the bits of those that the product rounds. */
static void activations_of_bf16_are_rounded_once(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        if (!o->bf16_round) continue;
        for (size_t i = 0; i < COUNT_OF(products); i++) {
            struct shape shape = products[i].shape;
            shape.cols += (uint32_t)(i % 3); /* a last step of one or two columns */
            CLEANUP(product_fini) struct product p;
            product_init(&p, o, WEIGHT_BF16, shape, NULL);
            OWNED float *alone = outputs_by(o, &p);
            const size_t row_bytes = q8_row_bytes(shape.cols);
            OWNED char *rows = take(shape.tokens * row_bytes);
            memset(rows, 0xff, shape.tokens * row_bytes); /* a NaN where nothing is written */
            for (uint32_t t = 0; t < shape.tokens; t++)
                o->bf16_round(p.x + t * p.g.x_stride, shape.cols,
                              (uint16_t *)(void *)(rows + t * row_bytes));
            p.g.x_bf16 = (const uint16_t *)(const void *)rows;
            OWNED float *fast = outputs_by(o, &p);
            assert_memory_equal(fast, alone, p.outputs * sizeof *fast);
        }
    }
}

/* What such an entry rounds to BF16 is rounded as f32_to_bf16 rounds. */
static void activations_of_bf16_are_rounded(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        if (!o->bf16) continue;
        for (uint32_t tokens = 1; tokens < 30; tokens += 7) {
            CLEANUP(product_fini) struct product p;
            const struct shape shape = { 48, 333, tokens };
            struct rng rng;
            product_init(&p, o, WEIGHT_BF16, shape, NULL);
            OWNED float *before = outputs_by(o, &p);
            rng_seed(&rng, tokens);
            for (size_t i = 0; i < tokens * activation_stride(shape.cols);
                 i++) /* below half a step */
                p.x[i] *= 1 + 0x1p-10f * (float)(rng_u64(&rng) >> 40) * 0x1p-24f;
            OWNED float *fast = outputs_by(o, &p);
            assert_memory_equal(fast, before, p.outputs * sizeof *fast);
        }
    }
}

static void products_equal_the_reference(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++)
        for (size_t i = 0; i < COUNT_OF(products); i++)
            check_products(type, whole(type, products[i].shape), products[i].why);
    check_products(WEIGHT_F32, (struct shape){ 17, 1, 3 }, "one column");
    check_products(WEIGHT_F16, (struct shape){ 20, 7, 13 },
                   "columns that are no multiple of anything");
    check_products(WEIGHT_BF16, (struct shape){ 20, 259, 13 }, "a panel and three columns");
}

/* Blocks of odd values round to the reference's bits too. */
static void activations_round_to_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 32, 96, 256, 288, 1024 };
    static const float odd[] = { NAN, INFINITY, -INFINITY, 0, 1e-35f, 3e38f, -1e-30f };
    struct rng rng;
    rng_seed(&rng, 8);
    EACH_FAST(o)
    {
        if (!o->q8_round) continue;
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            for (size_t j = 0; j <= COUNT_OF(odd); j++) {
                OWNED float *x = random_floats(sizes[i], &rng);
                if (j < COUNT_OF(odd)) x[sizes[i] - 1 - j] = odd[j];
                if (j == 3) memset(x, 0, 32 * sizeof *x);
                OWNED struct q8_super *truth = take(q8_row_bytes(sizes[i]));
                OWNED struct q8_super *fast = take(q8_row_bytes(sizes[i]));
                q8_round(x, sizes[i], truth);
                o->q8_round(x, sizes[i], fast);
                for (uint32_t b = 0; b < sizes[i] / 32; b++) { /* NaNs differ in their bits */
                    struct q8_super *t = &truth[b / 8], *f = &fast[b / 8];
                    if (isnan(t->scale[b % 8]) && isnan(f->scale[b % 8]))
                        f->scale[b % 8] = t->scale[b % 8];
                    if (isnan(t->sum[b % 8]) && isnan(f->sum[b % 8])) f->sum[b % 8] = t->sum[b % 8];
                    for (uint32_t h = b % 8 * 2; h < b % 8 * 2 + 2; h++)
                        if (isnan(t->half[h]) && isnan(f->half[h])) f->half[h] = t->half[h];
                }
                assert_memory_equal(fast, truth, q8_row_bytes(sizes[i]));
            }
        }
    }
}

/* Rows of NaN, infinity, zeros and tiny values too: what is no number stays none. */
static void odd_activations_reach_the_output(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, 0, 1e-35f, 3e38f };
    struct rng rng;
    rng_seed(&rng, 6);
    EACH_FAST(o)
    {
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
            OWNED char *data = random_rows(type, 16, 256, &rng);
            struct weight w = packed(type, data, 16, 256);
            for (size_t i = 0; i < COUNT_OF(odd); i++) {
                float x[272] = { 0 }, y[32];
                x[40] = odd[i];
                OWNED struct q8_super *x_q8 = rounded(o, &w, x, 1);
                struct gemm g = gemm_over(&w, x, x_q8, y, 1);
                o->gemm(&g, 0, 1, scratch);
                for (uint32_t r = 0; r < 16; r++)
                    assert_true(i > 1 || !isfinite(y[r]));
                if (i == 2) assert_true(y[0] == 0 && y[15] == 0);
                if (i == 3) assert_true(fabsf(y[0]) < 1e-30f);
            }
            free((void *)(uintptr_t)w.tiles);
        }
    }
}

/* This product by hand does not depend on op_ref's reading of tiles. */
static void the_reference_multiplies(void **state)
{
    (void)state;
    float data[2][3] = { { 1, 2, 3 }, { -1, 0, 0.5f } };
    OWNED void *tiles = NULL;
    struct weight w = packed(WEIGHT_F32, (const char *)data, 2, 3);
    tiles = (void *)(uintptr_t)w.tiles;
    float x[2][32] = { { 1, 10, 100 }, { 2, 0, 4 } }, y[2][32] = { { 0 } };
    struct gemm g = gemm_over(&w, x[0], NULL, y[0], 2);
    assert_int_equal(g.x_stride, 32);
    op_ref.gemm(&g, 0, 1, scratch);
    assert_true(y[0][0] == 321 && y[0][1] == 49 && y[0][2] == 0);
    assert_true(y[1][0] == 14 && y[1][1] == 0);
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
        cmocka_unit_test(activations_of_bf16_are_rounded),
        cmocka_unit_test(activations_of_bf16_are_rounded_once),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(products_of_all_entries_agree),
        cmocka_unit_test(activations_round_to_the_same_bits),
        cmocka_unit_test(odd_activations_reach_the_output),
        cmocka_unit_test(the_reference_multiplies),
        cmocka_unit_test(names_find_their_rows),
    };
    scratch = take(OP_SCRATCH_BYTES);
    int failed = cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
    free(scratch);
    return failed;
}
