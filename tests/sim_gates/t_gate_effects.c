/* t_gate_effects.c - judges what each order and chunk policy is worth against its simple alternative,
 * on the load that its mechanism is for.
 *
 * Ten paired seeds an effect; traces are generated, so seeds differ in arrivals and lengths as well.
 * What a policy loses is in docs/systems/scheduling.md. Memory is not short here; t_gate_effects_memory
 * has loads where it is. t_gate_presets judges presets, t_gate_scheduling feedback queues and
 * t_gate_fair fairness.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

/* Four places, outputs that vary more than exponentially, load .85, lengths known with noise. */
#define SLOTS                                                                                  \
    "--trace gen:poisson,rate=1.98,prompt=16,output=lognormal(150,2.3),n=2000 --fleet 1xa100 " \
    "--seqs-max 4 --predict noisy_oracle --seeds 10 "

/* Prompts are most of the work, and come a little faster than they can be computed. */
#define PROMPTS                                                                               \
    "--trace gen:poisson,rate=6.5,prompt=lognormal(1155,1),output=lognormal(211,0.6),n=2000 " \
    "--fleet 1xa100 --seeds 10 "

/* 100 groups of 20 requests that share 1,024 tokens arrive at once, in any order; the cache holds some
 * 20 of the shared beginnings. A batch job of 2,000 queues whole: the product's bound of 256 would
 * refuse most of it. */
#define GROUPS                                                                             \
    "--trace gen:poisson,rate=2000,prompt=40,output=lognormal(30,0.5),n=2000,system=1024," \
    "systems=100,tenants=100 --fleet 1xa100 --kv-tokens 20000 --chunk budget --seeds 10 "  \
    "--max-waiting 2000 "

/* Prompts of half a step in the mean, at a rate at which steps must be full. */
#define PACKING                                                                             \
    "--trace gen:poisson,rate=12,prompt=lognormal(1155,1),output=lognormal(20,0.6),n=2000 " \
    "--fleet 1xa100 --seeds 10 "

static const struct gate_effects effects[] = {
    { "orders by predicted length: decode places are what is short",
      SLOTS "--compare order=fcfs,response_ratio,sjf_output,sjf_work,srtf,skip_predict,mlfq",
      {
          { "order=response_ratio", "order=fcfs", "jct_s.mean", -0.15, .measured = -0.263 },
          { "order=response_ratio", "order=sjf_work", "jct_s.p99", -0.05, .measured = -0.117 },
          { "order=sjf_output", "order=fcfs", "jct_s.mean", -0.20, .measured = -0.315 },
          { "order=srtf", "order=sjf_work", "jct_s.mean", -0.05, .measured = -0.104 },
          { "order=skip_predict", "order=sjf_output", "ttft_s.mean", -0.75, .measured = -0.838 },
          { "order=skip_predict", "order=sjf_output", "jct_s.mean", -0.05, .measured = -0.104 },
          { "order=mlfq", "order=fcfs", "jct_s.mean", -0.15, .measured = -0.217 },
      } },
    { "learned rank: with waits of less than 200 steps the guard against starving leaves it alone",
      "--trace gen:poisson,rate=1.3,prompt=lognormal(64,1),output=lognormal(150,1),n=2500 "
      "--fleet 1xl4 --seqs-max 16 --predict noisy_oracle --seeds 10 "
      "--compare order=fcfs,learned_rank",
      {
          { "order=learned_rank", "order=fcfs", "ttft_s.mean", -0.12, .measured = -0.184 },
      } },
    { "the same by ListMLE's rank, learned from the words of the text trace",
      "--trace traces/text-5000.jsonl --requests 2500 --speed 0.5 --fleet 1xl4 --seqs-max 4 "
      "--predict ngram_rank --seeds 10 --compare order=fcfs,learned_rank",
      {
          { "order=learned_rank", "order=fcfs", "ttft_s.mean", -0.25, .measured = -0.332 },
          { "order=learned_rank", "order=fcfs", "jct_s.mean", -0.06, .measured = -0.131 },
      } },
    { "slices go back to the end of the pool: neither half does it alone",
      SLOTS "--chunk scls --compare order=fcfs,round_robin",
      {
          { "order=round_robin", "order=fcfs", "ttft_s.p99", -0.45, .measured = -0.594 },
          { "order=round_robin", "order=fcfs", "jct_s.mean", -0.08, .measured = -0.143 },
      } },
    { "slices against outputs at one go, in turn",
      SLOTS "--order round_robin --compare chunk=budget,scls",
      { { "chunk=scls", "chunk=budget", "ttft_s.p99", -0.45, .measured = -0.594 } } },
    { "orders by work: where prompts are the bottleneck the output's length says less",
      PROMPTS "--chunk sarathi --admit fit --compare order=fcfs,response_ratio,sjf_output,"
              "sjf_prompt,sjf_work",
      {
          { "order=response_ratio", "order=fcfs", "ttft_s.mean", -0.25, .measured = -0.335 },
          { "order=sjf_prompt", "order=fcfs", "ttft_s.mean", -0.50, .measured = -0.644 },
          { "order=sjf_prompt", "order=sjf_output", "ttft_s.mean", -0.03, .measured = -0.086 },
          { "order=sjf_work", "order=fcfs", "ttft_s.mean", -0.50, .measured = -0.643 },
          { "order=sjf_work", "order=sjf_output", "ttft_s.mean", -0.03, .measured = -0.085 },
      } },
    { "prefill pool by shortest prompt",
      "--trace gen:poisson,rate=1.5,prompt=lognormal(12000,2),output=lognormal(343,0.5),n=1500 "
      "--fleet 1xh100:prefill,1xh100:decode --seeds 10 --compare preset=vllm,split_sjf",
      {
          { "preset=split_sjf", "preset=vllm", "ttft_s.mean", -0.40, .measured = -0.481 },
          { "preset=split_sjf", "preset=vllm", "ttft_s.p99", -0.05, .measured = -0.191 },
      } },
    { "decode pool by feedback queues: few places, outputs that vary much",
      "--trace gen:poisson,rate=4,prompt=lognormal(4000,1),output=lognormal(343,4),n=1500 "
      "--fleet 1xh100:prefill,1xh100:decode --seqs-max 16 --seeds 10 "
      "--compare order=sjf_prompt,prefill_sjf",
      { { "order=prefill_sjf", "order=sjf_prompt", "tpot_s.mean", -0.40, .measured = -0.634 } } },
    { "groups with a shared beginning at one go, the whole batch in the queue",
      GROUPS "--compare order=fcfs,batch_llm,longest_prefix",
      {
          { "order=batch_llm", "order=fcfs", "token_hit_ratio", 3, .measured = 4.291 },
          { "order=batch_llm", "order=fcfs", "jct_s.p99", -0.70, .measured = -0.789 },
          { "order=batch_llm", "order=longest_prefix", "jct_s.mean", -0.08, .measured = -0.128 },
          { "order=longest_prefix", "order=fcfs", "token_hit_ratio", 3, .measured = 4.327 },
      } },
    { "chunks: sequences that decode do not wait for whole prompts",
      "--trace gen:poisson,rate=3.5,prompt=lognormal(1155,1),output=lognormal(211,0.6),n=1500 "
      "--fleet 1xa100 --batch-tokens 16384 --order fcfs --seeds 10 "
      "--compare chunk=whole,sarathi,slack,deadline",
      {
          { "chunk=sarathi", "chunk=whole", "itl_s.p99", -0.60, .measured = -0.678 },
          { "chunk=slack", "chunk=whole", "itl_s.p99", -0.60, .measured = -0.675 },
          { "chunk=deadline", "chunk=whole", "itl_s.p99", -0.55, .measured = -0.665 },
      } },
    { "SLOs counted against a limit on every step, near saturation",
      "--trace gen:poisson,rate=6,prompt=lognormal(1155,1),output=lognormal(211,0.6),n=2000 "
      "--fleet 1xa100 --order fcfs --seeds 10 --compare chunk=slack,deadline",
      { { "chunk=deadline", "chunk=slack", "ttft_s.mean", -0.40, .measured = -0.652 } } },
    { "prompts split and packed to the budget, against prompts that must fit it whole",
      PACKING "--order fcfs --compare chunk=whole,budget",
      { { "chunk=budget", "chunk=whole", "ttft_s.mean", -0.05, .measured = -0.088 } } },
};

static void policies_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    static const struct judged_elsewhere worse[] = {
        { "largest_first", "docs/systems/scheduling.md" },
        { NULL },
    };
    assert_int_equal(judged_missed("order", worse), 0);
    assert_int_equal(judged_missed("chunk", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_worth_what_is_claimed),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
