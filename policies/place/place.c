/* place.c - the table of placement policies, and what they share. */
#include "policies/place/place.h"

#include "base/core/bits.h"

const struct place_policy *const place_table[] = {
#define POLICY(name) &place_##name,
#include "policies/place/place.def"
#undef POLICY
};
const uint32_t place_count = COUNT_OF(place_table);

const struct place_policy *place_find(struct str name)
{
    for (uint32_t i = 0; i < place_count; i++)
        if (str_eq(name, str_from(place_table[i]->name))) return place_table[i];
    return NULL;
}

uint32_t place_cheapest(const struct place_view *view, const bool *fits)
{
    uint32_t best = PLACE_NONE;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        if (!view->offer[i].usable || (fits && !fits[i])) continue;
        if (best == PLACE_NONE || view->offer[i].price_h < view->offer[best].price_h) best = i;
    }
    return best;
}

void place_finish(const struct place_view *view, struct place_verdict *ret)
{
    ret->next = PLACE_NONE;
    ret->cost_h = 0;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        const struct place_offer *o = &view->offer[i];
        ret->cost_h += ret->want[i] * o->price_h;
        if (!o->usable || ret->want[i] <= place_have(o)) continue;
        if (ret->next != PLACE_NONE && o->price_h >= view->offer[ret->next].price_h) continue;
        ret->next = i;
    }
}
