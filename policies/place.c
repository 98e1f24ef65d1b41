/* place.c - the tables of placement rows and what they share. */
#include "policies/place.h"

#include "base/core/bits.h"
#include "policies/place_rows.h"

const struct place_policy *const place_table[] = { &place_joint,         &place_order,
                                                   &place_on_demand,     &place_spot,
                                                   &place_serverlessllm, &place_melange,
                                                   &place_single_type };
const uint32_t place_count = COUNT_OF(place_table);

const struct place_policy *const layers_table[] = { &place_helix, &place_hexgen, &place_pipedream,
                                                    &place_gpipe };
const uint32_t layers_count = COUNT_OF(layers_table);

const struct place_policy *const move_table[] = { &place_spotserve, &place_in_order };
const uint32_t move_count = COUNT_OF(move_table);

const struct place_policy *const load_table[] = { &place_serverlessllm, &place_least_loaded,
                                                  &place_nearest_tier };
const uint32_t load_count = COUNT_OF(load_table);

static const struct place_policy *find(const struct place_policy *const *table, uint32_t count,
                                       struct str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(name, str_from(table[i]->name))) return table[i];
    return NULL;
}

const struct place_policy *place_find(struct str name)
{
    return find(place_table, place_count, name);
}

const struct place_policy *layers_find(struct str name)
{
    return find(layers_table, layers_count, name);
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
