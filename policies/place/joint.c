/* joint.c - choose the arrangement over zones, spot and on demand that costs least, gaps included.
 *
 * It weighs these arrangements of N instances. Each zone has a hazard l and a gap g (lead and
 * reaction); felt is the share of time that losses leave the target unmet:
 *
 *     one zone    N there                                      felt l g
 *     k zones     N k / (k - 1), evenly: any one may go        felt (shared + second) g
 *                 shared = 4 q (1 - (k + 1) / 2^k) mean(l)     several go at once
 *                 second = sum over pairs l_i g l_j            one goes while another is replaced
 *     on demand   N at the cheapest                            felt 0
 *     patch       what stands, and the rest beside it          felt sum(l g)
 *
 * q is the chance that another zone is lost when one is, learned like the hazards (place.h); shared
 * models common losses as shocks, each of which strikes a zone with probability one half. The
 * policy takes the arrangement with the least
 *
 *     cost of the wanted instances, start-ups included  +  N kappa felt  +  what moves lose
 *
 * where kappa is the price of a missing hour. kappa is not a setting; it follows the target
 * availability. With `missed`, the share of the last day (for a younger fleet: of its life) in
 * which the fleet was short after losses,
 *
 *     kappa = price on demand * PLACE_FINE / (1 - availability) * exp(GAIN * (missed / b - 1)),
 *     b = (1 - availability) * SAFETY
 *
 * A move, from on demand back to spot for one, loses a drain and what was cached (place_moved); it is made where the
 * difference of the prices, over the time until the next expected loss, is more than that.
 *
 * Unreliable zones are therefore used without spares while the availability is kept with room to
 * spare, and with spares while it is not. On demand comes last: spares over k zones cost 1 / (k - 1)
 * of spot. SkyServe instead keeps one bit a zone, clears the bits of all zones together and has a
 * constant number of spares.
 *
 * A refused launch costs nothing. A zone that may be asked therefore counts as one to rely on until
 * its reply says otherwise. While instances are missing, several zones are asked at once, and on
 * demand with them where all may refuse; surplus instances end when the replies are in. A replacement
 * starts before the instance that it replaces ends. While any offer may be asked, missing instances
 * are asked for. */
#include "base/core/bits.h"
#include "policies/place/place.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SAFETY 0.8
#define GAIN 3.0
#define GAIN_MAX 3.0 /* of the exponent, either way */
#define MEMORY_H 24.0
#define PRIOR_H 2.5        /* weight of the initial `missed`, in hours of watching */
#define PAIRS_PRIOR 5.0    /* weight of the prior of q, in pairs of zones */
#define TOGETHER_PRIOR 0.5 /* of those, lost together */
#define STAY 0.05          /* relative gain below which running instances are not replaced */
#define SURE 0.95          /* chance of capacity at which no further zone is asked */
/* With launches that are neither accepted nor refused. */
#define PATIENCE_US (120 * (int64_t)1000000)
#define GAP_H_MAX 0.25 /* a longer pause between questions is no time of holding */
#define HOUR_S 3600.0

struct joint {
    int64_t last_us, asked_us; /* asked_us: since when a provider's reply is waited for */
    double missed;             /* share of time short of the target after losses, see above */
    double watched_h;          /* hours that `missed` is a share of, before it forgets */
    bool lost_some;            /* fewer stay than the target, because of a loss */
    bool after_loss;           /* short of the target now, because of a loss */
    float pairs, together;     /* other zones held when one was lost; those lost with it */
    struct hazard zone[PLACE_OFFERS_MAX];
};
_Static_assert(sizeof(struct joint) <= PLACE_STATE_BYTES_MAX, "state of place_joint");

struct arrangement {
    uint32_t want[PLACE_OFFERS_MAX];
    double cost_h, missing;
    bool on_demand;
    const char *reason;
};

/* The working data of one call of choose. */
struct desk {
    const struct place_view *view;
    const struct joint *memory;
    int64_t now_us;
    double up[PLACE_OFFERS_MAX];      /* chance of capacity now */
    double hazard[PLACE_OFFERS_MAX];  /* losses an hour */
    double gap_h[PLACE_OFFERS_MAX];   /* from a loss until another instance serves */
    double price[PLACE_OFFERS_MAX];   /* an hour; start-ups after losses are paid too */
    uint32_t order[PLACE_OFFERS_MAX]; /* spot zones to rely on, the best first */
    uint32_t zones;
    double dear;        /* price on demand, an hour */
    double kappa;       /* dollars that a missing instance-hour costs */
    double with;        /* q: chance that another zone is lost when one is */
    bool is_short;      /* fewer instances are ready than the target */
    uint32_t on_demand; /* the cheapest usable offer on demand, or PLACE_NONE */
    struct arrangement best;
    bool has_best;
};

static bool holds(const struct desk *d, uint32_t i)
{
    return place_have(&d->view->offer[i]) > 0;
}

static void learn(struct joint *m, const struct place_view *view, int64_t now_us)
{
    double dt_h = m->last_us > 0 ? (double)(now_us - m->last_us) / (HOUR_S * 1e6) : 0;
    dt_h = fmin(fmax(dt_h, 0), GAP_H_MAX);
    if (m->last_us == 0) {
        m->missed = (1 - view->availability) * SAFETY; /* until more is seen */
        m->asked_us = now_us;
    }
    if (m->asked_us > now_us) m->asked_us = now_us; /* a wall clock that went back */
    double part = m->after_loss ? 1 : 0;
    m->watched_h += dt_h;
    m->missed += (part - m->missed) * (1 - exp(-dt_h / fmin(MEMORY_H, PRIOR_H + m->watched_h)));
    uint32_t stay = 0, leave = 0, held = 0, lost = 0;
    for (uint32_t i = 0; i < view->offer_count; i++) {
        stay += view->offer[i].ready;
        leave += view->offer[i].leaving;
        if (!view->offer[i].spot) continue;
        held += m->zone[i].ready > 0;
        lost += m->zone[i].ready > 0 && view->offer[i].lost > m->zone[i].lost;
        hazard_observe(&m->zone[i], &view->offer[i], dt_h, now_us);
    }
    if (lost > 0) {
        m->pairs += (float)(lost * (held - 1));
        m->together += (float)(lost * (lost - 1));
    }
    /* An instance that leaves still serves: hours are missed only once it is gone. */
    m->lost_some = stay < view->target && (m->lost_some || lost > 0);
    m->after_loss = stay + leave < view->target && m->lost_some;
    m->last_us = now_us;
}

/* Returns the price of an instance on demand that would have to be started. */
static double fresh_price(const struct place_view *view, uint32_t i)
{
    const struct place_offer *o = &view->offer[i];
    return o->price_h + o->start_usd * HOUR_S / PLACE_HORIZON_S;
}

static void price_gaps(struct desk *d)
{
    const struct place_view *v = d->view;
    const struct joint *m = d->memory;
    double allowed = fmax(1 - v->availability, DBL_EPSILON);
    double push = GAIN * (m->missed / (allowed * SAFETY) - 1);
    uint32_t ready = 0;
    d->on_demand = PLACE_NONE;
    for (uint32_t i = 0; i < v->offer_count; i++) {
        const struct place_offer *o = &v->offer[i];
        ready += o->ready;
        d->dear = fmax(d->dear, o->price_h);
        if (o->spot || !o->usable) continue;
        if (d->on_demand == PLACE_NONE || fresh_price(v, i) < fresh_price(v, d->on_demand))
            d->on_demand = i;
    }
    if (d->on_demand != PLACE_NONE) d->dear = v->offer[d->on_demand].price_h;
    d->is_short = ready < v->target;
    d->kappa = d->dear * PLACE_FINE / allowed * exp(fmin(fmax(push, -GAIN_MAX), GAIN_MAX));
    d->with = (TOGETHER_PRIOR + (double)m->together) / (PAIRS_PRIOR + (double)m->pairs);
}

/* Returns the hourly cost of an instance at offer i, its gaps included. */
static double value(const struct desk *d, uint32_t i)
{
    return d->price[i] + d->kappa * d->hazard[i] * d->gap_h[i];
}

/* Returns the cost that orders the zones. While instances are missing, a zone that may refuse is
 * priced as on demand with the chance that it does. */
static double rank(const struct desk *d, uint32_t i)
{
    if (holds(d, i)) return value(d, i) * (1 - STAY);
    return d->is_short ? value(d, i) * d->up[i] + d->dear * (1 - d->up[i]) : value(d, i);
}

/* Fills prices, hazards and gaps of all offers and sorts the spot zones by rank; ties stay as listed. */
static void weigh(struct desk *d)
{
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        d->price[i] = o->price_h;
        d->up[i] = 1;
        if (!o->spot) continue;
        d->hazard[i] = hazard_rate_h(&d->memory->zone[i]);
        /* Refusals at other pools' offers of the same zone and type count too. */
        d->up[i] = fmin(hazard_up(&d->memory->zone[i], d->now_us), 1 - o->out);
        d->gap_h[i] = hazard_gap_h(o->lead_s);
        d->price[i] = o->price_h * (1 + d->hazard[i] * o->lead_s / HOUR_S);
        if (!holds(d, i) && !o->usable) continue;
        uint32_t at = d->zones++;
        for (; at > 0; at--) {
            uint32_t before = d->order[at - 1];
            if (rank(d, before) <= rank(d, i)) break;
            d->order[at] = before;
        }
        d->order[at] = i;
    }
}

/* Returns the hours until the first loss that is expected among the zones that get fresh instances. */
static double rest_h(const struct desk *d, const struct arrangement *a)
{
    double rest = PLACE_REST_H_MAX;
    for (uint32_t i = 0; i < d->view->offer_count; i++)
        if (a->want[i] > place_have(&d->view->offer[i]) && d->hazard[i] > 0 &&
            1 / d->hazard[i] < rest)
            rest = 1 / d->hazard[i];
    return rest;
}

static void weigh_in(struct desk *d, struct arrangement *a)
{
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        uint32_t have = place_have(o), fresh = a->want[i] > have ? a->want[i] - have : 0;
        a->cost_h += a->want[i] * d->price[i];
        a->cost_h += fresh * o->price_h * (o->lead_s / PLACE_HORIZON_S + STAY);
        a->cost_h += fresh * o->start_usd * HOUR_S / PLACE_HORIZON_S;
    }
    a->cost_h += place_moved(d->view, a->want, rest_h(d, a));
    a->cost_h += d->kappa * d->view->target * a->missing;
    if (d->has_best && a->cost_h >= d->best.cost_h) return;
    d->best = *a;
    d->has_best = true;
}

/* Returns the share of time that losses of these k zones leave the target unmet. With one zone each
 * loss counts; with several, losses that zones share and losses that come before the spares used
 * by the last one are replaced. */
static double felt(const struct desk *d, const uint32_t *zone, uint32_t k)
{
    double all = 0, gap_h = 0, twice = 0;
    for (uint32_t i = 0; i < k; i++)
        all += d->hazard[zone[i]];
    for (uint32_t i = 0; i < k; i++) {
        uint32_t z = zone[i];
        gap_h += d->gap_h[z] / k;
        twice += d->hazard[z] * d->gap_h[z] * (all - d->hazard[z]);
    }
    if (k == 1) return all * gap_h;
    double shared = 4 * d->with * (1 - (k + 1) * exp2(-(double)k)) * all / k;
    return (shared + twice) * gap_h;
}

/* Weighs the arrangement over the first k of `zone`, unless one of them may not be asked for the
 * instances that it lacks. */
static void try_zones(struct desk *d, const uint32_t *zone, uint32_t k)
{
    struct arrangement a = { .reason = k == 1 ? "the cheapest zone, its losses included, suffices"
                                              : "no zone alone is there often enough: several and "
                                                "spares for the loss of one" };
    uint32_t count = d->view->target;
    if (k > 1) count = ceil_div_u32(count * k, k - 1);
    for (uint32_t i = 0; i < k; i++) {
        a.want[zone[i]] = count / k + (i < count % k);
        const struct place_offer *o = &d->view->offer[zone[i]];
        if (!o->usable && a.want[zone[i]] > place_have(o)) return;
    }
    a.missing = felt(d, zone, k);
    weigh_in(d, &a);
}

/* Weighs the best zone, the best two, and so on. A zone that may not be asked must not block those
 * after it, so the usable zones are tried by themselves too. */
static void try_all_zones(struct desk *d)
{
    uint32_t able[PLACE_OFFERS_MAX], ables = 0;
    for (uint32_t i = 0; i < d->zones; i++)
        if (d->view->offer[d->order[i]].usable) able[ables++] = d->order[i];
    for (uint32_t k = 1; k <= d->zones && k <= d->view->target + 1; k++)
        try_zones(d, d->order, k);
    if (ables == d->zones) return;
    for (uint32_t k = 1; k <= ables && k <= d->view->target + 1; k++)
        try_zones(d, able, k);
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
        if (best == PLACE_NONE || fresh_price(view, i) < fresh_price(view, best)) best = i;
    }
    uint32_t left = view->target;
    for (uint32_t i = 0; i < view->offer_count; i++) { /* running ones stay, unless too dear */
        if (view->offer[i].spot) continue;
        if (best != PLACE_NONE && d->price[i] * (1 - STAY) > d->price[best]) continue;
        a.want[i] = min_u32(place_have(&view->offer[i]), left);
        left -= a.want[i];
    }
    if (best != PLACE_NONE) a.want[best] += left;
    if (best == PLACE_NONE && left > 0) return;
    weigh_in(d, &a);
}

/* Weighs keeping the running instances where they are and adding the missing ones at one offer. */
static void try_patch(struct desk *d)
{
    struct arrangement a = { .reason = "what runs stays, the rest comes from where it can be had" };
    uint32_t left = d->view->target, at = PLACE_NONE;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        a.want[i] = min_u32(place_have(&d->view->offer[i]), left);
        left -= a.want[i];
    }
    for (uint32_t i = 0; i < d->zones && at == PLACE_NONE; i++)
        if (d->view->offer[d->order[i]].usable) at = d->order[i];
    if (at == PLACE_NONE) at = d->on_demand;
    if (left > 0 && at != PLACE_NONE) a.want[at] += left;
    if (left > 0 && at == PLACE_NONE) {
        a.reason = "no offer of the pool can be had now";
        a.missing = 1;
    }
    for (uint32_t i = 0; i < d->view->offer_count; i++)
        if (a.want[i] > 0) a.missing += d->hazard[i] * d->gap_h[i];
    weigh_in(d, &a);
}

/* Asks other zones too while instances are missing and the chosen zones may have no capacity, and on
 * demand where even all zones together may have none. */
static void ask_beside(const struct desk *d, struct place_verdict *v)
{
    if (!d->is_short || d->best.on_demand) return;
    uint32_t there = 0;
    double none = 1;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        there += place_have(&d->view->offer[i]);
        if (d->best.want[i] > 0 && !holds(d, i)) none *= 1 - d->up[i];
    }
    if (there >= d->view->target) return;
    uint32_t missing = d->view->target - there;
    for (uint32_t i = 0; i < d->zones && none > 1 - SURE; i++) {
        uint32_t zone = d->order[i];
        if (holds(d, zone) || d->best.want[zone] > 0 || !d->view->offer[zone].usable) continue;
        v->want[zone] += missing;
        none *= 1 - d->up[zone];
    }
    if (none > 1 - SURE && d->on_demand != PLACE_NONE) v->want[d->on_demand] += missing;
}

/* Keeps the instances that the arrangement replaces until the new ones are ready; those that are
 * still starting, until the new launches are accepted. After PATIENCE_US without a reply, keeps only
 * as many as are missing. */
static void keep_until_ready(const struct desk *d, struct joint *m, struct place_verdict *v)
{
    bool promised = true;
    uint32_t missing = 0;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        promised &= v->want[i] <= place_have(o);
        missing += v->want[i] > o->ready ? v->want[i] - o->ready : 0;
    }
    if (promised) m->asked_us = d->now_us;
    if (missing > 0 && d->now_us - m->asked_us <= PATIENCE_US) missing = UINT32_MAX;
    for (uint32_t i = 0; i < d->view->offer_count; i++) {
        const struct place_offer *o = &d->view->offer[i];
        uint32_t there = promised ? o->ready : place_have(o);
        uint32_t kept = min_u32(there > v->want[i] ? there - v->want[i] : 0, missing);
        v->want[i] += kept;
        missing -= kept;
    }
}

static void choose(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret)
{
    (void)rng;
    struct joint *memory = state;
    learn(memory, view, now_us);
    struct desk d = { .view = view, .memory = memory, .now_us = now_us };
    price_gaps(&d);
    weigh(&d);
    try_all_zones(&d);
    try_on_demand(&d);
    try_patch(&d);

    struct place_verdict v = { .reason = d.best.reason, .missing = d.best.missing };
    memcpy(v.want, d.best.want, sizeof v.want);
    ask_beside(&d, &v);
    keep_until_ready(&d, memory, &v);
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
};
