/* scale_work.c - the cheapest fleet whose seconds cover the seconds that the demand asks for.
 *
 * One request costs an instance  w = b P + O (c + d L)  seconds at the margin: its uncached prompt
 * of P tokens, and a place in each of the O steps of its answer at a mean context L = P + O / 2.
 * At r requests a second a step then takes
 *
 *     s = a + s r w   =>   s = a / (1 - r w)          (Little's law on the sequences in the batch)
 *
 * so that the share of time that is spoken for is u = r w. A request sees the others' steps and
 * its own place in them, and the promises bound u:
 *
 *     TPOT:  (a + w / O) / (1 - u) <= tpot  =>  u <= 1 - (a + w / O) / tpot
 *     TTFT:  (a + b P) / (1 - u) <= ttft    =>  u <= 1 - (a + b P) / ttft
 *     slots: O s r <= seqs_max              =>  r <= seqs_max / (O a + seqs_max w)
 *
 * rate = the least r of these and of u <= utilisation_max. What is asked for is
 *
 *     need = arrivals + backlog(lead) / clear_s
 *     backlog(lead) = max(0, waiting + held + (arrivals - rate of what is ready) * lead
 *                                           - rate of what starts * (lead - what it has left))
 *
 * the requests that will still wait when an instance bought now is ready: a backlog that the
 * fleet clears before then buys nothing, and neither does one that is being bought for already.
 *
 * All this assumes that requests come one by one. Where they come in bursts, the wait Q that
 * routers measure is longer. With the seconds of C = sum(ready / w) instances it falls as the
 * share that is free grows,
 *
 *     Q(x C) = Q (C - r) / (x C - r)  <=  ttft - (a + b P)
 *       =>  x C >= r + (C - r) Q / (ttft - a - b P)
 *
 * and need is never below that. It is asked only of a fleet that has stood still for a whole
 * window of the routers; until then the last answer stands.
 *
 * The mix is the cheapest whole number of instances with sum(n * rate) >= need, by branch and
 * bound (exact for the few pools a service has; NODES_MAX is the bound, after which the best found
 * so far stands). An instance that does not exist yet costs (1 + lead / life) times its price,
 * because its lead is paid and serves nobody: that is what keeps a running mix from being
 * exchanged for one a little cheaper.
 */
#include "base/core/bits.h"
#include "policies/scale_rows.h"

#include <float.h>
#include <math.h>

#define NODES_MAX 20000
#define AGAIN_US ((int64_t)1000000)
#define NEAR 1e-9        /* relative: rates are sums of floats */
#define SPARE_MIN 0.1    /* of an overloaded fleet's rate: its wait does not tell what is free */
#define OBSERVED_MAX 3.0 /* times the fleet: one measurement asks for no more than that */
#define AWAKE_RATE 1e-6  /* requests a second: asks for one instance, whichever is cheapest */

double scale_request_work_s(const struct perf_coef *perf, double prompt_tokens,
                            double output_tokens)
{
    double context = prompt_tokens + output_tokens / 2;
    return perf->b * prompt_tokens + output_tokens * (perf->c + perf->d * context);
}

double scale_instance_rate(const struct scale_pool *pool, const struct scale_view *view,
                           double utilisation_max)
{
    const struct scale_demand *d = &view->demand;
    const struct perf_coef *f = &pool->perf;
    double w = scale_request_work_s(f, d->prompt_tokens, d->output_tokens);
    double u = utilisation_max;
    u = fmin(u, 1 - (f->a + w / fmax(d->output_tokens, 1)) / view->tpot_slo_s);
    u = fmin(u, 1 - (f->a + f->b * d->prompt_tokens) / view->ttft_slo_s);
    if (u <= 0) return 0;

    double slots = pool->seqs_max;
    double rate = slots / fmax(d->output_tokens * f->a + slots * w, DBL_MIN);
    return fmin(rate, u / fmax(w, DBL_MIN));
}

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
    bool waits; /* need is what measured waits ask for */
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

/* Money left for lanes from `k` on, once the minimum of the others behind it is kept back. */
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
    /* Nothing from here on can be cheaper for its rate than this lane: a bound below which no
     * completion falls. Candidates no better than the runner-up are not worth a visit. */
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

/* A pool that cannot keep the promise even alone is used only when none can: then its rate is
 * what it does at utilisation_max, late but as fast as it goes. */
static double best_effort_rate(const struct scale_pool *p, const struct scale_view *view,
                               double utilisation_max)
{
    const struct scale_demand *d = &view->demand;
    double w = scale_request_work_s(&p->perf, d->prompt_tokens, d->output_tokens);
    double own = p->perf.a * d->output_tokens / p->seqs_max;
    return utilisation_max / fmax(w + own, DBL_MIN);
}

struct rates {
    double rate[SCALE_POOLS_MAX];
    bool any_known; /* some pool's speed is known */
    bool promised;  /* some pool can keep the promise */
};

static void pool_rates(const struct scale_config *config, const struct scale_view *view,
                       struct rates *ret)
{
    *ret = (struct rates){ 0 };
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        if (!p->perf_known) continue;
        ret->any_known = true;
        ret->rate[i] = scale_instance_rate(p, view, config->utilisation_max);
        if (ret->rate[i] > 0) ret->promised = true;
    }
    if (ret->promised) return;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        if (p->perf_known) ret->rate[i] = best_effort_rate(p, view, config->utilisation_max);
    }
}

struct work {
    uint32_t ready[SCALE_POOLS_MAX];
    int64_t still_us; /* since when nothing changed that the waits depend on */
    double observed;  /* need by what was measured last; 0: nothing was */
};
_Static_assert(sizeof(struct work) <= SCALE_STATE_BYTES_MAX, "state of scale_work");

/* What the measured waits ask for, as a rate comparable to the lanes'; 0: nothing is known. */
static double observed_need(struct work *s, const struct scale_view *view, const struct rates *r,
                            int64_t now_us)
{
    const struct scale_demand *d = &view->demand;
    double raw = 0, rate = 0, alone_s = 0;
    uint32_t starting = 0;
    bool moved = false;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        starting += p->starting;
        moved |= p->ready != s->ready[i];
        s->ready[i] = p->ready;
        if (p->ready == 0 || r->rate[i] <= 0) continue;
        double w = scale_request_work_s(&p->perf, d->prompt_tokens, d->output_tokens);
        raw += p->ready / fmax(w, DBL_MIN);
        rate += p->ready * r->rate[i];
        alone_s = fmax(alone_s, p->perf.a + p->perf.b * d->prompt_tokens);
    }
    if (moved || starting > 0 || d->held > 0) s->still_us = now_us;
    bool still = (double)(now_us - s->still_us) / 1e6 > d->window_s;
    if (!still || !d->ttft_known || raw <= 0 || alone_s >= view->ttft_slo_s) return s->observed;

    double wait = fmax(0, d->ttft_s - alone_s);
    double spare = fmax(raw - d->arrivals_s, SPARE_MIN * raw);
    double need = d->arrivals_s + spare * wait / (view->ttft_slo_s - alone_s);
    s->observed = fmin(need, OBSERVED_MAX * raw) * rate / raw;
    return s->observed;
}

/* Requests a second to plan for. */
static double needed_rate(const struct scale_config *config, const struct scale_view *view,
                          const struct rates *r)
{
    const struct scale_demand *d = &view->demand;
    double lead_s = DBL_MAX;
    for (uint32_t i = 0; i < view->pool_count; i++)
        if (r->rate[i] > 0 && view->pool[i].available) lead_s = fmin(lead_s, view->pool[i].lead_s);
    if (lead_s >= DBL_MAX) lead_s = 0;

    double backlog = d->waiting + d->held + d->arrivals_s * lead_s;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        double soon_s = fmax(0, lead_s - p->left_s);
        backlog -= r->rate[i] * (p->ready * lead_s + p->starting * soon_s);
    }
    return fmax(d->arrivals_s + fmax(backlog, 0) / config->clear_s, AWAKE_RATE);
}

/* Predicted TTFT when arrivals are spread over the choice in proportion to its rates. */
static double estimate_ttft_s(const struct scale_view *view, const struct rates *r,
                              const uint32_t want[SCALE_POOLS_MAX])
{
    const struct scale_demand *d = &view->demand;
    double total = 0, alone_s = 0;
    for (uint32_t i = 0; i < view->pool_count; i++)
        total += want[i] * r->rate[i];
    if (total <= 0) return -1;
    double used = 0;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        double share = want[i] * r->rate[i] / total;
        alone_s += share * (p->perf.a + p->perf.b * d->prompt_tokens);
        double w = scale_request_work_s(&p->perf, d->prompt_tokens, d->output_tokens);
        used += share * (r->rate[i] * d->arrivals_s / total) * w;
    }
    return used < 1 ? alone_s / (1 - used) : -1;
}

static void search_init(struct search *s, const struct scale_config *config,
                        const struct scale_view *view, const struct rates *r)
{
    for (uint32_t i = 0; i < view->pool_count; i++) {
        const struct scale_pool *p = &view->pool[i];
        double price_new = p->price_h * (1 + p->lead_s / config->life_s);
        struct lane l = { .pool = i,
                          .have = scale_have(p),
                          .low = p->min,
                          .high = r->rate[i] > 0 ? scale_reach(p) : p->min,
                          .rate = r->rate[i],
                          .price = p->price_h,
                          .price_new = price_new };
        l.per_rate = l.rate > 0 ? l.price / l.rate : DBL_MAX;
        s->lane[s->lanes++] = l;
    }
    sort_lanes(s);
}

static const char *reason_of(const struct search *s, const struct rates *r)
{
    const struct scale_view *view = s->view;
    uint32_t have = 0, want = 0;
    for (uint32_t i = 0; i < view->pool_count; i++) {
        have += scale_have(&view->pool[i]);
        want += s->best.want[i];
    }
    if (!r->promised) return "no pool can keep the promise at these lengths: best effort";
    if (shortfall(s, s->best.rate) > 0)
        return "the pools, their offers or the budget give no more than this";
    if (want == 0) return "no request for longer than zero_after_s";
    if (have == 0) return "requests came and nothing runs";
    if (want > have && s->waits) return "first tokens come later than promised";
    if (want > have) return "the work asked for exceeds what the fleet does within the promise";
    if (want < have) return "a smaller fleet does the work within the promise";
    return "the fleet fits the work";
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct work *memory = state;
    struct rates r;
    pool_rates(config, view, &r);
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (!view->demand.present || (awake && !r.any_known)) {
        scale_keep(view,
                   view->demand.present ? "no pool's speed is known yet: one instance to learn from"
                                        : "no router has reported its demand: keep what there is",
                   ret);
        if (awake && scale_cost_h(view, ret->choice.want) <= 0) scale_spread(view, 1, &ret->choice);
        ret->again_us = now_us + AGAIN_US;
        return;
    }

    struct search s = { .view = view, .need = awake ? needed_rate(config, view, &r) : 0 };
    double observed = r.promised ? observed_need(memory, view, &r, now_us) : 0;
    if (!awake) memory->observed = 0;
    s.waits = awake && observed > s.need;
    if (s.waits) s.need = observed;
    search_init(&s, config, view, &r);
    struct candidate none = { 0 };
    descend(&s, 0, &none);

    struct scale_verdict v = { .reason = reason_of(&s, &r),
                               .estimate_s = estimate_ttft_s(view, &r, s.best.want),
                               .again_us = now_us + AGAIN_US };
    v.load = s.lanes && s.lane[0].rate > 0 ? s.need / s.lane[0].rate : 0;
    memcpy(v.choice.want, s.best.want, sizeof v.choice.want);
    v.choice.cost_h = scale_cost_h(view, v.choice.want);
    if (s.second.set) {
        v.has_runner_up = true;
        memcpy(v.runner_up.want, s.second.want, sizeof v.runner_up.want);
        v.runner_up.cost_h = scale_cost_h(view, v.runner_up.want);
        v.runner_why = shortfall(&s, s.second.rate) > 0
                           ? "it does not cover the work"
                           : "it costs more, the lead of new instances included";
    }
    *ret = v;
}

const struct scale_policy scale_work = {
    .name = "work",
    .about = "the cheapest mix whose seconds cover the work within TTFT and TPOT",
    .source = "this project; the mix as in Melange, the lead time as a decision variable",
    .shaper = "window",
    .needs = SCALE_NEEDS_SPEED,
    .state_size = sizeof(struct work),
    .decide = decide,
};
