/* t_kernels.c - tests kernels against op_ref, and the workers that run them. */
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/kernels/half.h"
#include "engine/kernels/op.h"
#include "engine/kernels/q8.h"
#include "engine/model/workers.h"
#include "tests/unit/engine/gguf_make.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define Q8_NMSE_MAX 1e-3 /* what rounding activations to int8 may cost where a sum of few cancels */
#define NMSE_MAX 1e-10   /* F32 against double: about 1e-14, more where one output cancels */

static inline void freep(void *p)
{
    free(*(void **)p);
}

#define OWNED CLEANUP(freep)

/* Returns zeroed memory aligned to cache lines; the caller frees. */
static inline void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

static inline float *random_floats(size_t count, struct rng *rng)
{
    float *x = take(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)rng_normal(rng);
    return x;
}

static inline double nmse(const float *got, const float *truth, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)truth[i];
        off += d * d;
        all += (double)truth[i] * (double)truth[i];
    }
    return all > 0 ? off / all : off;
}

static inline bool is_fast(const struct ops *o)
{
    return o != &op_ref && o->supported();
}

#define EACH_FAST(o)                                                            \
    for (const struct ops *const *row_ = ops_table, *o = *row_; o; o = *++row_) \
        if (is_fast(o))

/* ---- kernels of ops_table against op_ref ----
 *
 * At awkward shapes: halves, packing, matrix products, norms, RoPE and SiLU, and the same bits
 * whatever else is computed in the call. */

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

/* Returns rows of random finite values in the file's form of a type. */
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
        } else if (type == WEIGHT_F16) {
            memcpy(data + i, &half, sizeof half);
        } else if (type == WEIGHT_BF16) {
            half = (uint16_t)(f32_bits(value) >> 16);
            memcpy(data + i, &half, sizeof half);
        } else {
            for (size_t j = 0; j < t->block_bytes; j++)
                data[i + j] = (char)rng_u64(rng);
            make_scales(type, data + i, value / 64);
        }
    }
    return data;
}

/* Packs rows into tiles, which the caller frees. */
static struct weight packed(enum weight_type_id type, const char *data, uint32_t rows,
                            uint32_t cols)
{
    struct weight w = { .type = type, .rows = rows, .cols = cols };
    size_t row_bytes = weight_row_bytes(type, cols), tile_bytes = weight_tile_bytes(&w);
    char *tiles = take(weight_tiles(&w) * tile_bytes);
    for (uint32_t r = 0; r < rows; r += TILE_ROWS)
        weight_pack(type, data + r * row_bytes, min_u32(TILE_ROWS, rows - r), cols,
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
    { 272, 800, 11, "a group of tiles and one, for more tokens than are streamed" },
    { 80,  544, 16, "exactly the tokens of a tile of AMX; panels in 4 + 1" },
    { 48,  288, 39, "tiles of tokens and seven" },
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

    OWNED struct q8_super *x_q8 = rounded(o, &w, x, tokens);
    struct gemm g = gemm_over(&w, x, x_q8, truth, tokens);
    op_ref.gemm(&g, 0, weight_tiles(&w), scratch);
    g.y = fast;
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    if (x_q8) {
        double cost = nmse(fast, truth, outputs);
        if (!(cost < Q8_NMSE_MAX))
            fail_msg("%s %s %ux%u, %u tokens: rounding costs %g", o->name, weight_types[type].name,
                     rows, cols, tokens, cost);
        q8_truth(&g, truth);
    }
    double off = nmse(fast, truth, outputs);
    if (!(off < NMSE_MAX))
        fail_msg("%s %s %ux%u, %u tokens (%s): NMSE %g", o->name, weight_types[type].name, rows,
                 cols, tokens, why, off);

    /* Token by token and tile by tile gives the same bits. */
    for (uint32_t t = 0; t < tokens; t++) {
        struct gemm one = gemm_over(&w, x + t * g.x_stride, x_q8 ? q8_row_at(x_q8, cols, t) : NULL,
                                    again + t * g.y_stride, 1);
        for (uint32_t tile = 0; tile < weight_tiles(&w); tile++)
            o->gemm(&one, tile, 1, scratch);
    }
    if (memcmp(again, fast, bytes) != 0)
        fail_msg("%s %s %ux%u, %u tokens (%s): alone differs from batched", o->name,
                 weight_types[type].name, rows, cols, tokens, why);

    /* Accumulating adds to the output. */
    g.accumulate = true;
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    for (size_t i = 0; i < outputs; i++)
        truth[i] *= 2;
    assert_true(nmse(fast, truth, outputs) < NMSE_MAX);
}

/* Returns the least columns from `cols` on that are whole blocks of the type. */
static uint32_t whole_blocks(enum weight_type_id type, uint32_t cols)
{
    uint32_t block = weight_types[type].block_elements;
    return ceil_div_u32(cols, block) * block;
}

/* Entries with one numerics id must agree bit for bit, since a sequence may move from one to the other. */
static void check_same_bits(const struct ops *o, const struct ops *other, enum weight_type_id type,
                            uint32_t rows, uint32_t cols, uint32_t tokens, float odd)
{
    struct rng rng;
    rng_seed(&rng, rows * 1000 + cols);
    OWNED char *data = random_rows(type, rows, cols, &rng);
    struct weight w = packed(type, data, rows, cols);
    OWNED void *tiles = (void *)(uintptr_t)w.tiles;
    size_t outputs = tokens * activation_stride(rows), bytes = outputs * sizeof(float);
    OWNED float *x = random_floats(tokens * activation_stride(cols), &rng);
    OWNED float *mine = take(bytes);
    OWNED float *theirs = take(bytes);
    (void)tiles;
    x[cols / 2] = odd;
    OWNED struct q8_super *x_q8 = rounded(o, &w, x, tokens);
    struct gemm g = gemm_over(&w, x, x_q8, mine, tokens);
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    g.y = theirs;
    other->gemm(&g, 0, weight_tiles(&w), scratch);
    for (size_t i = 0; i < outputs; i++)
        if (isnan(mine[i]) && isnan(theirs[i])) theirs[i] = mine[i]; /* in any of their bits */
    if (memcmp(mine, theirs, bytes) != 0)
        fail_msg("%s and %s differ: %s %ux%u, %u tokens", o->name, other->name,
                 weight_types[type].name, rows, cols, tokens);
}

static void entries_of_one_numerics_agree(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, cols, tokens;
    } shapes[] = { { 17, 256, 1 }, { 48, 544, 8 }, { 80, 800, 16 }, { 272, 768, 37 } };
    static const float odd[] = { 1, NAN, 3e38f, 1e-33f };
    EACH_FAST(o)
    {
        for (const struct ops *const *row = ops_table; *row != o; row++) {
            if (!(*row)->supported() || strcmp((*row)->numerics, o->numerics) != 0) continue;
            for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++)
                for (size_t i = 0; i < COUNT_OF(shapes) * COUNT_OF(odd); i++)
                    check_same_bits(o, *row, type, shapes[i / COUNT_OF(odd)].rows,
                                    whole_blocks(type, shapes[i / COUNT_OF(odd)].cols),
                                    shapes[i / COUNT_OF(odd)].tokens, odd[i % COUNT_OF(odd)]);
        }
    }
}

static void products_equal_the_reference(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++)
            for (size_t i = 0; i < COUNT_OF(products); i++)
                check_product(o, type, products[i].rows, whole_blocks(type, products[i].cols),
                              products[i].tokens, products[i].why);
        check_product(o, WEIGHT_F32, 17, 1, 3, "one column");
        check_product(o, WEIGHT_F16, 20, 7, 13, "columns that are no multiple of anything");
        check_product(o, WEIGHT_BF16, 20, 259, 13, "a panel and three columns");
    }
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
            if (pairs[i] < 32) assert_true(fast[63] == truth[63]); /* unchanged */
        }
    }
}

typedef void (*gate_fn)(float *gate, const float *up, uint32_t n);

/* Each value stays near its own truth, from the overflow of an exponential to its underflow. */
static void check_gate(gate_fn truth_fn, gate_fn fast_fn, float off)
{
    for (float g = -100; g < 100; g += 0.37f * 16) {
        float truth[16], fast[16], up[16];
        for (uint32_t i = 0; i < 16; i++) {
            truth[i] = fast[i] = g + 0.37f * (float)i;
            up[i] = 1.5f - 0.9f * (float)i; /* and beyond the limit of clamped_mul, on both sides */
        }
        truth_fn(truth, up, 16);
        fast_fn(fast, up, 16);
        for (uint32_t i = 0; i < 16; i++)
            assert_true(fabsf(fast[i] - truth[i]) <= off * fabsf(truth[i]) + 1e-35f);
    }
    float not_a_number[16] = { NAN, 1 }, up[16] = { 1, 1 };
    fast_fn(not_a_number, up, 16);
    assert_true(isnan(not_a_number[0]) && !isnan(not_a_number[1]));
}

static void gates_equal_the_reference_everywhere(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        check_gate(op_ref.silu_mul, o->silu_mul, 4e-7f);
        /* ALPHA * g is rounded, by up to 170 * 2^-24, before the exponential. */
        check_gate(op_ref.clamped_mul, o->clamped_mul, 1.1e-5f);
    }
}

/* The reference's 1 + tanh loses the digits of a vanishing gate, so the bound is absolute there. */
static void gelu_equals_the_reference(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        for (float g = -20; g < 20; g += 0.07f * 16) {
            float truth[16], fast[16], up[16];
            for (uint32_t i = 0; i < 16; i++) {
                truth[i] = fast[i] = g + 0.07f * (float)i;
                up[i] = 0.25f * (float)i - 1;
            }
            op_ref.gelu_mul(truth, up, 16);
            o->gelu_mul(fast, up, 16);
            for (uint32_t i = 0; i < 16; i++)
                assert_true(fabsf(fast[i] - truth[i]) <= 1e-6f * fabsf(truth[i]) + 1e-7f);
        }
    }
}

static void soft_caps_equal_the_reference(void **state)
{
    (void)state;
    static const float caps[] = { 1, 30, 50 };
    EACH_FAST(o)
    {
        for (size_t c = 0; c < COUNT_OF(caps); c++) {
            for (float x = -300; x < 300; x += 0.31f * 16) {
                float truth[16], fast[16];
                for (uint32_t i = 0; i < 16; i++)
                    truth[i] = fast[i] = x + 0.31f * (float)i;
                op_ref.soft_cap(truth, caps[c], 16);
                o->soft_cap(fast, caps[c], 16);
                for (uint32_t i = 0; i < 16; i++)
                    assert_true(fabsf(fast[i] - truth[i]) <= 3e-7f * caps[c]);
            }
        }
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

static int kernels_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(packed_rows_read_back),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(entries_of_one_numerics_agree),
        cmocka_unit_test(activations_round_to_the_same_bits),
        cmocka_unit_test(odd_activations_reach_the_output),
        cmocka_unit_test(the_reference_multiplies),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(rope_equals_the_reference),
        cmocka_unit_test(gates_equal_the_reference_everywhere),
        cmocka_unit_test(gelu_equals_the_reference),
        cmocka_unit_test(soft_caps_equal_the_reference),
        cmocka_unit_test(names_find_their_rows),
    };
    scratch = take(OP_SCRATCH_BYTES);
    int failed = cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
    free(scratch);
    return failed;
}

/* ---- attention over stored K and V, by every implementation in ops_table ----
 *
 * Against op_ref, by hand, and the same bits in any split. */

struct attend_case {
    enum kv_type type;
    uint32_t head_dim, group, page_tokens, position, count;
    const char *why;
    uint32_t window;
    float cap;
    bool sinks;
};

/* clang-format off */
static const struct attend_case attend_cases[] = {
    { KV_F16, 16,  1, 16,  0,   1,  "the first token", 0, 0, false },
    { KV_F16, 64,  2, 16,  15,  1,  "a block is full", 0, 0, false },
    { KV_F32, 64,  2, 16,  16,  1,  "a block and one", 0, 0, false },
    { KV_F16, 64,  2, 32,  63,  1,  "a span is full", 0, 0, false },
    { KV_F16, 64,  2, 64,  64,  1,  "a span and one", 0, 0, false },
    { KV_F16, 48,  3, 16,  200, 1,  "decode, odd head, odd group", 0, 0, false },
    { KV_F32, 128, 8, 32,  130, 1,  "decode, wide group", 0, 0, false },
    { KV_F16, 64,  2, 16,  0,   40, "prefill from nothing", 0, 0, false },
    { KV_F16, 64,  1, 64,  57,  33, "a chunk across spans and pages", 0, 0, false },
    { KV_F32, 80,  5, 16,  3,   70, "a chunk, odd everything", 0, 0, false },
    { KV_F16, 512, 1, 128, 20,  7,  "the largest head", 0, 0, false },
    { KV_F16, 32, 16, 16,  30,  3,  "a group larger than a call", 0, 0, false },
    { KV_F32, 64,  2, 16,  200, 1,  "a window in the middle of a block", 37, 0, false },
    { KV_F16, 64,  2, 32,  200, 1,  "a window of one block", 16, 0, false },
    { KV_F16, 48,  3, 16,  0,  150, "a prefill that outgrows its window", 50, 0, false },
    { KV_F32, 64,  1, 64,  100, 70, "rows of a call that begin in different spans", 64, 0, false },
    { KV_F32, 32,  2, 16,  90,  9,  "a window of one token", 1, 0, false },
    { KV_F16, 64,  2, 16,  20,  5,  "a window larger than all", 500, 0, false },
    { KV_F32, 64,  2, 16,  70,  20, "capped scores", 0, 2, false },
    { KV_F32, 64,  4, 16,  70,  20, "sinks", 0, 0, true },
    { KV_F16, 64,  8, 16,  130, 3,  "sinks, a window and a cap", 20, 1.5f, true },
};

/* clang-format on */

struct attend_world {
    struct kv_layout layout;
    char *pages;
    size_t page_bytes;
    uint32_t page_table[64];
    struct attend a; /* q and out are filled in */
    float *q, *out;
    size_t q_stride, rows, out_bytes;
};

/* Below, within and far above the scores. */
static const float sinks[8] = { -3, -1, 0, 1, 2, 5, 30, 200 };

/* Writes K and V of all positions up to the last query's by op_ref; the memory behind them is
 * poison, as left by a page's former use. */
static void world_init(struct attend_world *w, const struct attend_case *c, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    uint32_t end = c->position + c->count, pages = ceil_div_u32(end, c->page_tokens);
    w->layout = (struct kv_layout){ .type = c->type,
                                    .n_layers = 2,
                                    .n_kv_heads = 2,
                                    .head_dim = c->head_dim,
                                    .page_tokens = c->page_tokens };
    w->page_bytes = kv_page_bytes(&w->layout);
    w->pages = take((pages + 3) * w->page_bytes);
    memset(w->pages, 0x7e, (pages + 3) * w->page_bytes); /* F16: NaN; F32: 8e37 */
    for (uint32_t i = 0; i < pages; i++)                 /* in reverse when the seed is odd */
        w->page_table[i] = seed % 2 ? pages + 2 - i : i;
    size_t head = kv_head_offset(&w->layout, 1, 1);
    /* K and V are the same under any page table. */
    struct rng values;
    rng_seed(&values, 77);
    for (uint32_t p = 0; p < end; p++) {
        float k[KV_HEAD_DIM_MAX], v[KV_HEAD_DIM_MAX];
        for (uint32_t d = 0; d < c->head_dim; d++) {
            k[d] = (float)rng_normal(&values);
            v[d] = (float)rng_normal(&values);
        }
        char *block =
            kv_block_at(&w->layout, w->pages + head, w->page_bytes, w->page_table, p / KV_BLOCK);
        op_ref.kv_put(&w->layout, k, v, p % KV_BLOCK, block, block + kv_half_bytes(&w->layout));
    }
    w->q_stride = c->group * c->head_dim + 16;
    w->rows = (size_t)c->count * c->group;
    w->q = random_floats(c->count * w->q_stride, &values);
    w->out_bytes = c->count * w->q_stride * sizeof(float);
    w->out = take(w->out_bytes);
    w->a = (struct attend){ .layout = &w->layout,
                            .head = w->pages + head,
                            .page_bytes = w->page_bytes,
                            .page_table = w->page_table,
                            .q = w->q,
                            .q_stride = w->q_stride,
                            .out = w->out,
                            .out_stride = w->q_stride,
                            .group = c->group,
                            .position = c->position,
                            .window = c->window,
                            .cap = c->cap,
                            .sinks = c->sinks ? sinks : NULL,
                            .scale = 1 / sqrtf((float)c->head_dim) };
}

static void world_fini(struct attend_world *w)
{
    free(w->pages);
    free(w->q);
    free(w->out);
}

static void attend_all(const struct ops *o, struct attend_world *w, uint32_t rows_at_once)
{
    for (uint32_t r = 0; r < w->rows; r += rows_at_once) {
        w->a.row_first = r;
        w->a.row_count = min_u32(rows_at_once, (uint32_t)w->rows - r);
        o->attend(&w->a, scratch);
    }
}

static void attention_equals_the_reference(void **state)
{
    (void)state;
    EACH_FAST(o)
    {
        for (size_t i = 0; i < COUNT_OF(attend_cases); i++) {
            const struct attend_case *c = &attend_cases[i];
            CLEANUP(world_fini) struct attend_world w;
            world_init(&w, c, 0);
            attend_all(&op_ref, &w, 1);
            OWNED float *truth = take(w.out_bytes);
            memcpy(truth, w.out, w.out_bytes);
            memset(w.out, 0, w.out_bytes);
            attend_all(o, &w, o->attend_rows);
            double off = nmse(w.out, truth, w.out_bytes / sizeof(float));
            if (!(off < NMSE_MAX)) fail_msg("%s, %s: NMSE %g", o->name, c->why, off);
        }
    }
}

static void attention_has_the_same_bits_in_any_split(void **state)
{
    (void)state;
    for (const struct ops *const *row = ops_table; *row; row++) {
        if (!(*row)->supported()) continue;
        for (size_t i = 0; i < COUNT_OF(attend_cases); i++) {
            const struct attend_case *c = &attend_cases[i];
            CLEANUP(world_fini) struct attend_world w, other;
            world_init(&w, c, 0);
            attend_all(*row, &w, (*row)->attend_rows);
            world_init(&other, c, 1); /* other pages, one row at a time */
            attend_all(*row, &other, 1);
            if (memcmp(w.out, other.out, w.out_bytes) != 0)
                fail_msg("%s, %s: rows alone over other pages differ", (*row)->name, c->why);
            world_fini(&other);
            struct attend_case wide = *c; /* and larger pages */
            wide.page_tokens = 64;
            world_init(&other, &wide, 0);
            attend_all(*row, &other, 5);
            if (memcmp(w.out, other.out, w.out_bytes) != 0)
                fail_msg("%s, %s: larger pages differ", (*row)->name, c->why);
        }
    }
}

/* Equal scores average V; a score far above all others picks its V. Both hold without a
 * reference. */
static void attention_averages_and_picks(void **state)
{
    (void)state;
    for (const struct ops *const *row = ops_table; *row; row++) {
        if (!(*row)->supported()) continue;
        struct attend_case c = { KV_F32, 16, 1, 16, 99, 1, "by hand", 0, 0, false };
        CLEANUP(world_fini) struct attend_world w;
        world_init(&w, &c, 0);
        size_t half = kv_half_bytes(&w.layout);
        for (uint32_t p = 0; p < 100; p++) {
            float k[16] = { [0] = p == 70 ? 1 : 0 }, v[16] = { [3] = (float)p };
            char *block =
                kv_block_at(&w.layout, w.a.head, w.page_bytes, w.page_table, p / KV_BLOCK);
            (*row)->kv_put(&w.layout, k, v, p % KV_BLOCK, block, block + half);
        }
        memset(w.q, 0, 16 * sizeof(float));
        attend_all(*row, &w, 1);
        assert_true(fabsf(w.out[3] - 49.5f) < 1e-4f);
        assert_true(w.out[4] == 0);
        w.q[0] = 4000;
        attend_all(*row, &w, 1);
        assert_true(w.out[3] == 70);
    }
}

static void kv_is_stored_alike(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    OWNED float *k = random_floats(48, &rng);
    OWNED float *v = random_floats(48, &rng);
    k[0] = 1e6f, k[1] = 1e-7f, k[2] = -0.0f; /* infinity, subnormal, signed zero in F16 */
    EACH_FAST(o)
    {
        for (uint32_t type = 0; type < KV_TYPE_COUNT; type++) {
            struct kv_layout l = { type, 1, 1, 48, 16 };
            size_t bytes = kv_page_bytes(&l);
            OWNED char *truth = take(bytes);
            OWNED char *fast = take(bytes);
            for (uint32_t lane = 0; lane < KV_BLOCK; lane += 5) {
                op_ref.kv_put(&l, k, v, lane, truth, truth + kv_half_bytes(&l));
                o->kv_put(&l, k, v, lane, fast, fast + kv_half_bytes(&l));
            }
            assert_memory_equal(fast, truth, bytes);
        }
    }
}

static int kernels_attend_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(attention_has_the_same_bits_in_any_split),
        cmocka_unit_test(attention_averages_and_picks),
        cmocka_unit_test(kv_is_stored_alike),
    };
    scratch = take(OP_SCRATCH_BYTES);
    int failed = cmocka_run_group_tests_name("kernels_attend", tests, NULL, NULL);
    free(scratch);
    return failed;
}

/* ---- workers: every unit of every loop runs exactly once, and the caller waits for all ---- */

#define UNITS_MAX 64

struct count {
    uint32_t plain[UNITS_MAX]; /* plain: one thread runs a unit, the caller reads after it */
    _Atomic uint32_t threads_seen;
    uint32_t threads;
    bool slow;
};

static void count_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct count *c = arg;
    c->plain[unit]++;
    if (thread < c->threads) atomic_fetch_or(&c->threads_seen, 1u << thread);
    if (c->slow && unit == 0) nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 }, NULL);
}

static void each_unit_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads <= 4; threads++) {
        CLEANUP(workers_freep) struct workers *w = NULL;
        assert_int_equal(workers_new(threads, &w, NULL), 0);
        assert_int_equal(workers_threads(w), threads ? threads : 1);
        struct count c = { .threads = workers_threads(w) };
        for (uint32_t loop = 0; loop < 3000; loop++) {
            uint32_t units = loop % UNITS_MAX;
            memset(c.plain, 0, sizeof c.plain);
            c.slow = loop % 100 == 0; /* the other threads, and the caller, fall asleep meanwhile */
            workers_run(w, units, count_unit, &c);
            for (uint32_t i = 0; i < UNITS_MAX; i++)
                assert_int_equal(c.plain[i], i < units);
        }
        assert_true(c.threads_seen & 1); /* the caller works too */
    }
}

/* While the first unit waits, another thread does the rest. */
static void other_threads_do_work(void **state)
{
    (void)state;
    CLEANUP(workers_freep) struct workers *w = NULL;
    assert_int_equal(workers_new(2, &w, NULL), 0);
    struct count c = { .threads = 2, .slow = true };
    for (uint32_t loop = 0; loop < 10000 && c.threads_seen != 3; loop++)
        workers_run(w, 8, count_unit, &c);
    assert_int_equal(c.threads_seen, 3);
}

static void nothing_to_do_returns(void **state)
{
    (void)state;
    CLEANUP(workers_freep) struct workers *w = NULL;
    assert_int_equal(workers_new(3, &w, NULL), 0);
    workers_run(w, 0, count_unit, NULL);
}

static int workers_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_unit_runs_once),
        cmocka_unit_test(other_threads_do_work),
        cmocka_unit_test(nothing_to_do_returns),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}

int main(void)
{
    return kernels_tests() + kernels_attend_tests() + workers_tests();
}
