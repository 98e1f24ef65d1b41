/* scale.c - the table of scaling signals and what they share. */
#include "policies/scale.h"

#include "base/core/bits.h"
#include "policies/scale_rows.h"

#include <float.h>

const struct scale_policy *const scale_table[] = { &scale_work, &scale_queue, &scale_concurrency,
                                                   &scale_static };
const uint32_t scale_count = COUNT_OF(scale_table);

const struct scale_policy *scale_find(struct str name)
{
    for (uint32_t i = 0; i < scale_count; i++)
        if (str_eq(name, str_from(scale_table[i]->name))) return scale_table[i];
    return NULL;
}

uint32_t scale_have(const struct scale_pool *pool)
{
    return pool->ready + pool->starting;
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

/* The pool to grow next: cheapest first, the earlier row on equal prices. */
static uint32_t next_pool(const struct scale_view *view, const struct scale_choice *c)
{
    uint32_t best = SCALE_POOLS_MAX;
    double best_price = DBL_MAX;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        if (c->want[i] >= scale_reach(p)) continue;
        if (view->budget_h > 0 && c->cost_h + p->price_h > view->budget_h) continue;
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
        uint32_t i = next_pool(view, &c);
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

bool scale_is_awake(const struct scale_config *config, const struct scale_view *view)
{
    const struct scale_demand *d = &view->demand;
    if (d->held > 0 || d->in_flight > 0 || d->arrivals_s > 0) return true;
    uint32_t have = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        have += scale_have(&view->pool[i]);
    return have > 0 && d->idle_s < config->zero_after_s;
}
