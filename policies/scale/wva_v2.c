/* wva_v2.c - size the fleet by tokens in use and queued over a learned capacity.
 *
 *     capacity = min(0.80 * KV tokens, k2) of an instance, k2 = tokens in use when its queue
 *                saturates (waiting >= 5), rolling mean of 10, by pool and class of mean output
 *                (< 100, < 500, above)
 *     demand   = tokens in use + waiting * mean prompt + prompt tokens that routers hold
 *     required = demand / 0.85 - supply, starting instances included: up by ceil, cheapest for
 *                its capacity first
 *     spare    = supply - demand / 0.70: down by floor, the dearest first; every 30 s
 *
 * This is llm-d's workload variant autoscaler, second version. There a router's queue is counted in
 * bytes (four to a token), here in tokens. Until a queue has saturated the capacity is 0.80 of the
 * memory; launch arguments and compatible variants are not consulted. */
#include "base/core/bits.h"
#include "policies/scale/scale.h"

#include <math.h>

#define KV_SHARE 0.80
#define UP_SHARE 0.85
#define DOWN_SHARE 0.70
#define QUEUE_MAX 5
#define PERIOD_S 30
#define ROLL 10
#define CLASSES 3
#define AGAIN_US ((int64_t)1000000)

struct learned {
    float tokens[ROLL];
    uint32_t count;
};

struct wva {
    int64_t next_us;
    struct learned k2[SCALE_POOLS_MAX][CLASSES];
};
_Static_assert(sizeof(struct wva) <= SCALE_STATE_BYTES_MAX, "state of wva_v2");

static uint32_t class_of(double output)
{
    return output < 100 ? 0 : output < 500 ? 1 : 2;
}

static double capacity(const struct wva *w, const struct scale_view *view, uint32_t pool)
{
    const struct learned *k = &w->k2[pool][class_of(view->demand.output_tokens)];
    double kv = KV_SHARE * (double)view->pool[pool].kv_tokens_max, sum = 0;
    uint32_t n = min_u32(k->count, ROLL);
    for (uint32_t i = 0; i < n; i++)
        sum += (double)k->tokens[i];
    return n ? fmin(kv, sum / n) : kv;
}

/* Returns the tokens in use and queued, and records k2 if `learn`. Negative when ready instances exist
 * and none has reported. */
static double demand_tokens(struct wva *w, const struct scale_view *view, bool learn)
{
    const struct scale_demand *d = &view->demand;
    double tokens = (double)d->held_prompt_tokens;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        seen++;
        tokens += (double)in->kv_tokens + in->waiting * d->prompt_tokens;
        if (!learn || in->waiting < QUEUE_MAX) continue;
        struct learned *k = &w->k2[in->pool][class_of(d->output_tokens)];
        k->tokens[k->count++ % ROLL] = (float)in->kv_tokens;
    }
    return seen || scale_ready_all(view) == 0 ? tokens : -1;
}

/* Adds instances while required > 0, cheapest for their capacity first. */
static void grow(const struct wva *w, const struct scale_view *view, double required,
                 struct scale_choice *c)
{
    while (required > 0) {
        uint32_t best = SCALE_POOLS_MAX;
        double best_price = HUGE_VAL;
        for (uint32_t i = 0; i < view->pool_count; i++) {
            const struct scale_pool *p = &view->pool[i];
            double cap = capacity(w, view, i);
            if (cap <= 0 || c->want[i] >= scale_reach(p)) continue;
            if (!scale_affords(view, c->cost_h + p->price_h)) continue;
            if (p->price_h / cap >= best_price) continue;
            best = i;
            best_price = p->price_h / cap;
        }
        if (best == SCALE_POOLS_MAX) return;
        c->want[best]++;
        c->cost_h += view->pool[best].price_h;
        required -= capacity(w, view, best);
    }
}

static void shrink(const struct wva *w, const struct scale_view *view, double spare,
                   struct scale_choice *c)
{
    for (;;) {
        uint32_t best = SCALE_POOLS_MAX, total = 0;
        for (uint32_t i = 0; i < view->pool_count; i++) {
            const struct scale_pool *p = &view->pool[i];
            total += c->want[i];
            double cap = capacity(w, view, i);
            if (c->want[i] <= p->min || cap <= 0 || cap > spare) continue;
            if (best == SCALE_POOLS_MAX || p->price_h > view->pool[best].price_h) best = i;
        }
        if (best == SCALE_POOLS_MAX || total <= 1) return;
        c->want[best]--;
        spare -= capacity(w, view, best);
    }
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct wva *w = state;
    bool due = scale_due(&w->next_us, PERIOD_S, now_us);
    double demand = config->margin * demand_tokens(w, view, due);
    scale_keep(view, "the tokens in use and in line fit", ret);
    ret->again_us = now_us + AGAIN_US;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && scale_have_all(view) == 0) {
        scale_spread(view, 1, &ret->choice);
        ret->reason = "requests came and nothing runs";
        return;
    }
    if (!view->demand.present || demand < 0) {
        ret->reason = "no instance has reported its KV memory: keep what there is";
        return;
    }
    double supply = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        supply += scale_have(&view->pool[i]) * capacity(w, view, i);
    if (supply > 0) ret->load = demand / supply;
    if (!due) return;
    double required = demand / UP_SHARE - supply, spare = supply - demand / DOWN_SHARE;
    if (required > 0) {
        grow(w, view, required, &ret->choice);
        ret->reason = "the tokens in use and in line exceed 0.85 of the supply";
    } else if (spare > 0) {
        shrink(w, view, spare, &ret->choice);
        ret->reason = "the tokens in use and in line are below 0.70 of the supply";
    }
    ret->choice.cost_h = scale_cost_h(view, ret->choice.want);
}

const struct scale_policy scale_wva_v2 = {
    .name = "wva_v2",
    .about = "tokens in use and in line against a learned capacity, every 30 s",
    .source = "llm-d workload variant autoscaler, saturation v2",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV,
    .state_size = sizeof(struct wva),
    .decide = decide,
};
