/* cmd_plan_load.h - models that come and go on a few machines, and where the policies of load_table start them.
 *
 * Layer: cli (policies, simulator/stats)
 * World: (1) models are alike in size and asked for at Poisson times, model number models * u^skew
 *            with u even in [0, 1): a skew of 1 asks for all of them alike
 *        (2) a machine keeps the models that it loaded last, in_memory of them in memory and on_disk in
 *            all; a store has every model. Loads of one machine come one after the other
 *        (3) what an instance does once it serves is not looked at: accelerators are there for all
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

/* Seconds from a model's being asked for to its engine's being ready. */
struct weight_loads_result {
    struct stats_quantiles start_s;
    double share[LOAD_TIER_COUNT]; /* of the loads, by where they came from */
};

/* One run; equal seeds meet the same requests. -ENOMEM. */
int weight_loads_run(const struct weight_loads_work *w, const struct load_policy *policy,
                     uint64_t seed, struct weight_loads_result *ret, struct err *err);
