/* t_gate_plan.c - checks the evaluator behind `muster plan` against the simulator: at the rate that it
 * gives an instance, nine requests in ten keep the SLO (TTFT 1 s, TPOT 50 ms). Arrivals are Poisson,
 * lengths lognormal with C2 of 0.3 (prompts) and 0.5 (outputs). */
#include "base/core/bits.h"
#include "policies/mix/eval.h"
#include "tests/sim_gates/gate.h"

#include <stdio.h>

static const struct {
    const char *hardware;
    uint32_t prompt, output;
    double least; /* attainment; below 0.9 where the SLO is hardly possible */
} cases[] = {
    { "a100", 1155, 211, 0.9 }, { "a100", 4000, 100, 0.88 }, { "a100", 300, 600, 0.9 },
    { "h100", 1155, 211, 0.9 }, { "h100", 4000, 100, 0.9 },  { "h100", 300, 600, 0.9 },
    { "a40", 1155, 211, 0.9 },  { "a40", 4000, 100, 0.75 },  { "a40", 300, 600, 0.9 },
};

static void rates_keep_the_slo(void **state)
{
    (void)state;
    struct model_spec model;
    struct eval_fleet fleet = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &model, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char command[512];
        struct mix_bucket work = { cases[i].prompt, cases[i].output, 1 };
        struct mix_score score;
        const struct hardware *h = hardware_find(str_from(cases[i].hardware));
        assert_true(roofline_init(&fleet.type[0], h, &model, 1));
        eval_score(&fleet, 0, &work, &score);
        assert_true(score.rate_s > 0);
        snprintf(command, sizeof command,
                 "--trace gen:poisson,rate=%.4f,prompt=lognormal(%u,0.3),output=lognormal(%u,0.5),"
                 "n=2000 --fleet 1x%s --slo-ttft 1s --slo-tpot 50ms --seeds 10",
                 score.rate_s, cases[i].prompt, cases[i].output, cases[i].hardware);
        struct gate g = gate_run(command);
        char what[128];
        snprintf(what, sizeof what, "%s, prompt %u, output %u: attainment at %.2f requests/s",
                 cases[i].hardware, cases[i].prompt, cases[i].output, score.rate_s);
        gate_interval_above(what, gate_mean(&g, NULL, "slo.attainment"), cases[i].least);
        gate_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_keep_the_slo) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
