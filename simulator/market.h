/* market.h - generates spot markets: zones of three providers that sell five types of GPU, for as long as asked.
 *
 * Layer:    simulator (base/core)
 * Threads:  a market is read-only once it is made
 * Chance:   every zone, price and provider has a stream of its own, keyed by (seed, entity, purpose): two strategies
 *           meet the same market, and a longer one begins as a shorter one
 *
 * Up and down.  Spot capacity of a type in a zone is there or not, for all instances of it at once: of 2,635
 *   interruptions, those of one type and zone came within three minutes in 92 % of cases (arXiv 2604.16457). Mean times
 *   are those of five zones of the public V100 traces (skypilot-org/spot-traces, 45.5 days of nine zones: availability
 *   17 to 91 %, 94 to 343 drops a zone); each type in each zone is drawn as one of the five.
 * Shape.  Times are Weibull with a shape below 1, so that short ones come in runs between long ones: as the traces look
 *   to us, no paper gives a number. Assumed: MARKET_UP_SHAPE, MARKET_DOWN_SHAPE.
 * Together.  Zones of a region lose a type together: SkyServe (arXiv 2411.01438) spreads over regions because of it,
 *   and we found no share. Assumed: MARKET_TOGETHER of all losses are shocks to a region, which strike a zone by
 *   chance.
 * On demand.  Scarce types are sold out in runs, in a whole region; then there is no spot either. The source is prose
 *   (on AWS launches of A100 and H100 fail for hours or days without a reservation); mean times are assumed, in
 *   market_pool's table.
 * Prices.  prices/offers-2026-11.txt. A provider without a price in it asks what another asks for that type; spot
 *   without a price is MARKET_SPOT_SHARE of on demand, the mean of the pairs in that file. Spot moves day by day
 *   about its mean (assumed: 3 % a day, a stationary deviation of 9 %); on demand stays.
 * Notice.  EC2 two minutes, Compute Engine 30 s (their documents); Azure promises at least 30 s, and none is assumed
 *   for MARKET_UNTOLD of all losses anywhere, as notices are best effort.
 * Start-up.  100 s from the machine's boot until an engine serves (llm-d's measured warm-up) and the boot, assumed by
 *   provider; each launch takes up to MARKET_LEAD_SPREAD more or less.
 * API.  One outage of MARKET_LONG_OUTAGE_S a year at one provider (AWS, 20 October 2025: launches failed for eight
 *   hours); short ones of minutes once in a month (assumed). In an outage no call is answered. MARKET_LOST of all
 *   replies to creates and removes are lost (assumed).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define MARKET_PROVIDERS 3
#define MARKET_POOLS 8 /* a type at a provider */
#define MARKET_ZONES 3 /* of a provider */
#define MARKET_DAYS_MAX 3660
#define MARKET_UP_SHAPE 0.6
#define MARKET_DOWN_SHAPE 0.7
#define MARKET_TOGETHER 0.3
#define MARKET_SPOT_SHARE 0.47
#define MARKET_UNTOLD 0.1
#define MARKET_LEAD_SPREAD 0.2
#define MARKET_LONG_OUTAGE_S 28800
#define MARKET_LOST 0.002

struct market_provider {
    const char *name;
    const char *zone[MARKET_ZONES];
    uint32_t region[MARKET_ZONES]; /* zones of one region have the same number */
    double notice_s;
    double boot_s;
};
extern const struct market_provider market_provider[MARKET_PROVIDERS];

struct market_pool {
    const char *hardware; /* of the hardware table */
    uint32_t provider;
    double price_h, spot_h; /* means */
    double stocked_h;  /* mean hours between two times without stock on demand; 0: it never is */
    double sold_out_h; /* mean hours without */
};
extern const struct market_pool market_pool[MARKET_POOLS];

struct market;

/* Makes a market of so many days from 1 to MARKET_DAYS_MAX. NULL: no memory. */
struct market *market_new(uint64_t seed, uint32_t days);
void market_free(struct market *m);

/* Return the market's state `at_s` seconds after the beginning. Times beyond the end are as the end. */
bool market_has(const struct market *m, uint32_t pool, uint32_t zone, bool spot, int64_t at_s);
double market_price_h(const struct market *m, uint32_t pool, bool spot, int64_t at_s);
bool market_answers(const struct market *m, uint32_t provider, int64_t at_s);

/* Returns the next moment after at_s at which spot capacity there comes or goes; INT64_MAX: none. */
int64_t market_next_s(const struct market *m, uint32_t pool, uint32_t zone, int64_t at_s);

/* Returns the seconds of notice that a loss at at_s gives, 0 for none. */
double market_notice_s(const struct market *m, uint32_t pool, uint32_t zone, int64_t at_s);

/* Returns the seconds from the create call until the engine serves; `launch` tells launches apart. The mean is
 * market_lead_s. */
double market_lead_of_s(const struct market *m, uint32_t pool, uint64_t launch);
double market_lead_s(uint32_t pool);

/* Returns true if the reply to this create or remove is lost. */
bool market_loses_reply(const struct market *m, uint64_t call);
