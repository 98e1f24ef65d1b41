/* t_gate_presets.c - judges what each preset, which names one policy of each kind, is worth against
 * plain serving or against the preset that it was made to beat.
 *
 * Ten paired seeds an effect, on the loads that t_gate_effects and t_gate_effects_memory use for single
 * policies. What a preset loses is in docs/systems/scheduling.md.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

/* Four places, outputs that vary more than exponentially, load .85, lengths known with noise. */
#define SLOTS                                                                                  \
    "--trace gen:poisson,rate=1.98,prompt=16,output=lognormal(150,2.3),n=2000 --fleet 1xa100 " \
    "--seqs-max 4 --predict noisy_oracle --seeds 10 "

/* 100 groups of 20 requests that share 1,024 tokens arrive at once, in any order; the cache holds some
 * 20 of the shared beginnings. A batch job of 2,000 queues whole: the product's bound of 256 would
 * refuse most of it. */
#define GROUPS                                                                             \
    "--trace gen:poisson,rate=2000,prompt=40,output=lognormal(30,0.5),n=2000,system=1024," \
    "systems=100,tenants=100 --fleet 1xa100 --kv-tokens 20000 --chunk budget --seeds 10 "  \
    "--max-waiting 2000 "

/* An L4 with room for a dozen requests; .6 a second is just what it can serve. */
#define SHORT                                                                                 \
    "prompt=lognormal(1155,1),output=lognormal(211,0.6),n=1500,output_max=1000 --fleet 1xl4 " \
    "--kv-tokens 20000 --chunk sarathi --seeds 10 "

/* Lifts the queues' bounds, so that under overload all policies serve the same requests. */
#define UNBOUNDED "--max-waiting 1000000 --requests-max 1000000 "

static const struct gate_effects effects[] = {
    { "decode places are what is short",
      SLOTS "--compare preset=vllm,muster,fastserve,trail,skip_predict,ltr",
      {
          { "preset=muster", "preset=vllm", "jct_s.mean", -0.15, .measured = -0.263 },
          { "preset=fastserve", "preset=vllm", "jct_s.mean", -0.15, .measured = -0.217 },
          { "preset=trail", "preset=vllm", "jct_s.mean", -0.25, .measured = -0.383 },
          { "preset=skip_predict", "preset=vllm", "jct_s.mean", -0.25, .measured = -0.383 },
          { "preset=ltr", "preset=vllm", "jct_s.mean", -0.01, .measured = -0.022 },
      } },
    { "groups with a shared beginning at one go, the whole batch in the queue",
      GROUPS "--compare preset=vllm,batch_llm",
      { { "preset=batch_llm", "preset=vllm", "jct_s.p99", -0.70, .measured = -0.788 } } },
    { "sequences that decode do not wait for whole prompts",
      "--trace gen:poisson,rate=6.5,prompt=lognormal(1155,1),output=lognormal(211,0.6),n=2000 "
      "--fleet 1xa100 --seeds 10 --speed 0.5 --batch-tokens 16384 --admit fit "
      "--compare preset=orca,sarathi,muster",
      {
          { "preset=sarathi", "preset=orca", "itl_s.p99", -0.60, .measured = -0.657 },
          { "preset=muster", "preset=orca", "itl_s.p99", -0.15, .measured = -0.645 },
      } },
    { "prompts of half a step in the mean, at the rate at which steps must be full",
      "--trace gen:poisson,rate=12,prompt=lognormal(1155,1),output=lognormal(20,0.6),n=2000 "
      "--fleet 1xa100 --seeds 10 --admit fit --compare preset=orca,vllm",
      { { "preset=vllm", "preset=orca", "ttft_s.mean", -0.05, .measured = -0.088 } } },
    { "prefill pool by shortest prompt",
      "--trace gen:poisson,rate=1.5,prompt=lognormal(12000,2),output=lognormal(343,0.5),n=1500 "
      "--fleet 1xh100:prefill,1xh100:decode --seeds 10 --compare preset=vllm,split_sjf",
      {
          { "preset=split_sjf", "preset=vllm", "ttft_s.mean", -0.40, .measured = -0.481 },
          { "preset=split_sjf", "preset=vllm", "ttft_s.p99", -0.05, .measured = -0.191 },
      } },
    { "unbounded queue, more than memory lets pass",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--compare preset=vllm,infermax,trail,trail_swap,fastserve,skip_predict",
      {
          { "preset=infermax", "preset=vllm", "jct_s.mean", -0.01, .measured = -0.022 },
          { "preset=trail_swap", "preset=vllm", "jct_s.mean", -0.50, .measured = -0.639 },
          { "preset=trail_swap", "preset=trail", "jct_s.mean", -0.10, .measured = -0.188 },
          { "preset=fastserve", "preset=skip_predict", "jct_s.mean", -0.5, .measured = -0.668 },
      } },
    { "memory taken page by page, or packed by predicted length, against whole outputs reserved "
      "and "
      "against no look at memory",
      "--trace gen:poisson,rate=0.6," SHORT "--compare preset=orca,vllm,s3,ref",
      {
          { "preset=vllm", "preset=orca", "jct_s.mean", -0.80, .measured = -0.911 },
          { "preset=s3", "preset=orca", "jct_s.mean", -0.80, .measured = -0.899 },
          { "preset=vllm", "preset=ref", "jct_s.mean", -0.60, .measured = -0.82 },
      } },
    { "a batch that is refilled, short of places: 32",
      "--trace gen:poisson,rate=2,prompt=lognormal(300,1),output=lognormal(211,0.6),n=600,"
      "output_max=1000 --fleet 1xa100 --seqs-max 32 --seeds 10 --drain 9h "
      "--compare preset=static_batch,orca,scls",
      {
          { "preset=orca", "preset=static_batch", "jct_s.mean", -0.90, .measured = -0.976 },
          { "preset=scls", "preset=static_batch", "jct_s.mean", -0.85, .measured = -0.97 },
      } },
};

static void presets_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void every_preset_is_held_against_something(void **state)
{
    (void)state;
    static const struct judged_elsewhere fair[] = {
        { "vtc", "tests/sim_gates/t_gate_fair.c" },
        { "dlpm", "tests/sim_gates/t_gate_fair.c" },
        { NULL },
    };
    assert_int_equal(judged_missed("preset", fair), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_worth_what_is_claimed),
        cmocka_unit_test(every_preset_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
