/* plan.c - from wants to actions, one service after the other. */
#include "controller/core/plan.h"

#include "base/core/bits.h"
#include "controller/core/plan_place.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BUDGET_SLACK 1e-9 /* relative: prices are sums of floats */

const char *const plan_act_names[PLAN_ACT_COUNT] = {
    [PLAN_LAUNCH] = "launch",
    [PLAN_CANCEL] = "cancel",
    [PLAN_DRAIN] = "drain",
    [PLAN_KEEP] = "keep",
};

/* One service under decision. */
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
    bool *taken;                                         /* by place in the view: has an action */
    struct place_verdict where[SCALE_POOLS_MAX];         /* want: what is missing at each offer */
    uint32_t surplus[SCALE_POOLS_MAX][PLACE_OFFERS_MAX]; /* what is there and not wanted there */
};

static bool is_mine(const struct desk *d, const struct plan_instance *in, uint32_t pool)
{
    return in->service == d->index && in->pool == pool;
}

/* What its instances have learned, averaged; else what the offer claims. */
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
        if (!in->has_perf) continue;
        sum.a += in->perf.a;
        sum.b += in->perf.b;
        sum.c += in->perf.c;
        sum.d += in->perf.d;
        sum.e += in->perf.e;
        known++;
    }
    if (known) {
        ret->perf = (struct perf_coef){ .a = sum.a / known,
                                        .b = sum.b / known,
                                        .c = sum.c / known,
                                        .d = sum.d / known,
                                        .e = sum.e / known,
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

/* Seconds until a starting instance serves, by the lead of the offer it came from. */
static double left_s(const struct desk *d, const struct plan_instance *in,
                     const struct scale_pool *pool)
{
    double age_s = (double)(d->now_us - in->since_us) / 1e6;
    return fmax(0, (in->lead_s > 0 ? in->lead_s : pool->lead_s) - age_s);
}

/* The instance as signals see it. */
static void fill_seen(struct desk *d, const struct plan_instance *in, uint32_t pool, double left)
{
    struct scale_instance *s = &d->seen[d->scale.instance_count++];
    *s = in->load;
    s->pool = pool;
    s->ready = in->phase == PHASE_READY;
    s->fresh = in->fresh;
    s->left_s = s->ready ? 0 : left;
}

static void fill_pool(struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    struct scale_pool *s = &d->scale.pool[pool];
    uint32_t usable =
        plan_place_offer(d->view, d->index, pool, d->memory->place[pool], d->now_us, d->rng);
    uint32_t shown = usable != PLAN_NONE ? usable : p->offer_count ? p->offer[0] : PLAN_NONE;
    const struct offer *o = shown == PLAN_NONE ? NULL : &d->view->offer[shown];
    *s = (struct scale_pool){ .min = p->min, .max = p->max, .available = usable != PLAN_NONE };
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

/* The part of the budget that ready and starting instances may use: drains still cost. */
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

static void fill_view(struct desk *d)
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

/* The service's own bounds, over all pools: cheapest in, dearest out. */
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

/* Pools that a person has in hand keep out of the signal's and the shaper's reach. */
static bool in_hand(const struct desk *d, uint32_t pool)
{
    return d->service->paused || d->service->pool[pool].manual >= 0;
}

static uint32_t hand_target(const struct desk *d, uint32_t pool)
{
    const struct plan_pool *p = &d->service->pool[pool];
    if (p->manual >= 0) return min_u32((uint32_t)p->manual, p->max);
    return d->decision->have[pool];
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
        if (!in_hand(d, p)) continue;
        r->target[p] = hand_target(d, p);
        r->reason = d->service->paused ? "paused by hand" : "counts set by hand";
        r->blocked = NULL;
    }
}

/* Why nothing may go down now, or NULL. */
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
        if (in_hand(d, p) || r->target[p] >= r->have[p]) continue;
        r->target[p] = r->have[p];
        r->blocked = missing;
    }
}

/* One pool may be held up, by the window or for want of proof, while another grows: what goes up
 * waits for what goes down, the dearest first. */
static void cap_growth(struct desk *d)
{
    struct plan_decision *r = d->decision;
    uint32_t total = 0;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        total += r->target[p];
    for (; total > d->service->max; total--) {
        uint32_t best = PLAN_NONE;
        for (uint32_t p = 0; p < d->service->pool_count; p++) {
            if (in_hand(d, p) || r->target[p] <= r->have[p]) continue;
            if (best == PLAN_NONE || d->scale.pool[p].price_h > d->scale.pool[best].price_h)
                best = p;
        }
        if (best == PLAN_NONE) return;
        r->target[best]--;
        r->blocked = "the service's maximum";
    }
}

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

/* Most requests, then most cache: the drain that would lose most by going on. */
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

/* The cheapest offer that the row wants more of, less what was launched since; the earlier on equal
 * prices. A row may want more than the target (spares, something beside): the target bounds what is
 * launched, so that the dearer of it is left out. */
static uint32_t next_offer(const struct desk *d, uint32_t pool, struct place_verdict *v)
{
    const struct plan_pool *p = &d->service->pool[pool];
    uint32_t next = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count; i++) {
        const struct offer *o = &d->view->offer[p->offer[i]];
        if (v->want[i] == 0) continue;
        if (!plan_offer_usable(d->view, d->service, p->offer[i], d->now_us)) continue;
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

/* A pool with spot offers follows its row beyond the count: what stands where the row wants it is
 * kept, spares and replacements under way included, and while nothing else is under way all that the
 * row misses is started. What it replaces is surplus then, and goes first. */
static void follow_row(struct desk *d, uint32_t pool, const struct place_view *v)
{
    struct plan_decision *r = d->decision;
    const struct place_verdict *w = &d->where[pool];
    uint32_t have = r->have[pool], settled = 0, wanted = 0, total = 0;
    uint32_t missing = 0;
    if (r->target[pool] == 0 || in_hand(d, pool) || !may_be_taken(d, pool)) return;
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

/* What the row is asked to place: what is needed, not what the shaper still holds up, or spares would
 * be bought for spares. */
static uint32_t needed(const struct desk *d, uint32_t pool)
{
    uint32_t target = d->decision->target[pool];
    if (in_hand(d, pool) || !may_be_taken(d, pool)) return target;
    uint32_t asked = d->decision->verdict.choice.want[pool];
    return min_u32(target, max_u32(asked, d->service->pool[pool].min));
}

/* Where the pool's next instances come from: what the row wants less what is there. */
static void ask_row(struct desk *d, uint32_t pool)
{
    struct place_verdict *w = &d->where[pool];
    struct place_view v;
    plan_place_view(d->view, d->index, pool, needed(d, pool), d->now_us, &v);
    d->service->place->choose(d->memory->place[pool], &v, d->now_us, d->rng, w);
    memset(d->surplus[pool], 0, sizeof d->surplus[pool]);
    follow_row(d, pool, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        w->want[i] -= min_u32(w->want[i], place_have(&v.offer[i]));
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
        uint32_t offer = next_offer(d, pool, &d->where[pool]);
        if (offer == PLAN_NONE) {
            r->blocked = "no offer of the pool can be had now";
            return;
        }
        double price = d->view->offer[offer].price_h;
        double ceiling = d->service->budget_h * (1 + BUDGET_SLACK);
        if (d->service->budget_h > 0 && r->cost_h_after + price > ceiling) {
            r->blocked = "the budget";
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

/* True when `a` is the better one to give up: both serve nobody, or both serve. */
static bool worth_less(const struct plan_instance *a, const struct plan_instance *b)
{
    if (a->in_flight != b->in_flight) return a->in_flight < b->in_flight;
    if (a->pages_cached != b->pages_cached) return a->pages_cached < b->pages_cached;
    if (a->price_h > b->price_h || a->price_h < b->price_h) return a->price_h > b->price_h;
    if (a->since_us != b->since_us) return a->since_us > b->since_us; /* the youngest */
    return strcmp(a->id, b->id) < 0; /* so that two runs choose alike */
}

/* The count of its offer's surplus, or NULL when it stands at no offer of the pool. */
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
        must(at != PLAN_NONE); /* have counts just these */
        struct plan_action a = { act, d->index, pool, PLAN_NONE, at, r->reason };
        if (!push(d, &a)) return;
        d->taken[at] = true;
        uint32_t *surplus = surplus_of(d, pool, &d->view->instance[at]);
        if (surplus && *surplus > 0) --*surplus;
        r->cost_h_after -= d->view->instance[at].price_h;
    }
}

static void decide_service(struct desk *d)
{
    struct plan_decision *r = d->decision;
    fill_view(d);
    d->service->policy->decide(d->memory->policy, &d->service->scale, &d->scale, d->now_us, d->rng,
                               &r->verdict);
    shape_targets(d);
    demand_proof(d);
    cap_growth(d);
    r->cost_h_after = r->cost_h;
    r->action_from = d->plan->action_count;
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        ask_row(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        grow(d, p);
    for (uint32_t p = 0; p < d->service->pool_count; p++)
        shrink(d, p);
    r->action_count = d->plan->action_count - r->action_from;
}

/* Instances whose service or pool is configured no more. */
static void retire(struct desk *d)
{
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (in->service != PLAN_NONE && in->pool != PLAN_NONE) continue;
        if (in->phase > PHASE_READY) continue;
        struct plan_action a = { in->phase == PHASE_READY ? PLAN_DRAIN : PLAN_CANCEL,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 PLAN_NONE,
                                 i,
                                 "its pool is not configured any more" };
        if (!push(d, &a)) return;
    }
}

void plan(const struct plan_view *view, struct plan_memory *memory, int64_t now_us, struct rng *rng,
          struct plan *ret)
{
    must(view->service_count <= PLAN_SERVICES_MAX && view->instance_count <= PLAN_INSTANCES_MAX);
    struct scale_instance seen[PLAN_INSTANCES_MAX]; /* written as far as there are some */
    bool taken[PLAN_INSTANCES_MAX];
    memset(ret, 0, sizeof *ret);
    memset(taken, 0, view->instance_count);
    struct desk d = {
        .view = view, .now_us = now_us, .seen = seen, .taken = taken, .plan = ret, .rng = rng
    };
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
