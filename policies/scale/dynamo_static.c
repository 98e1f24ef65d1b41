/* dynamo_static.c - add or remove one instance by thresholds on queued prompts and KV memory.
 *
 *     prefill = queued prompt tokens / context length:   up if any >= 1.0, down if all < 0.1
 *     decode  = KV share:                                up if any >  1.0, down if all < 0.6
 *     one step; down only where both say so; every 5 s
 *
 * This is Dynamo's static mode, target `throughput` (target `latency` has 0.1 and 0, 0.4 and 0.1). A
 * KV share above 1 counts the requests that wait for memory: each is added with a mean prompt. Where
 * the context length is unknown the prefill rule is left out. */
#include "policies/scale/scale.h"

#include <math.h>

#define PREFILL_UP 1.0
#define PREFILL_DOWN 0.1
#define DECODE_UP 1.0
#define DECODE_DOWN 0.6
#define PERIOD_S 5
#define AGAIN_US ((int64_t)1000000)

struct fixed {
    int64_t next_us;
};

struct reach {
    double prefill, decode; /* the largest of any instance */
    uint32_t seen;
};

static struct reach survey(const struct scale_view *view, double margin)
{
    struct reach r = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        double kv = (double)in->kv_tokens + in->waiting * view->demand.prompt_tokens;
        double context = view->pool[in->pool].context_tokens;
        r.decode = fmax(r.decode, margin * kv / (double)in->kv_tokens_max);
        if (context > 0 && in->prefill_known)
            r.prefill = fmax(r.prefill, margin * (double)in->prefill_tokens / context);
        r.seen++;
    }
    return r;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct fixed *f = state;
    struct reach r = survey(view, config->margin);
    const char *reason = "loads are between the thresholds";
    int by = 0;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && scale_have_all(view) == 0) {
        by = 1;
        reason = "requests came and nothing runs";
    } else if (r.seen == 0) {
        reason = "no instance has reported its load: keep what there is";
    } else if (scale_starting_all(view) > 0) {
        reason = "a change is in progress";
    } else if (scale_due(&f->next_us, PERIOD_S, now_us)) {
        bool up = r.prefill >= PREFILL_UP || r.decode > DECODE_UP;
        bool down = r.prefill < PREFILL_DOWN && r.decode < DECODE_DOWN && scale_have_all(view) > 1;
        by = up ? 1 : down ? -1 : 0;
        if (by > 0) reason = "an instance is over a threshold";
        if (by < 0) reason = "every instance is under the lower thresholds";
    }
    *ret = (struct scale_verdict){ .reason = reason,
                                   .load = fmax(r.prefill, r.decode),
                                   .estimate_s = -1,
                                   .again_us = now_us + AGAIN_US };
    scale_nudge(view, by, false, &ret->choice);
}

const struct scale_policy scale_dynamo_static = {
    .name = "dynamo_static",
    .about = "one step by thresholds on prompts in line and KV memory",
    .source = "NVIDIA Dynamo planner, static thresholds",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV,
    .state_size = sizeof(struct fixed),
    .decide = decide,
};
