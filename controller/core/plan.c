/* plan.c - decides the fleet's next actions, one service after the other.
 *
 *     view -> scaling policy (wants) -> bounds of the service -> shaper -> manual override
 *          -> proof before anything goes down -> placement policy (offers) -> actions in the budget
 *
 * Each step is a section below, in this order, and writes into struct desk. Services are decided
 * separately: a service never takes another one's budget or room. */
#include "controller/core/plan.h"

#include "base/core/bits.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define ALIKE 0.02        /* two instances with costs of work that differ by less are equal */
#define PRICE_LEAST 1e-6  /* dollars an hour: of two free instances the faster is worth more */
#define BUDGET_SLACK 1e-9 /* relative: prices are sums of floats */

const char *const plan_act_names[PLAN_ACT_COUNT] = {
    [PLAN_LAUNCH] = "launch",
    [PLAN_CANCEL] = "cancel",
    [PLAN_DRAIN] = "drain",
    [PLAN_KEEP] = "keep",
};

/* The service under decision, with the results of the steps so far. */
struct desk {
    const struct plan_view *view;
    const struct plan_service *service;
    uint32_t index;
    int64_t now_us;
    struct scale_view scale;
    struct scale_instance *seen; /* of the view; PLAN_INSTANCES_MAX */
    struct plan_decision *decision;
    struct plan *plan;
    struct plan_memory *memory;
    struct rng *rng;
    bool *taken;                                         /* by index in the view: has an action */
    struct place_verdict where[SCALE_POOLS_MAX];         /* want: instances missing at each offer */
    uint32_t surplus[SCALE_POOLS_MAX][PLACE_OFFERS_MAX]; /* instances beyond what is wanted there */
    uint32_t next[SCALE_POOLS_MAX]; /* the pool's offer that is taken next, or PLACE_NONE */
};

static bool is_mine(const struct desk *d, const struct plan_instance *in, uint32_t pool)
{
    return in->service == d->index && in->pool == pool;
}

/* Returns true if a person has paused the service, drained the pool or set its count: then neither the
 * scaling policy nor the shaper changes it. */
static bool is_overridden(const struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    return d->service->paused || p->drained || p->manual >= 0;
}

/* ---- a pool's offers as its placement policy sees them ---- */

_Static_assert(PLAN_POOL_OFFERS_MAX <= PLACE_OFFERS_MAX, "the placement view");

/* Returns true if the offer is not in back-off and, where there is a budget, its price is known. */
static bool offer_is_usable(const struct plan_view *view, const struct plan_service *service,
                            uint32_t offer, int64_t now_us)
{
    const struct offer *o = &view->offer[offer];
    if (!offer_may_be_asked(&view->health[offer], now_us)) return false;
    return o->price_known || service->budget_h <= 0; /* an unknown price fits no budget */
}

/* Fills the placement policy's view: the pool's offers, and our instances at each. */
static void fill_place_view(const struct plan_view *view, uint32_t service, uint32_t pool,
                            uint32_t target, int64_t now_us, struct place_view *ret)
{
    const struct plan_service *s = &view->service[service];
    const struct plan_pool *p = &s->pool[pool];
    *ret = (struct place_view){ .offer_count = p->offer_count,
                                .target = target,
                                .availability = PLAN_AVAILABILITY };
    for (uint32_t i = 0; i < p->offer_count; i++) {
        const struct offer *o = &view->offer[p->offer[i]];
        const struct offer_health *h = &view->health[p->offer[i]];
        ret->offer[i] =
            (struct place_offer){ .usable = offer_is_usable(view, s, p->offer[i], now_us),
                                  .spot = o->spot,
                                  .price_h = o->price_h,
                                  .lead_s = o->lead_s,
                                  .lost = h->lost,
                                  .refused = h->refused };
    }
    for (uint32_t k = 0; k < view->instance_count; k++) {
        const struct plan_instance *in = &view->instance[k];
        if (in->service != service || in->pool != pool) continue;
        for (uint32_t i = 0; i < p->offer_count; i++) {
            if (p->offer[i] != in->offer) continue;
            ret->offer[i].ready += in->phase == PHASE_READY;
            ret->offer[i].starting += in->phase == PHASE_STARTING;
        }
    }
}

/* Returns the offer that one more instance would come from, or PLAN_NONE. Asks the placement policy on
 * a copy of its state, because only the price is needed here. */
static uint32_t offer_of_next(const struct plan_view *view, uint32_t service, uint32_t pool,
                              const void *state, int64_t now_us, const struct rng *rng)
{
    _Alignas(8) char copy[PLACE_STATE_BYTES_MAX];
    memcpy(copy, state, sizeof copy);
    struct rng chance = *rng;
    struct place_view v;
    fill_place_view(view, service, pool, 0, now_us, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        v.target += place_have(&v.offer[i]);
    v.target++;
    struct place_verdict verdict;
    view->service[service].place->choose(copy, &v, now_us, &chance, &verdict);
    return verdict.next == PLACE_NONE ? PLAN_NONE
                                      : view->service[service].pool[pool].offer[verdict.next];
}

/* ---- the scaling policy's view ---- */

/* Fills the pool's speed: the mean of the speeds that its staying instances have measured, else the
 * offer's prior. */
static void fill_perf(const struct desk *d, uint32_t pool, const struct offer *o,
                      struct scale_pool *ret)
{
    struct perf_coef sum = { 0 };
    uint32_t known = 0;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!is_mine(d, in, pool)) continue;
        if (in->seqs_max) ret->seqs_max = in->seqs_max;
        if (in->load.kv_tokens_max) ret->kv_tokens_max = in->load.kv_tokens_max;
        if (in->context_tokens) ret->context_tokens = in->context_tokens;
        if (in->step_tokens) ret->step_tokens = in->step_tokens;
        if (!in->has_perf || in->phase == PHASE_DRAINING) continue;
        sum.step_s += in->perf.step_s;
        sum.prefill_token_s += in->perf.prefill_token_s;
        sum.decode_seq_s += in->perf.decode_seq_s;
        sum.kv_read_s += in->perf.kv_read_s;
        sum.attend_s += in->perf.attend_s;
        known++;
    }
    if (known) {
        ret->perf = (struct perf_coef){ .step_s = sum.step_s / known,
                                        .prefill_token_s = sum.prefill_token_s / known,
                                        .decode_seq_s = sum.decode_seq_s / known,
                                        .kv_read_s = sum.kv_read_s / known,
                                        .attend_s = sum.attend_s / known,
                                        .samples = known };
        ret->perf_known = true;
    } else if (o && o->has_prior) {
        ret->perf = o->prior;
        ret->perf_known = true;
    }
    if (ret->seqs_max == 0) ret->seqs_max = o && o->seqs_max ? o->seqs_max : 1;
    if (ret->kv_tokens_max == 0 && o) ret->kv_tokens_max = o->kv_tokens_max;
    if (ret->step_tokens == 0 && o) ret->step_tokens = o->step_tokens;
}

/* Returns the seconds until a starting instance serves, by the lead of the offer it came from. */
static double left_s(const struct desk *d, const struct plan_instance *in,
                     const struct scale_pool *pool)
{
    double age_s = (double)(d->now_us - in->since_us) / 1e6;
    return fmax(0, (in->lead_s > 0 ? in->lead_s : pool->lead_s) - age_s);
}

/* Adds an instance to the scaling policy's view. */
static void fill_seen(struct desk *d, const struct plan_instance *in, uint32_t pool, double left)
{
    struct scale_instance *s = &d->seen[d->scale.instance_count++];
    *s = in->load;
    s->pool = pool;
    s->ready = in->phase == PHASE_READY;
    s->fresh = in->fresh;
    s->left_s = s->ready ? 0 : left;
    s->price_h = in->price_h;
    s->read_s = in->has_perf ? perf_read_s(&in->perf) : 0;
}

static void fill_pool(struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    struct scale_pool *s = &d->scale.pool[pool];
    uint32_t usable =
        offer_of_next(d->view, d->index, pool, d->memory->place[pool], d->now_us, d->rng);
    uint32_t shown = usable != PLAN_NONE ? usable : p->offer_count ? p->offer[0] : PLAN_NONE;
    d->next[pool] = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count && usable != PLAN_NONE; i++)
        if (p->offer[i] == usable) d->next[pool] = i;
    const struct offer *o = shown == PLAN_NONE ? NULL : &d->view->offer[shown];
    *s = (struct scale_pool){ .min = p->min, .max = p->max, .available = usable != PLAN_NONE };
    if (p->drained) *s = (struct scale_pool){ .available = false };
    if (o) {
        s->price_h = o->price_h;
        s->lead_s = o->lead_s;
    }
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!is_mine(d, in, pool)) continue;
        d->decision->cost_h += in->price_h;
        double left = left_s(d, in, s);
        if (in->phase == PHASE_STARTING || in->phase == PHASE_READY) fill_seen(d, in, pool, left);
        if (in->phase == PHASE_STARTING) {
            s->left_s += left;
            s->starting++;
        }
        if (in->phase == PHASE_READY) {
            s->ready++;
            d->decision->expected++;
            if (in->fresh) d->decision->fresh++;
        }
    }
    if (s->starting) s->left_s /= s->starting;
    d->decision->ready[pool] = s->ready;
    d->decision->have[pool] = scale_have(s);
    fill_perf(d, pool, o, s);
}

/* Returns the part of the budget that ready and starting instances may use: drains still cost. */
static double budget_left(const struct desk *d)
{
    if (d->service->budget_h <= 0) return 0;
    double leaving = 0;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (in->service == d->index && in->phase >= PHASE_DRAINING) leaving += in->price_h;
    }
    return fmax(d->service->budget_h - leaving, DBL_MIN); /* 0 would mean: no ceiling */
}

static void see(struct desk *d)
{
    const struct plan_demand *demand = &d->view->demand[d->index];
    d->scale = (struct scale_view){ .pool_count = d->service->pool_count,
                                    .instance = d->seen,
                                    .demand = demand->sum,
                                    .ttft_slo_s = d->service->ttft_slo_s,
                                    .tpot_slo_s = d->service->tpot_slo_s };
    d->decision->demand = demand->sum;
    d->decision->routers_fresh = demand->sum.present && demand->all_fresh;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        fill_pool(d, p);
    d->scale.budget_h = budget_left(d);
}

/* ---- where the next instances come from ---- */

/* Takes the cheapest offer that the policy still wants instances of; the earlier one at equal prices. A
 * policy may want more than the target, spares for instance: the target bounds the launches, so that
 * the dearest are left out. */
static uint32_t take_next_offer(struct desk *d, uint32_t pool)
{
    struct place_verdict *v = &d->where[pool];
    const struct plan_pool *p = &d->service->pool[pool];
    uint32_t next = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count; i++) {
        const struct offer *o = &d->view->offer[p->offer[i]];
        if (v->want[i] == 0) continue;
        if (!offer_is_usable(d->view, d->service, p->offer[i], d->now_us)) continue;
        if (next != PLACE_NONE && o->price_h >= d->view->offer[p->offer[next]].price_h) continue;
        next = i;
    }
    if (next == PLACE_NONE) next = v->next;
    if (next == PLACE_NONE) return PLAN_NONE;
    if (v->want[next] > 0) v->want[next]--;
    return p->offer[next];
}

static bool may_be_taken(const struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (d->view->offer[p->offer[i]].spot) return true;
    return false;
}

/* Lets a pool with spot offers follow its placement policy beyond the count. Instances at offers where
 * the policy wants them are kept, spares and replacements under way included; while nothing else is
 * under way, all that the policy misses are started. The instances they replace are surplus then, and
 * go first. */
static void follow_row(struct desk *d, uint32_t pool, const struct place_view *v)
{
    struct plan_decision *r = d->decision;
    const struct place_verdict *w = &d->where[pool];
    uint32_t have = r->have[pool], settled = 0, wanted = 0, total = 0;
    uint32_t missing = 0;
    if (r->target[pool] == 0 || is_overridden(d, pool) || !may_be_taken(d, pool)) return;
    for (uint32_t i = 0; i < v->offer_count; i++) {
        uint32_t there = place_have(&v->offer[i]);
        settled += min_u32(w->want[i], there);
        wanted += w->want[i];
        if (v->offer[i].usable && w->want[i] > there) missing += w->want[i] - there;
        d->surplus[pool][i] = there > w->want[i] ? there - w->want[i] : 0;
    }
    if (r->target[pool] < have) r->target[pool] = max_u32(r->target[pool], min_u32(have, settled));
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    bool still = r->target[pool] == have && d->scale.pool[pool].starting == 0;
    if (!still || missing == 0 || wanted <= have) return;
    uint32_t room = d->service->pool[pool].max - min_u32(have, d->service->pool[pool].max);
    room = min_u32(room, d->service->max - min_u32(total, d->service->max));
    if (room == 0) return;
    r->target[pool] = have + min_u32(missing, room);
    r->reason = w->reason;
}

/* Returns how many instances the placement policy is asked to place: those that are needed, without
 * those that only the shaper still keeps, or spares would be bought for spares. */
static uint32_t needed(const struct desk *d, uint32_t pool)
{
    uint32_t target = d->decision->target[pool];
    if (is_overridden(d, pool) || !may_be_taken(d, pool)) return target;
    uint32_t asked = d->decision->verdict.choice.want[pool];
    return min_u32(target, max_u32(asked, d->service->pool[pool].min));
}

static void place_pool(struct desk *d, uint32_t pool)
{
    struct place_verdict *w = &d->where[pool];
    struct place_view v;
    fill_place_view(d->view, d->index, pool, needed(d, pool), d->now_us, &v);
    d->service->place->choose(d->memory->place[pool], &v, d->now_us, d->rng, w);
    d->decision->placed[pool] = (struct plan_placed){ w->reason, w->cost_h, w->missing };
    memset(d->surplus[pool], 0, sizeof d->surplus[pool]);
    follow_row(d, pool, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        w->want[i] -= min_u32(w->want[i], place_have(&v.offer[i]));
}

/* ---- from wants to targets ---- */

/* Applies the service's own bounds over all pools: the cheapest come in, the dearest go out. */
static void apply_bounds(struct desk *d, uint32_t want[SCALE_POOLS_MAX])
{
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += want[p];
    while (total < d->service->min) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            const struct scale_pool *s = &d->scale.pool[p];
            if (want[p] >= scale_reach(s)) continue;
            if (best == PLAN_NONE || s->price_h < d->scale.pool[best].price_h) best = p;
        }
        if (best == PLAN_NONE) return;
        want[best]++;
        total++;
        d->decision->reason = "the service's minimum";
    }
    while (total > d->service->max) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            const struct scale_pool *s = &d->scale.pool[p];
            if (want[p] <= s->min) continue;
            if (best == PLAN_NONE || s->price_h > d->scale.pool[best].price_h) best = p;
        }
        if (best == PLAN_NONE) return;
        want[best]--;
        total--;
        d->decision->blocked = "the service's maximum";
    }
}

static uint32_t override_target(const struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    if (p->drained) return 0;
    if (p->manual >= 0) return min_u32((uint32_t)p->manual, p->max);
    return d->decision->have[pool];
}

static const char *override_reason(const struct desk *d, uint32_t pool)
{
    if (d->service->pool[pool].drained) return "drained by hand";
    return d->service->paused ? "paused by hand" : "counts set by hand";
}

static void shape_targets(struct desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t want[SCALE_POOLS_MAX];
    memcpy(want, r->verdict.choice.want, sizeof want);
    r->reason = r->verdict.reason;
    apply_bounds(d, want);

    struct scale_shaped shaped;
    const struct scale_shaper *shaper =
        d->service->shaper ? d->service->shaper : &scale_shape_window;
    struct scale_shape_ask ask = { d->service->pool_count, want, r->have, r->ready };
    shaper->shape(d->memory->shape, &d->service->shape, &ask, d->now_us, &shaped);
    for (uint32_t p = 0; p < d->service->pool_count; p++) /* a rate knows no bounds */
        shaped.target[p] = max_u32(shaped.target[p], d->scale.pool[p].min);
    if (shaped.limited) {
        r->blocked = shaped.limit;
        r->hold_s = shaped.hold_s;
    }
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        r->target[p] = shaped.target[p];
        if (!is_overridden(d, p)) continue;
        r->target[p] = override_target(d, p);
        r->reason = override_reason(d, p);
        r->blocked = NULL;
    }
}

/* Returns why nothing may go down now, or NULL. */
static const char *missing_proof(const struct desk *d)
{
    const struct plan_decision *r = d->decision;
    if (!r->demand.present) return "no router has reported: absent demand is not zero";
    if (!r->routers_fresh) return "a router is silent: its demand is unknown";
    if (r->fresh < r->expected * PLAN_FRESH_SHARE)
        return "too few fresh reports of agents to shrink on";
    return NULL;
}

static void demand_proof(struct desk *d)
{
    struct plan_decision *r = d->decision;
    const char *missing = missing_proof(d);
    uint32_t total = 0, have = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        total += r->target[p];
        have += r->have[p];
    }
    bool to_zero = total == 0 && have > 0;
    bool busy = r->demand.in_flight > 0 || r->demand.held > 0;
    if (!missing && to_zero && busy) missing = "routers still hold or serve requests";
    if (!missing) return;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        if (is_overridden(d, p) || r->target[p] >= r->have[p]) continue;
        r->target[p] = r->have[p];
        r->blocked = missing;
    }
}

/* Keeps growth within the service's maximum. The shaper or missing proof may keep one pool from
 * shrinking while another grows: growth then waits for it, the dearest pool first. */
static void cap_growth(struct desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    for (; total > d->service->max; total--) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            if (is_overridden(d, p) || r->target[p] <= r->have[p]) continue;
            if (best == PLAN_NONE || d->scale.pool[p].price_h > d->scale.pool[best].price_h)
                best = p;
        }
        if (best == PLAN_NONE) return;
        r->target[best]--;
        r->blocked = "the service's maximum";
    }
}

static void set_targets(struct desk *d)
{
    shape_targets(d);
    demand_proof(d);
    cap_growth(d);
}

/* ---- from targets to actions ---- */

static bool push(struct desk *d, const struct plan_action *a)
{
    if (d->plan->action_count == PLAN_ACTIONS_MAX) {
        d->plan->dropped++;
        return false;
    }
    d->plan->action[d->plan->action_count++] = *a;
    return true;
}

static uint32_t launches(const struct plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->action_count; i++)
        n += plan->action[i].act == PLAN_LAUNCH;
    return n;
}

/* Returns the draining instance that would lose most by going on: with most requests, then most cache. */
static uint32_t best_to_keep(const struct desk *d, uint32_t pool)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!is_mine(d, in, pool) || in->phase != PHASE_DRAINING || d->taken[i]) continue;
        if (in->doomed) continue;
        const struct plan_instance *b = best == PLAN_NONE ? NULL : &d->view->instance[best];
        if (!b || in->in_flight > b->in_flight ||
            (in->in_flight == b->in_flight && in->pages_cached > b->pages_cached))
            best = i;
    }
    return best;
}

static void grow(struct desk *d, uint32_t pool)
{
    struct plan_decision *r = d->decision;
    uint32_t have = r->have[pool];
    for (; have < r->target[pool]; have++) {
        uint32_t kept = best_to_keep(d, pool);
        if (kept == PLAN_NONE) break;
        struct plan_action a = { PLAN_KEEP, d->index, pool, PLAN_NONE, kept, r->reason };
        if (!push(d, &a)) return;
        d->taken[kept] = true;
    }
    for (; have < r->target[pool]; have++) {
        uint32_t offer = take_next_offer(d, pool);
        if (offer == PLAN_NONE) {
            r->blocked = "no offer of the pool can be had now";
            return;
        }
        double price = d->view->offer[offer].price_h;
        double ceiling = d->service->budget_h * (1 + BUDGET_SLACK);
        if (d->service->budget_h > 0 && r->cost_h_after + price > ceiling) {
            r->blocked = PLAN_BLOCKED_BUDGET;
            return;
        }
        if (launches(d->plan) >= d->view->room) {
            r->blocked = "no room for more instances in the store";
            d->plan->dropped++;
            return;
        }
        struct plan_action a = { PLAN_LAUNCH, d->index, pool, offer, PLAN_NONE, r->reason };
        if (!push(d, &a)) return;
        r->cost_h_after += price;
    }
}

/* Returns the cost of work on an instance as a class: one more for each factor of 1 + ALIKE. Instances
 * of one kind differ in speed. */
static int work_class(const struct plan_instance *in)
{
    double cost = perf_read_s(&in->perf) * fmax(in->price_h, PRICE_LEAST);
    return (int)floor(log(fmax(cost, DBL_MIN)) / log1p(ALIKE));
}

/* Returns true if `a` is the better one to give up; both are starting, or both serve. */
static bool worth_less(const struct plan_instance *a, const struct plan_instance *b)
{
    int work_a = work_class(a), work_b = work_class(b);
    if (a->has_perf && b->has_perf && work_a != work_b) return work_a > work_b;
    if (a->in_flight != b->in_flight) return a->in_flight < b->in_flight;
    if (a->pages_cached != b->pages_cached) return a->pages_cached < b->pages_cached;
    if (a->price_h > b->price_h || a->price_h < b->price_h) return a->price_h > b->price_h;
    if (a->since_us != b->since_us) return a->since_us > b->since_us; /* the youngest */
    return strcmp(a->id, b->id) < 0; /* so that two runs choose alike */
}

/* Returns the surplus count of an instance's offer, or NULL if it is of no offer of the pool. */
static uint32_t *surplus_of(struct desk *d, uint32_t pool, const struct plan_instance *in)
{
    const struct plan_pool *p = &d->service->pool[pool];
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (p->offer[i] == in->offer) return &d->surplus[pool][i];
    return NULL;
}

static bool goes_first(struct desk *d, uint32_t pool, const struct plan_instance *a,
                       const struct plan_instance *b)
{
    const uint32_t *sa = surplus_of(d, pool, a), *sb = surplus_of(d, pool, b);
    bool first = sa && *sa > 0, second = sb && *sb > 0;
    return first != second ? first : worth_less(a, b);
}

static uint32_t victim(struct desk *d, uint32_t pool, enum phase phase)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!is_mine(d, in, pool) || in->phase != phase || d->taken[i]) continue;
        if (in->pinned) continue;
        if (best == PLAN_NONE || goes_first(d, pool, in, &d->view->instance[best])) best = i;
    }
    return best;
}

static void shrink(struct desk *d, uint32_t pool)
{
    struct plan_decision *r = d->decision;
    for (uint32_t have = r->have[pool]; have > r->target[pool]; have--) {
        enum plan_act act = PLAN_CANCEL;
        uint32_t at = victim(d, pool, PHASE_STARTING);
        if (at == PLAN_NONE) {
            act = PLAN_DRAIN;
            at = victim(d, pool, PHASE_READY);
        }
        if (at == PLAN_NONE) { /* `have` counts only these and the pinned ones */
            r->blocked = "instances whose records cannot be read";
            return;
        }
        struct plan_action a = { act, d->index, pool, PLAN_NONE, at, r->reason };
        if (!push(d, &a)) return;
        d->taken[at] = true;
        uint32_t *surplus = surplus_of(d, pool, &d->view->instance[at]);
        if (surplus && *surplus > 0) --*surplus;
        r->cost_h_after -= d->view->instance[at].price_h;
    }
}

static void retire(struct desk *d)
{
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (in->service != PLAN_NONE && in->pool != PLAN_NONE) continue;
        if (in->phase > PHASE_READY || in->pinned) continue;
        struct plan_action a = { in->phase == PHASE_READY ? PLAN_DRAIN : PLAN_CANCEL,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 i,
                                 "its pool is not configured any more" };
        if (!push(d, &a)) return;
    }
}

/* ---- one decision ---- */

static void watch_zones(struct desk *d, struct pool_mix *mix)
{
    double dt_h = mix->watched_us ? fmax(0, (double)(d->now_us - mix->watched_us) / 3600e6) : 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        struct place_view offers;
        fill_place_view(d->view, d->index, p, 0, d->now_us, &offers);
        pool_mix_watch(mix, p, &offers, d->next[p], dt_h, d->now_us);
    }
    mix->watched_us = d->now_us;
}

/* Replaces the scaling policy's counts by the mix policy's. Where the scaling policy wants no instance,
 * or no mix is found, its counts stand. */
static void apply_mix(struct desk *d)
{
    struct scale_choice *c = &d->decision->verdict.choice;
    uint32_t total = 0;
    if (!d->service->mix) return;
    must(d->view->mix_room && d->view->mix);
    struct pool_mix *mix = &d->view->mix[d->index];
    watch_zones(d, mix);
    pool_mix_solve(d->service->mix, &d->scale, &d->service->scale, d->now_us, d->view->mix_room,
                   mix);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += c->want[p];
    if (!mix->found || total == 0) return;
    c->cost_h = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++) {
        const struct scale_pool *s = &d->scale.pool[p];
        c->want[p] = max_u32(mix->want[p], s->min);
        c->cost_h += c->want[p] * s->price_h;
    }
    d->decision->verdict.has_runner_up = false;
    d->decision->verdict.reason = "the mix for the lengths that are expected";
}

static void decide_service(struct desk *d)
{
    struct plan_decision *r = d->decision;
    see(d);
    d->service->policy->decide(d->memory->policy, &d->service->scale, &d->scale, d->now_us, d->rng,
                               &r->verdict);
    apply_mix(d);
    set_targets(d);
    r->cost_h_after = r->cost_h;
    r->action_from = d->plan->action_count;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        place_pool(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        grow(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        shrink(d, p);
    r->action_count = d->plan->action_count - r->action_from;
}

void plan(const struct plan_view *view, struct plan_memory *memory, int64_t now_us, struct rng *rng,
          struct plan *ret)
{
    must(view->service_count <= PLAN_SERVICES_MAX && view->instance_count <= PLAN_INSTANCES_MAX);
    memset(ret, 0, offsetof(struct plan, seen));
    memset(ret->taken, 0, view->instance_count * sizeof *ret->taken);
    struct desk d = { .view = view,
                      .now_us = now_us,
                      .seen = ret->seen,
                      .taken = ret->taken,
                      .plan = ret,
                      .rng = rng };
    for (uint32_t s = 0; s < view->service_count; s++) {
        d.service = &view->service[s];
        d.index = s;
        d.decision = &ret->decision[ret->decision_count++];
        d.decision->service = s;
        d.memory = &memory[s];
        decide_service(&d);
    }
    retire(&d);
}
