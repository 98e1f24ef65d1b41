/* t_gate_effects_memory.c - admission, preemption and eviction: what each row is worth beside its
 * simple alternative where KV memory is what is short.
 *
 * Ten paired seeds an effect, as in t_gate_effects. Rows that lose to plain paging are held to their
 * loss: reserving an answer's memory, by any rule, was made against reserving all of it.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"

/* An L4 with room for a dozen requests; at .6 a second they just pass. */
#define SHORT                                                                                 \
    "prompt=lognormal(1155,1),output=lognormal(211,0.6),n=1500,output_max=1000 --fleet 1xl4 " \
    "--kv-tokens 20000 --chunk sarathi --seeds 10 "

/* Answers are most of what memory is wanted for. */
#define LONG                                                                                \
    "--trace gen:poisson,rate=0.35,prompt=lognormal(200,1),output=lognormal(700,1),n=1000," \
    "output_max=4000 --fleet 1xl4 --kv-tokens 20000 --seeds 10 "

/* Short of places: 32 in a batch. */
#define BATCHES                                                                           \
    "--trace gen:poisson,rate=2,prompt=lognormal(300,1),output=lognormal(211,0.6),n=600," \
    "output_max=1000 --fleet 1xa100 --seqs-max 32 --seeds 10 --drain 9h "

/* What waits beyond memory is the subject there; the product's 256 would refuse it, the more the
 * slower a policy is, and what is refused is in no mean. */
#define UNBOUNDED "--max-waiting 1000000 --requests-max 1000000 "

static const struct gate_effects effects[] = {
    { "admission, first come first served",
      "--trace gen:poisson,rate=0.6," SHORT
      "--order fcfs --compare admit=fit,reserve,all,max_reserve,infermax,s3",
      {
          { "admit=reserve", "admit=max_reserve", "jct_s.mean", -0.80 },
          { "admit=infermax", "admit=max_reserve", "jct_s.mean", -0.80 },
          { "admit=s3", "admit=max_reserve", "jct_s.mean", -0.80 },
          { "admit=s3", "admit=fit", "jct_s.mean", 0.05 },
          { "admit=all", "admit=fit", "jct_s.mean", 2 },
          { "admit=max_reserve", "admit=fit", "jct_s.mean", 5 },
      } },
    { "unbounded queue, more than memory lets pass: being on the safe side costs waits that paging "
      "does not",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order fcfs --compare admit=fit,reserve,reserve_p90,infermax",
      {
          { "admit=infermax", "admit=fit", "jct_s.mean", 0.01 },
          { "admit=reserve_p90", "admit=fit", "jct_s.mean", 0.04 },
          { "admit=reserve_p90", "admit=fit", "preemptions", -0.35 },
          { "admit=reserve", "admit=reserve_p90", "jct_s.mean", -0.04 },
      } },
    { "long answers, lengths known: nobody is preempted, and tokens come more evenly",
      LONG "--predict oracle --order fcfs --compare admit=fit,reserve",
      {
          { "admit=reserve", "admit=fit", "preemptions", -0.95 },
          { "admit=reserve", "admit=fit", "itl_s.p99", -0.05 },
      } },
    { "long answers, lengths learned: means keep what the safe side loses",
      LONG "--order fcfs --compare admit=reserve_p90,reserve",
      { { "admit=reserve", "admit=reserve_p90", "jct_s.mean", -0.10 } } },
    { "unbounded queue, who gives way, by recompute, first come first served",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order fcfs --admit fit --compare preempt=newest,least_computed,most_remaining",
      {
          { "preempt=least_computed", "preempt=newest", "jct_s.mean", -0.02 },
          { "preempt=most_remaining", "preempt=newest", "jct_s.mean", 0.02 },
      } },
    { "unbounded queue, shortest remaining first, by recompute: most preemptions are not worth it",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order srtf --admit fit --compare preempt=most_remaining,newest,cost_checked",
      {
          { "preempt=cost_checked", "preempt=most_remaining", "jct_s.mean", -0.10 },
          { "preempt=cost_checked", "preempt=newest", "jct_s.mean", -0.10 },
          { "preempt=cost_checked", "preempt=most_remaining", "preemptions", -0.70 },
      } },
    { "unbounded queue, the same as presets, with what else they choose",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--compare preset=vllm,infermax,trail,trail_swap,s3",
      {
          { "preset=infermax", "preset=vllm", "jct_s.mean", -0.01 },
          { "preset=trail_swap", "preset=vllm", "jct_s.mean", -0.50 },
          { "preset=trail_swap", "preset=trail", "jct_s.mean", -0.10 },
      } },
    { "unbounded queue, more than memory lets pass: who preempts for every newcomer does little "
      "else",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--compare preset=vllm,fastserve,skip_predict",
      {
          { "preset=fastserve", "preset=skip_predict", "jct_s.mean", -0.5 }, /* measured -68 % */
          { "preset=skip_predict", "preset=vllm", "jct_s.mean", 1 },
      } },
    { "a new batch each step against one that is not refilled",
      BATCHES "--order fcfs --compare admit=static_batch,max_reserve",
      { { "admit=max_reserve", "admit=static_batch", "jct_s.mean", -0.90 } } },
    { "the same as presets; and what reserving whole answers costs beside pages",
      "--trace gen:poisson,rate=0.6," SHORT "--compare preset=orca,vllm,s3",
      {
          { "preset=vllm", "preset=orca", "jct_s.mean", -0.80 },
          { "preset=s3", "preset=orca", "jct_s.mean", -0.80 },
          { "preset=s3", "preset=vllm", "jct_s.mean", 0.05 },
      } },
    { "a preset that does not refill",
      BATCHES "--compare preset=static_batch,orca",
      { { "preset=orca", "preset=static_batch", "jct_s.mean", -0.90 } } },
    { "unbounded queue, bins packed by decreasing size, all there at once: neither the mean nor "
      "the end is sooner",
      "--trace gen:poisson,rate=2000,prompt=lognormal(300,1),output=lognormal(211,1),n=500,"
      "output_max=1000 --fleet 1xl4 --kv-tokens 20000 --admit s3 --predict oracle --seeds "
      "10 " UNBOUNDED "--compare order=fcfs,largest_first",
      {
          { "order=largest_first", "order=fcfs", "jct_s.mean", 0.50 },
          { "order=largest_first", "order=fcfs", "jct_s.p99", 0.005 },
      } },
    { "system prompts that many share, among prompts that come once",
      "--trace gen:poisson,rate=4,prompt=lognormal(1000,1),output=lognormal(100,1),n=2000,"
      "tenants=40,zipf=1,system=512,systems=40 --fleet 1xa100 --kv-tokens 40000 --seeds 10 "
      "--compare evict=lru,probation_2hit,gdsf,gdsf_cost",
      {
          { "evict=probation_2hit", "evict=lru", "token_hit_ratio", 0.08 },
          { "evict=probation_2hit", "evict=lru", "ttft_s.mean", -0.02 },
          { "evict=gdsf", "evict=lru", "token_hit_ratio", 0.10 },
          { "evict=gdsf_cost", "evict=lru", "token_hit_ratio", 0.10 },
      } },
    { "nothing but conversations, some of them very long: what was used last is what comes next",
      "--trace gen:poisson,rate=0.1,prompt=lognormal(3000,8),output=lognormal(150,1),n=400,"
      "turns=uniform(2,6),think=exponential(30),context=100000 --fleet 1xh100 --kv-tokens 150000 "
      "--seeds 10 --compare evict=lru,probation_2hit,gdsf,gdsf_cost",
      {
          { "evict=probation_2hit", "evict=lru", "token_hit_ratio", -0.02 },
          { "evict=gdsf", "evict=lru", "token_hit_ratio", -0.02 },
          { "evict=gdsf_cost", "evict=gdsf", "token_hit_ratio", -0.02 },
      } },
};

static void rows_are_worth_what_is_claimed(void **state)
{
    (void)state;
    assert_int_equal(gate_effects_missed(effects, COUNT_OF(effects)), 0);
}

static void every_row_is_held_against_something(void **state)
{
    (void)state;
    static const char *const kinds[] = { "admit", "preempt", "evict" };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        assert_int_equal(gate_rows_missed(effects, COUNT_OF(effects), kinds[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_held_against_something),
        cmocka_unit_test(rows_are_worth_what_is_claimed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
