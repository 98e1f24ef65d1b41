/* world.h - holds the truth that no policy sees: speeds, output lengths, chance.
 *
 * Layer:  simulator (policies, base/core)
 * Rules:  (1) in a run only this file reads how long an output is; besides, the files that make traces
 *             and judge predictors do
 *         (2) each number is a function of (seed, entity, purpose, position), so that two policies
 *             meet the same world whatever they ask first
 *
 *     step seconds = roofline(shape) * exp(bias of the instance + residual of the step)
 */
#pragma once
#include "base/perf/roofline.h"
#include "policies/scale/bound.h"
#include "simulator/config.h"

enum world_purpose {
    WORLD_BIAS = 1,
    WORLD_RESIDUAL,
    WORLD_ROUTER,
    WORLD_TIES,
    WORLD_LAUNCH,
    WORLD_MIGRATE,
    WORLD_ROLES
};

struct world {
    const struct trace *trace;
    uint32_t *output_tokens; /* by request: side by side, because every token asks for one */
    uint64_t seed;
    double bias_sigma, residual_sigma;
};

/* The trace is borrowed. -ENOMEM. */
int world_open(struct world *w, const struct trace *trace, const struct sim_config *sim);
void world_close(struct world *w);

/* The hidden side of one engine. */
struct world_engine {
    struct roofline roofline;
    bool has_step; /* measured coefficients replace the roofline */
    struct perf_coef step;
    double bias;   /* factor, about 1 */
    uint64_t seed; /* of its residuals */
    double residual_sigma;
};

void world_engine_init(const struct world *w, uint32_t instance, const struct sim_pool *pool,
                       const struct model_spec *model, struct world_engine *ret);

/* Returns the mean watts during a step; 0 where only its seconds were measured. */
double world_step_watts(const struct world_engine *e, const struct perf_shape *shape, double clock);

/* Returns the microseconds of the engine's `step`-th step; at least 1. */
int64_t world_step_us(const struct world_engine *e, const struct perf_shape *shape, uint64_t step,
                      double clock);

/* Returns true if token number `generated` (from 1) is the last of this request's output. */
static inline bool world_is_last(const struct world *w, uint32_t request, uint32_t generated)
{
    return generated >= w->output_tokens[request];
}

/* All requests of the run, for bounds that may know the future. -ENOMEM. */
struct world_future {
    int64_t *at_us; /* since the first */
    uint32_t *prompt_tokens, *output_tokens;
    struct scale_future view; /* of these arrays */
};
int world_future_make(const struct world *w, struct world_future *ret);
void world_future_fini(struct world_future *f);
