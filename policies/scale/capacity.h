/* capacity.h - computes the requests a second that one instance serves within the SLO.
 *
 * Layer: policies (base/core)
 *
 * A request of P prompt and O output tokens costs an instance, at the margin,
 *
 *     w = b P + e P^2 / 2 + c O + d (O P + O^2 / 2)   seconds; for many, with the moments of P and O
 *
 * and each step costs a fixed a besides. At r requests a second a step takes s = a / (1 - r w) and
 * holds N = r E[O] s sessions, each with E[O P + O^2 / 2] / E[O] tokens of KV, the mean over its
 * life. N is bounded by the sessions an instance runs at once and by its KV memory. Let u be the
 * share of its time and of its sessions that may be planned, p = b P + e P^2 / 2, and M the most
 * sessions. Then the instance serves the least of
 *
 *     u' / w                     u' = min(u, 1 - (a + w / E[O]) / TPOT, 1 - (a + p) / TTFT)
 *     u M / (E[O] a + u M w)     sessions
 *     u / S(N)                   prompts: S seconds each beside N decoding sessions, in chunks of
 *                                a step's tokens
 *
 * requests a second, and none where u' is not positive: there even a lone request misses the SLO.
 */
#pragma once
#include "policies/scale/view.h"

struct scale_load {
    double step_s;      /* a */
    double prefill_s;   /* b E[P] */
    double seq_s;       /* seconds that a decoding session adds to a step: c + d context */
    double work_s;      /* w */
    double output;      /* E[O], at least 1 */
    double context;     /* KV tokens of a session, mean over its life */
    double prefill_scv; /* squared coefficient of variation of a prompt's seconds */
    double prompt;      /* E[P], in tokens */
    double step_tokens; /* tokens of a step, decoding sessions included */
    double seqs_max;    /* sessions at once, by the limit or by KV memory; at least 1 */
};

/* Computes the load that requests of mean `lengths` (lengths_mean) put on an instance of the pool.
 * The KV memory is divided by the tokens that a session holds at its end, not by the mean over its
 * life: engines reserve the tokens still to come. */
void scale_load_of(const struct scale_pool *pool, const struct lengths *lengths,
                   struct scale_load *ret);

/* Returns the requests a second within TTFT and TPOT, as above; 0 when a lone request misses the
 * SLO. */
double scale_load_rate(const struct scale_load *l, double ttft_slo_s, double tpot_slo_s,
                       double utilisation_max);

/* Returns the requests a second that fill the share utilisation_max of an instance's time, whatever
 * their latency. It is used where no pool can keep the SLO. */
double scale_load_effort(const struct scale_load *l, double utilisation_max);

/* Returns the seconds of a step while n sessions decode and r prompts a second begin. */
double scale_load_step_s(const struct scale_load *l, double n, double r);

/* Returns the seconds of a prompt beside `batch` decoding sessions, each of which takes a token of
 * every step's budget; steps_more: steps to wait before the first chunk. */
double scale_load_prompt_s(const struct scale_load *l, double batch, double steps_more);
