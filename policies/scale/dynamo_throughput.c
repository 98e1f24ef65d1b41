/* dynamo_throughput.c - divide the forecast rate by the rate that one engine serves within the SLO.
 *
 *     each 180 s: take requests, mean prompt and mean output of the interval; forecast the next of each
 *     want = ceil(requests / 180 s / engine_rps(prompt, output))
 *
 * This is Dynamo's throughput loop, with the forecasts constant, arima (its default), kalman and, in
 * Prophet's place, holt. engine_rps comes there from a profile of the engine under the SLA, here from
 * the step-time model (capacity.h). The loop uses mean lengths only and one fixed interval whatever
 * the lead. Until the first interval has passed it uses the present rate. */
#include "base/core/bits.h"
#include "policies/scale/capacity.h"
#include "policies/scale/forecast.h"
#include "policies/scale/scale.h"

#include <math.h>
#include <string.h>

#define PERIOD_S 180
#define POINTS 64 /* three hours to forecast from */
#define AGAIN_US ((int64_t)1000000)

struct throughput {
    int64_t next_us, taken_us; /* the next interval's end, the last one's */
    uint64_t total;
    uint32_t count;
    double requests[POINTS], prompt[POINTS], output[POINTS]; /* requests: in PERIOD_S */
    uint32_t want;                                           /* of the last interval */
};
_Static_assert(sizeof(struct throughput) <= SCALE_STATE_BYTES_MAX, "state of dynamo_throughput");

static void append(double series[POINTS], uint32_t count, double value)
{
    if (count == POINTS) memmove(series, series + 1, (POINTS - 1) * sizeof *series);
    series[min_u32(count, POINTS - 1)] = value;
}

static uint32_t size(const struct scale_config *config, const struct scale_view *view, double rps,
                     double prompt, double output)
{
    struct lengths mean = { 0 };
    lengths_add(&mean, prompt, fmax(output, 1), 1);
    lengths_mean(&mean);
    double rate = 0;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        struct scale_load load;
        if (!view->pool[i].perf_known) continue;
        scale_load_of(&view->pool[i], &mean, &load);
        rate = fmax(rate, scale_load_rate(&load, view->ttft_slo_s, view->tpot_slo_s, 1));
    }
    if (rate <= 0) return 0;
    return (uint32_t)fmin(ceil(config->margin * rps / rate), SCALE_COUNT_MAX * SCALE_POOLS_MAX);
}

static const struct scale_forecast *forecast_of(const struct scale_config *config)
{
    return config->forecast ? config->forecast : &scale_forecast_arima;
}

/* Ends an interval and forecasts the next. The requests of an interval that ended late, because demand
 * was not reported, are scaled down to PERIOD_S. */
static void take_interval(struct throughput *t, const struct scale_config *config,
                          const struct scale_view *view, int64_t now_us)
{
    const struct scale_demand *d = &view->demand;
    const struct scale_forecast *f = forecast_of(config);
    uint64_t total = d->arrivals_total;
    double passed_s = fmax((double)(now_us - t->taken_us) / 1e6, PERIOD_S);
    double requests = total > t->total ? (double)(total - t->total) : 0;
    append(t->requests, t->count, requests * (PERIOD_S / passed_s));
    append(t->prompt, t->count, d->prompt_tokens);
    append(t->output, t->count, d->output_tokens);
    t->total = total;
    t->count = min_u32(t->count + 1, POINTS);
    t->want = size(config, view, scale_forecast_next(f, t->requests, t->count, 1) / PERIOD_S,
                   scale_forecast_next(f, t->prompt, t->count, 1),
                   scale_forecast_next(f, t->output, t->count, 1));
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct throughput *t = state;
    const struct scale_demand *d = &view->demand;
    bool known = false;
    for (uint32_t i = 0; i < view->pool_count; i++)
        known |= view->pool[i].perf_known;
    if (!d->present || !known) {
        scale_keep(view, "neither demand nor an engine's speed is known: keep what there is", ret);
        ret->again_us = now_us + AGAIN_US;
        return;
    }
    bool first = t->next_us == 0;
    if (scale_due(&t->next_us, PERIOD_S, now_us)) {
        if (first)
            t->total = d->arrivals_total;
        else
            take_interval(t, config, view, now_us);
        t->taken_us = now_us;
    }
    uint32_t want =
        t->count ? t->want : size(config, view, d->arrivals_s, d->prompt_tokens, d->output_tokens);
    scale_answer(config, view, want, "the forecast rate over what one engine serves", ret);
    ret->has_forecast = t->count > 0;
    if (t->count > 0)
        ret->forecast_s =
            scale_forecast_next(forecast_of(config), t->requests, t->count, 1) / PERIOD_S;
    ret->again_us = now_us + AGAIN_US;
}

const struct scale_policy scale_dynamo_throughput = {
    .name = "dynamo_throughput",
    .about = "the rate forecast each 180 s over what one engine serves",
    .source = "NVIDIA Dynamo planner, throughput loop",
    .shaper = "none",
    .needs = SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct throughput),
    .decide = decide,
};
