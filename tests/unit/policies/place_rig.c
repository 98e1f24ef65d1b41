/* place_rig.c - see place_rig.h. */
#include "tests/unit/policies/place_rig.h"

struct place_view place_rig_view(uint32_t zones, uint32_t target)
{
    struct place_view v = { .offer_count = zones + 1, .target = target, .availability = 0.99 };
    for (uint32_t i = 0; i <= zones; i++)
        v.offer[i] = (struct place_offer){
            .usable = true, .spot = i > 0, .price_h = i > 0 ? 0.35 : 1, .lead_s = 120
        };
    return v;
}

struct place_verdict place_rig_ask(const struct place_policy *p, struct place_memory *s,
                                   const struct place_view *v, int64_t now_us)
{
    struct rng rng;
    struct place_verdict r;
    rng_seed(&rng, 1);
    p->choose(s->bytes, v, now_us, &rng, &r);
    return r;
}

void place_rig_settle(struct place_view *v, const struct place_verdict *r)
{
    for (uint32_t i = 0; i < v->offer_count; i++) {
        v->offer[i].ready = r->want[i];
        v->offer[i].starting = 0;
    }
}

uint32_t place_rig_sum(const struct place_verdict *r, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += r->want[i];
    return n;
}
