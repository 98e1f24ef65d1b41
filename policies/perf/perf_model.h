/* perf_model.h - the interface of performance policies, which estimate the seconds of a step.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the engine's device thread, a router's or planner's, or the simulator calls
 * Rules:   (1) state is plain bytes of a fixed size, without pointers: it can be saved and copied,
 *              and only init and observe write it
 *          (2) observe ignores an empty shape, and seconds that are not positive and finite
 *          (3) coef gives a linear surrogate for readers that cannot call the policy
 *
 * Least squares (rls) learns seconds as a sum of terms online, one step at a time. Its state
 * belongs to its caller, is of fixed size and may be copied.
 *
 *     seconds = value[0] x[0] + ... + value[4] x[4],   no value below 0
 *
 * The policy chooses the terms: counts of tokens (linear), parts of a roofline (roofline_residual). They
 * are scaled so that values are of one size.
 */
#pragma once
#include "base/perf/perf.h"
#include "base/perf/roofline.h"

#include <stdint.h>

#define PERF_STATE_BYTES_MAX 8192

/* Knowledge before the first step. */
struct perf_setup {
    const struct roofline *roofline; /* NULL: hardware or model is unknown */
    const struct perf_coef *prior;   /* NULL: the policy's own prior */
};

struct perf_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size; /* at most PERF_STATE_BYTES_MAX */
    bool needs_roofline;
    void (*init)(void *state, const struct perf_setup *setup);
    void (*observe)(void *state, const struct perf_shape *shape, double seconds);
    double (*step_s)(const void *state, const struct perf_shape *shape);
    void (*coef)(const void *state, struct perf_coef *ret);
    /* Optional: returns the mean watts at a clock in (0, 1]; NULL: the policy has no estimate. */
    double (*watts)(const void *state, const struct perf_shape *shape, double clock);
};

#define POLICY(name) extern const struct perf_policy perf_##name;

#include "policies/perf/perf.def"
#undef POLICY

extern const struct perf_policy *const perf_table[];
extern const uint32_t perf_count;

#define PERF_DEFAULT "roofline_residual"
#define PERF_DEFAULT_UNKNOWN "linear" /* where the hardware is unknown */

const struct perf_policy *perf_find(struct str name); /* NULL when there is none */

/* Functions that policies share (perf_model.c). */

/* Moves the running 0.9 quantile of observed / estimated seconds by one observation (Robbins and
 * Monro): up by nine tenths of a step when it is exceeded, else down by one tenth. The caller
 * starts it at 1. */
void perf_track_p90(double *p90, double ratio);

static inline bool perf_shape_empty(const struct perf_shape *s)
{
    return s->prefill_tokens == 0 && s->decoding_seqs == 0;
}

#define PERF_TERMS 5

struct perf_rls {
    double value[PERF_TERMS];            /* the learnt sizes of the terms */
    double info[PERF_TERMS][PERF_TERMS]; /* weighted sum of x x' */
    double target[PERF_TERMS];           /* weighted sum of x y */
    double spread;                       /* running mean of |observed / expected - 1| */
    double drift;                        /* running mean of log(observed / expected) */
    uint64_t free_set;                   /* one bit for each term that is not held at 0 */
    double samples;                      /* steps observed */
    double ratio_p90; /* nine steps in ten take at most this many times the estimate */
};

/* Starts from the prior, which weighs as much as prior_steps steps. */
void perf_rls_init(struct perf_rls *fit, const double prior[PERF_TERMS], double prior_steps);

/* Learns from one step. Ignores seconds that are not positive and finite. Some x must be above 0. */
void perf_rls_observe(struct perf_rls *fit, const double x[PERF_TERMS], double seconds);
