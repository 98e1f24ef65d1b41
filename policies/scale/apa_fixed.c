/* apa_fixed.c - run AIBrix's pod autoscaler with its stabiliser corrected.
 *
 *     as aibrix_apa.c, but down only to the *most* recommended within the last 300 s
 *
 * This corrects the stabiliser as we read it at e3e10f9: it takes the maximum, as the HPA does. */
#include "policies/scale/apa.h"
#include "policies/scale/scale.h"

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
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
    .decide = decide,
};
