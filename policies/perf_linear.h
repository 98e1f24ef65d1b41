/* perf_linear.h - fit the step-time model online, one observed step at a time.
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
#include "policies/perf.h"

#define PERF_TERMS 5

struct perf_linear {
    struct perf_coef coef;               /* what others may use */
    double info[PERF_TERMS][PERF_TERMS]; /* weighted sum of x x', in scaled terms */
    double target[PERF_TERMS];           /* weighted sum of x y */
    double spread;                       /* running mean of |observed / expected - 1| */
    double drift;                        /* running mean of log(observed / expected) */
};

/* prior NULL: the default one, a small CPU model. samples of the prior are ignored. */
void perf_linear_init(struct perf_linear *fit, const struct perf_coef *prior);

/* Refuses (does nothing with) an empty shape and seconds that are not positive and finite. */
void perf_linear_observe(struct perf_linear *fit, const struct perf_shape *shape, double seconds);
