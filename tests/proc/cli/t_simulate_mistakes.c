/* t_simulate_mistakes.c - what `muster simulate` refuses, with which words and exit code. */
#include "base/core/bits.h"
#include "tests/proc/cli/simulate_rig.h"

#define IDLE " --fleet 1-4xl4 --scale-policy keda_queue "

static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "", 2, "--trace is missing" },
        { "--trace gen:posson", 2, "arrivals are poisson, constant or gamma" },
        { "--trace no-such-file", 1, "no-such-file" },
        { "--trace CMakeLists.txt", 1, "CMakeLists.txt: line 1: not a trace" },
        { "--trace " GENERATED " --route roundrobin", 2, "did you mean 'round_robin'?" },
        { "--trace " GENERATED " --order fcsf", 2, "did you mean 'fcfs'?" },
        { "--trace " GENERATED " --chunk zzz", 2, "see `muster policies chunk`" },
        { "--trace " GENERATED " --fleet 2xh10", 2, "no hardware 'h10', did you mean 'h100'?" },
        { "--trace " GENERATED " --fleet h100", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 2xh100:pp2", 2,
          "':pp2' is not tp1 to tp64, prefill, decode, high, low, spot" },
        { "--trace " GENERATED " --fleet 2xh100@x", 2, "'@x' is neither dollars" },
        { "--trace " GENERATED " --fleet 0xh100", 1, "at least one instance" },
        { "--trace " GENERATED " --model lama-3-8b", 2, "did you mean 'llama-3-8b'?" },
        { "--trace " GENERATED " --compare rout=a", 2, "did you mean --route?" },
        { "--trace " GENERATED " --compare route=round_robin,zzz", 2, "no policy 'zzz'" },
        { "--trace " GENERATED " --compare a", 2, "is not OPTION=A,B,C" },
        { "--trace " GENERATED " --compare seed=1,2", 2, "--seed is not compared" },
        { "--trace " GENERATED " --preset x", 2, "no policy 'x'; see `muster policies preset`" },
        { "--trace " GENERATED " --fleet 1-4xl4", 2, "--fleet 1-4xl4 needs --scale-policy" },
        { "--trace " GENERATED " --fleet 4-1xl4", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 2-1-4xl4", 2, "is not COUNTxHARDWARE" },
        { "--trace " GENERATED " --fleet 1-2-4xl4", 2, "--fleet 1-2-4xl4 needs --scale-policy" },
        { "--trace " GENERATED " --shaper hpa", 2, "--shaper needs --scale-policy" },
        { "--trace " GENERATED " --life 20s", 2, "--life needs --scale-policy" },
        { "--trace " GENERATED " --launch-failures 0.5", 2,
          "--launch-failures needs --scale-policy" },
        { "--trace " GENERATED " --power polca", 2, "--power polca needs --row-watts" },
        { "--trace " GENERATED " --row-watts 900", 2, "--row-watts needs --power polca" },
        { "--trace " GENERATED " --fleet 2xl4:prefill", 1, "serves nobody" },
        { "--trace " GENERATED " --forecast holt", 2, "--forecast needs --scale-policy" },
        { "--trace " GENERATED " --scale-policy werk", 2, "did you mean 'work'?" },
        { "--trace " GENERATED " --scale-policy work --place melange", 2, "melange" },
        { "--trace " GENERATED " --routers 99", 2, "--routers" },
        { "--trace " GENERATED " --scale-policy nosuch", 2, "--scale-policy: no policy 'nosuch'" },
        { "--trace " GENERATED " --scale-policy clairvoyent", 2, "did you mean 'clairvoyant'?" },
        { "--trace " GENERATED " --fleet 4xzzz", 2, "there are t4, a10g, l4, " },
        { "--trace " GENERATED " --fleet 1xmeasure:a=1", 2, "did you mean 'measured'?" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=1e300 --kv-tokens 9999", 2,
          "':a=1e300' is out of range 0..1000 seconds" },
        { "--trace " GENERATED " --fleet 1xa100@1e308", 2, "out of range 0..1e+06 dollars" },
        { "--trace " GENERATED " --fleet 1xa100,", 2, "a kind of instances is missing" },
        { "--trace " GENERATED " --fleet 1xa100:", 2, "':' is not tp1 to tp64" },
        { "--trace " GENERATED " --fleet 1xa100:tp2:tp4", 2, "':tp4' says again" },
        { "--trace " GENERATED " --fleet 1xa100:prefill:decode", 2, "':decode' says again" },
        { "--trace " GENERATED " --fleet 1xa100:low:high", 2, "':high' says again" },
        { "--trace " GENERATED " --fleet 1xa100:low", 2, "':low' needs --power polca" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=0.1:a=0.2", 2, "':a=0.2' says again" },
        { "--trace " GENERATED " --fleet 1xmeasured:a=0.1:b=0.2", 1, "need --kv-tokens" },
        { "--trace " GENERATED " --fleet 1xa100:tp3", 1, "tp must divide its heads" },
        { "--trace " GENERATED " --fleet 1xl4:service1", 1, "ends in :service0" },
        { "--trace " GENERATED IDLE "--scale-count 3", 2,
          "--scale-count has nothing to do here: it is for the scaling policy static" },
        { "--trace " GENERATED IDLE "--forecast holt", 2, "dynamo_throughput and sageserve" },
        { "--trace " GENERATED IDLE "--budget 4", 2, "it is for pools with a price" },
        { "--trace " GENERATED IDLE "--zone-up 1h", 2, "--zone-up has nothing to do here: it is" },
        { "--trace " GENERATED IDLE "--zone-down 1h", 2, "it is for spot pools, as 1-24xl4:spot" },
        { "--trace " GENERATED IDLE "--notice 1h", 2, "--notice has nothing to do here" },
        { "--trace " GENERATED " --fleet 1-4xl4 --scale-policy clairvoyant --shaper hpa", 2,
          "clairvoyant knows" },
        { "--trace " GENERATED IDLE "--compare scale-count=1,2", 2, "--scale-count has nothing" },
        { "--trace " GENERATED " --compare =a,b", 2, "'=a' is not OPTION=A,B,C" },
        { "--trace " GENERATED " --compare speed=1,-2", 2, "--speed: -2 is below" },
        { "--trace " GENERATED " --fleet=", 2, "--fleet is empty" },
        { "--trace " GENERATED " --order=", 2, "--order is empty" },
        { "--trace " GENERATED " --scale-policy=", 2, "--scale-policy is empty" },
        { "--trace " GENERATED " --compare route=", 2, "--route is empty" },
        { "--trace " GENERATED " --compare=", 2, "--compare is empty" },
        { "--trace " GENERATED " --compare order=fcfs --compare order=mlfq", 2,
          "order is given twice" },
        { "--trace " GENERATED " --model another", 2, "there are llama-2-13b, " },
        { "--trace " GENERATED " --model ./another", 1, "--model: cannot open ./another: No such" },
        { "--trace gen:poisson,rate=1e-7,n=5,prompt=5,output=5", 2, "take 579 days" },
    };
    rig_expect("simulate", rows, COUNT_OF(rows));
}

static void the_reference_refuses_what_decides_of_engines(void **state)
{
    (void)state;
    static const struct rig_row rows[] = {
        { "--trace " GENERATED REFERENCE "--order mlfq", 2,
          "ref8000 computes one prompt after another: --order has nothing to decide there" },
        { "--trace " GENERATED REFERENCE "--preset vllm", 2, "--preset has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--fair vtc", 2, "--fair has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--admit fit", 2, "--admit has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--preempt newest --chunk deadline", 2, "--chunk has" },
        { "--trace " GENERATED REFERENCE "--preempt most_remaining", 2, "--preempt has nothing" },
        { "--trace " GENERATED REFERENCE "--evict gdsf_cost", 2, "--evict has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--perf linear", 2, "--perf has nothing to foretell" },
        { "--trace " GENERATED REFERENCE "--power mu_serve", 2, "--power has nothing to decide" },
        { "--trace " GENERATED REFERENCE "--migrate llumnix", 2, "--migrate has nothing to move" },
        { "--trace " GENERATED REFERENCE "--swap-space 4GB", 2,
          "--swap-space has nothing to hold" },
        { "--trace " GENERATED REFERENCE "--kv-tokens 4000", 2,
          "--kv-tokens has nothing to limit" },
        { "--trace " GENERATED REFERENCE "--link 1GB", 2, "--link has nothing to copy" },
        { "--trace " GENERATED REFERENCE "--bias 0.1", 2, "--bias has nothing to change" },
        { "--trace " GENERATED REFERENCE "--compare residual=0,0.1", 2, "--residual has nothing" },
        { "--trace " GENERATED " --fleet 2xref8000:tp2", 2, "takes no tpN, no role and no model" },
        { "--trace " GENERATED " --fleet 2xref8000:decode", 2, "no role" },
        { "--trace " GENERATED " --fleet 2xref8000:llama-3-8b", 2, "no model" },
    };
    rig_expect("simulate", rows, COUNT_OF(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_explained),
        cmocka_unit_test(the_reference_refuses_what_decides_of_engines),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
