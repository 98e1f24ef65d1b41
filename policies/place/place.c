/* place.c - the table of placement policies, their shared functions, gamma posteriors of loss and repair, and
 * the simple alternatives: the first offer, and the cheapest on demand. */

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

/* Launches missing instances at the first offer that may be asked, in the order of the
 * configuration. Running instances stay where they are; surplus ones end from the last offer on.
 *
 * This is the simple alternative to every other policy. It knows neither prices nor risk. */
static void choose_first(void *state, const struct place_view *view, int64_t now_us,
                         struct rng *rng, struct place_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct place_verdict v = { .reason = "the first offer that may be asked", .missing = -1 };
    uint32_t left = view->target;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        v.want[i] = min_u32(place_have(&view->offer[i]), left);
        left -= v.want[i];
    }
    for (uint32_t i = 0; i < view->offer_count && left > 0; i++) {
        if (!view->offer[i].usable) continue;
        v.want[i] += left;
        left = 0;
    }
    if (left > 0) v.reason = "no offer of the pool can be had now";
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_order = {
    .name = "order",
    .about = "the first offer of a pool that may be asked, as listed",
    .source = "this project",
    .choose = choose_first,
};

/* Places all instances at the cheapest on-demand offer, which is never taken away.
 *
 * This is the baseline of the spot policies: never interrupted, at the full price. Running instances
 * stay. While no on-demand offer may be asked, the cheapest spot offer serves too, beside the spot
 * instances that already run. */
static void choose_on_demand(void *state, const struct place_view *view, int64_t now_us,
                             struct rng *rng, struct place_verdict *ret)
{
    (void)state, (void)now_us, (void)rng;
    struct place_verdict v = { .reason = "the cheapest offer on demand", .missing = -1 };
    bool fits[PLACE_OFFERS_MAX];
    for (uint32_t i = 0; i < view->offer_count; i++)
        fits[i] = !view->offer[i].spot;
    uint32_t at = place_cheapest(view, fits);
    bool others = at == PLACE_NONE;
    if (others) {
        at = place_cheapest(view, NULL);
        v.reason = "no offer on demand can be had: the cheapest of the others";
    }
    uint32_t left = view->target;
    for (int turn = 0; turn < (others ? 2 : 1); turn++)
        for (uint32_t i = 0; i < view->offer_count; i++) { /* on-demand instances first */
            if (fits[i] != (turn == 0)) continue;
            v.want[i] = min_u32(place_have(&view->offer[i]), left);
            left -= v.want[i];
        }
    if (at != PLACE_NONE) v.want[at] += left;
    if (at == PLACE_NONE && left > 0) v.reason = "no offer of the pool can be had now";
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_on_demand = {
    .name = "on_demand",
    .about = "the cheapest offer that is never taken away",
    .source = "baseline of spot placement",
    .choose = choose_on_demand,
};
