/* t_gate_mix.c - plans mixes of accelerators in closed form and simulates them as fleets.
 *
 * Llama-3-8b with the lengths of Azure's conversations at 20 requests a second, five accelerators at
 * listed prices, TTFT 1 s and TPOT 50 ms for nine requests in ten. The fleets that the policies choose
 * then serve the trace itself, with its bursts, up to 18.3 requests a second: a mix counts as cheaper
 * only if it keeps the SLO as often. Worlds 11 to 20; nothing was chosen on them.
 */
#include "base/core/bits.h"
#include "cli/input_file.h"
#include "cli/plan/cmd_plan.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#include <stdio.h>

#define TRACE "azure-2023-conv.csv"
#define RATE 20
#define SEEDS "--seed 11 --seeds 10 "

static struct planner planner; /* too large for the stack */
static struct prices prices;

static void describe(void)
{
    const struct str only[] = { STR("l4"), STR("a10g"), STR("a100"), STR("h100"), STR("l40s") };
    const struct planner_slo slo = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    CLEANUP(trace_freep) struct trace *trace = NULL;
    struct model_spec model;
    struct err err = { "" };
    assert_int_equal(trace_file_load(TRACE, TRACE_AUTO, &trace, &err), 0);
    assert_int_equal(offers_load((struct str){ 0 }, &prices, &err), 0);
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &model, NULL), 0);
    planner_trace(&planner, trace, RATE);
    assert_int_equal(planner_types(&planner, &prices, &model, only, COUNT_OF(only), &slo, &err), 0);
}

/* Writes the policy's fleet as the simulator reads it, "3xl40s@0.79+1xh100@2.69". Returns its dollars
 * an hour. */
static double choose_fleet(const char *policy, struct buf *ret_fleet)
{
    struct mix_verdict v, unused;
    planner_ask(&planner, mix_find(str_from(policy)), &v, &unused);
    assert_true(v.found);
    for (uint32_t t = 0; t < planner.mix.type_count; t++) {
        if (v.count[t] == 0) continue;
        assert_int_equal(planner.type[t].tp, 1); /* --fleet cannot state another degree yet */
        buf_printf(ret_fleet, "%s%ux%s@%.2f", ret_fleet->len > 0 ? "+" : "", v.count[t],
                   planner.type[t].price->hardware, planner.mix.type[t].price_h);
    }
    printf("%s: $%.2f an hour, %s\n", policy, v.cost_h, ret_fleet->data);
    return v.cost_h;
}

/* Checks at each speed that the attainment of `fleet` is at most 0.5 % below that of `one`. */
static void check_attainment(const char *fleet, const char *one)
{
    static const char *const speed[] = { "2.8", "3.8" };
    for (size_t i = 0; i < COUNT_OF(speed); i++) {
        CLEANUP(buf_fini) struct buf line = { 0 }, arm = { 0 }, against = { 0 };
        buf_printf(&line,
                   "--trace " TRACE " --requests 4000 --slo-ttft 1s --slo-tpot 50ms " SEEDS
                   "--speed %s --compare fleet=%s,%s",
                   speed[i], one, fleet);
        buf_printf(&arm, "fleet=%s", fleet);
        buf_printf(&against, "fleet=%s", one);
        struct gate g = gate_run(line.data);
        struct stats_mean kept = gate_mean(&g, against.data, "slo.attainment");
        struct stats_mean more = gate_share(&g, arm.data, against.data, "slo.attainment");
        gate_interval_above("attainment of the single type", kept, 0.99);
        gate_above("the mix's less it, of it", more.mean - more.half, -0.005);
        gate_free(&g);
    }
}

static void a_mix_is_cheaper_at_equal_attainment(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf melange = { 0 }, joint = { 0 }, one = { 0 };
    describe();
    double single_h = choose_fleet("single_type", &one);
    double melange_h = choose_fleet("melange", &melange), joint_h = choose_fleet("joint", &joint);
    gate_below("melange's dollars an hour of the single type's", melange_h / single_h, 0.95);
    gate_below("joint's", joint_h / single_h, 0.95); /* both measured 0.941 */
    check_attainment(melange.data, one.data);
    if (!str_eq(buf_view(&joint), buf_view(&melange))) check_attainment(joint.data, one.data);
    judged_add("mix=melange");
    judged_add("mix=joint");
    judged_add("mix=single_type");
    assert_int_equal(judged_missed("mix", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_mix_is_cheaper_at_equal_attainment) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
