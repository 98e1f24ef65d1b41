/* plan_place.c - a pool's offers as its placement row sees them. */
#include "controller/core/plan_place.h"

#include <string.h>

_Static_assert(PLAN_POOL_OFFERS_MAX <= PLACE_OFFERS_MAX, "a row sees all offers of a pool");

bool plan_offer_usable(const struct plan_view *view, const struct plan_service *service,
                       uint32_t offer, int64_t now_us)
{
    const struct offer *o = &view->offer[offer];
    if (!offer_may_be_asked(&view->health[offer], now_us)) return false;
    return o->price_known || service->budget_h <= 0; /* an unknown price fits no budget */
}

void plan_place_view(const struct plan_view *view, uint32_t service, uint32_t pool, uint32_t target,
                     int64_t now_us, struct place_view *ret)
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
            (struct place_offer){ .usable = plan_offer_usable(view, s, p->offer[i], now_us),
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

uint32_t plan_place_offer(const struct plan_view *view, uint32_t service, uint32_t pool,
                          const void *state, int64_t now_us, const struct rng *rng)
{
    _Alignas(8) char copy[PLACE_STATE_BYTES_MAX];
    memcpy(copy, state, sizeof copy);
    struct rng chance = *rng;
    struct place_view v;
    plan_place_view(view, service, pool, 0, now_us, &v);
    for (uint32_t i = 0; i < v.offer_count; i++)
        v.target += place_have(&v.offer[i]);
    v.target++;
    struct place_verdict verdict;
    view->service[service].place->choose(copy, &v, now_us, &chance, &verdict);
    return verdict.next == PLACE_NONE ? PLAN_NONE
                                      : view->service[service].pool[pool].offer[verdict.next];
}
