/* place_joint.c - the arrangement over zones, spot and on demand that costs least, gaps included.
 *
 * Arrangements of N instances, with hazard l and start-up t (lead and reaction) of each offer:
 *
 *     one zone    N there                      cost N p (1 + l t)       missing l t
 *     k zones     N + s, s = ceil(N / k)       cost (N + s) p (1 + lt)  missing SHARED sum(l t)
 *     on demand   N at the cheapest            cost N p (1 + t / LIFE)  missing 0
 *
 * What is missing in the first is the whole of N while the next zone starts; in the second the
 * spare covers one zone and only the share of losses that strike two zones together is felt. The
 * least  cost + N kappa missing  is taken, kappa being the price of a missing hour. It is not a
 * setting but follows the promise: with `missed` the share of the last two days that was really
 * short after losses,
 *
 *     kappa = price on demand * FINE / (1 - availability) * exp(push)
 *     d push / dt = (missed / b - 1) / PUSH_H,   b = (1 - availability) * SAFETY
 *
 * so that shaky zones are used as long as the promise leaves room for them and no longer. Hazards
 * are learned (place_hazard.h): a zone that is lost often becomes dear by its own rate, and is asked
 * again when its learned repair time has made capacity likely. SkyServe's zones know one bit and
 * forget it for all zones together; its spare is a constant, here it is bought where it pays.
 *
 * A replacement is started before what it replaces is given up. Every PROBE_US the zone is asked
 * that promises most, chance of capacity times what would be saved: a refusal costs nothing. After a
 * loss on demand is started beside a zone whose answer is not known yet, and ended when it is.
 */
#include "policies/place_joint.h"

#include "base/core/bits.h"
#include "policies/place_hazard.h"
#include "policies/place_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define REACT_S 30.0 /* until a loss is seen, decided on and the provider has answered */
#define SAFETY 0.75
#define SHARED 0.2 /* of losses that take a second zone with them */
#define FINE 0.3   /* missing all that may be missed costs this share of on demand at first */
#define PUSH_H 24.0
#define PUSH_MAX 3.0
#define MEMORY_H 48.0
#define STAY 0.05    /* relative: what runs is not exchanged for less */
#define LIFE_S 600.0 /* how long a new instance is expected to be of use, as scale's */
#define LIKELY 0.3   /* chance of capacity from which on a zone is tried after a loss */
#define SURE 0.95    /* and from which on nothing is started beside it */
#define PROBE_US (60 * (int64_t)1000000)
#define AGAIN_US (30 * (int64_t)1000000)
#define GAP_H_MAX 0.25 /* a longer pause between questions is no time of holding */
#define HOUR_S 3600.0

struct joint {
    int64_t last_us, probed_us;
    double missed;   /* share of time short of the target after losses, over the last MEMORY_H */
    double push;     /* of the price of a missing hour; see above */
    bool after_loss; /* short of it now, and by a loss */
    struct hazard zone[PLACE_OFFERS_MAX];
};
_Static_assert(sizeof(struct joint) <= PLACE_STATE_BYTES_MAX, "state of place_joint");

struct arrangement {
    uint32_t want[PLACE_OFFERS_MAX];
    double cost_h, missing;
    bool on_demand;
    const char *reason;
};

/* One question under work. */
struct desk {
    const struct place_view *view;
    const struct joint *memory;
    int64_t now_us;
    double up[PLACE_OFFERS_MAX];      /* chance of capacity now */
    double gap[PLACE_OFFERS_MAX];     /* share of time lost to losses: hazard * start-up */
    double price[PLACE_OFFERS_MAX];   /* with the start-ups that are paid and serve nobody */
    uint32_t order[PLACE_OFFERS_MAX]; /* spot zones to rely on, the best first */
    uint32_t zones;
    double kappa;       /* dollars that a missing instance-hour costs */
    uint32_t on_demand; /* the cheapest offer that stays and may be asked, or PLACE_NONE */
    struct arrangement best;
    bool has_best;
};

/* Returns the hours since the last question. */
static double learn(struct joint *m, const struct place_view *view, int64_t now_us)
{
    double dt_h = m->last_us > 0 ? (double)(now_us - m->last_us) / (HOUR_S * 1e6) : 0;
    dt_h = fmin(fmax(dt_h, 0), GAP_H_MAX);
    double part = m->after_loss ? 1 : 0;
    m->missed += (part - m->missed) * (1 - exp(-dt_h / MEMORY_H));
    uint32_t ready = 0;
    bool lost = false;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        ready += view->offer[i].ready;
        if (!view->offer[i].spot) continue;
        lost |= view->offer[i].lost != m->zone[i].lost;
        hazard_observe(&m->zone[i], &view->offer[i], dt_h, now_us);
    }
    m->after_loss = ready < view->target && (m->after_loss || lost);
    m->last_us = now_us;
    return dt_h;
}

static void price_gaps(struct desk *d, struct joint *m, double dt_h)
{
    const struct place_view *v = d->view;
    double base = (1 - v->availability) * SAFETY, dear = 0;
    m->push += dt_h / PUSH_H * (m->missed / fmax(base, DBL_MIN) - 1);
    m->push = fmin(fmax(m->push, -PUSH_MAX), PUSH_MAX);
    d->on_demand = PLACE_NONE;
    for (uint32_t i = 0; i < v->offer_count; i++) {
        dear = fmax(dear, v->offer[i].price_h);
        if (v->offer[i].spot || !v->offer[i].usable) continue;
        if (d->on_demand == PLACE_NONE || v->offer[i].price_h < v->offer[d->on_demand].price_h)
            d->on_demand = i;
    }
    if (d->on_demand != PLACE_NONE) dear = v->offer[d->on_demand].price_h;
    d->kappa = dear * FINE / fmax(1 - v->availability, DBL_EPSILON) * exp(m->push);
}

static bool holds(const struct desk *d, uint32_t i)
{
    return place_have(&d->view->offer[i]) > 0;
}

/* What an instance costs there, its gaps included. */
static double value(const struct desk *d, uint32_t i)
{
    return d->price[i] + d->kappa * d->gap[i];
}

/* Zones in the order of what they cost, losses included; ties as listed. */
static void weigh(struct desk *d)
{
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        if (!o->spot) {
            d->price[i] = o->price_h * (1 + o->lead_s / LIFE_S);
            continue;
        }
        double hazard = hazard_rate_h(&d->memory->zone[i]);
        d->up[i] = hazard_up(&d->memory->zone[i], d->now_us);
        d->gap[i] = hazard * (o->lead_s + REACT_S) / HOUR_S;
        d->price[i] = o->price_h * (1 + hazard * o->lead_s / HOUR_S);
        bool there = holds(d, i) || (o->usable && d->up[i] >= LIKELY);
        if (!there) continue;
        uint32_t at = d->zones++;
        for (; at > 0; at--) {
            uint32_t before = d->order[at - 1];
            if (value(d, before) <= value(d, i)) break;
            d->order[at] = before;
        }
        d->order[at] = i;
    }
}

static void weigh_in(struct desk *d, struct arrangement *a)
{
    uint32_t held = 0, total = 0;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        a->cost_h += a->want[i] * d->price[i];
        held += min_u32(a->want[i], place_have(&d->view->offer[i]));
        total += a->want[i];
    }
    if (total > 0) a->cost_h *= 1 - STAY * held / total;
    a->cost_h += d->kappa * d->view->target * a->missing;
    if (d->has_best && a->cost_h >= d->best.cost_h) return;
    d->best = *a;
    d->has_best = true;
}

static void try_zones(struct desk *d, uint32_t k)
{
    struct arrangement a = { .reason = k == 1 ? "the cheapest zone, its losses included, suffices"
                                              : "no zone alone is there often enough: several and "
                                                "a spare for the loss of one" };
    uint32_t count = d->view->target;
    if (k > 1) count += ceil_div_u32(count, k);
    for (uint32_t i = 0; i < k; i++) {
        uint32_t zone = d->order[i];
        a.want[zone] = count / k + (i < count % k);
        a.missing += k == 1 ? d->gap[zone] : SHARED * d->gap[zone];
        const struct place_offer *o = &d->view->offer[zone];
        if (!o->usable && a.want[zone] > place_have(o)) return;
    }
    weigh_in(d, &a);
}

static void try_on_demand(struct desk *d)
{
    const struct place_view *view = d->view;
    struct arrangement a = { .on_demand = true,
                             .reason =
                                 "no spot zone is likely to be there often enough: on demand" };
    uint32_t best = PLACE_NONE;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        if (view->offer[i].spot || !view->offer[i].usable) continue;
        if (best == PLACE_NONE || d->price[i] < d->price[best]) best = i;
    }
    uint32_t left = view->target;
    for (uint32_t i = 0; i < view->offer_count; i++) { /* what runs stays, unless it is dear */
        if (view->offer[i].spot) continue;
        if (best != PLACE_NONE && d->price[i] * (1 - STAY) > d->price[best]) continue;
        a.want[i] = min_u32(place_have(&view->offer[i]), left);
        left -= a.want[i];
    }
    if (best != PLACE_NONE) a.want[best] += left;
    if (best == PLACE_NONE && left > 0) a.missing = 1;
    if (best == PLACE_NONE && left == view->target) return;
    weigh_in(d, &a);
}

/* The zone that would save most if it had capacity, which it may; PLACE_NONE when none would. */
static uint32_t zone_to_probe(const struct desk *d)
{
    uint32_t best = PLACE_NONE;
    double now = d->best.cost_h / d->view->target, most = 0;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        if (!o->spot || !o->usable || holds(d, i) || d->best.want[i] > 0) continue;
        double saved = (now * (1 - STAY) - value(d, i)) * d->up[i];
        if (saved <= most) continue;
        most = saved;
        best = i;
    }
    return best;
}

/* After a loss, while it is not known whether the zones have capacity. */
static uint32_t beside(const struct desk *d)
{
    if (!d->memory->after_loss || d->best.on_demand || d->on_demand == PLACE_NONE) return 0;
    uint32_t unsure = 0, ready = 0;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        ready += d->view->offer[i].ready;
        if (d->best.want[i] > 0 && !holds(d, i) && d->up[i] < SURE) unsure += d->best.want[i];
    }
    uint32_t missing = d->view->target > ready ? d->view->target - ready : 0;
    return min_u32(unsure, missing);
}

/* What the arrangement replaces stays until the new instances are ready. */
static void keep_until_ready(const struct desk *d, struct place_verdict *v)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        uint32_t ready = d->view->offer[i].ready;
        missing += v->want[i] > ready ? v->want[i] - ready : 0;
    }
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        uint32_t surplus = o->ready > v->want[i] ? o->ready - v->want[i] : 0;
        uint32_t kept = min_u32(surplus, missing);
        v->want[i] += kept;
        missing -= kept;
    }
}

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)rng;
    struct joint *memory = state;
    double dt_h = learn(memory, view, now_us);
    struct desk d = { .view = view, .memory = memory, .now_us = now_us };
    price_gaps(&d, memory, dt_h);
    weigh(&d);
    for (uint32_t k = 1; k <= d.zones && (k == 1 || k <= view->target); k++)
        try_zones(&d, k);
    try_on_demand(&d);

    struct place_verdict v = { .reason = "no offer of the pool can be had now",
                               .missing = -1,
                               .again_us = now_us + AGAIN_US };
    if (d.has_best) {
        memcpy(v.want, d.best.want, sizeof v.want);
        v.reason = d.best.reason;
        v.missing = d.best.missing;
        uint32_t probe = PLACE_NONE;
        if (view->target > 0 && now_us - memory->probed_us >= PROBE_US) probe = zone_to_probe(&d);
        if (probe != PLACE_NONE) {
            v.want[probe] = view->target;
            memory->probed_us = now_us;
        }
        if (d.on_demand != PLACE_NONE) v.want[d.on_demand] += beside(&d);
        keep_until_ready(&d, &v);
    }
    place_finish(view, &v);
    *ret = v;
}

const struct place_policy place_joint = {
    .name = "joint",
    .about =
        "count x type x provider x spot at least cost under SLO and budget; hazards are learned",
    .source = "this project",
    .state_size = sizeof(struct joint),
    .choose = choose,
    .mix = place_joint_mix,
};
