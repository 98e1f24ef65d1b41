/* aibrix_apa.c - size the fleet by KV share over a target, with AIBrix's stabiliser as shipped, or corrected (apa_fixed).
 *
 *     want = ceil(n * share / target)  outside +-10 % of the target, within [n / 2, 2 n]
 *     up at once; down, as shipped: the *least* recommendation of the last 300 s
 *
 * This is AIBrix's pod autoscaler at e3e10f9: resync 10 s, rates 2x, up cooldown 0, down 300 s. Its
 * stabiliser is inverted: it takes the minimum where the HPA takes the maximum, so one low sample
 * within the window is enough to shrink. There the operator chooses the metric; here it is the mean
 * KV share, target 0.5. */
#include "base/core/bits.h"
#include "policies/scale/scale.h"

#include <math.h>

#define APA_PERIOD_S 10
#define APA_WINDOW 30 /* recommendations that the stabiliser looks back on: 300 s */

struct apa {
    int64_t next_us;
    uint32_t count;            /* recommendations so far */
    uint16_t past[APA_WINDOW]; /* the last of them, a ring */
    uint32_t want;             /* the last recommendation, stabilised */
};

#define TOLERANCE 0.1
#define RATE 2.0
#define AGAIN_US ((int64_t)1000000)

/* Returns the mean KV share in use over ready instances; negative when none reports. */
static double mean_share(const struct scale_view *view)
{
    double sum = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        sum += (double)in->kv_tokens / (double)in->kv_tokens_max;
        seen++;
    }
    return seen ? sum / seen : -1;
}

static uint32_t stabilise(struct apa *a, uint32_t recommended, uint32_t have, bool inverted)
{
    a->past[a->count++ % APA_WINDOW] = (uint16_t)recommended;
    if (recommended >= have) return recommended;
    uint32_t to = recommended;
    for (uint32_t i = 0; i < min_u32(a->count, APA_WINDOW); i++)
        to = inverted ? min_u32(to, a->past[i]) : max_u32(to, a->past[i]);
    return min_u32(to, have);
}

/* Decides as AIBrix does. With `inverted`, as shipped, the fleet shrinks to the least recommendation
 * of the window, else to the most. */
static void apa_decide(struct apa *a, const struct scale_config *config,
                       const struct scale_view *view, int64_t now_us, bool inverted,
                       struct scale_verdict *ret)
{
    double share = config->margin * mean_share(view);
    uint32_t have = scale_have_all(view);
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (share < 0 && have > 0) {
        scale_keep(view, "no instance has reported its KV memory: keep what there is", ret);
    } else {
        if (scale_due(&a->next_us, APA_PERIOD_S, now_us)) {
            double ratio = fmax(share, 0) / config->kv_target, n = have;
            double to = fabs(ratio - 1) <= TOLERANCE ? n : ceil(n * ratio);
            to = fmin(fmax(to, floor(n / RATE)), fmax(ceil(n * RATE), 1));
            if (have == 0 && !awake) to = 0;
            a->want = stabilise(a, (uint32_t)fmin(to, UINT16_MAX), have, inverted);
        }
        scale_answer(config, view, a->want, "KV memory in use against its target", ret);
        ret->load = fmax(share, 0);
    }
    ret->again_us = now_us + AGAIN_US;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    apa_decide(state, config, view, now_us, true, ret);
}

const struct scale_policy scale_aibrix_apa = {
    .name = "aibrix_apa",
    .about = "KV share over a target, with the stabiliser as shipped (inverted)",
    .source = "AIBrix pod autoscaler at e3e10f9",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV,
    .state_size = sizeof(struct apa),
    .decide = decide,
};

/* Runs AIBrix's pod autoscaler with its stabiliser corrected.
 *
 *     as aibrix_apa, but down only to the *most* recommended within the last 300 s
 *
 * This corrects the stabiliser as we read it at e3e10f9: it takes the maximum, as the HPA does. */
static void decide_fixed(void *state, const struct scale_config *config,
                         const struct scale_view *view, int64_t now_us, struct rng *rng,
                         struct scale_verdict *ret)
{
    (void)rng;
    apa_decide(state, config, view, now_us, false, ret);
}

const struct scale_policy scale_apa_fixed = {
    .name = "apa_fixed",
    .about = "KV share over a target, down to the most of 300 s",
    .source = "AIBrix pod autoscaler, stabiliser corrected",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV,
    .state_size = sizeof(struct apa),
    .decide = decide_fixed,
};
