/* t_kv_code.c - tests K and V in Q8 and Q4 against numpy (tests/vectors/kv), and the error of what is read
 * back. */
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/kernels/half.h"
#include "engine/kernels/kv_code.h"
#include "engine/kernels/op.h"
#include "tests/unit/read_file.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Rounds 16 tokens by an entry of ops_table and compares both blocks. */
static void check_block(const struct ops *o, const struct kv_layout *l, const char *vectors)
{
    static float heads[2 * KV_BLOCK * KV_HEAD_DIM_MAX];
    const size_t floats = (size_t)KV_BLOCK * l->head_dim, bytes = kv_block_bytes(l);
    memcpy(heads, vectors, 2 * floats * sizeof *heads);
    char *got = calloc(2, bytes);
    must(got);
    for (uint32_t lane = KV_BLOCK; lane-- > 0;)
        o->kv_put(l, heads + (size_t)lane * l->head_dim,
                  heads + floats + (size_t)lane * l->head_dim, lane, got, got + bytes);
    const char *want = vectors + 2 * floats * sizeof *heads;
    for (size_t i = 0; i < 2 * bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s, type %d, heads of %u: byte %zu of %s is %02x, not %02x", o->name,
                     (int)l->type, l->head_dim, i % bytes, i < bytes ? "K" : "V", (uint8_t)got[i],
                     (uint8_t)want[i]);
    free(got);
}

static void t_blocks_equal_numpys(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf bin = { 0 };
    uint32_t lines = 0, head_dim;
    size_t at;
    char type[8];
    read_file("tests/vectors/kv/kv.bin", &bin);
    FILE *text = fopen("tests/vectors/kv/kv.txt", "r");
    if (!text) fail_msg("kv.txt ships with the tests");
    while (fscanf(text, "%7s %u %zu", type, &head_dim, &at) == 3) {
        const struct kv_layout l = {
            strcmp(type, "q8") ? KV_Q4 : KV_Q8, 1, 1, head_dim, KV_BLOCK, 0, 0
        };
        must(head_dim <= KV_HEAD_DIM_MAX);
        must(at + 2 * (KV_BLOCK * head_dim * sizeof(float) + kv_block_bytes(&l)) <= bin.len);
        for (const struct ops *const *row = ops_table; *row; row++)
            if ((*row)->supported()) check_block(*row, &l, bin.data + at);
        lines++;
    }
    fclose(text);
    assert_int_equal(lines, 16);
}

/* Returns the root mean square of the error of normal heads, relative to theirs, through the accessors that
 * the reference reads by. */
static double error_of(enum kv_type type, uint32_t head_dim, double size)
{
    const struct kv_layout l = { type, 1, 1, head_dim, KV_BLOCK, 0, 0 };
    static float k[KV_HEAD_DIM_MAX], v[KV_HEAD_DIM_MAX];
    char *blocks = calloc(2, kv_block_bytes(&l));
    must(blocks);
    struct rng rng;
    rng_seed(&rng, 11);
    double error = 0, power = 0;
    for (uint32_t lane = 0; lane < KV_BLOCK; lane++) {
        for (uint32_t d = 0; d < head_dim; d++) {
            k[d] = (float)(rng_normal(&rng) * size);
            v[d] = (float)(rng_normal(&rng) * size);
        }
        kv_code_put(&l, k, v, lane, blocks, blocks + kv_block_bytes(&l));
        for (uint32_t d = 0; d < head_dim; d++) {
            double off_k = (double)kv_code_k(&l, blocks, d, lane) - (double)k[d];
            double off_v =
                (double)kv_code_v(&l, blocks + kv_block_bytes(&l), d, lane) - (double)v[d];
            error += off_k * off_k + off_v * off_v;
            power += (double)k[d] * (double)k[d] + (double)v[d] * (double)v[d];
        }
    }
    free(blocks);
    return sqrt(error / power);
}

static void t_the_error_is_that_of_the_type(void **state)
{
    (void)state;
    static const double sizes[] = { 1e-30, 1e-4, 1, 1e4, 1e30 };
    static const uint32_t head_dims[] = { 16, 48, 64, 128, 256, 512 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t j = 0; j < COUNT_OF(head_dims); j++) {
            double q8 = error_of(KV_Q8, head_dims[j], sizes[i]);
            double q4 = error_of(KV_Q4, head_dims[j], sizes[i]);
            if (!(q8 > 0.003 && q8 < 0.009 && q4 > 0.06 && q4 < 0.09))
                fail_msg("heads of %u, size %g: error %g in Q8, %g in Q4", head_dims[j], sizes[i],
                         q8, q4);
        }
    }
}

/* What is not finite is read back as NaN, in its group alone; zeros are read back as zeros. */
static void t_nan_stays_and_zero_stays(void **state)
{
    (void)state;
    for (uint32_t type = KV_Q8; type <= KV_Q4; type++) {
        const struct kv_layout l = { type, 1, 1, 64, KV_BLOCK, 0, 0 };
        float k[64] = { [40] = NAN }, v[64] = { 0 };
        char blocks[2 * 64 * KV_BLOCK * 2] = { 0 };
        must(2 * kv_block_bytes(&l) <= sizeof blocks);
        kv_code_put(&l, k, v, 9, blocks, blocks + kv_block_bytes(&l));
        assert_true(isnan(kv_code_k(&l, blocks, 40, 9)) && isnan(kv_code_k(&l, blocks, 63, 9)));
        assert_true(type == KV_Q8 || kv_code_k(&l, blocks, 0, 9) == 0);
        assert_true(kv_code_v(&l, blocks + kv_block_bytes(&l), 40, 9) == 0);
        k[40] = -INFINITY;
        kv_code_put(&l, k, v, 9, blocks, blocks + kv_block_bytes(&l));
        assert_true(!isfinite(kv_code_k(&l, blocks, 63, 9)));
    }
}

static void t_pages_shrink(void **state)
{
    (void)state;
    static const struct {
        enum kv_type type;
        uint32_t head_dim;
        size_t token_bytes; /* K and V of a head */
    } rows[] = {
        { KV_F16, 64, 256 }, { KV_F32, 64, 512 },  { KV_Q8, 64, 132 },  { KV_Q4, 64, 72 },
        { KV_Q8, 128, 260 }, { KV_Q4, 128, 144 },  { KV_Q8, 16, 36 },   { KV_Q4, 16, 36 },
        { KV_Q4, 48, 72 },   { KV_Q8, 512, 1028 }, { KV_Q4, 512, 576 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct kv_layout l = { rows[i].type, 3, 2, rows[i].head_dim, 48, 0, 0 };
        assert_int_equal(kv_page_bytes(&l), 3 * 2 * 48 * rows[i].token_bytes);
        assert_int_equal(kv_head_offset(&l, 2, 1), 5 * 48 * rows[i].token_bytes);
        struct kv_layout parts = l; /* the last layer has a window: its part is aligned */
        parts.window_layers = 1;
        const size_t full = (4 * 48 * rows[i].token_bytes + 4095) / 4096 * 4096;
        assert_int_equal(kv_full_bytes(&parts), full);
        assert_int_equal(kv_head_offset(&parts, 1, 1), 3 * 48 * rows[i].token_bytes);
        assert_int_equal(kv_head_offset(&parts, 2, 1), full + 48 * rows[i].token_bytes);
        assert_int_equal(kv_page_bytes(&parts),
                         full + (2 * 48 * rows[i].token_bytes + 4095) / 4096 * 4096);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_blocks_equal_numpys),
        cmocka_unit_test(t_the_error_is_that_of_the_type),
        cmocka_unit_test(t_nan_stays_and_zero_stays),
        cmocka_unit_test(t_pages_shrink),
    };
    return cmocka_run_group_tests_name("kv_code", tests, NULL, NULL);
}
