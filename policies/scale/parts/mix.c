/* mix.c - searches whole numbers of instances by branch and bound.
 *
 * The search is exact for the few pools a service has; after NODES_MAX nodes the best found so far
 * stands. An instance that does not exist yet costs (1 + lead / life) times its price, because its
 * lead is paid but serves no request; this keeps a running mix from being replaced by one that is
 * only a little cheaper. */
#include "policies/scale/parts/mix.h"

#include "base/core/bits.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define NODES_MAX 20000
#define NEAR 1e-9 /* relative: rates are sums of floats */

/* One pool as the search sees it. */
struct lane {
    uint32_t pool;
    uint32_t have, low, high;
    double rate;
    double price, price_new; /* of one that exists, of one that must be launched */
    double per_rate;         /* price / rate: lanes are sorted by it */
};

struct candidate {
    uint32_t want[SCALE_POOLS_MAX];
    double rate, cost; /* cost: with the lead of new instances priced in */
    bool set;
};

struct search {
    const struct scale_view *view;
    struct lane lane[SCALE_POOLS_MAX];
    uint32_t lanes;
    double need;
    struct candidate best, second;
    uint32_t nodes;
};

static double lane_cost(const struct lane *l, uint32_t n)
{
    uint32_t old = min_u32(n, l->have);
    return old * l->price + (n - old) * l->price_new;
}

static double shortfall(const struct search *s, double rate)
{
    double gap = s->need - rate;
    return gap > s->need * NEAR ? gap : 0;
}

static bool better(const struct search *s, const struct candidate *a, const struct candidate *b)
{
    if (!b->set) return true;
    double sa = shortfall(s, a->rate), sb = shortfall(s, b->rate);
    if (sa < sb || sa > sb) return sa < sb;
    return a->cost < b->cost;
}

static void offer(struct search *s, const struct candidate *c)
{
    if (better(s, c, &s->best)) {
        s->second = s->best;
        s->best = *c;
        s->best.set = true;
    } else if (better(s, c, &s->second)) {
        s->second = *c;
        s->second.set = true;
    }
}

/* Returns how many instances of lane k the budget pays for, once the minimum of the lanes behind it
 * is kept back. */
static uint32_t affordable(const struct search *s, uint32_t k, const struct candidate *c)
{
    if (s->view->budget_h <= 0) return UINT32_MAX;
    double spent = scale_cost_h(s->view, c->want);
    for (uint32_t j = k + 1; j < s->lanes; j++)
        spent += s->lane[j].low * s->view->pool[s->lane[j].pool].price_h;
    double price = s->view->pool[s->lane[k].pool].price_h;
    if (price <= 0) return UINT32_MAX;
    double left = (s->view->budget_h - spent) / price * (1 + NEAR);
    return left <= 0 ? 0 : (uint32_t)fmin(left, SCALE_COUNT_MAX);
}

static uint32_t enough(const struct search *s, const struct lane *l, double rate)
{
    double gap = shortfall(s, rate);
    if (gap <= 0 || l->rate <= 0) return l->low;
    double n = ceil(gap / l->rate * (1 - NEAR));
    return max_u32(l->low, (uint32_t)fmin(n, l->high));
}

static void descend(struct search *s, uint32_t k, const struct candidate *base)
{
    if (s->nodes++ >= NODES_MAX) return;
    if (k == s->lanes) {
        offer(s, base);
        return;
    }
    /* No lane from here on is cheaper for its rate than this one, so no completion costs less than
     * this bound. Completions no better than the runner-up are skipped. */
    const struct lane *l = &s->lane[k];
    double bound = base->cost + shortfall(s, base->rate) * l->per_rate;
    if (s->second.set && shortfall(s, s->second.rate) <= 0 && bound >= s->second.cost) return;

    uint32_t high = max_u32(l->low, min_u32(enough(s, l, base->rate), affordable(s, k, base)));
    for (uint32_t n = high;; n--) {
        struct candidate c = *base;
        c.want[l->pool] = n;
        c.rate += n * l->rate;
        c.cost += lane_cost(l, n);
        descend(s, k + 1, &c);
        if (n == l->low) break;
    }
}

static void sort_lanes(struct search *s)
{
    for (uint32_t i = 1; i < s->lanes; i++) {
        struct lane l = s->lane[i];
        uint32_t at = i;
        for (; at > 0 && s->lane[at - 1].per_rate > l.per_rate; at--)
            s->lane[at] = s->lane[at - 1];
        s->lane[at] = l;
    }
}

static void search_init(struct search *s, const struct scale_config *config,
                        const struct scale_view *view, const double rate[SCALE_POOLS_MAX])
{
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        double price_new = p->price_h * (1 + p->lead_s / config->life_s);
        struct lane l = { .pool = i,
                          .have = scale_have(p),
                          .low = p->min,
                          .high = rate[i] > 0 ? scale_reach(p) : p->min,
                          .rate = rate[i],
                          .price = p->price_h,
                          .price_new = price_new };
        l.per_rate = l.rate > 0 ? l.price / l.rate : DBL_MAX;
        s->lane[s->lanes++] = l;
    }
    sort_lanes(s);
}

static void take(const struct search *s, const struct candidate *c, struct scale_choice *ret)
{
    memcpy(ret->want, c->want, sizeof ret->want);
    ret->cost_h = scale_cost_h(s->view, c->want);
}

void scale_mix(const struct scale_config *config, const struct scale_view *view,
               const double rate[SCALE_POOLS_MAX], double need, struct scale_mixed *ret)
{
    struct search s = { .view = view, .need = need };
    search_init(&s, config, view, rate);
    struct candidate none = { 0 };
    descend(&s, 0, &none);
    struct scale_mixed m = { .has_second = s.second.set };
    take(&s, &s.best, &m.best);
    m.covers = shortfall(&s, s.best.rate) <= 0;
    if (s.second.set) {
        take(&s, &s.second, &m.second);
        m.second_covers = shortfall(&s, s.second.rate) <= 0;
    }
    *ret = m;
}
