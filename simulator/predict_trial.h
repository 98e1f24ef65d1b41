/* predict_trial.h - measures how well a predictor predicts the output lengths of a trace.
 *
 * Layer: simulator (policies, base/core)
 * Rules: (1) prequential: a request is predicted from the requests that had arrived `delay_us` before
 *            it, and then observed
 *        (2) all policies are judged on all requests, the first included
 *        (3) an output that its limit cut counts for time, not for judgement
 */
#pragma once
#include "simulator/trace.h"

struct predict_trial {
    uint32_t judged, follow_ups;
    /* Share of pairs that the prediction orders right, its ties half; < 0: no pair differs. */
    double concordance;
    double follow_concordance; /* among follow-ups; < 0: too few */
    double mae_tokens, true_mean_tokens;
    double p90_coverage;
    double decide_us, observe_us;      /* each, on average; 0 without a clock */
    double costly_share;               /* of policies with two stages */
    double extra_prompt, extra_output; /* tokens a request, on average */
};

/* Runs the trial. `now_us` may be NULL. `state` receives the learned state: row->state_size bytes,
 * initialised by the caller, so that a saved state can go on learning. */
int predict_trial_run(const struct trace_features *f, const struct predict_policy *policy,
                      int64_t delay_us, int64_t (*now_us)(void), void *state,
                      struct predict_trial *ret, struct err *err);

/* Returns the share of drawn pairs of unequal truth that `guess` orders alike; < 0: there is no such
 * pair. */
double predict_concordance(const double *guess, const double *truth, uint32_t count);
