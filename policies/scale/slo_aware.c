/* slo_aware.c - size the fleet by measured latency over the SLO.
 *
 *     s = mean over 45 s of min(max(P90 TTFT / SLO, P90 TPOT / SLO), 2), on windows of a minute
 *     s > 0.55: n + ceil(n (s c / 0.55 - 1)),  c = ready / n;  never below n
 *     s < 0.40: n - floor(n (1 - s / 0.40))
 *     up at most +100 % or +4 in 60 s to the least of 30 s, down 1 in 120 s to the most of 180 s
 *
 * These are llm-d's SLO-aware rules for KEDA; the shaper is the HPA with those numbers. c discounts
 * instances that are starting. P90s are over the window that routers report on: fifteen seconds, in
 * the simulator a minute. Without requests the score is 0; with requests but no measurement the fleet
 * stays. */
#include "policies/scale/scale.h"
#include "policies/scale/shape/shape.h"

#include <math.h>

#define SAMPLES 45
#define UP_ABOVE 0.55
#define DOWN_BELOW 0.40
#define SCORE_MAX 2.0
#define SECOND_US ((int64_t)1000000)

struct slo {
    int64_t second[SAMPLES]; /* number + 1 of the second that a score was taken in */
    double score[SAMPLES];
};

static const struct scale_shape_config shape = {
    .up_window_s = 30,
    .up_share = 1,
    .up_count = 4,
    .up_period_s = 60,
    .down_window_s = 180,
    .down_count = 1,
    .down_period_s = 120,
};

/* Takes this second's score and returns the mean of the last 45 s; negative when there is none. */
static double smooth(struct slo *s, const struct scale_view *view, double margin, int64_t now_us)
{
    const struct scale_demand *d = &view->demand;
    int64_t now = now_us / SECOND_US;
    bool idle = d->in_flight == 0 && d->held == 0 && d->arrivals_s <= 0;
    if (d->ttft_known || d->tpot_known || idle) {
        double ttft = d->ttft_known ? d->ttft_s / view->ttft_slo_s : 0;
        double tpot = d->tpot_known ? d->tpot_s / view->tpot_slo_s : 0;
        s->second[now % SAMPLES] = now + 1;
        s->score[now % SAMPLES] = fmin(margin * fmax(ttft, tpot), SCORE_MAX);
    }
    double sum = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        int64_t at = s->second[i] - 1;
        if (at < 0 || at > now || now - at >= SAMPLES) continue;
        sum += s->score[i];
        seen++;
    }
    return seen ? sum / seen : -1;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    const struct scale_demand *d = &view->demand;
    double s = d->present ? smooth(state, view, config->margin, now_us) : -1;
    uint32_t have = scale_have_all(view);
    if (s < 0 && (!d->present || have > 0)) {
        scale_keep(view, "no latency was measured lately: keep what there is", ret);
    } else {
        double n = have, want = n;
        double c = have ? scale_ready_all(view) / n : 1;
        if (s > UP_ABOVE) want = n + fmax(0, ceil(n * (s * c / UP_ABOVE - 1)));
        if (s < DOWN_BELOW) want = n - floor(n * (1 - fmax(s, 0) / DOWN_BELOW));
        scale_answer(config, view, want,
                     want > n   ? "latency is above 0.55 of the SLO"
                     : want < n ? "latency is below 0.40 of the SLO"
                                : "latency is between 0.40 and 0.55 of the SLO",
                     ret);
        ret->load = fmax(s, 0);
    }
    ret->again_us = now_us + SECOND_US;
}

const struct scale_policy scale_slo_aware = {
    .name = "slo_aware",
    .about = "P90 latency over the SLO, between 0.40 and 0.55",
    .source = "llm-d SLO-aware KEDA rules",
    .shaper = "hpa",
    .shape = &shape,
    .needs = SCALE_NEEDS_TPOT,
    .state_size = sizeof(struct slo),
    .decide = decide,
};
