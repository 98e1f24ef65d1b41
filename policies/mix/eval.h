/* eval.h - the evaluator of plans: how much one instance serves within an SLO, in closed
 * form.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure
 *
 * An instance under a steady stream of r requests a second (prompts of P tokens, answers of O) runs
 * steps of s seconds that hold, by Little's law, n = r O s decoding sessions of P + O / 2 tokens and
 * q = r P s tokens of prompts:
 *
 *     s = step_seconds(q prompt tokens, n sessions, their KV)         the smallest fixed point
 *
 * The SLO is kept for nine requests in ten (EVAL_QUANTILE). Requests come in bunches, so that the
 * step s' is that of the rate which nine lives T = O s in ten stay below,
 *
 *     r' = r + 1.28 sqrt(2 r / T)       Poisson arrivals whose requests differ in work, C2 = 1
 *
 *     TPOT  s' <= slo_tpot
 *     TTFT  wait + own <= slo_ttft,   own = half a step until it is looked at, the steps that a long
 *           prompt of the bucket (1.4 times the mean) takes, at s' each, and what its own tokens add;
 *           wait as of a queue with one server (Pollaczek-Khinchine with C2 = 1), its quantile by
 *           the exponential tail
 *     KV    n (P + O / 2) at r' <= the tokens that fit;  n <= EVAL_SEQS_MAX
 *
 * An instance by itself: a fleet whose router evens out bunches does somewhat better.
 * The rate is found by bisection: all four grow with r.
 */
#pragma once
#include "base/perf/roofline.h"
#include "policies/mix/mix.h"

#define EVAL_QUANTILE 0.9
#define EVAL_SEQS_MAX 256      /* sequences of a step, as engines ship */
#define EVAL_CHUNK_TOKENS 2048 /* prompt tokens of a step */

/* What the types of a mix are; `ctx` of eval_score. */
struct eval_fleet {
    struct roofline type[MIX_TYPES_MAX];
    double slo_ttft_s, slo_tpot_s;
};

/* A mix_eval_fn. */
void eval_score(const void *fleet, uint32_t type, const struct mix_bucket *work,
                struct mix_score *ret);

/* TTFT and TPOT at `rate_s`; false when the instance cannot take it. */
bool eval_at(const struct roofline *r, const struct mix_bucket *work, double rate_s,
             struct mix_score *ret);
