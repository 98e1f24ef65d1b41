/* eval.h - estimates in closed form how many requests a second one instance serves within an SLO.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure
 *
 * An instance gets a steady stream of r requests a second, with prompts of P tokens and outputs of
 * O. By Little's law its steps of s seconds hold n = r O s decoding sessions of P + O / 2 tokens
 * and q = r P s tokens of prompts:
 *
 *     s = step_seconds(q prompt tokens, n sessions, their KV)         the smallest fixed point
 *
 * The SLO is to hold for nine requests in ten (EVAL_QUANTILE). Requests come in bunches, so the
 * step s' is computed at the rate r' that is exceeded during one request life T = O s in ten:
 *
 *     r' = r + 1.28 sqrt(2 r / T)       Poisson arrivals whose requests differ in work, C2 = 1
 *
 *     TPOT  s' <= slo_tpot
 *     TTFT  wait + own <= slo_ttft,   own = half a step until the request is seen, the steps
 *           of a long prompt of the bucket (1.4 times the mean), at s' each, and the cost of its
 *           own tokens;
 *           wait: the quantile of a queue with one server (Pollaczek-Khinchine with C2 = 1), by
 *           the exponential tail
 *     KV    n (P + O / 2) at r' <= the tokens that fit;  n <= EVAL_SEQS_MAX
 *
 * This is one instance by itself: in a fleet the router evens out bunches, which serves somewhat
 * more. The rate is found by bisection, because all four grow with r.
 */
#pragma once
#include "base/perf/roofline.h"
#include "policies/mix/mix.h"

#define EVAL_QUANTILE 0.9
#define EVAL_SEQS_MAX 256      /* sequences of a step, as engines ship */
#define EVAL_CHUNK_TOKENS 2048 /* prompt tokens of a step */

/* The hardware of each type and the SLO; `ctx` of eval_score. */
struct eval_fleet {
    struct roofline type[MIX_TYPES_MAX];
    double slo_ttft_s, slo_tpot_s;
};

/* Finds the highest rate within the SLO; a mix_eval_fn. */
void eval_score(const void *fleet, uint32_t type, const struct mix_bucket *work,
                struct mix_score *ret);

/* Estimates TTFT and TPOT at `rate_s`; returns false if the instance cannot take it. */
bool eval_at(const struct roofline *r, const struct mix_bucket *work, double rate_s,
             struct mix_score *ret);
