/* t_gate_effects_memory.c - judges what each admission, preemption and eviction policy is worth against
 * its simple alternative where KV memory is short.
 *
 * Ten paired seeds an effect, as in t_gate_effects. Rules that reserve an output's memory, each in its
 * way, were made to beat reserving all of it; what they lose to plain paging is in
 * docs/systems/scheduling.md.
 */
#include "base/core/bits.h"
#include "tests/sim_gates/effects.h"
#include "tests/sim_gates/judged.h"

/* An L4 with room for a dozen requests; .6 a second is just what it can serve. */
#define SHORT                                                                                 \
    "prompt=lognormal(1155,1),output=lognormal(211,0.6),n=1500,output_max=1000 --fleet 1xl4 " \
    "--kv-tokens 20000 --chunk sarathi --seeds 10 "

/* Outputs need most of the memory. */
#define LONG                                                                                \
    "--trace gen:poisson,rate=0.35,prompt=lognormal(200,1),output=lognormal(700,1),n=1000," \
    "output_max=4000 --fleet 1xl4 --kv-tokens 20000 --seeds 10 "

/* Few places: 32 in a batch. */
#define BATCHES                                                                           \
    "--trace gen:poisson,rate=2,prompt=lognormal(300,1),output=lognormal(211,0.6),n=600," \
    "output_max=1000 --fleet 1xa100 --seqs-max 32 --seeds 10 --drain 9h "

/* Lifts the product's bound of 256 waiting requests: the queue beyond memory is the subject. The bound
 * would refuse the more, the slower a policy is, and refused requests are in no mean. */
#define UNBOUNDED "--max-waiting 1000000 --requests-max 1000000 "

static const struct gate_effects effects[] = {
    { "admission, first come first served",
      "--trace gen:poisson,rate=0.6," SHORT
      "--order fcfs --compare admit=fit,reserve,all,max_reserve,infermax,s3",
      {
          { "admit=reserve", "admit=max_reserve", "jct_s.mean", -0.80, .measured = -0.911 },
          { "admit=infermax", "admit=max_reserve", "jct_s.mean", -0.80, .measured = -0.910 },
          { "admit=s3", "admit=max_reserve", "jct_s.mean", -0.80, .measured = -0.899 },
          { "admit=fit", "admit=all", "jct_s.mean", -0.6, .measured = -0.832 },
          { "admit=fit", "admit=max_reserve", "jct_s.mean", -0.8, .measured = -0.911 },
      } },
    { "unbounded queue, more than memory lets pass: the safe side costs waits that paging "
      "does not",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order fcfs --compare admit=fit,reserve,reserve_p90",
      {
          { "admit=reserve_p90", "admit=fit", "preemptions", -0.35, .measured = -0.498 },
          { "admit=reserve", "admit=reserve_p90", "jct_s.mean", -0.04, .measured = -0.098 },
      } },
    { "long outputs, lengths known: nobody is preempted, and tokens come more evenly",
      LONG "--predict oracle --order fcfs --compare admit=fit,reserve",
      {
          { "admit=reserve", "admit=fit", "preemptions", -0.95, .measured = -1.000 },
          { "admit=reserve", "admit=fit", "itl_s.p99", -0.05, .measured = -0.130 },
      } },
    { "long outputs, lengths learned: means keep what the safe side loses",
      LONG "--order fcfs --compare admit=reserve_p90,reserve",
      { { "admit=reserve", "admit=reserve_p90", "jct_s.mean", -0.10, .measured = -0.610 } } },
    { "unbounded queue, which sequence is preempted, by recompute, first come first served",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order fcfs --admit fit --compare preempt=newest,least_computed",
      { { "preempt=least_computed", "preempt=newest", "jct_s.mean", -0.02, .measured = -0.038 } } },
    { "unbounded queue, shortest remaining first, by recompute: most preemptions are not worth it",
      "--trace gen:poisson,rate=0.9," SHORT UNBOUNDED
      "--order srtf --admit fit --compare preempt=most_remaining,newest,cost_checked",
      {
          { "preempt=cost_checked", "preempt=most_remaining", "jct_s.mean", -0.10,
            .measured = -0.164 },
          { "preempt=cost_checked", "preempt=newest", "jct_s.mean", -0.10, .measured = -0.159 },
          { "preempt=cost_checked", "preempt=most_remaining", "preemptions", -0.70,
            .measured = -0.854 },
      } },
    { "a new batch each step against one that is not refilled",
      BATCHES "--order fcfs --compare admit=static_batch,max_reserve",
      { { "admit=max_reserve", "admit=static_batch", "jct_s.mean", -0.90, .measured = -0.964 } } },
    { "static batches of slices: of all that waits, against the first that come",
      BATCHES "--preset scls --compare admit=static_batch,scls",
      { { "admit=scls", "admit=static_batch", "jct_s.mean", -0.03, .measured = -0.063 } } },
    { "system prompts that many share, among prompts that come once",
      "--trace gen:poisson,rate=4,prompt=lognormal(1000,1),output=lognormal(100,1),n=2000,"
      "tenants=40,zipf=1,system=512,systems=40 --fleet 1xa100 --kv-tokens 40000 --seeds 10 "
      "--compare evict=lru,probation_2hit,gdsf,gdsf_cost",
      {
          { "evict=probation_2hit", "evict=lru", "token_hit_ratio", 0.08, .measured = 0.098 },
          { "evict=probation_2hit", "evict=lru", "ttft_s.mean", -0.02, .measured = -0.037 },
          { "evict=gdsf", "evict=lru", "token_hit_ratio", 0.10, .measured = 0.140 },
          { "evict=gdsf_cost", "evict=lru", "token_hit_ratio", 0.10, .measured = 0.138 },
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
    static const char *const kinds[] = { "admit", "preempt", "evict" };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        assert_int_equal(judged_missed(kinds[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_worth_what_is_claimed),
        cmocka_unit_test(every_policy_is_held_against_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
