/* t_gate_effects_real.c - judges what the policies of the engine's step are worth on public traces.
 *
 * Ten paired seeds of a world in which instances and steps differ from their model. The trace is the
 * same in all, so intervals say less here than in t_gate_effects, where arrivals are drawn as well.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"

#define CONV "--trace azure-2023-conv.csv --seeds 10 "

/* A load a little below what one L4 can serve, with memory for some twenty requests. */
#define SHORT                                                                           \
    CONV "--fleet 1xl4 --speed 0.17 --requests 4000 --kv-tokens 35000 --chunk sarathi " \
         "--order fcfs --drain 9h "

static const struct gate_effects effects[] = {
    { "orders on conversations, where prompts wait for each other",
      CONV "--fleet 1xa100 --speed 1.1 --requests 4000 --chunk sarathi --drain 3h "
           "--compare order=fcfs,response_ratio,sjf_output,sjf_prompt,sjf_work",
      {
          { "order=response_ratio", "order=fcfs", "ttft_s.mean", -0.10, .measured = -0.161 },
          { "order=sjf_prompt", "order=fcfs", "ttft_s.mean", -0.25, .measured = -0.367 },
          { "order=sjf_work", "order=fcfs", "ttft_s.mean", -0.25, .measured = -0.355 },
          { "order=sjf_work", "order=sjf_output", "ttft_s.mean", -0.25, .measured = -0.361 },
      } },
    { "batches formed of slices, where memory and places bound them, against static batches",
      CONV
      "--fleet 1xa100 --speed 0.5 --requests 3000 --drain 9h --compare preset=static_batch,scls",
      { { "preset=scls", "preset=static_batch", "jct_s.mean", -0.90, .measured = -0.99 } } },
    { "slices alone, and the batches that they make possible",
      CONV "--fleet 1xa100 --speed 0.5 --requests 3000 --drain 9h --preset scls "
           "--compare admit=static_batch,scls",
      { { "admit=scls", "admit=static_batch", "jct_s.mean", -0.85, .measured = -0.96 } } },
    { "chunks on conversations",
      CONV "--fleet 1xa100 --speed 0.8 --requests 3000 --batch-tokens 16384 --order fcfs "
           "--compare chunk=whole,sarathi,slack,deadline",
      {
          { "chunk=sarathi", "chunk=whole", "itl_s.p99", -0.65, .measured = -0.707 },
          { "chunk=slack", "chunk=whole", "itl_s.p99", -0.65, .measured = -0.712 },
          { "chunk=deadline", "chunk=whole", "itl_s.p99", -0.50, .measured = -0.628 },
          { "chunk=deadline", "chunk=sarathi", "ttft_s.mean", -0.05, .measured = -0.080 },
      } },
    { "admission on conversations, lengths learned: expected outputs cost nothing and spare some",
      SHORT "--compare admit=fit,reserve,reserve_p90",
      {
          { "admit=reserve", "admit=fit", "preemptions", -0.05, .measured = -0.122 },
          { "admit=reserve", "admit=reserve_p90", "jct_s.mean", -0.005, .measured = -0.016 },
          { "admit=reserve_p90", "admit=fit", "preemptions", -0.50, .measured = -0.640 },
      } },
    { "which sequence is preempted on conversations",
      SHORT "--admit fit --compare preempt=newest,least_computed,most_remaining",
      {
          { "preempt=least_computed", "preempt=newest", "ttft_s.mean", -0.04, .measured = -0.064 },
          { "preempt=most_remaining", "preempt=newest", "ttft_s.mean", -0.02, .measured = -0.038 },
      } },
    { "eviction on long conversations",
      "--trace mooncake-conversation.jsonl --requests 1200 --fleet 4xh100 --seeds 10 "
      "--compare evict=lru,probation_2hit,gdsf,gdsf_cost",
      { { "evict=gdsf_cost", "evict=lru", "token_hit_ratio", 0.05, .measured = 0.133 } } },
};

static void policies_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(policies_are_worth_what_is_claimed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
