/* place.c - the table of placement policies, their shared functions, and gamma posteriors of loss and repair. */

#include "policies/place/place.h"

#include "base/core/bits.h"

#include <math.h>

#define HOUR_US 3600e6
#define HOUR_S 3600.0

static double hours(int64_t from_us, int64_t to_us)
{
    return fmax(0, (double)(to_us - from_us) / HOUR_US);
}

static void goes_down(struct hazard *h, int64_t now_us)
{
    if (h->since_us == 0) h->since_us = now_us;
    h->down = true;
    h->seen_us = now_us;
}

static void comes_back(struct hazard *h, int64_t now_us)
{
    if (h->down) {
        h->repairs += 1;
        /* Seen absent at seen_us and present by now: it came back in between. */
        h->down_h += hours(h->since_us, h->seen_us) + hours(h->seen_us, now_us) / 2;
    }
    h->down = false;
    h->since_us = 0;
    h->seen_us = now_us;
}

void hazard_observe(struct hazard *h, const struct place_offer *offer, double dt_h, int64_t now_us)
{
    if (h->ready > 0) h->up_h += dt_h;
    /* A wall clock that went back must not keep a zone absent until it has caught up. */
    if (h->seen_us > now_us) h->seen_us = now_us;
    if (h->since_us > now_us) h->since_us = now_us;
    /* Counters that restart at 0, as those of a forgotten provider do, show neither. */
    bool lost = offer->lost > h->lost, refused = offer->refused > h->refused;
    if (lost) h->losses += 1; /* one event, however many instances went with it */
    /* Instances that still run there show that the zone as a whole has capacity. */
    if ((lost && offer->ready == 0) || refused)
        goes_down(h, now_us);
    else if (offer->ready > 0)
        comes_back(h, now_us);
    h->lost = offer->lost;
    h->refused = offer->refused;
    h->ready = offer->ready;
}

double hazard_rate_h(const struct hazard *h)
{
    return (1 + (double)h->losses) / (HAZARD_PRIOR_H + h->up_h);
}

double hazard_up(const struct hazard *h, int64_t now_us)
{
    double lambda = hazard_rate_h(h);
    double absent_h = h->down_h + (h->down ? hours(h->since_us, h->seen_us) : 0);
    double mu = (1 + (double)h->repairs) / (REPAIR_PRIOR_H + absent_h);
    double share = mu / (lambda + mu);
    if (h->seen_us == 0) return share;
    double start = h->down ? 0 : 1;
    return share + (start - share) * exp(-(lambda + mu) * hours(h->seen_us, now_us));
}

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

double place_price(const struct place_view *view, uint32_t offer)
{
    const struct place_offer *o = &view->offer[offer];
    double price = o->price_h + o->start_usd * HOUR_S / PLACE_HORIZON_S, dearest = price;
    if (o->out <= 0) return price;
    for (uint32_t i = 0; i < view->offer_count; i++)
        if (view->offer[i].usable) dearest = fmax(dearest, view->offer[i].price_h);
    return price * (1 - o->out) + dearest * o->out;
}

double place_moved(const struct place_view *view, const uint32_t want[PLACE_OFFERS_MAX],
                   double rest_h)
{
    uint32_t given_up = 0, fresh = 0;
    double lost = 0;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        const struct place_offer *o = &view->offer[i];
        if (want[i] > place_have(o)) fresh += want[i] - place_have(o);
        if (want[i] >= o->ready) continue;
        given_up += o->ready - want[i];
        lost += (o->ready - want[i]) * o->leave_s / HOUR_S * o->price_h;
    }
    if (given_up == 0 || fresh == 0) return 0; /* a fleet that only shrinks or grows moves none */
    double moves = fresh < given_up ? (double)fresh / given_up : 1;
    return lost * moves / fmax(rest_h, 1 / HOUR_S);
}

uint32_t place_cheapest(const struct place_view *view, const bool *fits)
{
    uint32_t best = PLACE_NONE;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        if (!view->offer[i].usable || (fits && !fits[i])) continue;
        if (best == PLACE_NONE || place_price(view, i) < place_price(view, best)) best = i;
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
        if (ret->next != PLACE_NONE && place_price(view, i) >= place_price(view, ret->next))
            continue;
        ret->next = i;
    }
}
