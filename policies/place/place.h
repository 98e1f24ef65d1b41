/* place.h - the interface of placement policies, which choose the offers that a pool's instances run at.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop or the simulator calls
 * Rules:   (1) an offer is a type in a zone, on demand or spot; a pool's offers are of one kind of
 *              instance, so that only price, lead and risk tell them apart
 *          (2) state is plain bytes of a fixed size that only choose writes
 *          (3) the controller calls choose at each of its turns; no policy sets a timer
 *
 * Units are seconds and dollars an hour.
 *
 * struct hazard estimates how often a zone loses its spot capacity and how soon the capacity is back.
 *
 * Losses while we hold instances in a zone are a Poisson process of rate hazard, repairs one of
 * rate repair. Both rates have a gamma prior: one event within HAZARD_PRIOR_H hours of holding, one
 * within REPAIR_PRIOR_H hours of absence. After `losses` in `up_h` hours
 *
 *     hazard = (1 + losses) / (HAZARD_PRIOR_H + up_h)        posterior means
 *     repair = (1 + repairs) / (REPAIR_PRIOR_H + down_h)
 *     up(t)  = A + (s - A) exp(-(hazard + repair) t),  A = repair / (hazard + repair)
 *
 * up(t) is the chance that there is capacity t hours after it was seen in state s (1 or 0). An
 * absence is seen only when the controller asks: it is taken to end halfway between the last refusal and
 * the first success.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACE_OFFERS_MAX 8
#define PLACE_STATE_BYTES_MAX 1024
#define PLACE_NONE UINT32_MAX

/* One offer of a pool: a type in a zone, on demand or spot. */
struct place_offer {
    bool usable; /* may be asked now: no back-off forbids it, its price is known and affordable */
    bool spot;   /* cheaper, and may be taken away */
    double price_h, lead_s;
    double start_usd; /* of each start, beside its time: what it pulls */
    /* Of the time of one that runs there, lost if it is given up for another: its drain, and
     * computing again what it has cached; 0: unknown or nothing. */
    double leave_s;
    double out; /* chance that it is sold out now, as refusals of the last hours tell; 0: none */
    uint32_t ready, starting;
    /* Beside them: they still serve, and the provider has said that it takes them. */
    uint32_t leaving;
    uint32_t lost;    /* instances that the provider took away, counted since we know the offer */
    uint32_t refused; /* launches that it had no capacity for, counted likewise */
};

struct place_view {
    struct place_offer offer[PLACE_OFFERS_MAX];
    uint32_t offer_count;
    uint32_t target;     /* instances that should be ready at any time */
    double availability; /* share of time in which the target should be met; (0, 1) */
};

struct place_verdict {
    uint32_t want[PLACE_OFFERS_MAX]; /* instances that should stand at each offer; their sum is the
                                      * target, or more: spares and replacements under way */
    uint32_t next;      /* the offer to ask first; PLACE_NONE when there is none to ask */
    double cost_h;      /* of want */
    double missing;     /* predicted share of time below the target; < 0 when unknown */
    const char *reason; /* static sentence */
};

struct place_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* where the rule comes from */
    uint32_t state_size; /* zeroed bytes are the first state */
    void (*choose)(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret);
};

#define POLICY(name) extern const struct place_policy place_##name;

#include "policies/place/place.def"
#undef POLICY

extern const struct place_policy *const place_table[];
extern const uint32_t place_count;

#define PLACE_DEFAULT "joint"
#define PLACE_HORIZON_S 3600.0 /* how long a new instance is expected to be of use */

const struct place_policy *place_find(struct str name); /* NULL when there is none */

/* Functions that policies share (place.c). */

static inline uint32_t place_have(const struct place_offer *o)
{
    return o->ready + o->starting;
}

/* Returns the price of an offer with its start, spread over PLACE_HORIZON_S, and with the chance that it is sold out:
 * it then costs the time until the dearest offer is asked in its place, which is priced as that offer. */
double place_price(const struct place_view *view, uint32_t offer);

/* Returns the dollars an hour that giving up ready instances for fresh ones elsewhere costs, spread over the time
 * until the fresh ones are expected to be lost: a move pays where it saves more an hour. rest_h: that time, in
 * hours. */
#define PLACE_REST_H_MAX 24.0 /* plans are not made for longer */
double place_moved(const struct place_view *view, const uint32_t want[PLACE_OFFERS_MAX],
                   double rest_h);

/* Returns the cheapest usable offer whose `fits` is true (NULL: any usable offer), the earlier one
 * on equal prices; PLACE_NONE when there is none. */
uint32_t place_cheapest(const struct place_view *view, const bool *fits);

/* Fills next and cost_h from want. next is the cheapest usable offer, by place_price, that has fewer instances than
 * wanted, the earlier one on equal prices. */
void place_finish(const struct place_view *view, struct place_verdict *ret);

#define HAZARD_PRIOR_H 8.0 /* a middle zone of the public spot traces: 5 to 11 h between drops */
#define REPAIR_PRIOR_H 1.0
#define HAZARD_REACT_S 30.0 /* until a loss is seen, decided on and the provider has answered */

/* Cost of missing all the time that may be missed, as a share of what on demand costs: by it an hour that is missing
 * counts in dollars, in placement as in mixes. */
#define PLACE_FINE 0.07

/* Hours from a loss until another instance serves in its place. */
static inline double hazard_gap_h(double lead_s)
{
    return (lead_s + HAZARD_REACT_S) / 3600;
}

struct hazard {
    uint32_t lost, refused, ready; /* the offer's counters as seen last */
    bool down;                     /* when last seen, it had no capacity */
    float losses, repairs;
    double up_h, down_h;
    int64_t since_us; /* start of the current absence; 0: none */
    int64_t seen_us;  /* when the state was seen last; 0: never */
};

/* Updates the estimate from the offer's counters at now_us, dt_h hours after the last call. */
void hazard_observe(struct hazard *h, const struct place_offer *offer, double dt_h, int64_t now_us);
double hazard_rate_h(const struct hazard *h); /* losses an hour */

/* Returns the chance that there is capacity now. */
double hazard_up(const struct hazard *h, int64_t now_us);
