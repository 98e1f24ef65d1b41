/* pool_mix.h - asks a mix policy how many instances of each pool the expected load needs.
 *
 * Layer:   controller/core (policies)
 * Threads: pure; the room belongs to the caller
 * Rules:   (1) a pool is a type: its speed is the one its instances have measured (or the offer's
 *              prior), its price that of the offer that may be asked now. Which of a pool's offers
 *              is taken stays the placement policy's choice
 *          (2) without expected lengths, without arrivals, or when no mix serves the load, there are
 *              no counts, and the scaling policy's choice stands
 *          (3) spot counts with what its losses cost: the hours that they leave missing, from the losses an hour that
 *              the zone has shown since the controller started and the time until another instance serves, at the price
 *              that an hour has for the placement policy joint while it keeps the availability (PLACE_FINE). A pool
 *              whose zones last is so worth its price; spares are the placement policy's part
 *          (4) it moves only where that pays: instances that are there cost what they were bought for, others also
 *              their lead, spread over scale_config.life_s. A mix that keeps the present fleet, or adds to one pool,
 *              is held against the cheapest of all
 *          (5) the mix is solved every POOL_MIX_EVERY_US at most: it is for minutes, backlogs are the
 *              scaling policy's
 */
#pragma once
#include "policies/mix/mix.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"

#define POOL_MIX_EVERY_US 10000000
#define POOL_MIX_NODES_MAX 500 /* of the solver: a decision stays within milliseconds */

/* The last counts for one service, and the learned hazards of its zones. */
struct pool_mix {
    struct hazard zone[SCALE_POOLS_MAX][PLACE_OFFERS_MAX]; /* by pool and its offers */
    double missing_h
        [SCALE_POOLS_MAX]; /* what the losses of the offer that is taken next cost, dollars an hour */
    /* Those of the offers that there are instances of, mean. */
    double missing_kept_h[SCALE_POOLS_MAX];
    int64_t watched_us;
    int64_t solved_us; /* 0: never */
    bool found;
    uint32_t want[SCALE_POOLS_MAX];
};

/* Work memory of all services of one plan; over a megabyte, so it is the caller's. */
struct pool_mix_room {
    struct mix_problem problem;
    struct mix_verdict verdict;
    struct mix_memory memory;
};

/* Updates the hazards from a pool's offers, `dt_h` hours after they were watched last. `next` is the
 * offer that is taken next (PLACE_NONE: none). */
void pool_mix_watch(struct pool_mix *last, uint32_t pool, const struct place_view *offers,
                    uint32_t next, double dt_h, int64_t now_us);

/* Solves the mix if it is due, and updates *last. */
void pool_mix_solve(const struct mix_policy *policy, const struct scale_view *view,
                    const struct scale_config *config, int64_t now_us, struct pool_mix_room *room,
                    struct pool_mix *last);
