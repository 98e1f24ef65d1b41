/* rls.h - seconds as a sum of terms whose sizes are learnt online, one step at a time.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the state belongs to its caller, is of fixed size and may be copied
 *
 *     seconds = value[0] x[0] + ... + value[4] x[4],   no value below 0
 *
 * What the terms are is the policy's: counts of tokens (perf_linear), parts of a roofline
 * (perf_roofline_residual). They are scaled so that values are of one size.
 */
#pragma once
#include <stdint.h>

#define PERF_TERMS 5

struct perf_rls {
    double value[PERF_TERMS];            /* what is learnt */
    double info[PERF_TERMS][PERF_TERMS]; /* weighted sum of x x' */
    double target[PERF_TERMS];           /* weighted sum of x y */
    double spread;                       /* running mean of |observed / expected - 1| */
    double drift;                        /* running mean of log(observed / expected) */
    uint64_t free_set;                   /* terms that are not held at 0, a bit each */
    double samples;                      /* steps observed */
    double ratio_p90; /* nine steps in ten took at most this many times the estimate */
};

/* The prior weighs as much as prior_steps steps. */
void perf_rls_init(struct perf_rls *fit, const double prior[PERF_TERMS], double prior_steps);

/* Does nothing with seconds that are not positive and finite. Some x is above 0. */
void perf_rls_observe(struct perf_rls *fit, const double x[PERF_TERMS], double seconds);
