/* linear.h - fits the linear step-time model online, one observed step at a time.
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
    struct perf_coef coef; /* the coefficients, for readers */
    struct perf_rls fit;
};

/* Starts from the prior; NULL: the default, a small CPU model. The prior's samples are ignored. */
void perf_linear_init(struct perf_linear *p, const struct perf_coef *prior);

/* Ignores an empty shape, and seconds that are not positive and finite. */
void perf_linear_observe(struct perf_linear *p, const struct perf_shape *shape, double seconds);
