/* kernels_bits.c - prints a hash of what every operation of every entry of ops_table computes here, a line each, so
 * that the bits of two processors can be compared.
 *
 *     kernels_bits      "best NAME", then "ENTRY OPERATION CASE HASH"
 *
 * Inputs are exact everywhere. Of op_ref only the operations are there that call nothing of libm but sqrt. */
#include "tests/unit/engine/kernels_rig.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void *scratch;

/* Hashes floats (FNV-1a), every NaN as the same. */
static uint64_t hash_floats(const float *x, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (isnan(x[i]) ? 0x7fc00000u : f32_bits(x[i]))) * 0x100000001b3u;
    return hash;
}

static void print_hash(const struct ops *o, const char *operation, const char *what, const float *x,
                       size_t count)
{
    printf("%s %s %s %016" PRIx64 "\n", o->name, operation, what, hash_floats(x, count));
}

/* ---- products */

static void print_product(const struct ops *o, enum weight_type_id type, uint32_t rows,
                          uint32_t cols, uint32_t tokens)
{
    struct rng rng;
    rng_seed(&rng, rows + tokens);
    size_t x_stride = activation_stride(cols), y_stride = activation_stride(rows);
    OWNED char *data = random_rows(type, rows, cols, &rng);
    struct weight w = packed(type, data, rows, cols);
    OWNED void *tiles = (void *)(uintptr_t)w.tiles;
    OWNED float *x = random_floats(tokens * x_stride, &rng);
    OWNED float *y = take(tokens * y_stride * sizeof *y);
    OWNED struct q8_super *x_q8 = take(tokens * q8_row_bytes(cols));
    (void)tiles;
    x[cols / 2] = tokens == 5 ? NAN : tokens == 11 ? 1e-33f : 1;
    for (uint32_t t = 0; t < tokens && o->q8_round; t++)
        o->q8_round(x + t * x_stride, cols, q8_row_at(x_q8, cols, t));
    struct gemm g = { .w = &w,
                      .x = x,
                      .x_stride = x_stride,
                      .x_q8 = x_q8,
                      .y = y,
                      .y_stride = y_stride,
                      .tokens = tokens };
    o->gemm(&g, 0, weight_tiles(&w), scratch);
    char what[64];
    snprintf(what, sizeof what, "%s:%ux%u:%u", weight_types[type].name, rows, cols, tokens);
    print_hash(o, "gemm", what, y, tokens * y_stride);
}

static void print_products(const struct ops *o)
{
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        print_product(o, type, 33, 768, 1);
        print_product(o, type, 17, 256, 2);
        print_product(o, type, 48, 512, 5);
        print_product(o, type, 272, 256, 11);
        print_product(o, type, 80, 256, 40);
    }
}

/* ---- element by element */

#define WIDTH 272

static void print_elements(const struct ops *o)
{
    struct rng rng;
    rng_seed(&rng, 2);
    OWNED float *x = random_floats(WIDTH, &rng);
    OWNED float *w = random_floats(WIDTH, &rng);
    OWNED float *y = take(WIDTH * sizeof *y);
    o->rms_norm(x, w, 1e-5f, WIDTH - 1, y);
    print_hash(o, "rms_norm", "271", y, WIDTH);
    o->rope(y, 2, 128, x, w, 50);
    print_hash(o, "rope", "2x128", y, WIDTH);
    if (o == &op_ref) return;

    void (*const gates[])(float *, const float *, uint32_t) = { o->silu_mul, o->gelu_mul,
                                                                o->clamped_mul };
    static const char *const names[] = { "silu", "gelu", "clamped" };
    for (size_t i = 0; i < COUNT_OF(gates); i++) {
        for (uint32_t j = 0; j < WIDTH; j++)
            y[j] = x[j] * (j % 3 == 0 ? 60.0f : 3.0f);
        y[0] = NAN, y[17] = INFINITY;
        gates[i](y, w, WIDTH);
        print_hash(o, "gate", names[i], y, WIDTH);
    }
    for (uint32_t j = 0; j < WIDTH; j++)
        y[j] = x[j] * 80;
    o->soft_cap(y, 30, WIDTH);
    print_hash(o, "soft_cap", "30", y, WIDTH);
}

/* ---- attention */

#define PAGE_TOKENS 64
#define PAGES 4
#define GROUP 3
#define HEAD_DIM 48
#define LATENT 32
#define KEYS 200

static void print_attention(const struct ops *o, enum kv_type type, uint32_t latent,
                            const char *name)
{
    struct rng rng;
    rng_seed(&rng, 3);
    struct kv_layout layout = { .type = type,
                                .n_layers = 1,
                                .n_kv_heads = 1,
                                .head_dim = HEAD_DIM,
                                .page_tokens = PAGE_TOKENS,
                                .latent = latent };
    size_t page_bytes = kv_page_bytes(&layout);
    const uint32_t page_table[PAGES] = { 2, 0, 3, 1 };
    OWNED char *pages = take(PAGES * page_bytes);
    for (uint32_t p = 0; p < KEYS; p++) {
        OWNED float *k = random_floats(HEAD_DIM, &rng);
        OWNED float *v = random_floats(HEAD_DIM, &rng);
        char *block = kv_block_at(&layout, pages, page_bytes, page_table, p / KV_BLOCK);
        o->kv_put(&layout, k, v, p % KV_BLOCK, block, block + kv_half_bytes(&layout));
    }
    OWNED float *q = random_floats((size_t)2 * GROUP * HEAD_DIM, &rng);
    OWNED float *out = take(sizeof *out * 2 * GROUP * HEAD_DIM);
    static const float sinks[GROUP] = { -1, 0, 3 };
    struct attend a = { .layout = &layout,
                        .head = pages,
                        .page_bytes = page_bytes,
                        .page_table = page_table,
                        .q = q,
                        .q_stride = GROUP * HEAD_DIM,
                        .out = out,
                        .out_stride = GROUP * HEAD_DIM,
                        .out_head = HEAD_DIM,
                        .group = GROUP,
                        .position = KEYS - 2,
                        .row_count = 2 * GROUP,
                        .scale = 0.25f };
    o->attend(&a, scratch);
    print_hash(o, "attend", name, out, (size_t)2 * GROUP * HEAD_DIM);
    a.window = 70, a.cap = 4, a.sinks = sinks;
    o->attend(&a, scratch);
    print_hash(o, "attend_window", name, out, (size_t)2 * GROUP * HEAD_DIM);
}

int main(void)
{
    scratch = take(OP_SCRATCH_BYTES);
    printf("best %s\n", ops_best()->name);
    for (const struct ops *const *row = ops_table; *row; row++) {
        if (!(*row)->supported()) continue;
        print_products(*row);
        print_elements(*row);
        if (*row == &op_ref) continue;
        print_attention(*row, KV_F32, 0, "F32");
        print_attention(*row, KV_F32, LATENT, "latent_F32");
        print_attention(*row, KV_F16, 0, "F16");
        print_attention(*row, KV_F16, LATENT, "latent_F16");
        print_attention(*row, KV_Q8, 0, "Q8");
        print_attention(*row, KV_Q8, LATENT, "latent_Q8");
        print_attention(*row, KV_Q4, 0, "Q4");
        print_attention(*row, KV_Q4, LATENT, "latent_Q4");
    }
    free(scratch);
    return 0;
}
