/* blitzscale.c - keep the fleet within bounds from KV memory and queued prompts.
 *
 *     lower = max(ceil(KV tokens / (0.95 * max)), ceil(queued prompt tokens / (0.8 * rate)))
 *     upper = max(ceil(KV tokens / (0.75 * max)), ceil(queued prompt tokens / (0.5 * rate)))
 *     n < lower: n = (lower + upper) / 2;   n > upper for 333 ms: n - 1
 *
 * This is BlitzScale's policy, called at every tick. `rate` is prompt tokens a second, 1 / b of the
 * step-time model. Its third bound, of the network that carries KV between roles, has no counterpart
 * where an instance has both roles. Its start-up by multicast is no part of a policy: a world sets
 * how instances start. */
#include "policies/scale/scale.h"

#include <math.h>

#define KV_LOW 0.95
#define KV_HIGH 0.75
#define RATE_LOW 0.8
#define RATE_HIGH 0.5
#define OVER_US ((int64_t)333000)
#define AGAIN_US ((int64_t)333000)

struct blitz {
    int64_t over_us; /* since when n is above upper; 0: it is not */
};

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct blitz *b = state;
    double kv = 0, line = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        const struct scale_pool *p = &view->pool[in->pool];
        if (!in->ready || !in->fresh || !in->kv_tokens_max || !p->perf_known) continue;
        if (!in->prefill_known) continue;
        seen++;
        kv += (double)in->kv_tokens / (double)in->kv_tokens_max;
        line += (double)in->prefill_tokens * p->perf.prefill_token_s;
    }
    if (view->pool[0].perf_known)
        line += (double)view->demand.held_prompt_tokens * view->pool[0].perf.prefill_token_s;
    uint32_t have = scale_have_all(view);
    if (!view->demand.present || (seen == 0 && scale_ready_all(view) > 0)) {
        scale_keep(view, "no instance has reported its load: keep what there is", ret);
        ret->again_us = now_us + AGAIN_US;
        return;
    }
    kv *= config->margin;
    line *= config->margin;
    double lower = fmax(ceil(kv / KV_LOW), ceil(line / RATE_LOW));
    double upper = fmax(ceil(kv / KV_HIGH), ceil(line / RATE_HIGH));
    double want = have;
    const char *reason = "the fleet is within its bounds";
    if (have <= upper) b->over_us = 0;
    if (have < lower) {
        want = ceil((lower + upper) / 2);
        reason = "below what memory and prompts in line need";
    } else if (have > upper) {
        if (b->over_us == 0 || b->over_us > now_us)
            b->over_us = now_us; /* or the wall clock went back */
        if (now_us - b->over_us >= OVER_US) {
            want = have - 1.0;
            b->over_us = now_us;
            reason = "above what memory and prompts in line need";
        }
    }
    scale_answer(config, view, want, reason, ret);
    ret->load = upper;
    ret->again_us = now_us + AGAIN_US;
}

const struct scale_policy scale_blitzscale = {
    .name = "blitzscale",
    .about = "bounds from KV memory and prompts in line, to their middle when below",
    .source = "BlitzScale (OSDI 2025)",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV | SCALE_NEEDS_PREFILL | SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct blitz),
    .decide = decide,
};
