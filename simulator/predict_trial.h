/* predict_trial.h - how well does a predictor foretell a trace? Each request is foretold, then
 * told.
 *
 * Layer: simulator (policies, base/core)
 * Rules: (1) prequential: a request is foretold from what had ended `delay_us` before it came
 *        (2) all policies are judged on all requests, the first included
 *        (3) an answer that its limit cut counts for time, not for judgement
 */
#pragma once
#include "simulator/trace.h"

struct predict_trial {
    uint32_t judged, follow_ups;
    /* Share of pairs ordered as they turned out, ties of foretelling half; < 0: no pair differs. */
    double concordance;
    double follow_concordance; /* among follow-ups; < 0: too few */
    double mae_tokens, true_mean_tokens;
    double p90_coverage;
    double decide_us, observe_us;      /* each, on average; 0 without a clock */
    double costly_share;               /* of policies with two stages */
    double extra_prompt, extra_output; /* tokens a request, on average */
};

/* `now_us` may be NULL. `state` receives what was learned: row->state_size bytes, initialised by
 * the caller, so that a saved state can go on learning. */
int predict_trial_run(const struct trace_features *f, const struct predict_policy *row,
                      int64_t delay_us, int64_t (*now_us)(void), void *state,
                      struct predict_trial *ret, struct err *err);

/* Share of `pairs` drawn pairs of unequal truth that `guess` orders alike; < 0 below two values. */
double predict_concordance(const double *guess, const double *truth, uint32_t count);
