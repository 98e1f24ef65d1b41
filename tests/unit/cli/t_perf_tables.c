/* t_perf_tables.c - the shipped constants against the measured tables that they come from.
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout); without
 * them it is skipped. Every error is printed; bounded are the dense tables' at each parallel
 * degree, and that of a model that the constants were not fitted to. */
#include "base/core/bits.h"
#include "base/io/file.h"
#include "cli/plan/perf_fit.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Attention and all-reduce: the published errors, and no worse than published. */
static void t_published(void **state)
{
    (void)state;
    static const struct {
        const char *table, *hardware;
        double most[3]; /* all, decode, prefill; 0: has no such part */
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

/* A fit from elsewhere finds constants as good as the shipped ones: they are its result. */
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

int main(void)
{
    const char *shared = getenv("MUSTER_SHARED");
    snprintf(folder, sizeof folder, "%s/data/perf", shared ? shared : "../shared");
    if (access(folder, R_OK) < 0) {
        printf("skipped: %s is not here (set MUSTER_SHARED)\n", folder);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_dense),
        cmocka_unit_test(t_published),
        cmocka_unit_test(t_refit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
