/* flat_perf.c - learns nothing and estimates one constant. */
#include "tests/unit/engine/flat_perf.h"

static void flat_init(void *state, const struct perf_setup *setup)
{
    (void)state, (void)setup;
}

static void flat_observe(void *state, const struct perf_shape *shape, double seconds)
{
    (void)state, (void)shape, (void)seconds;
}

static double flat_step_s(const void *state, const struct perf_shape *shape)
{
    (void)state, (void)shape;
    return FLAT_STEP_S;
}

static void flat_coef(const void *state, struct perf_coef *ret)
{
    (void)state;
    *ret = (struct perf_coef){ .step_s = FLAT_STEP_S };
}

const struct perf_policy flat_perf = { .name = "flat",
                                       .state_size = 1,
                                       .init = flat_init,
                                       .observe = flat_observe,
                                       .step_s = flat_step_s,
                                       .coef = flat_coef };
