/* market_bound.c - draws what a service needs, and bounds what a clairvoyant pays for it.
 *
 * cost[u] is the least cost so far of a schedule that has capacity u now. A step first lets capacity go down for
 * nothing (a running minimum from above) or up at the price of start-ups (one from below), then adds what holding u
 * costs. */
#include "simulator/market_bound.h"

#include "base/core/bits.h"
#include "base/core/rng.h"

#include <math.h>
#include <stdlib.h>

#define DAY_S 86400.0
#define SWING 0.5 /* of the mean, either way */
#define PEAK_AT_H 15.0
#define WEEKEND 0.75
#define NOISE 0.05  /* deviation of its logarithm */
#define NOISE_H 3.0 /* after which it has forgotten most */
#define PI 3.14159265358979323846
#define NEVER 1e30

bool market_need_init(struct market_need *ret, uint64_t seed, uint32_t days, double peak_s)
{
    struct rng rng;
    *ret = (struct market_need){ .count = days * (uint32_t)(DAY_S / MARKET_NEED_STEP_S) + 1 };
    ret->rate_s = calloc(ret->count, sizeof *ret->rate_s);
    if (!ret->rate_s) return false;
    rng_stream(&rng, seed, 0, 77);
    double keep = exp(-MARKET_NEED_STEP_S / (NOISE_H * 3600)), noise = NOISE * rng_normal(&rng);
    for (uint32_t i = 0; i < ret->count; i++) {
        double at_s = (double)i * MARKET_NEED_STEP_S;
        double hour = fmod(at_s, DAY_S) / 3600;
        int weekday = (int)(at_s / DAY_S) % 7;
        double day = 1 + SWING * cos(2 * PI * (hour - PEAK_AT_H) / 24);
        double rate = peak_s / (1 + SWING) * day * (weekday >= 5 ? WEEKEND : 1) * exp(noise);
        noise = noise * keep + NOISE * sqrt(1 - keep * keep) * rng_normal(&rng);
        ret->rate_s[i] = (float)rate;
        ret->most_s = fmax(ret->most_s, rate);
    }
    return true;
}

void market_need_fini(struct market_need *n)
{
    free(n->rate_s);
    *n = (struct market_need){ 0 };
}

double market_need_at(const struct market_need *n, double at_s)
{
    double at = fmin(fmax(at_s / MARKET_NEED_STEP_S, 0), n->count - 1);
    uint32_t i = (uint32_t)at;
    double part = at - i, rate = (double)n->rate_s[i];
    return i + 1 < n->count ? rate + part * ((double)n->rate_s[i + 1] - rate) : rate;
}

/* The market at one moment, as whole numbers of units. */
struct shop {
    uint32_t units[MARKET_POOLS]; /* 0: it cannot be had */
    double price_h[MARKET_POOLS];
    double start; /* dollars for a unit of capacity that is added */
};

static void look(const struct market *m, const struct market_choice *may, double unit, int64_t at_s,
                 struct shop *ret)
{
    *ret = (struct shop){ .start = NEVER };
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        if (may->rate_s[k] <= 0) continue;
        bool spot = false, any = false;
        for (uint32_t z = 0; z < MARKET_ZONES; z++) {
            any |= market_has(m, k, z, false, at_s);
            spot |= !may->no_spot && market_has(m, k, z, true, at_s);
        }
        /* Instances on demand stay when no more are sold: they may be held at any time. */
        ret->units[k] = (uint32_t)ceil(may->rate_s[k] / unit);
        ret->price_h[k] = market_price_h(m, k, spot, at_s);
        double start = ret->price_h[k] * market_lead_s(k) / 3600 / ret->units[k];
        if (any || spot) ret->start = fmin(ret->start, start);
    }
}

/* Fills hold[u], the dollars an hour of the cheapest instances that give u units or more. */
static void fill_hold(const struct shop *s, uint32_t units, double *hold)
{
    hold[0] = 0;
    for (uint32_t u = 1; u <= units; u++) {
        hold[u] = NEVER;
        for (uint32_t k = 0; k < MARKET_POOLS; k++)
            if (s->units[k] > 0)
                hold[u] = fmin(hold[u], hold[u - min_u32(u, s->units[k])] + s->price_h[k]);
    }
}

static void step(double *cost, const double *hold, uint32_t need, double start)
{
    for (uint32_t u = MARKET_UNITS; u > 0; u--)
        cost[u - 1] = fmin(cost[u - 1], cost[u]);
    for (uint32_t u = 1; u <= MARKET_UNITS; u++)
        cost[u] = fmin(cost[u], cost[u - 1] + start);
    for (uint32_t u = 0; u <= MARKET_UNITS; u++)
        cost[u] = u < need ? NEVER : cost[u] + hold[u] * MARKET_NEED_STEP_S / 3600;
}

double market_whole_cost(const struct market *m, const struct market_need *n,
                         const struct market_choice *may)
{
    double cost[MARKET_UNITS + 1], hold[MARKET_UNITS + 1];
    double unit = n->most_s / MARKET_UNITS;
    for (uint32_t u = 0; u <= MARKET_UNITS; u++)
        cost[u] = 0; /* it may begin with a fleet */
    for (uint32_t i = 0; i + 1 < n->count; i++) {
        struct shop s;
        look(m, may, unit, (int64_t)i * MARKET_NEED_STEP_S, &s);
        if (s.start >= NEVER) continue; /* nothing can be had: nothing is kept, nor paid */
        fill_hold(&s, MARKET_UNITS, hold);
        step(cost, hold, (uint32_t)((double)n->rate_s[i] / unit), s.start);
    }
    double least = NEVER;
    for (uint32_t u = 0; u <= MARKET_UNITS; u++)
        least = fmin(least, cost[u]);
    return least;
}

/* ---- each unit of capacity by itself ---- */

/* On demand in any zone is one; no place: the last state. */
#define PLACES (MARKET_POOLS * (MARKET_ZONES + 1))

/* Holds the prices of a step, for all layers. */
struct row {
    float price_h[PLACES]; /* dollars an hour for a layer's capacity; 0: it may not be bought */
    bool sold[PLACES];     /* it can be had */
};

static void fill_row(const struct market *m, const struct market_choice *may, double layer_s,
                     int64_t at_s, struct row *ret)
{
    *ret = (struct row){ 0 };
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        if (may->rate_s[k] <= 0) continue;
        double part = layer_s / may->rate_s[k];
        uint32_t on_demand = k * (MARKET_ZONES + 1) + MARKET_ZONES;
        ret->price_h[on_demand] = (float)(part * market_price_h(m, k, false, at_s));
        for (uint32_t z = 0; z < MARKET_ZONES; z++) {
            uint32_t spot = k * (MARKET_ZONES + 1) + z;
            ret->sold[on_demand] |= market_has(m, k, z, false, at_s);
            if (may->no_spot) continue;
            ret->price_h[spot] = (float)(part * market_price_h(m, k, true, at_s));
            ret->sold[spot] = market_has(m, k, z, true, at_s);
        }
    }
}

/* Takes a layer one step on. A place that is there now and was in the step before may have been started in time. */
static void layer_step(double cost[PLACES + 1], const struct row *before, const struct row *now,
                       bool needed)
{
    double least = NEVER, left = NEVER;
    for (uint32_t s = 0; s <= PLACES; s++)
        least = fmin(least, cost[s]);
    for (uint32_t s = 0; s < PLACES; s++) {
        double price = (double)now->price_h[s];
        double lead_h = market_lead_s(s / (MARKET_ZONES + 1)) / 3600;
        double from = before->sold[s] && now->sold[s] ? least + price * lead_h : NEVER;
        bool on_demand = s % (MARKET_ZONES + 1) == MARKET_ZONES;
        /* Instances on demand stay when no more are sold. */
        if (price <= 0 || (!now->sold[s] && !on_demand))
            cost[s] = NEVER;
        else
            cost[s] = fmin(cost[s], from) + price * MARKET_NEED_STEP_S / 3600;
        left = fmin(left, cost[s]);
    }
    cost[PLACES] = !needed || left >= NEVER ? least : NEVER;
}

double market_layers_cost(const struct market *m, const struct market_need *n,
                          const struct market_choice *may)
{
    double sum = 0, layer_s = n->most_s / MARKET_LAYERS;
    double(*cost)[PLACES + 1] = calloc(MARKET_LAYERS, sizeof *cost);
    struct row before, now;
    if (!cost) return 0;
    fill_row(m, may, layer_s, 0, &before);
    for (uint32_t i = 0; i + 1 < n->count; i++) {
        fill_row(m, may, layer_s, (int64_t)i * MARKET_NEED_STEP_S, &now);
        for (uint32_t l = 0; l < MARKET_LAYERS; l++)
            layer_step(cost[l], &before, &now, (double)n->rate_s[i] > (l + 0.5) * layer_s);
        before = now;
    }
    for (uint32_t l = 0; l < MARKET_LAYERS; l++) {
        double least = NEVER;
        for (uint32_t s = 0; s <= PLACES; s++)
            least = fmin(least, cost[l][s]);
        sum += least;
    }
    free(cost);
    return sum;
}

double market_clairvoyant(const struct market *m, const struct market_need *n,
                          const struct market_choice *may)
{
    return fmax(market_whole_cost(m, n, may), market_layers_cost(m, n, may));
}
