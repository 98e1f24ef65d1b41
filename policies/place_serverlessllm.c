/* place_serverlessllm.c - load a model where it is ready first.
 *
 *     ready(s) = sum over tiers of queued bytes / bandwidth of the tier
 *              + model bytes / bandwidth of the nearest tier that has it + start of the engine
 *
 * ServerlessLLM (OSDI 2024, section 5.1): queueing time plus loading time, so that a server with the
 * model on its disk and an empty queue may beat one that has it in memory behind others. Deviation:
 * live migration of what runs there is migrate's, not this row's. */
#include "policies/place_move.h"
#include "policies/place_rows.h"

static double ready_s(const struct place_load *p, const struct load_server *s)
{
    double seconds = p->start_s + p->model_bytes / p->bytes_s[s->tier];
    for (uint32_t t = 0; t < LOAD_TIERS; t++)
        seconds += s->queued_bytes[t] / p->bytes_s[t];
    return seconds;
}

static void load(const struct place_load *problem, struct place_load_verdict *ret)
{
    struct place_load_verdict v = { .server = PLACE_NONE, .ready_s = -1, .runner_up_s = -1 };
    for (uint32_t i = 0; i < problem->server_count; i++) {
        const struct load_server *s = &problem->server[i];
        if (!s->usable || s->tier >= LOAD_TIERS) continue;
        double seconds = ready_s(problem, s);
        if (v.server == PLACE_NONE || seconds < v.ready_s) {
            v.runner_up_s = v.ready_s;
            v.ready_s = seconds;
            v.server = i;
        } else if (v.runner_up_s < 0 || seconds < v.runner_up_s) {
            v.runner_up_s = seconds;
        }
    }
    *ret = v;
}

const struct place_policy place_serverlessllm = {
    .name = "serverlessllm",
    .about = "planner: weights are loaded where queue and bandwidth make them ready first",
    .source = "ServerlessLLM (OSDI 2024)",
    .load = load,
};
