/* dynamo_load.c - add an instance when all engines are estimated to miss the SLO, remove one when none is near it.
 *
 *     TTFT of an engine = seconds of its queued prompt tokens and of one more mean prompt
 *     ITL of an engine  = a + c running + d KV tokens
 *     up one    if all engines' estimates exceed the SLO (either of the two)
 *     down one  if all are below 0.80 of it (both)
 *     every 5 s, nothing while a change is in progress
 *
 * This is Dynamo's load loop. The original regresses step times on prefill and KV tokens from
 * per-iteration metrics; our engines fit the same model themselves (perf.h), so the fitted
 * coefficients are used. */
#include "policies/scale/scale.h"

#include <math.h>

#define DOWN_SHARE 0.80
#define PERIOD_S 5
#define AGAIN_US ((int64_t)1000000)

struct load {
    int64_t next_us;
};

/* Returns the larger of the estimated TTFT and ITL, each as a multiple of its SLO. */
static double strain(const struct scale_view *view, const struct scale_instance *in)
{
    const struct perf_coef *f = &view->pool[in->pool].perf;
    double step = f->step_s + f->decode_seq_s * in->running + f->kv_read_s * (double)in->kv_tokens;
    double prompt = (double)in->prefill_tokens + view->demand.prompt_tokens;
    return fmax((step + f->prefill_token_s * prompt) / view->ttft_slo_s, step / view->tpot_slo_s);
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct load *l = state;
    double least = HUGE_VAL, most = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        bool known = in->kv_tokens_max && in->prefill_known && view->pool[in->pool].perf_known;
        if (!in->ready || !in->fresh || !known) continue;
        double s = config->margin * strain(view, in);
        least = fmin(least, s);
        most = fmax(most, s);
    }
    const char *reason = "some engines keep the SLO and none has much to spare";
    int by = 0;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && scale_have_all(view) == 0) {
        by = 1;
        reason = "requests came and nothing runs";
    } else if (isinf(least)) {
        reason = "no engine has reported its load: keep what there is";
    } else if (scale_starting_all(view) > 0) {
        reason = "a change is in progress";
    } else if (scale_due(&l->next_us, PERIOD_S, now_us)) {
        by = least > 1 ? 1 : most < DOWN_SHARE && scale_have_all(view) > 1 ? -1 : 0;
        if (by > 0) reason = "every engine is estimated to miss the SLO";
        if (by < 0) reason = "every engine is below 0.80 of the SLO";
    }
    *ret = (struct scale_verdict){ .reason = reason,
                                   .load = isinf(least) ? 0 : most,
                                   .estimate_s = -1,
                                   .again_us = now_us + AGAIN_US };
    scale_nudge(view, by, false, &ret->choice);
}

const struct scale_policy scale_dynamo_load = {
    .name = "dynamo_load",
    .about = "one step by the estimated TTFT and ITL of every engine",
    .source = "NVIDIA Dynamo planner, load loop",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV | SCALE_NEEDS_PREFILL | SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct load),
    .decide = decide,
};
