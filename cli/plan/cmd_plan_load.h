/* cmd_plan_load.h - simulates models that come and go on a few machines, where load policies start them.
 *
 * Layer: cli (policies, simulator/stats)
 * World: (1) models are equal in size and requested at Poisson times, model number models * u^skew
 *            with u uniform in [0, 1): a skew of 1 requests all of them alike
 *        (2) a machine keeps the models that it loaded last, in_memory of them in memory and on_disk in
 *            all; a store has every model. Loads of one machine run one after the other
 *        (3) instances that serve are not simulated: there are accelerators for all
 */
#pragma once
#include "base/core/err.h"
#include "policies/load/load.h"
#include "simulator/stats.h"

#define WEIGHT_LOADS_MODELS_MAX 4096
#define WEIGHT_LOADS_MAX 100000

struct weight_loads_work {
    double model_bytes, bytes_s[LOAD_TIER_COUNT], start_s;
    uint32_t machines, models, in_memory, on_disk;
    double rate_s, skew;
    uint32_t loads; /* of one run */
};

/* The result of a run. */
struct weight_loads_result {
    struct stats_quantiles start_s; /* from a request for a model until its engine is ready */
    double share[LOAD_TIER_COUNT];  /* of the loads, by the tier they came from */
};

/* Simulates one run; equal seeds have the same requests. -ENOMEM. */
int weight_loads_run(const struct weight_loads_work *w, const struct load_policy *policy,
                     uint64_t seed, struct weight_loads_result *ret, struct err *err);
