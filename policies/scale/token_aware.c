/* token_aware.c - size the fleet by queued prompt tokens and by KV memory in use.
 *
 *     prefill = ceil(prompt tokens accepted and not computed / V_P / 1.5 s)
 *     decode  = ceil(sum of KV shares in use / 0.8)
 *     want    = the larger of the two, as one instance has both roles; behind the HPA, with its
 *               tolerance of a tenth for each of the two; evaluated every 15 s
 *
 * These are llm-d's token-velocity rules for KEDA. 1.5 s stands for TTFT SLO - ISL / V_P. V_P, prompt
 * tokens a second, is measured there for each deployment (2,619 through a TCP transfer, 15,965
 * direct); here it is 1 / b of the step-time model. */
#include "policies/scale/scale.h"

#include <math.h>

#define WAIT_S 1.5
#define KV_SHARE 0.8
#define PERIOD_S 15
#define AGAIN_US ((int64_t)1000000)

struct token {
    int64_t next_us;
    double total; /* the last result */
};

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct token *t = state;
    double prefill = 0, decode = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        const struct scale_pool *p = &view->pool[in->pool];
        if (!in->ready || !in->fresh || !in->kv_tokens_max || !in->prefill_known) continue;
        seen++;
        decode += (double)in->kv_tokens / (double)in->kv_tokens_max;
        if (p->perf_known) prefill += (double)in->prefill_tokens * p->perf.prefill_token_s;
    }
    const struct scale_pool *first = &view->pool[0];
    if (first->perf_known)
        prefill += (double)view->demand.held_prompt_tokens * first->perf.prefill_token_s;
    if (!view->demand.present || (seen == 0 && scale_ready_all(view) > 0)) {
        scale_keep(view, "no instance has reported its tokens: keep what there is", ret);
    } else {
        double a = config->margin * prefill / WAIT_S, b = config->margin * decode / KV_SHARE;
        uint32_t have = scale_have_all(view);
        if (scale_due(&t->next_us, PERIOD_S, now_us))
            t->total = fmax(scale_hpa_count(a, have), scale_hpa_count(b, have));
        scale_answer(config, view, t->total, a > b ? "prompt tokens in line" : "KV memory in use",
                     ret);
        ret->load = fmax(a, b);
    }
    ret->again_us = now_us + AGAIN_US;
}

const struct scale_policy scale_token_aware = {
    .name = "token_aware",
    .about = "prompt tokens in line over the prefill rate, KV in use over 0.8",
    .source = "llm-d token-aware KEDA rules",
    .shaper = "hpa",
    .needs = SCALE_NEEDS_KV | SCALE_NEEDS_PREFILL | SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct token),
    .decide = decide,
};
