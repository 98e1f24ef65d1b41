/* t_gpu_health.c - tests what follows from Xids and counters, row by row and in sequences, and the names of
 * hardware. */
#include "agent/core/gpu_health.h"
#include "base/core/bits.h"
#include "base/perf/hardware.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define START (1000 * SECOND)

/* NVIDIA's catalogue of Xids for Ampere and newer, its column "immediate action", as far as language models meet them;
 * typed from the catalogue, not from our table. */
static const struct {
    uint32_t xid;
    const char *nvidia;
} catalogue[] = {
    { 8, "RESTART_APP" },  { 11, "RESTART_APP" }, { 13, "RESTART_APP" },
    { 25, "RESTART_APP" }, { 31, "RESTART_APP" }, { 32, "RESTART_APP" },
    { 39, "RESTART_APP" }, { 40, "RESTART_APP" }, { 41, "RESTART_APP" },
    { 43, "IGNORE" },      { 44, "IGNORE" },      { 45, "WORKFLOW_XID_45" },
    { 46, "RESET_GPU" },   { 48, "WORKFLOW" },    { 54, "CHECK_MECHANICALS" },
    { 62, "RESET_GPU" },   { 63, "IGNORE" },      { 64, "RESET_GPU" },
    { 69, "RESTART_APP" }, { 70, "RESTART_APP" }, { 71, "RESTART_APP" },
    { 72, "RESTART_APP" }, { 74, "WORKFLOW" },    { 79, "RESTART_BM" },
    { 92, "IGNORE" },      { 93, "IGNORE" },      { 94, "RESTART_APP" },
    { 95, "RESET_GPU" },   { 109, "RESET_GPU" },  { 110, "RESET_GPU" },
    { 119, "RESET_GPU" },  { 120, "RESET_GPU" },  { 121, "IGNORE" },
    { 136, "RESET_GPU" },  { 140, "RESET_GPU" },  { 143, "RESET_GPU" },
    { 154, "XID_154" },    { 156, "RESET_GPU" },  { 158, "RESET_GPU" },
};

static bool agrees(const char *nvidia, enum gpu_action ours)
{
    if (strcmp(nvidia, "RESTART_APP") == 0) return ours == GPU_RESTART;
    bool told = strcmp(nvidia, "IGNORE") == 0 || strcmp(nvidia, "WORKFLOW_XID_45") == 0 ||
                strcmp(nvidia, "XID_154") == 0;
    return told ? ours == GPU_IGNORE : ours == GPU_REPLACE || ours == GPU_BROKEN;
}

static void the_table_is_the_catalogues(void **state)
{
    (void)state;
    assert_int_equal(gpu_rule_count, COUNT_OF(catalogue));
    for (size_t i = 0; i < COUNT_OF(catalogue); i++) {
        const struct gpu_rule *r = gpu_rule_find(catalogue[i].xid);
        assert_non_null(r);
        if (!agrees(catalogue[i].nvidia, r->action))
            fail_msg("Xid %u: %s, and NVIDIA says %s", r->xid, gpu_action_names[r->action],
                     catalogue[i].nvidia);
        assert_true(i == 0 || gpu_rules[i - 1].xid < gpu_rules[i].xid);
    }
    assert_null(gpu_rule_find(0));
    assert_null(gpu_rule_find(1000));
}

static enum gpu_action xid(struct gpu_health *h, uint32_t code, int64_t at_us)
{
    struct gpu_event e;
    gpu_health_xid(h, 0, code, false, at_us, &e);
    assert_true(strlen(e.why) > 0 && strlen(e.code) > 0);
    return e.action;
}

static void a_lost_gpu_breaks_its_machine(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    struct gpu_event e;
    assert_int_equal(xid(&h, 13, START), GPU_RESTART);
    assert_int_equal(h.verdict, MACHINE_WELL);
    gpu_health_xid(&h, 3, 79, false, START + SECOND, &e);
    assert_int_equal(e.action, GPU_BROKEN);
    assert_int_equal(h.verdict, MACHINE_BROKEN);
    assert_string_equal(h.code, "xid_79");
    assert_string_equal(h.why, "GPU 3: Xid 79, it has fallen off the bus");
    assert_int_equal(xid(&h, 48, START + 2 * SECOND), GPU_REPLACE);
    assert_string_equal(h.code, "xid_79"); /* a lesser one later changes nothing */
    assert_int_equal(h.fault_count, 3);
}

static void restarts_are_bounded(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    assert_int_equal(xid(&h, 31, START), GPU_RESTART);
    assert_int_equal(xid(&h, 13, START + GPU_SAME_US - 1), GPU_IGNORE); /* the same cause */
    assert_int_equal(xid(&h, 13, START + GPU_SAME_US), GPU_RESTART);
    assert_int_equal(xid(&h, 94, START + GPU_STORM_US - 1), GPU_REPLACE);
    assert_int_equal(h.verdict, MACHINE_FAILING);
    assert_non_null(strstr(h.why, "third"));

    struct gpu_health seldom = {
        0
    }; /* two in any half an hour: each costs a restart and no machine */
    for (int64_t i = 0; i < 20; i++)
        assert_int_equal(xid(&seldom, 13, START + i * GPU_STORM_US / 2), GPU_RESTART);
    assert_int_equal(seldom.verdict, MACHINE_WELL);
    assert_int_equal(seldom.fault[0].count, 20);
}

static void a_neighbours_fault_is_told_only(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    struct gpu_event e;
    for (int i = 0; i < 5; i++) {
        gpu_health_xid(&h, 0, 13, true, START + i * 60 * SECOND, &e);
        assert_int_equal(e.action, GPU_IGNORE);
    }
    assert_non_null(strstr(e.why, "MIG"));
    gpu_health_xid(&h, 0, 79, true, START, &e); /* of the whole board */
    assert_int_equal(e.action, GPU_BROKEN);
}

static void unknown_codes_are_counted(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(xid(&h, 500 + i, START), GPU_IGNORE);
    assert_int_equal(h.verdict, MACHINE_WELL);
    assert_int_equal(h.fault_count, WIRE_FAULTS_MAX);
    assert_string_equal(h.fault[WIRE_FAULTS_MAX - 1].code, "other");
    assert_int_equal(h.fault[WIRE_FAULTS_MAX - 1].count, 40 - (WIRE_FAULTS_MAX - 1));
}

struct step {
    struct gpu_counters c;
    bool follows;
    enum gpu_action action;
    const char *code, *why; /* of this row */
};

static void counters_tell_by_their_change(void **state)
{
    (void)state;
    static const struct step steps[] = {
        { { .ecc_known = true, .ecc_uncorrectable = 7 }, false, GPU_IGNORE, "", "its past" },
        { { .ecc_known = true, .ecc_uncorrectable = 7 }, false, GPU_IGNORE, "", "nothing new" },
        { { .ecc_known = true, .ecc_uncorrectable = 8 }, true, GPU_RESTART, "ecc", "one more" },
        { { .ecc_known = false }, false, GPU_IGNORE, "", "no answer is no counter of 0" },
        { { .ecc_known = true, .ecc_uncorrectable = 8 }, false, GPU_IGNORE, "", "as before" },
        { { .ecc_known = true, .ecc_uncorrectable = 3 }, false, GPU_IGNORE, "", "a new driver" },
        { { .ecc_known = true, .ecc_uncorrectable = 3, .remap_known = true, .remap_pending = true },
          true,
          GPU_IGNORE,
          "row_remap_pending",
          "told only" },
        { { .ecc_known = true,
            .ecc_uncorrectable = 3,
            .remap_known = true,
            .remap_pending = true,
            .remap_failed = true },
          true,
          GPU_REPLACE,
          "row_remap",
          "no spare row" },
        { { .ecc_known = true, .ecc_uncorrectable = 3, .remap_known = true, .remap_failed = true },
          false,
          GPU_IGNORE,
          "",
          "told before" },
        { { .lost = true }, true, GPU_BROKEN, "lost", "gone" },
        { { .lost = false }, false, GPU_IGNORE, "", "a verdict stays" },
        { { .lost = true }, false, GPU_IGNORE, "", "and is told once" },
    };
    struct gpu_health h = { 0 };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        struct gpu_event e = { 0 };
        bool follows =
            gpu_health_counters(&h, 2, &steps[i].c, false, START + (int64_t)i * 60 * SECOND, &e);
        if (follows != steps[i].follows || (follows && e.action != steps[i].action) ||
            (follows && strcmp(e.code, steps[i].code) != 0))
            fail_msg("step %zu (%s): %d %s %s", i, steps[i].why, follows,
                     gpu_action_names[e.action], e.code);
    }
    assert_int_equal(h.verdict, MACHINE_BROKEN);
}

static void what_is_wrong_from_the_start_counts(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    struct gpu_event e;
    struct gpu_counters c = { .retired_known = true, .retired_pages = GPU_RETIRED_PAGES_MAX };
    assert_true(gpu_health_counters(&h, 0, &c, false, START, &e));
    assert_int_equal(e.action, GPU_REPLACE);
    c = (struct gpu_counters){ .ecc_known = true, .remap_known = true, .remap_failed = true };
    assert_true(gpu_health_counters(&h, 1, &c, false, START, &e));
    assert_int_equal(e.action, GPU_REPLACE);
    /* An error that also asks for a remapping costs the engine its context all the same. */
    c = (struct gpu_counters){ .ecc_known = true };
    assert_false(gpu_health_counters(&h, 4, &c, false, START, &e));
    c = (struct gpu_counters){
        .ecc_known = true, .ecc_uncorrectable = 1, .remap_known = true, .remap_pending = true
    };
    assert_true(gpu_health_counters(&h, 4, &c, false, START, &e));
    assert_int_equal(e.action, GPU_RESTART);
}

/* Three uncorrectable errors within half an hour replace the machine, as three Xids do; an error and its Xid are
 * one. */
static void errors_and_their_xids_are_one(void **state)
{
    (void)state;
    struct gpu_health h = { 0 };
    struct gpu_event e;
    struct gpu_counters c = { .ecc_known = true };
    gpu_health_counters(&h, 0, &c, false, START, &e);
    for (int64_t i = 1; i <= 3; i++) {
        int64_t now = START + i * 60 * SECOND;
        enum gpu_action first = xid(&h, 94, now);
        assert_int_equal(first, i < 3 ? GPU_RESTART : GPU_REPLACE);
        c.ecc_uncorrectable++;
        assert_true(gpu_health_counters(&h, 0, &c, false, now + SECOND, &e));
        assert_int_equal(e.action, GPU_IGNORE);
    }
}

static void products_are_found_in_the_table(void **state)
{
    (void)state;
    static const struct {
        const char *product;
        double gib;
        const char *name;
    } rows[] = {
        { "NVIDIA H100 80GB HBM3", 79.6, "h100" },
        { "NVIDIA H100 PCIe", 79.6, NULL },
        { "NVIDIA H100 NVL", 93, NULL },
        { "NVIDIA H200", 140.4, "h200" },
        { "NVIDIA A100-SXM4-80GB", 79.2, "a100-80" },
        { "NVIDIA A100 80GB PCIe", 79.2, "a100-80" },
        { "NVIDIA A100-SXM4-40GB", 39.4, NULL },
        { "Tesla T4", 14.6, "t4" },
        { "NVIDIA A10G", 22.0, "a10g" },
        { "NVIDIA A10", 22.0, NULL },
        { "NVIDIA L4", 22.0, "l4" },
        { "NVIDIA L40S", 44.4, "l40s" },
        { "NVIDIA L40", 44.4, NULL },
        { "NVIDIA A40", 44.4, "a40" },
        { "NVIDIA GeForce RTX 4090", 24, "rtx4090" },
        { "NVIDIA GeForce RTX 4090 Laptop GPU", 16, NULL },
        { "NVIDIA RTX PRO 6000 Blackwell Server Edition", 95, "rtxpro6000" },
        { "NVIDIA RTX 6000 Ada Generation", 48, NULL },
        { "AMD Instinct MI300X OAM", 192, "mi300x" },
        { "AMD Instinct MI300X", 0, "mi300x" },
        { "", 80, NULL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct hardware *h =
            hardware_of_product(str_from(rows[i].product), rows[i].gib * 1073741824.0);
        const char *want = rows[i].name;
        if ((h != NULL) != (want != NULL) || (h && strcmp(h->name, want) != 0))
            fail_msg("%s: %s", rows[i].product, h ? h->name : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_the_catalogues),
        cmocka_unit_test(a_lost_gpu_breaks_its_machine),
        cmocka_unit_test(restarts_are_bounded),
        cmocka_unit_test(a_neighbours_fault_is_told_only),
        cmocka_unit_test(unknown_codes_are_counted),
        cmocka_unit_test(counters_tell_by_their_change),
        cmocka_unit_test(what_is_wrong_from_the_start_counts),
        cmocka_unit_test(errors_and_their_xids_are_one),
        cmocka_unit_test(products_are_found_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
