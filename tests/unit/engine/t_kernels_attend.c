/* t_kernels_attend.c - tests attention over stored K and V by every implementation in ops_table: against op_ref, by
 * hand, and the same bits in any split. */
#include "engine/kernels/half.h"
#include "tests/unit/engine/kernels_rig.h"

#include <math.h>

static void *scratch;

/* Returns true if no supported entry before `o` has its functions here: those of one set of vectors share them. */
static bool has_own_attend(const struct ops *o)
{
    const struct ops *const *row = ops_table;
    while (*row != o && !((*row)->supported() && (*row)->attend == o->attend &&
                          (*row)->attend_rows == o->attend_rows && (*row)->kv_put == o->kv_put))
        row++;
    return *row == o && o->supported();
}

#define EACH_FAST_ATTEND(o) EACH_FAST(o) if (has_own_attend(o))

struct attend_case {
    enum kv_type type;
    uint32_t head_dim, group, page_tokens, position, count;
    const char *why;
    uint32_t window;
    float cap;
    bool sinks;
    uint32_t latent;
};

/* clang-format off */
static const struct attend_case attend_cases[] = {
    { KV_F16, 16,  1, 16,  0,   1,  "the first token", 0, 0, false, 0 },
    { KV_F16, 64,  2, 16,  15,  1,  "a block is full", 0, 0, false, 0 },
    { KV_F32, 64,  2, 16,  16,  1,  "a block and one", 0, 0, false, 0 },
    { KV_F16, 64,  2, 32,  63,  1,  "a span is full", 0, 0, false, 0 },
    { KV_F16, 64,  2, 64,  64,  1,  "a span and one", 0, 0, false, 0 },
    { KV_F16, 48,  3, 16,  200, 1,  "decode, odd head, odd group", 0, 0, false, 0 },
    { KV_F32, 128, 8, 32,  130, 1,  "decode, wide group", 0, 0, false, 0 },
    { KV_F16, 64,  2, 16,  0,   40, "prefill from nothing", 0, 0, false, 0 },
    { KV_F16, 64,  1, 64,  57,  33, "a chunk across spans and pages", 0, 0, false, 0 },
    { KV_F32, 80,  5, 16,  3,   70, "a chunk, odd everything", 0, 0, false, 0 },
    { KV_F16, 512, 1, 128, 20,  7,  "the largest head", 0, 0, false, 0 },
    { KV_F16, 32, 16, 16,  30,  3,  "a group larger than a call", 0, 0, false, 0 },
    { KV_F32, 64,  2, 16,  200, 1,  "a window in the middle of a block", 37, 0, false, 0 },
    { KV_F16, 64,  2, 32,  200, 1,  "a window of one block", 16, 0, false, 0 },
    { KV_F16, 48,  3, 16,  0,  150, "a prefill that outgrows its window", 50, 0, false, 0 },
    { KV_F32, 64,  1, 64,  100, 70, "rows of a call that begin in different spans", 64, 0, false, 0 },
    { KV_F32, 32,  2, 16,  90,  9,  "a window of one token", 1, 0, false, 0 },
    { KV_F16, 64,  2, 16,  20,  5,  "a window larger than all", 500, 0, false, 0 },
    { KV_F32, 64,  2, 16,  70,  20, "capped scores", 0, 2, false, 0 },
    { KV_F32, 64,  4, 16,  70,  20, "sinks", 0, 0, true, 0 },
    { KV_F16, 64,  8, 16,  130, 3,  "sinks, a window and a cap", 20, 1.5f, true, 0 },
    { KV_Q8,  16,  1, 16,  0,   1,  "Q8, the first token", 0, 0, false, 0 },
    { KV_Q8,  64,  4, 64,  200, 1,  "Q8, decode", 0, 0, false, 0 },
    { KV_Q8,  128, 8, 32,  130, 1,  "Q8, decode, wide group", 0, 0, false, 0 },
    { KV_Q8,  48,  3, 16,  0,  150, "Q8, a prefill that outgrows its window", 50, 0, false, 0 },
    { KV_Q8,  80,  5, 16,  3,   70, "Q8, a chunk, odd everything", 0, 0, false, 0 },
    { KV_Q8,  512, 1, 128, 20,  7,  "Q8, the largest head", 0, 0, false, 0 },
    { KV_Q8,  64,  8, 16,  130, 3,  "Q8, sinks, a window and a cap", 20, 1.5f, true, 0 },
    { KV_Q4,  16,  1, 16,  0,   1,  "Q4, the first token, half a group", 0, 0, false, 0 },
    { KV_Q4,  64,  4, 64,  200, 1,  "Q4, decode", 0, 0, false, 0 },
    { KV_Q4,  128, 8, 32,  130, 1,  "Q4, decode, wide group", 0, 0, false, 0 },
    { KV_Q4,  48,  3, 16,  0,  150, "Q4, a prefill that outgrows its window", 50, 0, false, 0 },
    { KV_Q4,  80,  5, 16,  3,   70, "Q4, a chunk, odd everything", 0, 0, false, 0 },
    { KV_Q4,  512, 1, 128, 20,  7,  "Q4, the largest head", 0, 0, false, 0 },
    { KV_Q4,  96,  2, 16,  57,  33, "Q4, a chunk across spans", 0, 0, false, 0 },
    { KV_Q4,  64,  8, 16,  130, 3,  "Q4, sinks, a window and a cap", 20, 1.5f, true, 0 },
    { KV_F16, 32,  1, 16,  0,   1,  "a latent's first token", 0, 0, false, 16 },
    { KV_F16, 576, 16, 64, 200, 1,  "a latent, decode", 0, 0, false, 512 },
    { KV_F16, 576, 5, 16,  3,   70, "a latent, a chunk", 0, 0, false, 512 },
    { KV_F32, 64,  4, 16,  0,  150, "a latent in F32, a prefill", 0, 0, false, 48 },
    { KV_F32, 80,  3, 32,  57,  33, "a latent in F32 with a window, a cap and sinks", 20, 1.5f, true, 64 },
    { KV_Q8,  576, 16, 64, 200, 1,  "a latent in Q8, decode", 0, 0, false, 512 },
    { KV_Q8,  64,  4, 16,  0,   90, "a latent in Q8, half a group of V", 0, 0, false, 48 },
    { KV_Q8,  80,  3, 16,  57,  33, "a latent in Q8, half a group of K", 0, 0, false, 64 },
    { KV_Q4,  576, 16, 64, 200, 1,  "a latent in Q4, decode", 0, 0, false, 512 },
    { KV_Q4,  64,  4, 16,  0,   90, "a latent in Q4, half a group of V", 0, 0, false, 48 },
    { KV_Q4,  80,  3, 16,  57,  33, "a latent in Q4, half a group of K", 0, 0, false, 64 },
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
                                    .page_tokens = c->page_tokens,
                                    .latent = c->latent };
    w->page_bytes = kv_page_bytes(&w->layout);
    w->pages = take((pages + 3) * w->page_bytes);
    memset(w->pages, 0x7e, (pages + 3) * w->page_bytes); /* F16: NaN; F32, BF16: 8e37 */
    for (uint32_t i = 0; i < pages; i++)                 /* in reverse when the seed is odd */
        w->page_table[i] = seed % 2 ? pages + 2 - i : i;
    size_t head = kv_head_offset(&w->layout, 1, 1);
    /* K and V are the same under any page table. */
    struct rng values;
    rng_seed(&values, 77);
    for (uint32_t p = 0; p < end; p++) {
        float k[KV_HEAD_DIM_MAX], v[KV_HEAD_DIM_MAX];
        for (uint32_t d = 0; d < c->head_dim; d++) {
            k[d] = random_float(&values);
            v[d] = random_float(&values);
        }
        char *block =
            kv_block_at(&w->layout, w->pages + head, w->page_bytes, w->page_table, p / KV_BLOCK);
        op_ref.kv_put(&w->layout, k, c->latent ? NULL : v, p % KV_BLOCK, block,
                      c->latent ? NULL : block + kv_half_bytes(&w->layout));
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
                            .out_head = c->head_dim,
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
    for (size_t i = 0; i < COUNT_OF(attend_cases); i++) {
        const struct attend_case *c = &attend_cases[i];
        CLEANUP(world_fini) struct attend_world w;
        world_init(&w, c, 0);
        attend_all(&op_ref, &w, 1);
        OWNED float *truth = take(w.out_bytes);
        memcpy(truth, w.out, w.out_bytes);
        EACH_FAST_ATTEND(o)
        {
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
    for (size_t i = 0; i < COUNT_OF(attend_cases); i++) {
        const struct attend_case *c = &attend_cases[i];
        struct attend_case larger_pages = *c;
        larger_pages.page_tokens = 64;
        CLEANUP(world_fini) struct attend_world w, other, wide;
        world_init(&w, c, 0);
        world_init(&other, c, 1); /* other pages, one row at a time */
        world_init(&wide, &larger_pages, 0);
        for (const struct ops *const *row = ops_table; *row; row++) {
            if (!has_own_attend(*row)) continue;
            memset(w.out, 0, w.out_bytes);
            memset(other.out, 0, w.out_bytes);
            memset(wide.out, 0, w.out_bytes);
            attend_all(*row, &w, (*row)->attend_rows);
            attend_all(*row, &other, 1);
            if (memcmp(w.out, other.out, w.out_bytes) != 0)
                fail_msg("%s, %s: rows alone over other pages differ", (*row)->name, c->why);
            attend_all(*row, &wide, 5);
            if (memcmp(w.out, wide.out, w.out_bytes) != 0)
                fail_msg("%s, %s: larger pages differ", (*row)->name, c->why);
        }
    }
}

/* Pages may come from a peer: any byte is a code, for Q8 also -128, which rounding never gives. */
static void attention_reads_any_bytes(void **state)
{
    (void)state;
    static const struct attend_case cases[] = {
        { KV_Q8, 64, 4, 16, 90, 20, "any bytes in Q8", 0, 0, false, 0 },
        { KV_Q4, 80, 4, 16, 90, 20, "any bytes in Q4", 0, 0, false, 0 },
        { KV_Q8, 96, 4, 16, 90, 20, "any bytes in a latent in Q8", 0, 0, false, 80 },
        { KV_Q4, 96, 4, 16, 90, 20, "any bytes in a latent in Q4", 0, 0, false, 80 },
    };
    for (size_t n = 0; n < COUNT_OF(cases); n++) {
        CLEANUP(world_fini) struct attend_world w;
        struct rng rng;
        rng_seed(&rng, n);
        world_init(&w, &cases[n], 0);
        size_t bytes = 10 * w.page_bytes, block = kv_block_bytes(&w.layout);
        for (size_t i = 0; i < bytes; i++)
            w.pages[i] = (char)rng_below(&rng, 256);
        for (size_t at = kv_code_bytes(&w.layout); at < bytes; at += block)
            for (size_t i = 0; i < block - kv_code_bytes(&w.layout); i += 2) {
                uint16_t scale = f32_to_bf16((float)rng_normal(&rng) / 100);
                memcpy(w.pages + at + i, &scale, sizeof scale);
            }
        attend_all(&op_ref, &w, 1);
        OWNED float *truth = take(w.out_bytes);
        memcpy(truth, w.out, w.out_bytes);
        EACH_FAST_ATTEND(o)
        {
            attend_all(o, &w, o->attend_rows);
            double off = nmse(w.out, truth, w.out_bytes / sizeof(float));
            if (!(off < NMSE_MAX)) fail_msg("%s, %s: NMSE %g", o->name, cases[n].why, off);
        }
    }
}

/* Equal scores average V; a score far above all others picks its V. Both hold without a
 * reference. */
static void attention_averages_and_picks(void **state)
{
    (void)state;
    for (const struct ops *const *row = ops_table; *row; row++) {
        if (!has_own_attend(*row)) continue;
        struct attend_case c = { KV_F32, 16, 1, 16, 99, 1, "by hand", 0, 0, false, 0 };
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

/* The vector of a latent layout, and the same numbers as K and V of a layout with both: scores and sums are computed
 * by the same operations on the same numbers. With codes that is so where groups are alike, in Q4. */
static void a_latent_gives_the_bits_of_k_and_v_apart(void **state)
{
    (void)state;
    static const enum kv_type types[] = { KV_F16, KV_F32, KV_Q4 };
    for (const struct ops *const *row = ops_table; *row; row++) {
        for (size_t n = 0; n < COUNT_OF(types) && has_own_attend(*row); n++) {
            struct attend_case c = { types[n], 96, 4, 32, 60, 50, "apart", 0, 0, false, 64 };
            CLEANUP(world_fini) struct attend_world latent, apart;
            world_init(&latent, &c, 0);
            attend_all(*row, &latent, (*row)->attend_rows);
            c.latent = 0;
            world_init(&apart, &c, 0);
            struct rng values; /* as in world_init, V is K */
            rng_seed(&values, 77);
            for (uint32_t p = 0; p < c.position + c.count; p++) {
                float k[KV_HEAD_DIM_MAX], skipped = 0;
                for (uint32_t d = 0; d < c.head_dim; d++) {
                    k[d] = random_float(&values);
                    skipped += random_float(&values);
                }
                char *block = kv_block_at(&apart.layout, apart.a.head, apart.page_bytes,
                                          apart.page_table, p / KV_BLOCK);
                (*row)->kv_put(&apart.layout, k, k, p % KV_BLOCK, block,
                               block + kv_half_bytes(&apart.layout));
                assert_true(skipped == skipped);
            }
            attend_all(*row, &apart, (*row)->attend_rows);
            for (size_t r = 0; r < apart.rows; r++) {
                size_t at = r / c.group * apart.q_stride + r % c.group * c.head_dim;
                if (memcmp(latent.out + at, apart.out + at, 64 * sizeof(float)) != 0)
                    fail_msg("%s, type %d: row %zu has other bits", (*row)->name, (int)types[n], r);
            }
        }
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
    EACH_FAST_ATTEND(o)
    {
        for (uint32_t type = 0; type < KV_TYPE_COUNT; type++) {
            for (uint32_t latent = 0; latent <= 32; latent += 32) {
                struct kv_layout l = { type, 1, 1, 48, 16, latent, 0 };
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_the_reference),
        cmocka_unit_test(attention_has_the_same_bits_in_any_split),
        cmocka_unit_test(attention_reads_any_bytes),
        cmocka_unit_test(attention_averages_and_picks),
        cmocka_unit_test(a_latent_gives_the_bits_of_k_and_v_apart),
        cmocka_unit_test(kv_is_stored_alike),
    };
    scratch = take(OP_SCRATCH_BYTES);
    int failed = cmocka_run_group_tests_name("kernels_attend", tests, NULL, NULL);
    free(scratch);
    return failed;
}
