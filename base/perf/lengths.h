/* lengths.h - holds moments and a coarse histogram of request lengths.
 *
 * Layer:   base/perf (base/core)
 * Threads: pure functions over values
 */
#pragma once
#include <stdint.h>

#define LENGTH_BINS 12 /* the k-th holds lengths in [16 * 2^k, 32 * 2^k); the first from 1 */

/* Lengths of requests in tokens: prompts without their cached tokens, outputs as predicted. */
struct lengths {
    double count;                        /* requests counted; 0: absent */
    double age_s;                        /* of the newest request */
    double prompt, output;               /* means */
    double prompt_sq, output_sq, cross;  /* means of P^2, O^2 and P O */
    float bin[LENGTH_BINS][LENGTH_BINS]; /* by prompt, then output; sums to count */
};

/* lengths_add adds a request to sums (means times count); lengths_mean turns the sums into means. */
void lengths_add(struct lengths *l, double prompt, double output, double weight);
void lengths_mean(struct lengths *l);

/* Joins two distributions, each weighted by its count. */
void lengths_join(const struct lengths *a, const struct lengths *b, struct lengths *ret);

/* Return the length below which a share q of the prompts (outputs) stays, from the bins. */
double lengths_prompt_quantile(const struct lengths *l, double q);
double lengths_output_quantile(const struct lengths *l, double q);
