/* market.c - draws the zones, prices and outages of a market as lists of moments at which they change.
 *
 * A line of time is a list of moments at which a thing that was there at the beginning, or was not, changes. What can
 * be had is looked up by bisection, so that readers need no order. */
#include "simulator/market.h"

#include "base/core/bits.h"
#include "base/core/rng.h"

#include <math.h>
#include <stdlib.h>

#define HOUR_S 3600.0
#define DAY_S 86400.0
#define LOAD_S 100.0
#define SHOCK_STRIKES 0.5 /* chance that a shock takes the shakiest zone of its region */
#define PRICE_MOVES 0.03  /* a day, of its logarithm */
#define PRICE_RETURNS 0.05
#define SHORT_OUTAGE_AFTER_D 30.0
#define SHORT_OUTAGE_MIN_S 300.0
#define SHORT_OUTAGE_MORE_S 600.0
#define YEAR_D 365
#define REGIONS 4
#define STOCK_SHAPE 0.6 /* as of spot: one time without stock is followed by others */

const struct market_provider market_provider[MARKET_PROVIDERS] = {
    { .name = "aws",
      .zone = { "us-east-1a", "us-east-1b", "us-east-1c" },
      .region = { 0, 0, 0 },
      .notice_s = 120,
      .boot_s = 60 },
    { .name = "gcp",
      .zone = { "us-central1-a", "us-central1-b", "us-east4-a" },
      .region = { 1, 1, 2 },
      .notice_s = 30,
      .boot_s = 45 },
    { .name = "azure",
      .zone = { "1", "2", "3" },
      .region = { 3, 3, 3 },
      .notice_s = 30,
      .boot_s = 120 },
};

const struct market_pool market_pool[MARKET_POOLS] = {
    { "a10g", 0, 1.006, 0.50, 0, 0 },
    { "l4", 0, 0.98, 0.37, 0, 0 },
    { "l40s", 0, 1.86, 0.79, 960, 3 },
    { "l4", 1, 0.98, 0.37, 0, 0 }, /* AWS's prices */
    { "a100-80", 1, 3.43, 3.43 * MARKET_SPOT_SHARE, 240, 6 },
    { "h100", 1, 10.98, 6.57, 120, 8 },
    { "a100-80", 2, 3.43, 3.43 * MARKET_SPOT_SHARE, 240, 6 },
    { "h100", 2, 12.29, 12.29 * MARKET_SPOT_SHARE, 120, 8 },
};

/* Hours up and down of the best, the worst and three middle zones of the public traces. */
static const double traces[5][2] = {
    { 10.6, 1.05 }, { 5.5, 1.8 }, { 3.0, 2.5 }, { 1.5, 2.7 }, { 0.54, 2.6 }
};

struct line {
    bool begins; /* it is there at the beginning */
    double *at_s;
    uint32_t count, room;
};

struct market {
    uint64_t seed;
    double end_s;
    struct line spot[MARKET_POOLS][MARKET_ZONES];
    struct line stock[MARKET_POOLS][REGIONS]; /* on demand */
    struct line api[MARKET_PROVIDERS];
    float *price[MARKET_POOLS]; /* of spot, by day */
    uint32_t days;
};

enum purpose {
    ZONE_TYPE = 1,
    ZONE_TIMES,
    SHOCK_TIMES,
    STOCK_TIMES,
    SPOT_PRICE,
    API_TIMES,
    NOTICE,
    LEAD,
    LOSS
};

static uint64_t zone_id(uint32_t pool, uint32_t zone)
{
    return pool * 16 + zone;
}

static double weibull(struct rng *rng, double mean, double shape)
{
    return mean / tgamma(1 + 1 / shape) * pow(-log(1 - rng_f64(rng)), 1 / shape);
}

static bool line_add(struct line *l, double at_s)
{
    if (l->count == l->room) {
        uint32_t room = max_u32(64, 2 * l->room);
        double *at = realloc(l->at_s, room * sizeof *at);
        if (!at) return false;
        l->at_s = at;
        l->room = room;
    }
    l->at_s[l->count++] = at_s;
    return true;
}

/* Returns how many moments of the line have come. */
static uint32_t line_past(const struct line *l, double at_s)
{
    uint32_t low = 0, high = l->count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (l->at_s[mid] <= at_s)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool line_at(const struct line *l, double at_s)
{
    return l->begins == (line_past(l, at_s) % 2 == 0);
}

/* ---- zones ---- */

struct zone {
    struct rng rng;
    const double *mean_h; /* up, down */
    bool up;
    double changes_s;
};

static double stay_s(struct zone *z)
{
    return HOUR_S * (z->up ? weibull(&z->rng, z->mean_h[0] / (1 - MARKET_TOGETHER), MARKET_UP_SHAPE)
                           : weibull(&z->rng, z->mean_h[1], MARKET_DOWN_SHAPE));
}

static bool turn(struct zone *z, struct line *l, double at_s)
{
    z->up = !z->up;
    z->changes_s = at_s + stay_s(z);
    return line_add(l, at_s);
}

/* Draws the zones of one region. A shock strikes each zone with a chance in proportion to its own rate of losses, and
 * comes so often that shocks are MARKET_TOGETHER of all losses. */
static bool draw_region(struct market *m, uint32_t pool, uint32_t region)
{
    const struct market_provider *p = &market_provider[market_pool[pool].provider];
    struct zone zone[MARKET_ZONES];
    struct rng shock;
    double fastest = 0;
    rng_stream(&shock, m->seed, zone_id(pool, region), SHOCK_TIMES);
    for (uint32_t z = 0; z < MARKET_ZONES; z++) {
        if (p->region[z] != region) continue;
        struct rng type;
        rng_stream(&type, m->seed, zone_id(pool, z), ZONE_TYPE);
        rng_stream(&zone[z].rng, m->seed, zone_id(pool, z), ZONE_TIMES);
        zone[z].mean_h = traces[rng_below(&type, COUNT_OF(traces))];
        zone[z].up = rng_f64(&type) < zone[z].mean_h[0] / (zone[z].mean_h[0] + zone[z].mean_h[1]);
        m->spot[pool][z].begins = zone[z].up;
        zone[z].changes_s = stay_s(&zone[z]);
        fastest = fmax(fastest, 1 / zone[z].mean_h[0]);
    }
    if (fastest <= 0) return true; /* not a region of this provider */
    double every_s = HOUR_S * SHOCK_STRIKES / (MARKET_TOGETHER * fastest);
    for (double next_s = 0; next_s < m->end_s;) {
        next_s = fmin(next_s + rng_exp(&shock, every_s), m->end_s);
        for (uint32_t z = 0; z < MARKET_ZONES; z++) {
            if (p->region[z] != region) continue;
            struct line *l = &m->spot[pool][z];
            bool strikes = rng_f64(&shock) < SHOCK_STRIKES / (zone[z].mean_h[0] * fastest);
            while (zone[z].changes_s <= next_s)
                if (!turn(&zone[z], l, zone[z].changes_s)) return false;
            if (strikes && zone[z].up && !turn(&zone[z], l, next_s)) return false;
        }
    }
    return true;
}

/* ---- stock, prices, APIs ---- */

static bool draw_stock(struct market *m, uint32_t pool, uint32_t region)
{
    const struct market_pool *p = &market_pool[pool];
    struct line *l = &m->stock[pool][region];
    struct rng rng;
    l->begins = true;
    if (p->stocked_h <= 0) return true;
    rng_stream(&rng, m->seed, zone_id(pool, region), STOCK_TIMES);
    bool there = true;
    for (double at_s = 0;; there = !there) {
        at_s += HOUR_S * weibull(&rng, there ? p->stocked_h : p->sold_out_h, STOCK_SHAPE);
        if (at_s >= m->end_s) return true;
        if (!line_add(l, at_s)) return false;
    }
}

static bool draw_price(struct market *m, uint32_t pool)
{
    struct rng rng;
    rng_stream(&rng, m->seed, pool, SPOT_PRICE);
    m->price[pool] = calloc(m->days, sizeof *m->price[pool]);
    if (!m->price[pool]) return false;
    double deviation = PRICE_MOVES / sqrt(1 - (1 - PRICE_RETURNS) * (1 - PRICE_RETURNS));
    double move = deviation * rng_normal(&rng);
    for (uint32_t d = 0; d < m->days; d++) {
        double price = market_pool[pool].spot_h * exp(move);
        m->price[pool][d] = (float)fmin(price, market_pool[pool].price_h);
        move = move * (1 - PRICE_RETURNS) + PRICE_MOVES * rng_normal(&rng);
    }
    return true;
}

/* Adds what falls between two outages: each begins where the one before has ended, or later. */
static bool add_outage(struct line *l, double from_s, double to_s)
{
    if (l->count > 0 && l->at_s[l->count - 1] >= from_s) return true; /* within the one before */
    return line_add(l, from_s) && line_add(l, to_s);
}

static bool draw_api(struct market *m, uint32_t provider)
{
    struct rng rng, year;
    struct line *l = &m->api[provider];
    l->begins = true;
    rng_stream(&rng, m->seed, provider, API_TIMES);
    rng_stream(&year, m->seed, MARKET_PROVIDERS, API_TIMES);
    bool mine = rng_below(&year, MARKET_PROVIDERS) == provider;
    double long_s = rng_f64(&year) * YEAR_D * DAY_S;
    double at_s = rng_exp(&rng, SHORT_OUTAGE_AFTER_D * DAY_S);
    while (at_s < m->end_s || (mine && long_s < m->end_s)) {
        bool is_long = mine && long_s <= at_s;
        double from_s = is_long ? long_s : at_s;
        double lasts_s = is_long ? MARKET_LONG_OUTAGE_S
                                 : SHORT_OUTAGE_MIN_S + rng_exp(&rng, SHORT_OUTAGE_MORE_S);
        if (!add_outage(l, from_s, from_s + lasts_s)) return false;
        if (is_long)
            long_s += YEAR_D * DAY_S;
        else
            at_s += lasts_s + rng_exp(&rng, SHORT_OUTAGE_AFTER_D * DAY_S);
    }
    return true;
}

struct market *market_new(uint64_t seed, uint32_t days)
{
    struct market *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->seed = seed;
    m->days = days;
    m->end_s = days * DAY_S;
    bool fine = true;
    for (uint32_t k = 0; k < MARKET_POOLS && fine; k++) {
        for (uint32_t r = 0; r < REGIONS && fine; r++)
            fine = draw_region(m, k, r) && draw_stock(m, k, r);
        fine = fine && draw_price(m, k);
    }
    for (uint32_t p = 0; p < MARKET_PROVIDERS && fine; p++)
        fine = draw_api(m, p);
    if (fine) return m;
    market_free(m);
    return NULL;
}

void market_free(struct market *m)
{
    if (!m) return;
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        for (uint32_t z = 0; z < MARKET_ZONES; z++)
            free(m->spot[k][z].at_s);
        for (uint32_t r = 0; r < REGIONS; r++)
            free(m->stock[k][r].at_s);
        free(m->price[k]);
    }
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        free(m->api[p].at_s);
    free(m);
}

/* ---- readers ---- */

bool market_has(const struct market *m, uint32_t pool, uint32_t zone, bool spot, int64_t at_s)
{
    uint32_t region = market_provider[market_pool[pool].provider].region[zone];
    bool stocked = line_at(&m->stock[pool][region], (double)at_s);
    return stocked && (!spot || line_at(&m->spot[pool][zone], (double)at_s));
}

double market_price_h(const struct market *m, uint32_t pool, bool spot, int64_t at_s)
{
    if (!spot) return market_pool[pool].price_h;
    int64_t day = max_i64(0, at_s / (int64_t)DAY_S);
    return (double)m->price[pool][min_i64(day, m->days - 1)];
}

bool market_answers(const struct market *m, uint32_t provider, int64_t at_s)
{
    return line_at(&m->api[provider], (double)at_s);
}

static double next_of(const struct line *l, double at_s)
{
    uint32_t past = line_past(l, at_s);
    return past < l->count ? l->at_s[past] : HUGE_VAL;
}

int64_t market_next_s(const struct market *m, uint32_t pool, uint32_t zone, int64_t at_s)
{
    uint32_t region = market_provider[market_pool[pool].provider].region[zone];
    double least = fmin(next_of(&m->spot[pool][zone], (double)at_s),
                        next_of(&m->stock[pool][region], (double)at_s));
    return least < 1e15 ? (int64_t)ceil(least) : INT64_MAX;
}

double market_notice_s(const struct market *m, uint32_t pool, uint32_t zone, int64_t at_s)
{
    struct rng rng;
    rng_stream(&rng, m->seed ^ (uint64_t)at_s, zone_id(pool, zone), NOTICE);
    bool untold = rng_f64(&rng) < MARKET_UNTOLD;
    return untold ? 0 : market_provider[market_pool[pool].provider].notice_s;
}

double market_lead_s(uint32_t pool)
{
    return LOAD_S + market_provider[market_pool[pool].provider].boot_s;
}

double market_lead_of_s(const struct market *m, uint32_t pool, uint64_t launch)
{
    struct rng rng;
    rng_stream(&rng, m->seed, launch, LEAD);
    return market_lead_s(pool) * (1 + MARKET_LEAD_SPREAD * (2 * rng_f64(&rng) - 1));
}

bool market_loses_reply(const struct market *m, uint64_t call)
{
    struct rng rng;
    rng_stream(&rng, m->seed, call, LOSS);
    return rng_f64(&rng) < MARKET_LOST;
}
