/* linear.h - fit the linear step-time model online, one observed step at a time.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the state belongs to its caller, is of fixed size and may be copied
 *
 *     struct perf_linear fit;
 *     perf_linear_init(&fit, NULL);
 *     perf_linear_observe(&fit, &shape, seconds);      after every step
 *     perf_step_s(&fit.coef, &shape)                   whenever an estimate is wanted
 */
#pragma once
#include "base/perf/perf.h"
#include "policies/perf/perf_model.h"

struct perf_linear {
    struct perf_coef coef; /* what others may use */
    struct perf_rls fit;
};

/* prior NULL: the default one, a small CPU model. samples of the prior are ignored. */
void perf_linear_init(struct perf_linear *p, const struct perf_coef *prior);

/* Refuses (does nothing with) an empty shape and seconds that are not positive and finite. */
void perf_linear_observe(struct perf_linear *p, const struct perf_shape *shape, double seconds);
