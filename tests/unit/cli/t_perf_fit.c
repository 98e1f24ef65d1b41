/* t_perf_fit.c - tests fits of step times: reading tables, finding constants, and the shipped
 * constants. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/io/file.h"
#include "base/perf/roofline.h"
#include "cli/plan/perf_fit.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tables are read strictly, and a fit finds the constants that made them ---- */

static struct model_spec llama(void)
{
    struct model_spec m;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    return m;
}

static struct perf_table *read_table(const char *text, struct err *err)
{
    struct model_spec m = llama();
    struct perf_table *t = NULL;
    int rc = perf_table_read(str_from(text), &m, &t, err);
    assert_true((rc < 0) == !t);
    return t;
}

static void t_kinds(void **state)
{
    (void)state;
    struct err err = { 0 };
    CLEANUP(perf_table_freep)
    struct perf_table *dense =
        read_table("layer,tokens,time_us\r\nqkv_proj,8,10\r\nlayernorm,8,3\r\nembedding,8,100\r\n"
                   "qkv_proj,16,20\r\n",
                   &err);
    assert_int_equal(dense->kind, PERF_DENSE);
    assert_int_equal(dense->count, 2);
    assert_true(fabs(dense->sample[0].seconds - 16e-6) < 1e-12); /* a layer has two norms */

    CLEANUP(perf_table_freep)
    struct perf_table *attention = read_table(
        "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,4,100,9\n8,16,2,50,20\n", &err);
    assert_int_equal(attention->kind, PERF_ATTENTION);
    assert_int_equal(attention->sample[0].shape.kv_tokens_decoding, 400);
    assert_int_equal(attention->sample[0].shape.prefill_chunks, 0);
    assert_int_equal(attention->sample[1].shape.kv_tokens_read, 100 + 8 * 16 + 36);

    CLEANUP(perf_table_freep)
    struct perf_table *reduce =
        read_table("size,num_workers,devices_per_node,time_stats.all_reduce.median\n"
                   "2048,4,4,0.03\n2048,4,2,0.09\n",
                   &err);
    assert_int_equal(reduce->kind, PERF_ALLREDUCE);
    assert_int_equal(reduce->count, 1); /* rows between machines belong to another link */
    assert_int_equal(reduce->sample[0].shape.prefill_tokens, 1024);
}

static void t_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *says;
    } rows[] = {
        { "another table", "a,b\n1,2\n", "of no table that is known" },
        { "nothing", "", "of no table that is known" },
        { "no rows", "layer,tokens,time_us\n", "no rows" },
        { "not a number", "layer,tokens,time_us\nqkv_proj,8,x\n", "line 2: column 3" },
        { "too few columns", "layer,tokens,time_us\nqkv_proj,8\n", "line 2: column 3" },
        { "a kernel that is not known", "layer,tokens,time_us\nconv,8,1\n", "line 2: no kernel" },
        { "half a token", "layer,tokens,time_us\nqkv_proj,8.5,1\n", "line 2: 8.5 tokens" },
        { "no time", "layer,tokens,time_us\nqkv_proj,8,0\n", "not positive" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        if (read_table(rows[i].text, &err) || !strstr(err.text, rows[i].says)) {
            fail_msg("%s: '%s'", rows[i].why, err.text);
        }
    }
}

/* A fit to a table made from known constants finds them, from a start far away. */
static void t_finds(void **state)
{
    (void)state;
    struct model_spec m = llama();
    struct hardware truth = *hardware_find(STR("a100")), h = *hardware_find(STR("t4"));
    truth.eff_bytes = 0.6, truth.eff_flops = 0.5, truth.eff_rows = 0.3, truth.layer_s = 12e-6;
    h.flops = truth.flops, h.bytes_s = truth.bytes_s;
    struct roofline r;
    assert_true(roofline_init(&r, &truth, &m, 1));
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "layer,tokens,time_us\n");
    for (uint32_t tokens = 1; tokens <= 4096; tokens += 1 + tokens / 4)
        buf_printf(&text, "qkv_proj,%u,%.6f\n", tokens, 1e6 * roofline_layer_s(&r, tokens));
    struct err err = { 0 };
    CLEANUP(perf_table_freep) struct perf_table *t = read_table(text.data, &err);
    assert_non_null(t);
    assert_int_equal(perf_fit(t, &h, &err), 0);
    struct perf_error e;
    assert_int_equal(perf_error_of(t, &h, PERF_ALL, 0, &e, &err), 0);
    assert_true(e.count == t->count && e.mape < 0.005 && e.p90 < 0.02);
    assert_true(fabs(h.eff_bytes / truth.eff_bytes - 1) < 0.05);
    assert_true(fabs(h.eff_flops / truth.eff_flops - 1) < 0.05);
}

/* No share of the peak explains times that short: the fitted share ends at 1. */
static void t_capped(void **state)
{
    (void)state;
    struct hardware h = *hardware_find(STR("a100"));
    struct err err = { 0 };
    CLEANUP(perf_table_freep)
    struct perf_table *t =
        read_table("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n2048,0,0,0,10\n", &err);
    assert_int_equal(perf_fit(t, &h, &err), 0);
    assert_true(h.eff_attn > 0.99 && h.eff_attn <= 1);
}

/* A fit refuses fewer rows than it has constants. */
static void t_few_rows(void **state)
{
    (void)state;
    struct hardware h = *hardware_find(STR("a100"));
    struct err err = { 0 };
    CLEANUP(perf_table_freep)
    struct perf_table *t =
        read_table("layer,tokens,time_us\nqkv_proj,1,2\nqkv_proj,2,2\nqkv_proj,4,2\n", &err);
    assert_int_equal(perf_fit(t, &h, &err), -EINVAL);
    assert_string_equal(err.text, "3 rows cannot tell 4 constants apart: measure more");
}

static int perf_fit_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_kinds),  cmocka_unit_test(t_refusals), cmocka_unit_test(t_finds),
        cmocka_unit_test(t_capped), cmocka_unit_test(t_few_rows),
    };
    return cmocka_run_group_tests_name("perf_fit", tests, NULL, NULL);
}

/* ---- the shipped constants against the measured tables that they come from ----
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout). Prints every
 * error; bounds those of the dense tables at each parallel degree, and of the table of a model that
 * the constants were not fitted to. */

static char folder[512];

static struct perf_table *load(const char *name)
{
    char path[600];
    struct err err = { 0 };
    struct model_spec m;
    struct perf_table *t = NULL;
    CLEANUP(buf_fini) struct buf text = { 0 };
    snprintf(path, sizeof path, "%s/%s.csv", folder, name);
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    int rc = file_read(path, BUF_BYTES_MAX, &text, &err);
    if (rc >= 0) rc = perf_table_read(buf_view(&text), &m, &t, &err);
    if (rc < 0) fail_msg("%s: %s", path, err.text);
    return t;
}

static double mape(const char *table, const struct perf_table *t, const struct hardware *h,
                   enum perf_part part, uint32_t tp)
{
    struct perf_error e;
    assert_int_equal(perf_error_of(t, h, part, tp, &e, NULL), 0);
    assert_true(e.count > 0);
    printf("%-24s %-10s degree %u part %d: %5.2f %% of %u rows, P90 %5.2f %%\n", table, h->name, tp,
           part, 100 * e.mape, e.count, 100 * e.p90);
    return 100 * e.mape;
}

static void t_dense(void **state)
{
    (void)state;
    static const struct {
        const char *table, *hardware;
        double most; /* per cent */
        uint32_t degrees;
    } rows[] = {
        { "mlp_a100_7b", "a100", 5.5, 8 },    { "mlp_a40_7b", "a40", 5.5, 8 },
        { "mlp_h100_7b", "h100", 8, 8 },      { "mlp_a100_8b", "a100", 6, 8 },
        { "dense_RTX4090", "rtx4090", 5, 1 }, { "dense_RTXPRO6000", "rtxpro6000", 5, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct hardware *h = hardware_find(str_from(rows[i].hardware));
        CLEANUP(perf_table_freep) struct perf_table *t = load(rows[i].table);
        assert_true(mape(rows[i].table, t, h, PERF_ALL, 0) <= rows[i].most);
        for (uint32_t tp = 1; tp <= rows[i].degrees; tp *= 2)
            assert_true(mape(rows[i].table, t, h, PERF_ALL, tp) <= rows[i].most);
        assert_true(mape(rows[i].table, t, h, PERF_SMALL, 0) <= rows[i].most);
    }
}

/* Bounds the errors of attention and all-reduce by the published ones. */
static void t_published(void **state)
{
    (void)state;
    static const struct {
        const char *table, *hardware;
        double most[3]; /* all, decode, prefill; 0: the table has no such part */
    } rows[] = {
        { "att_RTX4090", "rtx4090", { 20, 12.5, 18 } },
        { "att_RTXPRO6000", "rtxpro6000", { 19, 14, 16 } },
        { "ar_a100_dgx", "a100", { 15, 0, 0 } },
        { "ar_h100_dgx", "h100", { 11, 0, 0 } },
    };
    static const enum perf_part part[] = { PERF_ALL, PERF_DECODE, PERF_PREFILL };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct hardware *h = hardware_find(str_from(rows[i].hardware));
        CLEANUP(perf_table_freep) struct perf_table *t = load(rows[i].table);
        for (size_t k = 0; k < COUNT_OF(part) && rows[i].most[k] > 0; k++)
            assert_true(mape(rows[i].table, t, h, part[k], 0) <= rows[i].most[k]);
    }
}

/* A fit from another start finds constants as good as the shipped ones: they are a fit's result. */
static void t_refit(void **state)
{
    (void)state;
    struct hardware h = *hardware_find(STR("a40"));
    const struct hardware *shipped = hardware_find(STR("a40"));
    h.eff_bytes = h.eff_flops = h.eff_rows = 0.5, h.layer_s = 50e-6;
    CLEANUP(perf_table_freep) struct perf_table *t = load("mlp_a40_7b");
    assert_int_equal(perf_fit(t, &h, NULL), 0);
    assert_true(mape("mlp_a40_7b, refitted", t, &h, PERF_ALL, 0) <=
                mape("mlp_a40_7b", t, shipped, PERF_ALL, 0) + 0.1);
}

static int perf_tables_tests(void)
{
    const char *shared = getenv("MUSTER_SHARED");
    snprintf(folder, sizeof folder, "%s/data/perf", shared ? shared : "../shared");
    if (access(folder, R_OK) < 0) {
        print_message("skipped: %s is not here (set MUSTER_SHARED)\n", folder);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_dense),
        cmocka_unit_test(t_published),
        cmocka_unit_test(t_refit),
    };
    return cmocka_run_group_tests_name("perf_tables", tests, NULL, NULL);
}

int main(void)
{
    return perf_fit_tests() + perf_tables_tests();
}
