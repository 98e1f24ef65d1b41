/* sampler.h - chooses the next token from the logits, over a ranking of the likeliest tokens.
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

/* Tokens from the likeliest down, as many as are asked for.
 *
 * Threads:  a ranking (scratch for one vocabulary) belongs to one thread
 * Order:    higher logit first, then lower id; what is not above -infinity is left out, NaN too
 * Cost:     a few are popped off a heap; from 1/RANKING_POPS of the vocabulary on, the rest is
 *           sorted by its bits. So all of it costs a constant times the vocabulary, not its
 *           logarithm more: about RANKING_MOVES_MAX moves of an element for each token
 */

#define RANKING_POPS 64
#define RANKING_MOVES_MAX 8 /* a token, on the average */

struct ranked {
    float logit;
    uint32_t id;
};

struct ranking {
    uint32_t vocab_size;
    const float *logit;   /* of ranking_begin */
    struct ranked *heap;  /* then the one of the two that is sorted into */
    struct ranked *spare; /* sorted, once that was done */
    uint32_t count;       /* in the heap, or in all where it is sorted */
    uint32_t pops, next;
    bool sorted;
    struct ranked last; /* given out */
    uint64_t moves;     /* of elements, ever: what it has cost */
};

int ranking_init(struct ranking *r, uint32_t vocab_size); /* -ENOMEM; ranking_fini also then */
void ranking_fini(struct ranking *r);

/* `logit` (vocab_size of them) is read until the next begin. Returns how many can be given out. */
uint32_t ranking_begin(struct ranking *r, const float *logit);
struct ranked ranking_next(struct ranking *r); /* at most so many times */
