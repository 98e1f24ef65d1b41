/* plan_act.c - turns targets into actions: the offers of the next instances, launches, and victims.
 *
 * A draining instance that is wanted again is kept before another is bought. Launches are cancelled before ready
 * instances are drained; the first victim is the one whose work costs the most.
 */
#include "base/core/bits.h"
#include "controller/core/plan_desk.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ALIKE 0.02        /* two instances with costs of work that differ by less are equal */
#define PRICE_LEAST 1e-6  /* dollars an hour: of two free instances the faster is worth more */
#define BUDGET_SLACK 1e-9 /* relative: prices are sums of floats */

/* ---- where the next instances come from ---- */

/* Takes the cheapest offer that the policy still wants instances of, by its price and the chance that it is sold out;
 * the earlier one at equal prices. A
 * policy may want more than the target, spares for instance: the target bounds the launches, so that
 * the dearest are left out. */
static uint32_t take_next_offer(struct plan_desk *d, uint32_t pool)
{
    struct place_verdict *v = &d->where[pool];
    const struct plan_pool *p = &d->service->pool[pool];
    uint32_t next = PLACE_NONE;
    for (uint32_t i = 0; i < p->offer_count; i++) {
        if (v->want[i] == 0) continue;
        if (!plan_offer_is_usable(d->view, d->service, p->offer[i], d->now_us)) continue;
        double price = place_price(&d->offers[pool], i);
        if (next != PLACE_NONE && price >= place_price(&d->offers[pool], next)) continue;
        next = i;
    }
    if (next == PLACE_NONE) next = v->next;
    if (next == PLACE_NONE) return PLAN_NONE;
    if (v->want[next] > 0) v->want[next]--;
    return p->offer[next];
}

static bool may_be_taken(const struct plan_desk *d, uint32_t pool)
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
static void follow_row(struct plan_desk *d, uint32_t pool, const struct place_view *v)
{
    struct plan_decision *r = d->decision;
    const struct place_verdict *w = &d->where[pool];
    uint32_t have = r->have[pool], settled = 0, wanted = 0, total = 0;
    uint32_t missing = 0;
    if (r->target[pool] == 0 || plan_is_overridden(d, pool) || !may_be_taken(d, pool)) return;
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
static uint32_t needed(const struct plan_desk *d, uint32_t pool)
{
    uint32_t target = d->decision->target[pool];
    if (plan_is_overridden(d, pool) || !may_be_taken(d, pool)) return target;
    uint32_t asked = d->decision->verdict.choice.want[pool];
    return min_u32(target, max_u32(asked, d->service->pool[pool].min));
}

void plan_place(struct plan_desk *d, uint32_t pool)
{
    struct place_verdict *w = &d->where[pool];
    struct place_view *v = &d->offers[pool];
    plan_place_view(d->view, d->index, pool, needed(d, pool), d->now_us, v);
    d->service->place->choose(d->memory->place[pool], v, d->now_us, d->rng, w);
    d->decision->placed[pool] = (struct plan_placed){ w->reason, w->cost_h, w->missing };
    memset(d->surplus[pool], 0, sizeof d->surplus[pool]);
    follow_row(d, pool, v);
    for (uint32_t i = 0; i < v->offer_count; i++)
        w->want[i] -= min_u32(w->want[i], place_have(&v->offer[i]));
}

/* ---- from targets to actions ---- */

static bool push(struct plan_desk *d, const struct plan_action *a)
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

static uint32_t launches_at(const struct plan *plan, uint32_t offer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->action_count; i++)
        n += plan->action[i].act == PLAN_LAUNCH && plan->action[i].offer == offer;
    return n;
}

/* Returns the draining instance that would lose most by going on: with most requests, then most cache. */
static uint32_t best_to_keep(const struct plan_desk *d, uint32_t pool)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool) || in->phase != PHASE_DRAINING || d->taken[i]) continue;
        if (in->doomed || in->at_risk) continue;
        const struct plan_instance *b = best == PLAN_NONE ? NULL : &d->view->instance[best];
        if (!b || in->in_flight > b->in_flight ||
            (in->in_flight == b->in_flight && in->pages_cached > b->pages_cached))
            best = i;
    }
    return best;
}

void plan_grow(struct plan_desk *d, uint32_t pool)
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
        double price = plan_price_of_next(d->view, offer, launches_at(d->plan, offer));
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
static uint32_t *surplus_of(struct plan_desk *d, uint32_t pool, const struct plan_instance *in)
{
    const struct plan_pool *p = &d->service->pool[pool];
    for (uint32_t i = 0; i < p->offer_count; i++)
        if (p->offer[i] == in->offer) return &d->surplus[pool][i];
    return NULL;
}

static bool goes_first(struct plan_desk *d, uint32_t pool, const struct plan_instance *a,
                       const struct plan_instance *b)
{
    const uint32_t *sa = surplus_of(d, pool, a), *sb = surplus_of(d, pool, b);
    bool first = sa && *sa > 0, second = sb && *sb > 0;
    return first != second ? first : worth_less(a, b);
}

static uint32_t victim(struct plan_desk *d, uint32_t pool, enum phase phase)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool) || in->phase != phase || d->taken[i]) continue;
        if (in->pinned || in->doomed || (phase == PHASE_READY && in->at_risk)) continue;
        if (best == PLAN_NONE || goes_first(d, pool, in, &d->view->instance[best])) best = i;
    }
    return best;
}

void plan_shrink(struct plan_desk *d, uint32_t pool)
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

/* While a person has paused the service its instances stay as they are. */
void plan_relieve(struct plan_desk *d, uint32_t pool)
{
    struct plan_decision *r = d->decision;
    if (d->service->paused || r->ready[pool] < r->target[pool]) return;
    for (uint32_t i = 0; i < d->view->instance_count; i++) {
        const struct plan_instance *in = &d->view->instance[i];
        if (!plan_is_mine(d, in, pool) || in->phase != PHASE_READY || !in->at_risk) continue;
        if (in->pinned || d->taken[i]) continue;
        struct plan_action a = { PLAN_DRAIN, d->index, pool,
                                 PLAN_NONE,  i,        "others serve in place of one at risk" };
        if (in->failing) a.why = "its machine is failing and has been replaced";
        if (!push(d, &a)) return;
        d->taken[i] = true;
        r->cost_h_after -= in->price_h;
    }
}

void plan_retire(struct plan_desk *d)
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
