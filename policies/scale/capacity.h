/* capacity.h - what one instance serves within the SLO, from the lengths that come.
 *
 * Layer: policies (base/core)
 *
 * A request of P prompt and O output tokens costs an instance, at the margin,
 *
 *     w = b P + e P^2 / 2 + c O + d (O P + O^2 / 2)   seconds; of many: with their moments
 *
 * and a step its fixed a besides. At r requests a second a step takes s = a / (1 - r w) and holds
 * N = r E[O] s sessions, each with E[O P + O^2 / 2] / E[O] tokens of KV: what a session holds, seen
 * over its time. N is bounded by the sessions an instance runs at once and by its KV memory. So
 * with u the share of its time and of its sessions that may be planned, p = b P + e P^2 / 2 and M
 * sessions at most, it serves the least of
 *
 *     u' / w                     u' = min(u, 1 - (a + w / E[O]) / TPOT, 1 - (a + p) / TTFT)
 *     u M / (E[O] a + u M w)     sessions
 *     u / S(N)                   prompts: S seconds each beside N that decode, in chunks of what
 *                                a step carries
 *
 * and nothing where u' is not positive: alone it misses the SLO.
 */
#pragma once
#include "policies/scale/view.h"

struct scale_load {
    double step_s;      /* a */
    double prefill_s;   /* b E[P] */
    double seq_s;       /* what a decoding session adds to a step: c + d context */
    double work_s;      /* w */
    double output;      /* E[O], at least 1 */
    double context;     /* KV tokens of a session, over its time */
    double prefill_scv; /* squared coefficient of variation of a prompt's seconds */
    double prompt;      /* E[P], in tokens */
    double step_tokens; /* that a step carries, decoding sessions included */
    double seqs_max;    /* sessions at once: the limit, or what the KV memory holds; at least 1 */
};

/* `lengths` are means (lengths_mean). The KV memory is divided by what a session holds in the
 * end, not over its time: engines reserve what is still to come. */
void scale_load_of(const struct scale_pool *pool, const struct lengths *lengths,
                   struct scale_load *ret);

/* Requests a second within TTFT and TPOT, as above; 0: alone it misses the SLO. */
double scale_load_rate(const struct scale_load *l, double ttft_slo_s, double tpot_slo_s,
                       double utilisation_max);

/* Requests a second at the share utilisation_max of its time whatever the SLO, as late as they
 * are: for where no pool can keep it. */
double scale_load_effort(const struct scale_load *l, double utilisation_max);

/* Seconds of a step with n sessions decoding and r prompts a second taken in. */
double scale_load_step_s(const struct scale_load *l, double n, double r);

/* Seconds of a prompt beside `batch` decoding sessions, which take a token of each step's budget;
 * steps_more: to wait before the first chunk. */
double scale_load_prompt_s(const struct scale_load *l, double batch, double steps_more);
