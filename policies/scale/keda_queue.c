/* keda_queue.c - size the fleet in proportion to the waiting requests.
 *
 *     want = ceil((waiting + held) / queue_target)          the external metric of KEDA's scalers
 *     want = have  while |waiting / (have * target) - 1| <= 0.1      (the HPA's tolerance)
 *     want = 0     only after 300 s without a request       (KEDA's cooldown)
 *     evaluated every 15 s                                  (the HPA's period)
 *
 * Most operators run this rule today, behind the HPA's windows and rates; five waiting requests an
 * instance is a common threshold. It knows neither the length of a request nor the lead of an
 * instance, and it falls to the minimum as soon as no request waits, however busy the fleet is: only
 * the shaper's window keeps it from flapping. KEDA's polling of 30 s is left out: our routers report
 * twice a second. */
#include "policies/scale/scale.h"

#define COOLDOWN_S 300
#define PERIOD_S 15
#define AGAIN_US ((int64_t)1000000)

struct keda {
    int64_t next_us;
    double total; /* the last result */
};

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct keda *k = state;
    const struct scale_demand *d = &view->demand;
    uint32_t have = scale_have_all(view);
    if (!d->present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
    } else {
        double load = config->margin * ((double)d->waiting + d->held) / config->queue_target;
        if (scale_due(&k->next_us, PERIOD_S, now_us)) k->total = scale_hpa_count(load, have);
        double total = k->total;
        if (total < 1 && have > 0 && d->idle_s < COOLDOWN_S) total = 1;
        scale_answer(config, view, total,
                     total > have ? "more requests wait than the target allows"
                                  : "waiting requests are within the target",
                     ret);
        ret->load = load;
    }
    ret->again_us = now_us + AGAIN_US;
}

const struct scale_policy scale_keda_queue = {
    .name = "keda_queue",
    .about = "waiting requests divided by a target per instance",
    .source = "KEDA's scalers behind the HPA",
    .shaper = "hpa",
    .state_size = sizeof(struct keda),
    .decide = decide,
};
