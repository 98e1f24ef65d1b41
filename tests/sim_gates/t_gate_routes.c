/* t_gate_routes.c - judges what each routing policy is worth against its simple alternative, on the
 * load that its mechanism is for. t_gate_routing judges the default on a real trace, t_gate_reference
 * published figures; what a policy loses is in docs/systems/routing.md.
 *
 * Ten paired seeds; generated traces, so seeds differ in arrivals, lengths and prefixes as well. The
 * machines are made-up ones, slow enough for small traces.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

#define TALKS(rate)                                                                     \
    "--trace gen:poisson,rate=" rate ",prompt=lognormal(300,1),output=lognormal(60,1)," \
    "n=1500,tenants=24,zipf=1,turns=4,think=exponential(8),system=1024,systems=24 "     \
    "--fleet 4xmeasured:a=0.03:b=4e-4:c=0.001 --kv-tokens 40000 --slo-ttft 2s "         \
    "--slo-tpot 150ms --seeds 10 "

static const struct gate_effects effects[] = {
    { "conversations of 24 tenants, each behind a prefix of its own, popular ones and rare ones",
      TALKS("1.4") "--compare route=round_robin,random,least_request,consistent_hash,"
                   "bounded_load,prefix_affinity,preble,d2lpm",
      {
          { "route=round_robin", "route=random", "ttft_s.mean", -0.15, .measured = -0.317 },
          { "route=consistent_hash", "route=round_robin", "token_hit_ratio", 0.30,
            .measured = 0.424 },
          { "route=bounded_load", "route=consistent_hash", "hotspot", -0.05, .measured = -0.268 },
          { "route=prefix_affinity", "route=least_request", "ttft_s.mean", -0.30,
            .measured = -0.509 },
          { "route=preble", "route=prefix_affinity", "hotspot", -0.05, .measured = -0.184 },
          { "route=preble", "route=least_request", "ttft_s.mean", -0.35, .measured = -0.508 },
          { "route=d2lpm", "route=prefix_affinity", "hotspot", -0.05, .measured = -0.162 },
          { "route=d2lpm", "route=least_request", "ttft_s.mean", -0.15, .measured = -0.407 },
      } },
    { "the same, by estimates and scores",
      TALKS("1.4") "--compare route=least_request,shortest_ttft,mooncake_fetch,dynamo_cost,lmetric,"
                   "llmd_scorers,intelligent_router,learned_latency,completion",
      {
          { "route=shortest_ttft", "route=least_request", "ttft_s.mean", -0.40,
            .measured = -0.561 },
          { "route=mooncake_fetch", "route=shortest_ttft", "ttft_s.mean", -0.05,
            .measured = -0.136 },
          { "route=dynamo_cost", "route=least_request", "ttft_s.mean", -0.15, .measured = -0.276 },
          { "route=lmetric", "route=least_request", "ttft_s.mean", -0.40, .measured = -0.570 },
          { "route=lmetric", "route=shortest_ttft", "jct_s.mean", -0.05, .measured = -0.088 },
          { "route=llmd_scorers", "route=least_request", "ttft_s.mean", -0.40, .measured = -0.521 },
          { "route=learned_latency", "route=least_request", "ttft_s.mean", -0.40,
            .measured = -0.543 },
          { "route=intelligent_router", "route=shortest_ttft", "jct_s.mean", -0.05,
            .measured = -0.098 },
          { "route=completion", "route=least_request", "jct_s.mean", -0.20, .measured = -0.360 },
          { "route=completion", "route=shortest_ttft", "jct_s.mean", -0.05, .measured = -0.084 },
      } },
    { "conversations on unlike accelerators, near what they do: work that is avoided counts most",
      "--trace gen:poisson,rate=2.5,prompt=lognormal(300,1),output=lognormal(150,2.3),n=1500,"
      "output_max=1000,tenants=6,heavy=4,turns=4,think=exponential(3),system=256,systems=3 "
      "--fleet 3xl4,2xa10g --slo-ttft 3s --slo-tpot 150ms --seeds 10 "
      "--compare route=least_request,shortest_ttft,completion",
      {
          { "route=completion", "route=least_request", "jct_s.mean", -0.10, .measured = -0.387 },
          { "route=completion", "route=shortest_ttft", "jct_s.mean", -0.05, .measured = -0.128 },
          { "route=completion", "route=shortest_ttft", "slo.attainment", 0.02, .measured = 0.214 },
      } },
    { "twice as many: refusing requests that cannot keep their SLO keeps more of the others",
      TALKS("3") "--compare route=shortest_ttft,min_ttft",
      { { "route=min_ttft", "route=shortest_ttft", "slo.attainment", 0.20, .measured = 0.464 } } },
    { "prompts and outputs of unlike lengths, nothing shared: the penalty of mixing them",
      "--trace gen:poisson,rate=7,prompt=lognormal(600,2),output=lognormal(150,3),n=1500 "
      "--fleet 4xmeasured:a=0.02:b=4e-4:c=0.002:d=2e-7 --kv-tokens 60000 --slo-ttft 2s "
      "--slo-tpot 150ms --seeds 10 --compare route=round_robin,least_request,intelligent_router",
      {
          { "route=least_request", "route=round_robin", "jct_s.mean", -0.02, .measured = -0.044 },
          { "route=intelligent_router", "route=round_robin", "jct_s.mean", -0.04,
            .measured = -0.057 },
      } },
    { "the same where prompts weigh more and outputs less",
      "--trace gen:poisson,rate=6,prompt=lognormal(600,2),output=lognormal(150,3),n=1500 "
      "--fleet 4xmeasured:a=0.02:b=8e-4:c=0.0005:d=2e-7 --kv-tokens 60000 --slo-ttft 2s "
      "--slo-tpot 150ms --seeds 10 "
      "--compare route=round_robin,least_request,shortest_ttft,intelligent_router",
      {
          { "route=intelligent_router", "route=round_robin", "jct_s.mean", -0.15,
            .measured = -0.213 },
          { "route=intelligent_router", "route=least_request", "jct_s.mean", -0.04,
            .measured = -0.083 },
          { "route=intelligent_router", "route=shortest_ttft", "jct_s.mean", -0.06,
            .measured = -0.115 },
      } },
    { "two fast machines and two of a quarter of their speed",
      "--trace gen:poisson,rate=7,prompt=lognormal(600,2),output=lognormal(150,1),n=1500 "
      "--fleet 2xmeasured:a=0.02:b=1.5e-4:c=0.0007,2xmeasured:a=0.04:b=6e-4:c=0.003 "
      "--kv-tokens 60000 --slo-ttft 2s --slo-tpot 150ms --seeds 10 --compare "
      "route=round_robin,random,least_request,power_of_two,shortest_ttft,learned_latency,"
      "completion",
      {
          { "route=least_request", "route=round_robin", "jct_s.mean", -0.60, .measured = -0.776 },
          { "route=power_of_two", "route=random", "jct_s.mean", -0.60, .measured = -0.769 },
          { "route=shortest_ttft", "route=least_request", "slo.attainment", 0.03,
            .measured = 0.074 },
          { "route=learned_latency", "route=least_request", "ttft_s.mean", -0.30,
            .measured = -0.400 },
          { "route=learned_latency", "route=least_request", "jct_s.mean", -0.10,
            .measured = -0.137 },
          /* Loosened from -.05 when decoding came to weigh no more than its share of the phases'
           * time: -5.4 +-1.0 % of JCT, was -9.6 +-1.1, for first tokens that are not later. */
          { "route=completion", "route=shortest_ttft", "jct_s.mean", -0.03, .measured = -0.050 },
      } },
    { "memory is short: room for the output is asked for first",
      "--trace gen:poisson,rate=5,prompt=lognormal(300,1),output=lognormal(200,4),n=1500 "
      "--slo-ttft 2s --slo-tpot 80ms --seeds 10 --fleet 6xmeasured:a=0.02:b=1e-4:c=0.002:d=1e-6 "
      "--kv-tokens 6000 "
      "--compare route=random,power_of_two,tetri_p2c",
      {
          { "route=tetri_p2c", "route=random", "slo.attainment", 0.10, .measured = 0.373 },
          { "route=tetri_p2c", "route=power_of_two", "slo.attainment", 0.01, .measured = 0.120 },
      } },
    { "closed batches of slices, short prompts and outputs that vary much: each slice placed anew",
      "--trace gen:poisson,rate=3.95,prompt=16,output=lognormal(150,2.3),n=3000 --fleet 4xa100 "
      "--seqs-max 4 --preset scls --seeds 10 "
      "--compare route=round_robin,least_request,completion,scls",
      {
          { "route=scls", "route=round_robin", "jct_s.mean", -0.12, .measured = -0.19 },
          { "route=scls", "route=least_request", "jct_s.mean", -0.03, .measured = -0.06 },
          { "route=scls", "route=completion", "jct_s.mean", -0.05, .measured = -0.08 },
          { "route=scls", "route=completion", "ttft_s.mean", -0.40, .measured = -0.48 },
      } },
};

static void policies_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    assert_int_equal(judged_missed("route", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_worth_what_is_claimed),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
