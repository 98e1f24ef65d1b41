/* sageserve.c - follow an hourly forecast target, gated by memory, with a reactive guard.
 *
 *     reactive, before the first hour: KV share > 0.50 up one, < 0.25 down one
 *     each hour: min 10 D + 150 D+  subject to  (n + D) TPS >= the most forecast in t + 20..60 min
 *     D is applied one by one, up while KV share > 0.50, down while < 0.25
 *     guard: KV share > 0.90, or observed / forecast > 5: up one whatever the target
 *     locked for 155 s after each launch (its spin-up time)
 *
 * This is SageServe. With one model and one region its integer programme has a closed form: n + D is
 * the least count that covers the forecast. Tokens a second are forecast from means of five minutes by
 * ARIMA, and TPS is the tokens a second that an instance serves within the SLO, by the step-time model.
 * Reclaiming from spot (65 s) needs a second kind of instance and is left out. */
#include "base/core/bits.h"
#include "policies/scale/capacity.h"
#include "policies/scale/forecast.h"
#include "policies/scale/scale.h"

#include <math.h>
#include <string.h>

#define UP_SHARE 0.50
#define DOWN_SHARE 0.25
#define GUARD_SHARE 0.90
#define GUARD_RATIO 5.0
#define LOCK_US ((int64_t)155000000)
#define POINT_S 300
#define POINTS 36      /* three hours to forecast from */
#define HOUR_POINTS 12 /* between targets, and to the end of the time that a target covers */
#define FROM_POINTS 4  /* to its beginning: twenty minutes ahead */
#define AGAIN_US ((int64_t)1000000)

struct sage {
    int64_t point_us, taken_us; /* the next point, the last one */
    int64_t lock_us;
    uint64_t total;
    uint32_t count, points; /* kept; since the start */
    double tps[POINTS];     /* tokens a second */
    double forecast;        /* tokens a second that the target covers; 0: none yet */
    uint32_t target;
};

static double share_in_use(const struct scale_view *view)
{
    double used = 0, room = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        used += (double)in->kv_tokens;
        room += (double)in->kv_tokens_max;
    }
    return room > 0 ? used / room : -1;
}

/* Returns the requests a second of one instance of the first pool of known speed; 0: none. */
static double instance_rate(const struct scale_view *view)
{
    struct lengths mean = { 0 };
    lengths_add(&mean, view->demand.prompt_tokens, fmax(view->demand.output_tokens, 1), 1);
    lengths_mean(&mean);
    for (uint32_t i = 0; i < view->pool_count; i++) {
        struct scale_load load;
        if (!view->pool[i].perf_known) continue;
        scale_load_of(&view->pool[i], &mean, &load);
        return scale_load_rate(&load, view->ttft_slo_s, view->tpot_slo_s, 1);
    }
    return 0;
}

/* Takes a point of the series and, each hour, a new target. A point that is taken late, because demand
 * was not reported, is the mean of a longer time. */
static void take_point(struct sage *s, const struct scale_config *config,
                       const struct scale_view *view, int64_t now_us, bool first)
{
    const struct scale_demand *d = &view->demand;
    double tokens = d->prompt_tokens + d->output_tokens;
    double passed_s = fmax((double)(now_us - s->taken_us) / 1e6, POINT_S);
    double rps =
        d->arrivals_total > s->total ? (double)(d->arrivals_total - s->total) / passed_s : 0;
    s->total = d->arrivals_total;
    s->taken_us = now_us;
    if (first) return;
    if (s->count == POINTS) memmove(s->tps, s->tps + 1, (POINTS - 1) * sizeof *s->tps);
    s->tps[min_u32(s->count, POINTS - 1)] = config->margin * rps * tokens;
    s->count = min_u32(s->count + 1, POINTS);
    if (++s->points % HOUR_POINTS != 0) return;
    const struct scale_forecast *f = config->forecast ? config->forecast : &scale_forecast_arima;
    double most = 0, rate = instance_rate(view);
    for (uint32_t h = FROM_POINTS; h <= HOUR_POINTS; h++)
        most = fmax(most, scale_forecast_next(f, s->tps, s->count, h));
    if (rate <= 0 || tokens <= 0) return;
    s->forecast = most;
    s->target = (uint32_t)fmin(ceil(most / (rate * tokens)), SCALE_COUNT_MAX * SCALE_POOLS_MAX);
}

static int step(const struct sage *s, double share, uint32_t have)
{
    double now = s->count ? s->tps[s->count - 1] : 0;
    bool guard = share > GUARD_SHARE || (s->forecast > 0 && now > GUARD_RATIO * s->forecast);
    if (guard) return 1;
    if (share > UP_SHARE && (s->forecast <= 0 || have < s->target)) return 1;
    if (share < DOWN_SHARE && have > 1 && (s->forecast <= 0 || have > s->target)) return -1;
    return 0;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct sage *s = state;
    double share = config->margin * share_in_use(view);
    uint32_t have = scale_have_all(view);
    bool first = s->point_us == 0;
    if (view->demand.present && scale_due(&s->point_us, POINT_S, now_us))
        take_point(s, config, view, now_us, first);
    const char *reason = "memory is between its thresholds, or the target is met";
    int by = 0;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && have == 0) {
        by = 1;
        reason = "requests came and nothing runs";
    } else if (share < 0) {
        reason = "no instance has reported its KV memory: keep what there is";
    } else if (now_us < s->lock_us && s->lock_us - now_us <= LOCK_US) {
        reason = "locked while an instance spins up";
    } else {
        by = step(s, share, have);
        if (by > 0) reason = "memory in use is above its threshold";
        if (by < 0) reason = "memory in use is below its threshold";
    }
    if (by > 0) s->lock_us = now_us + LOCK_US;
    *ret = (struct scale_verdict){
        .reason = reason, .load = fmax(share, 0), .estimate_s = -1, .again_us = now_us + AGAIN_US
    };
    scale_nudge(view, by, false, &ret->choice);
}

_Static_assert(sizeof(struct sage) <= SCALE_STATE_BYTES_MAX, "state of sageserve");

const struct scale_policy scale_sageserve = {
    .name = "sageserve",
    .about = "an hourly forecast as target, gated by memory in use, with a guard",
    .source = "SageServe",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV | SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct sage),
    .decide = decide,
};
