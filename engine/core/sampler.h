/* sampler.h - choose the next token from the logits.
 *
 * Layer:    engine/core (base/core, libm)
 * Threads:  a sampler (scratch for one vocabulary) belongs to one thread
 * Rules:    (1) a function of (logits, parameters, tokens so far, position): the random number
 *               is rng_at(seed, position), so alone, batched, preempted or continued elsewhere
 *               the same token comes out
 *           (2) every sum runs in a fixed order: by descending logit and ascending id where
 *               tokens are filtered, by ascending id where none is
 *           (3) equal logits: the lowest id wins
 *
 *     logits -> penalties, forbidden tokens -> temperature -> top-k -> top-p -> min-p
 *
 * Log-probabilities are those of the model: of the logits as they came, before all of this.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"

#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_LOGPROBS_MAX 20 /* alternatives a client may ask for */

/* { 0 } with temperature 0 is greedy without any filter: repetition_penalty 0 means 1. */
struct sampler_params {
    float temperature; /* below SAMPLER_GREEDY_BELOW: the highest logit */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 0 or >= 1: all; the smallest set that reaches it, at least one token */
    float min_p;       /* drop tokens less likely than this share of the likeliest */
    float repetition_penalty; /* over prompt and answer; divides positive, multiplies negative */
    float presence_penalty;   /* over the answer; subtracted once */
    float frequency_penalty;  /* over the answer; subtracted per occurrence */
    uint64_t seed;
    uint32_t logprobs; /* alternatives wanted, at most SAMPLER_LOGPROBS_MAX */
    bool want_logprob; /* of the chosen token; implied by logprobs > 0 */
};

#define SAMPLER_GREEDY_BELOW 1e-5f

struct sampler_input {
    const float *logits; /* vocabulary-size; not changed */
    const uint32_t *ids; /* prompt, then the answer so far */
    uint32_t prompt_count, count;
    const uint32_t *forbidden; /* ids that must not be chosen now (end tokens under min_tokens) */
    uint32_t forbidden_count;
};

struct sampler_choice {
    uint32_t id;
    float logprob; /* when asked for */
};

struct sampler_result {
    struct sampler_choice chosen;
    struct sampler_choice top[SAMPLER_LOGPROBS_MAX]; /* likeliest first */
    uint32_t top_count;
};

struct sampler;

int sampler_new(uint32_t vocab_size, struct sampler **ret); /* -ENOMEM */
void sampler_free(struct sampler *s);
CLEANUP_FREEP(sampler, struct sampler)

/* The position of the random number is in->count: the place of the new token in its sequence.
 * -EDOM when no token can be chosen: the logits hold nothing finite. */
int sampler_pick(struct sampler *s, const struct sampler_params *p, const struct sampler_input *in,
                 struct sampler_result *ret);
