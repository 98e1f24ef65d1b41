/* clouds_world.h - runs the controller over a generated market for as long as a year, in virtual time.
 *
 * Layer:   cli (controller, simulator)
 * Threads: one at a time a world
 *
 *     market ──► sellers ──► drivers ──► controller: observe, plan, act ──► create, remove
 *                   │                        ▲
 *                   └─► machines ─► agents ──┴── a router: demand
 *
 * Real:     struct control as it runs: store, intents, merge, plan with its policies, offers with their back-off, bill
 *           and ceilings; and the providers' drivers, where the caller's sellers have them
 *           (tests/sim_gates/t_gate_year)
 * Modelled: requests are a rate, no events. An instance serves within the SLO what policies/scale/capacity.h gives for
 *           its hardware by base/perf, and exactly that; lengths are one distribution. Agents obey; a drain takes
 *           CLOUDS_DRAIN_US
 * Time:     the controller ticks every CLOUDS_BUSY_US while something is under way, and else every CLOUDS_IDLE_US; it
 *           also ticks when a zone that it has machines in changes, and when a machine has booted. It lists at each
 *           tick
 */
#pragma once
#include "controller/control.h"
#include "simulator/market_bound.h"

#define CLOUDS_SECOND ((int64_t)1000000)
#define CLOUDS_START (1000000 * CLOUDS_SECOND) /* fleet time at the beginning */
#define CLOUDS_BUSY_US (5 * CLOUDS_SECOND)
#define CLOUDS_IDLE_US (60 * CLOUDS_SECOND)
#define CLOUDS_DRAIN_US (30 * CLOUDS_SECOND)
#define CLOUDS_WARM_S 3600 /* the fleet begins with nothing: availability is judged after it */
/* Of a pool: each zone's spot, then on demand in any zone. */
#define CLOUDS_OFFERS (MARKET_ZONES + 1)
#define CLOUDS_MACHINES_MAX 512 /* there at once at one provider */
/* Of an instance's time: what the controller plans, and the bound. */
#define CLOUDS_UTILISATION 0.85

/* A machine as its provider knows it. */
struct clouds_machine {
    uint64_t number; /* of its launch */
    char intent[NAME_BYTES];
    uint32_t pool, zone;
    bool spot;
    int64_t made_us, ready_us;
    int64_t goes_us; /* the provider takes it then; 0: it has not said so */
    bool lost;       /* the provider takes it, or has taken it */
};

/* A provider: what the controller calls, and the truth behind it. */
struct clouds_seller {
    struct cloud cloud;
    void *ctx;
    bool tells_no_prices;                    /* its offers keep those of the market's beginning */
    void (*turn)(void *ctx, int64_t now_us); /* it is now_us, and the market is as it then is */
    /* Returns how many machines are there, and the first of them. */
    uint32_t (*machines)(void *ctx, int64_t now_us, struct clouds_machine *ret);
    void (*take)(void *ctx, const struct clouds_machine *m, int64_t notice_us, int64_t now_us);
};

struct clouds_setup {
    uint64_t seed;
    uint32_t days;
    const struct market *market;
    const struct market_need *need;
    const struct clouds_seller *seller; /* MARKET_PROVIDERS */
    bool pool[MARKET_POOLS];            /* it may be bought from */
    bool no_spot;
    double budget_h;                  /* 0: none */
    const struct place_policy *place; /* NULL: the default */
    const struct mix_policy *mix;     /* NULL: none */
    const struct scale_policy *scale; /* NULL: the default */
    double margin;                    /* on the measured load; 0: none */
};

/* Holds the figures of a run. */
struct clouds_result {
    double hours, short_h;      /* in all; with less ready capacity than the need */
    double requests, unserved;  /* beyond the ready capacity */
    double cost, cost_h_most;   /* dollars; most dollars an hour at any time */
    double could_serve;         /* requests, with what was ready */
    uint32_t launches, lost;    /* lost: taken by the provider */
    uint32_t refused;           /* launches for want of capacity */
    double spot_h, on_demand_h; /* of machines */
    uint64_t ticks;
    /* Rules that were broken, how often, and the first in words. */
    uint32_t doubled, orphans, over_budget, too_soon;
    char broken[256];
};

/* Requests a second that an instance of a pool serves within the SLO, at CLOUDS_UTILISATION. */
double clouds_rate_s(uint32_t pool);

/* The offers of a provider, in the order of its pools; at most CLOUDS_OFFERS for each. */
uint32_t clouds_offers(uint32_t provider, struct offer *ret);

/* Returns the pool and zone of a provider's offer by its index; zone MARKET_ZONES: on demand in any. */
void clouds_offer_at(uint32_t provider, uint32_t index, uint32_t *ret_pool, uint32_t *ret_zone);

/* Runs a world from its beginning to its end. -ENOMEM and the like. */
int clouds_run(const struct clouds_setup *setup, struct clouds_result *ret, struct err *err);

/* Sellers that answer out of the market without any API between (clouds_seller.c); MARKET_PROVIDERS of them. */
struct clouds_shops;
int clouds_shops_new(const struct market *market, struct clouds_shops **ret,
                     struct clouds_seller *ret_sellers, struct err *err);
void clouds_shops_free(struct clouds_shops *s);
uint32_t clouds_shops_refused(const struct clouds_shops *s);
