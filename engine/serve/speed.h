/* speed.h - estimates how long the steps of a model take: a performance policy with its state, and what it says now.
 *
 * Layer:    engine/serve (policies/perf, engine/model)
 * Threads:  the device thread
 * Lifetime: speed_init to speed_fini; { 0 } may be ended too
 */
#pragma once
#include "base/core/err.h"
#include "engine/model/model.h"
#include "policies/perf/perf_model.h"

struct speed_config {
    const struct perf_policy *policy; /* NULL: the default for what is known */
    const struct hardware *hardware;  /* NULL: not known */
    uint32_t threads;
    double cpu_share; /* what the caller will throttle to, for the first estimates; 0: not */
};

struct speed {
    const struct perf_policy *policy;
    void *state;
    struct perf_coef coef; /* of the state */
    struct perf_coef now;  /* at `clock`, a share of full speed */
    double clock;
};

/* Returns the model's shape as the closed form of step times needs it. */
struct model_spec speed_spec(const struct model_info *m);

/* Starts the estimates: with the closed form where the hardware is known, else with a guess. -EINVAL: the model does
 * not fit the hardware; -ENOMEM. */
int speed_init(struct speed *s, const struct model_info *m, const struct speed_config *config,
               struct err *err);
void speed_fini(struct speed *s);

void speed_observe(struct speed *s, const struct perf_shape *shape, double seconds);
void speed_clock_set(struct speed *s, double clock); /* (0, 1] */
