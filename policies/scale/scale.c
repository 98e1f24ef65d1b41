/* scale.c - the table of scaling policies, the functions that they share, and the fixed count. */
#include "policies/scale/scale.h"

#include "base/core/bits.h"

#include <float.h>
#include <math.h>

#define NEAR 1e-9 /* relative: loads are quotients of floats, costs are sums of them */
#define HPA_TOLERANCE 0.1

const struct scale_policy *const scale_table[] = {
#define POLICY(name) &scale_##name,
#include "policies/scale/scale.def"
#undef POLICY
};
const uint32_t scale_count = COUNT_OF(scale_table);

const struct scale_policy *scale_find(struct str name)
{
    for (uint32_t i = 0; i < scale_count; i++)
        if (str_eq(name, str_from(scale_table[i]->name))) return scale_table[i];
    return NULL;
}

const char *scale_missing(uint32_t needs, uint32_t has)
{
    static const struct {
        uint32_t bit;
        const char *words;
    } inputs[] = {
        { SCALE_NEEDS_KV, "the KV tokens that instances hold" },
        { SCALE_NEEDS_PREFILL, "the prompt tokens that instances have not computed" },
        { SCALE_NEEDS_TPOT, "the measured time per output token" },
        { SCALE_NEEDS_SPEED, "the step-time model of an instance" },
    };
    for (uint32_t i = 0; i < COUNT_OF(inputs); i++)
        if (needs & ~has & inputs[i].bit) return inputs[i].words;
    return NULL;
}

uint32_t scale_have(const struct scale_pool *pool)
{
    return pool->ready + pool->starting;
}

uint32_t scale_ready_all(const struct scale_view *view)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        n += view->pool[i].ready;
    return n;
}

uint32_t scale_starting_all(const struct scale_view *view)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        n += view->pool[i].starting;
    return n;
}

uint32_t scale_have_all(const struct scale_view *view)
{
    return scale_ready_all(view) + scale_starting_all(view);
}

uint32_t scale_reach(const struct scale_pool *pool)
{
    if (pool->available) return pool->max;
    return max_u32(pool->min, min_u32(scale_have(pool), pool->max));
}

double scale_cost_h(const struct scale_view *view, const uint32_t want[SCALE_POOLS_MAX])
{
    double cost = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        cost += want[i] * view->pool[i].price_h;
    return cost;
}

bool scale_affords(const struct scale_view *view, double cost_h)
{
    return view->budget_h <= 0 || cost_h <= view->budget_h * (1 + NEAR);
}

/* Returns the pool to grow next: the cheapest, the earlier one on equal prices. */
static uint32_t next_pool(const struct scale_view *view, bool settled, const struct scale_choice *c)
{
    uint32_t best = SCALE_POOLS_MAX;
    double best_price = DBL_MAX;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        if (c->want[i] >= scale_reach(p) || (settled && p->starting > 0)) continue;
        if (!scale_affords(view, c->cost_h + p->price_h)) continue;
        if (p->price_h >= best_price) continue;
        best = i;
        best_price = p->price_h;
    }
    return best;
}

void scale_spread(const struct scale_view *view, uint32_t total, struct scale_choice *ret)
{
    struct scale_choice c = { 0 };
    uint32_t sum = 0;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        c.want[i] = view->pool[i].min;
        sum += c.want[i];
    }
    c.cost_h = scale_cost_h(view, c.want);

    while (sum < total) {
        uint32_t i = next_pool(view, false, &c);
        if (i == SCALE_POOLS_MAX) break;
        c.want[i]++;
        c.cost_h += view->pool[i].price_h;
        sum++;
    }
    *ret = c;
}

void scale_keep(const struct scale_view *view, const char *reason, struct scale_verdict *ret)
{
    struct scale_choice c = { 0 };
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        c.want[i] = max_u32(p->min, min_u32(scale_have(p), p->max));
    }
    c.cost_h = scale_cost_h(view, c.want);
    *ret = (struct scale_verdict){ .choice = c, .reason = reason, .estimate_s = -1 };
}

/* Returns the dearest pool above its minimum, the later one on equal prices. */
static uint32_t dearest(const struct scale_view *view, bool settled, const struct scale_choice *c)
{
    uint32_t best = SCALE_POOLS_MAX;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        if (c->want[i] <= p->min || (settled && p->starting > 0)) continue;
        if (best < SCALE_POOLS_MAX && p->price_h < view->pool[best].price_h) continue;
        best = i;
    }
    return best;
}

void scale_nudge(const struct scale_view *view, int by, bool settled, struct scale_choice *ret)
{
    struct scale_verdict v;
    scale_keep(view, NULL, &v);
    struct scale_choice c = v.choice;
    for (; by > 0; by--) {
        uint32_t i = next_pool(view, settled, &c);
        if (i == SCALE_POOLS_MAX) break;
        c.want[i]++;
        c.cost_h = scale_cost_h(view, c.want);
    }
    for (; by < 0; by++) {
        uint32_t i = dearest(view, settled, &c);
        if (i == SCALE_POOLS_MAX) break;
        c.want[i]--;
    }
    c.cost_h = scale_cost_h(view, c.want);
    *ret = c;
}

void scale_answer(const struct scale_config *config, const struct scale_view *view, double total,
                  const char *reason, struct scale_verdict *ret)
{
    struct scale_verdict v = { .reason = reason, .load = total, .estimate_s = -1 };
    double n = ceil(total * (1 - NEAR));
    if (n < 1 && scale_is_awake(config, view)) n = 1;
    scale_spread(view, (uint32_t)fmax(0, fmin(n, SCALE_COUNT_MAX * SCALE_POOLS_MAX)), &v.choice);
    *ret = v;
}

double scale_hpa_count(double load, uint32_t have)
{
    bool near = have > 0 && fabs(load / have - 1) <= HPA_TOLERANCE;
    return near ? have : ceil(load * (1 - NEAR));
}

bool scale_due(int64_t *next_us, double period_s, int64_t now_us)
{
    int64_t period_us = (int64_t)(period_s * 1e6);
    bool jumped = *next_us > now_us + period_us; /* the wall clock went back */
    if (now_us < *next_us && !jumped) return false;
    *next_us = now_us + period_us;
    return true;
}

bool scale_is_awake(const struct scale_config *config, const struct scale_view *view)
{
    const struct scale_demand *d = &view->demand;
    if (d->held > 0 || d->in_flight > 0 || d->arrivals_s > 0) return true;
    return scale_have_all(view) > 0 && d->idle_s < config->zero_after_s;
}

/* Keep a fixed number of instances.
 *
 *     want = count
 *
 * This is the baseline that every other policy must beat, and the right choice for hardware that is
 * paid for anyway. With the count that the peak needs it is the static peak of comparisons. */
static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)state, (void)rng;
    struct scale_verdict v = { .reason = "a fixed count is configured",
                               .load = config->count,
                               .estimate_s = -1,
                               .again_us = now_us + 60 * (int64_t)1000000 };
    scale_spread(view, config->count, &v.choice);
    *ret = v;
}

const struct scale_policy scale_static = {
    .name = "static",
    .about = "a fixed number of instances",
    .source = "baseline",
    .shaper = "window",
    .decide = decide,
};
