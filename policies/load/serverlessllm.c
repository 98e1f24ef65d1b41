/* serverlessllm.c - loads a model at the machine where it is ready first.
 *
 *     ready(s) = sum over tiers of queued bytes / bandwidth of the tier
 *              + model bytes / bandwidth of the nearest tier that has it + start of the engine
 *
 * ServerlessLLM (OSDI 2024, section 5.1) adds queueing and loading time, so a server with the model
 * on its disk and an empty queue may beat one that has it in memory behind other loads. Deviation:
 * live migration of the sessions that run there belongs to the migrate policies. */
#include "policies/load/load.h"

static void choose(const struct load_problem *problem, struct load_verdict *ret)
{
    load_least(problem, load_ready_s, ret);
}

const struct load_policy load_serverlessllm = {
    .name = "serverlessllm",
    .about = "planner: weights are loaded where queue and bandwidth make them ready first",
    .source = "ServerlessLLM (OSDI 2024)",
    .choose = choose,
};
